"""Which kind the mpirun is that a job's ranks would be started by, as far as its submission shows it.

Ranks of Open MPI 4 are spread over nodes, those of MPICH are started by EJB itself. With any other mpirun they stay on
one node. The worker finds that out at the first launch; here it is said before.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace

from ejbd.files.userfiles import read_plain
from ejbd.manager.facts.placing.appprofile import launchers_of, programs_of
from ejbd.manager.facts.placing.mpi import linked_with
from ejbd.manager.jobspec import JobSpec
from ejbd.wire.kinds import Engine

LOOKED_AT_BYTES = 4 << 20
_STARTS_ALL = re.compile(r"(mpirun|mpiexec)(\.[a-z]+)?")
CHANGES_PATH = re.compile(r"^\s*(module|ml|spack|conda|source|\.)\s|\bPATH=", re.MULTILINE)
_KINDS = (
    (b"libopen-rte.so.40", "Open MPI 4"),
    (b"libopen-rte.so.", "an Open MPI before version 4"),
    (b"libprrte.so", "Open MPI 5 or later"),
    (b"HYDRA", "MPICH"),
    (b"hydra", "MPICH"),
    (b"I_MPI_", "Intel MPI"),
)
_SUPPORTED = ("Open MPI 4", "MPICH")


def doubt(spec: JobSpec) -> str:
    """Why ranks that are restarted on another number of them would stay on one node; "" where nothing says so.

    It reads files. A script that changes its PATH before is not judged.
    """
    if not Engine.reshapes(spec.engine) and spec.profile is None:
        return ""
    if spec.script is not None and CHANGES_PATH.search(spec.script):
        return ""
    for word in launchers_of(spec):
        if not _STARTS_ALL.fullmatch(word.rpartition("/")[2]):
            continue
        found = word if "/" in word else shutil.which(word, path=spec.env.get("PATH", os.defpath))
        if found is None:
            return f"there is no {word} on the job's PATH: where its nodes have none either, no rank starts"
        what = kind(os.path.join(spec.cwd, found))  # noqa: PTH118  # it stays as it is where it is absolute
        if what not in _SUPPORTED:
            known = " and ".join(_SUPPORTED)
            return f"{found} is {what or 'of a kind that is not known'}: ranks of {known} alone run on several nodes"
        return ""
    return ""


def with_launcher(spec: JobSpec) -> JobSpec:
    """Of a job with a profile, a program that names no MPI (OpenFOAM's solvers, Python) has that of its mpirun.

    It reads files. So it is where every launch of a script is by an mpirun of Open MPI 4, and the job says nothing.
    """
    if spec.profile is None or spec.mpi != "auto" or CHANGES_PATH.search(spec.script or ""):
        return spec
    if not (launches := launchers_of(spec)):
        return spec
    path = spec.env.get("PATH", os.defpath)
    for word in launches:
        found = shutil.which(word, path=path)
        if not _STARTS_ALL.fullmatch(word.rpartition("/")[2]) or not found or kind(found) != _SUPPORTED[0]:
            return spec
    if any(linked_with(words, spec.cwd, spec.env) != "none" for words in programs_of(spec)):
        return spec
    return replace(spec, mpi="openmpi")


def kind(path: str) -> str:
    """What an mpirun is of, by the libraries that it names; "" where that is not known."""
    try:
        text = read_plain(path, LOOKED_AT_BYTES, follow=True)[0]
    except OSError:
        return ""
    return next((name for mark, name in _KINDS if mark in text), "")
