"""MPI ranks that do not find each other. Each of them says that it is rank 0 of 1, does all the work, and ends with 0.

It happens to Open MPI's behind a script (they ask for PMIx, and only their own mpirun has it). It happens to MPICH's
with an environment that was cleared on the way. Nothing says so from outside, so the worker reads what its ranks have
loaded.
"""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Set

_OPEN_MPI = (b"/libmpi.so.40", b"/libmpi.so.20")
_MPICH = (b"/libmpich.so", b"/libmpi.so.12")
_OF_MPIRUN = (b"OMPI_COMM_WORLD_SIZE=", b"PMIX_NAMESPACE=", b"PMIX_RANK=")
_OF_PMI = (b"PMI_PORT=", b"PMI_FD=", b"PMI_RANK=")

# What Open MPI 4 says in an environment like srun's, which has no PMIx for it.
_REFUSED = b'have been direct launched using "srun"'
_TAIL = 16384

OPEN_MPI = (
    "Open MPI's ranks cannot be started one by one, and each would be rank 0 of 1: one mpirun has to start them all. "
    "Submit with --mpi openmpi, or build the program with MPICH"
)
CLEARED = (
    "MPI ranks were started without PMI_PORT and PMI_ID, and each would be rank 0 of 1: what stands between the launch "
    "and the program (env -i, sudo, a container that keeps its own environment) has to hand these variables on"
)


def alone(groups: Iterable[int]) -> str:
    """Why the processes of these groups are MPI ranks that know nothing of each other, or "" where none is."""
    for pid in _members(set(groups)):
        if _loaded(pid, _OPEN_MPI):
            if _surely_without(pid, _OF_MPIRUN, _OPEN_MPI):
                return OPEN_MPI
        elif _loaded(pid, _MPICH) and _surely_without(pid, _OF_PMI, _MPICH):
            return CLEARED
    return ""


def _loaded(pid: int, marks: Iterable[bytes]) -> bool:
    maps = _read("/proc/%d/maps" % pid)
    return any(mark in maps for mark in marks)


def _surely_without(pid: int, names: Iterable[bytes], marks: Iterable[bytes]) -> bool:
    """Whether a program that has loaded an MPI has none of these variables. One that is ending has none either: then
    its libraries are gone when they are looked for once more."""
    return not _has(pid, names) and _loaded(pid, marks)


def refused(errors: str) -> str:
    """The same by what a rank that failed has written to its standard error."""
    try:
        with open(errors, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            return OPEN_MPI if _REFUSED in file.read(_TAIL) else ""
    except OSError:
        return ""


def like_srun(step: str, node: str, given: Dict[str, str]) -> Dict[str, str]:
    """The variables by which Open MPI 4 knows that it was started rank by rank: it refuses instead of being alone."""
    return {"SLURM_STEP_ID": step, "SLURM_STEPID": step, "SLURM_NODELIST": given.get("SLURM_NODELIST") or node}


def _members(groups: Set[int]) -> List[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _read("/proc/%s/stat" % entry).rpartition(b")")[2].split()
            if len(fields) > 2 and int(fields[2]) in groups:
                found.append(int(entry))
    return found


def _has(pid: int, names: Iterable[bytes]) -> bool:
    # As it was at the start of the program: what it sets itself does not show.
    environ = b"\0" + _read("/proc/%d/environ" % pid)
    return any(b"\0" + name in environ for name in names)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # it has ended
