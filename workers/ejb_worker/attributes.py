"""What a process has from the one that starts it, beside its environment: umask, resource limits, niceness.

srun gives some of that to its ranks, wherever they run, and so does a launch here: the shim reads its own, the lead
keeps in the launch file what its launcher would hand on, and each rank is started with it at every placement.
"""

from __future__ import annotations

import os
import resource
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

LIMITS = ("as", "core", "cpu", "data", "fsize", "memlock", "nofile", "nproc", "rss", "stack")
"""Those that Slurm knows, by their names in `resource.RLIMIT_...`."""
_ALL, _NONE = "all", "none"


class Propagation:
    """What the site's launcher hands on: `limits` by their names, and whether niceness."""

    __slots__ = ("limits", "nice")

    def __init__(self, limits: Sequence[str], nice: bool = False) -> None:
        self.limits = tuple(limits)
        self.nice = nice


def parse_limits(text: str) -> List[str]:
    """`all`, `none`, or names of limits, as `--propagate` has them. Raises ValueError (the word that is no limit)."""
    words = text.lower().split(",")
    for word in words:
        if word not in (_ALL, _NONE) and word not in LIMITS:
            raise ValueError(word.upper())
    if _NONE in words:
        return []
    return list(LIMITS) if _ALL in words else [name for name in LIMITS if name in words]


def read_own_attributes() -> Dict[str, Any]:
    """This process's: `umask`, `limits` (soft and hard by name, -1: unlimited) and `nice`."""
    mask = os.umask(0o077)
    os.umask(mask)
    limits = {name: list(resource.getrlimit(_number_of(name))) for name in LIMITS}
    return {"umask": mask, "limits": limits, "nice": os.getpriority(os.PRIO_PROCESS, 0)}


def attributes_handed_on(
    launcher: str, own: Mapping[str, Any], asked: Optional[Sequence[str]], site: Optional[Propagation]
) -> Dict[str, Any]:
    """Of its caller's attributes those that a launcher gives to its ranks: `umask`, `limits` (soft, and hard or None),
    `nice`, and `asked`, the limits that the launch named itself (None: none).

    `site` None: nothing is said. Then mpirun starts its ranks from itself, and they have all.
    """
    if launcher == "pbsdsh":
        return {}  # its tasks are started by the batch system's own daemon
    inherits = site is None and launcher != "srun"
    names = asked if asked is not None else LIMITS if site is None else site.limits
    limits = {name: [own["limits"][name][0], own["limits"][name][1] if inherits else None] for name in names}
    found: Dict[str, Any] = {"umask": own["umask"], "limits": limits}
    if inherits or (site is not None and site.nice):
        found["nice"] = own["nice"]
    if asked is not None:
        found["asked"] = list(asked)
    return found


class Attributes:
    """What a new process is to have, read from a launch file. Raises ValueError or TypeError where it cannot be read.

    It is set by the process itself, with the rights of its user: no hard limit is raised.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        umask, nice = told.get("umask"), told.get("nice")
        self._umask = None if umask is None else int(umask) & 0o777
        self._nice = None if nice is None else int(nice)
        self._asked = frozenset(told.get("asked") or ())
        self._limits: List[Tuple[str, int, int, Optional[int]]] = []
        for name, (soft, hard) in (told.get("limits") or {}).items():
            self._limits.append((name, _number_of(name), int(soft), None if hard is None else int(hard)))

    def set_here(self) -> None:
        """In the new process, before its program. What cannot be set stays as it is; Slurm says so of what was asked
        for by name alone."""
        if self._umask is not None:
            os.umask(self._umask)
        if self._nice is not None:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, self._nice)
            except OSError:
                pass
        for name, number, soft, hard in self._limits:
            most = resource.getrlimit(number)[1]
            if name in self._asked and _lower_of(soft, most) != soft:
                os.write(2, _REFUSED % (name.upper().encode("ascii"), b"%d" % soft if soft >= 0 else b"'unlimited'"))
                continue
            most = most if hard is None else _lower_of(hard, most)
            try:
                resource.setrlimit(number, (_lower_of(soft, most), most))
            except (OSError, ValueError):
                pass

    def most_files(self) -> int:
        """How many files the process may have open at most; -1: no limit."""
        own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        return next((_lower_of(soft, most) for name, _, soft, _ in self._limits if name == "nofile"), own)


def attributes_of(pid: int) -> Dict[str, Any]:
    """What a process has made of its own: `umask` and `nice`. Raises OSError where it is gone."""
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as status:
        mask = next((line.split()[1] for line in status if line.startswith("Umask:")), None)
    found: Dict[str, Any] = {} if mask is None else {"umask": int(mask, 8)}
    return {**found, "nice": os.getpriority(os.PRIO_PROCESS, pid)}


_REFUSED = b"slurmstepd: error: Can't propagate RLIMIT_%s of %s from submit host: Invalid argument\n"


def _number_of(name: str) -> int:
    if name not in LIMITS:
        raise ValueError("%s is no resource limit" % name)
    return int(getattr(resource, "RLIMIT_" + name.upper()))


def _lower_of(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)
