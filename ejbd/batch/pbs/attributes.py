"""The listings in which every attribute has a line: `qstat -Qf`, `qstat -Bf` and `pbs_rstat -F`, in both dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ejbd.batch.pbs import states

_HEAD = re.compile(r"(Queue|Server|Resv ID): (\S+)")
_LINE = re.compile(r"\s*([A-Za-z_][\w.]*) = (.*)", re.DOTALL)


def blocks(text: str) -> dict[str, dict[str, str]]:
    """What is listed, by its name: its attributes. A line that begins with a tab goes on with the one before."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    key = ""
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line.rstrip()):
            current, key = found.setdefault(head[2], {}), ""
        elif current is not None and line.startswith("\t") and key:
            current[key] += line.removeprefix("\t")
        elif current is not None and (match := _LINE.fullmatch(line)):
            key = match[1]
            current[key] = match[2]
        else:
            key = ""
    return {name: {key: value.strip() for key, value in each.items()} for name, each in found.items()}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """An execution queue: what it takes, and what of the nodes it uses (`needs`: a property of Torque's)."""

    name: str
    up: bool
    max_walltime_s: float | None
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """What changes rarely: queues and the server's settings."""

    queues: tuple[QueueRow, ...] = ()
    default_queue: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


def queues(text: str) -> tuple[QueueRow, ...]:
    """The execution queues; those of reservations and routing queues are left out."""
    found = []
    for name, settings in blocks(text).items():
        if not settings.get("queue_type", "Execution").startswith("E") or re.fullmatch(r"[RSM][0-9]+", name):
            continue
        limit = settings.get("resources_max.walltime")
        try:
            limit_s = states.seconds(limit) if limit else None
        except ValueError:
            limit_s = None
        up = settings.get("enabled") == "True" and settings.get("started") == "True"
        found.append(QueueRow(name, up, limit_s, settings.get("resources_default.neednodes", "")))
    return tuple(found)


def server(text: str) -> dict[str, str]:
    """The settings of the (first) server; nothing where there is none."""
    return next(iter(blocks(text).values()), {})


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Nodes that are kept for somebody, from when until when. `nodes`: processors by host."""

    name: str
    start_s: float
    end_s: float
    nodes: Mapping[str, int]
    owner: str = ""

    @property
    def what(self) -> str:
        """Maintenance bears a name of its own: M12 with OpenPBS (pbs_rsub --hosts), SYSTEM.0 with Maui (setres)."""
        return "maintenance" if re.match(r"M[0-9]|SYSTEM\b", self.name) else "reservation"


def reservations(text: str) -> tuple[list[ReservationRow], int]:
    """`pbs_rstat -F`: those that are confirmed or running, and the number of those that cannot be read."""
    found, unparsed = [], 0
    for name, settings in blocks(text).items():
        if settings.get("reserve_state", "") not in _KEPT:
            continue
        try:
            vnodes = states.exec_vnodes(settings.get("resv_nodes", ""))
            hosts: dict[str, int] = {}
            for vnode, processors in vnodes.items():
                host = states.vnode_host(vnode)
                hosts[host] = hosts.get(host, 0) + processors
            start, end = states.epoch_s(settings["reserve_start"]), states.epoch_s(settings["reserve_end"])
            found.append(ReservationRow(name, start, end, hosts, settings.get("Reserve_Owner", "").partition("@")[0]))
        except (KeyError, ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


_KEPT = frozenset({"RESV_CONFIRMED", "RESV_RUNNING", "RESV_TIME_TO_RUN", "RESV_DEGRADED", "RESV_BEING_ALTERED"})
