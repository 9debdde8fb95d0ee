"""Which versions of Slurm EJB is tested with, and what is known of some of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

Check = tuple[str, bool, str]
Version = tuple[int, ...]

OLDEST: Version = (22, 5)
TRIED = ("22.05.8", "23.02.8", "23.11.11", "24.05.8", "24.11.7", "25.05.8", "25.11.7", "26.05.3")
"""The versions that `docs/slurm.md` has a row of; tests/recorded/slurm has the answers of each."""

_VERSION = re.compile(r"\b([0-9]{2})\.([0-9]{1,2})(?:\.([0-9]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the versions from `first` to `last` (None: all later ones, too), and concerns a site."""

    first: Version
    last: Version | None
    text: str

    def is_of(self, version: Version) -> bool:
        return self.first <= version and (self.last is None or version <= self.last)


_BLOCKED = (
    "srun's tasks inherit SIGCHLD blocked, so that a program which waits for that signal hangs; EJB's workers unblock "
    "it for themselves and their ranks, ordinary jobs have it until Slurm 25.11.1"
)
KNOWN = (
    Known((25, 5, 0), (25, 5, 8), _BLOCKED),
    Known((25, 11, 0), (25, 11, 0), _BLOCKED),
    Known(
        (23, 11),
        None,
        "batch scripts have HYDRA_BOOTSTRAP and I_MPI_HYDRA_BOOTSTRAP, by which mpiexec of MPICH and Intel MPI start "
        "their proxies with srun",
    ),
    Known((26, 5), None, "a partition says by Exclusive=NODE what OverSubscribe=EXCLUSIVE said before"),
)
"""Each entry was seen in the source or on a Slurm of these versions."""


def parse_version(text: str) -> Version | None:
    """`slurm 25.11.0-0rc1` or `22.05.8` -> (25, 11, 0), (22, 5, 8); None where there is none."""
    found = _VERSION.search(text)
    return tuple(int(word) for word in found.groups() if word is not None) if found else None


def check_version(client: str, controller: str) -> Check:
    """Judge `sbatch --version` and the SLURM_VERSION of the controller ("" where it does not tell)."""
    ours, theirs = parse_version(client), parse_version(controller)
    version = theirs or ours
    if version is None:
        return "version", False, f"{client.strip()!r} names no version: EJB is for Slurm 22.05 or later"
    name = "Slurm " + _format_version(version)
    if version < OLDEST:
        return "version", False, f"{name}: EJB needs 22.05 or later"
    if ours is not None and ours[:2] > version[:2]:
        text = (
            f"{name} is the controller, and the commands here are newer ({_format_version(ours)}), which Slurm forbids"
        )
        return "version", False, text
    tried = next((one for one in TRIED if parse_version(one)[:2] == version[:2]), "")  # type: ignore[index]
    words = [f"{name}, tried as {tried}" if tried else f"{name} is not one of those tried ({', '.join(TRIED)})"]
    if ours is not None and ours[:2] != version[:2]:
        words.append(f"the commands here are of {_format_version(ours)}")
    return "version", True, "; ".join([*words, *(one.text for one in KNOWN if one.is_of(version))])


def _format_version(version: Version) -> str:
    year, month, *rest = version
    return ".".join([f"{year}.{month:02d}", *map(str, rest)])
