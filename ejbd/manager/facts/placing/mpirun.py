"""Which kind the mpirun is that a job's ranks would be started by, as far as its submission shows it.

Ranks of Open MPI 4 and 5 are spread over nodes, those of MPICH are started by EJB itself. With any other mpirun they
stay on one node. The worker finds that out at the first launch; here it is said before.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace

from ejbd.manager.facts.placing.appprofile import launchers_of, programs_of
from ejbd.manager.facts.placing.mpi import STARTS_ALL, is_mpirun_of_open_mpi, kind_of_mpirun, linked_with
from ejbd.manager.jobspec import JobSpec
from ejbd.wire.kinds import Engine

CHANGES_PATH = re.compile(r"^\s*(module|ml|spack|conda|source|\.)\s|\bPATH=", re.MULTILINE)
_SUPPORTED = ("Open MPI 4", "Open MPI 5", "MPICH")


def doubt(spec: JobSpec) -> str:
    """Why ranks that are restarted on another number of them would stay on one node; "" where nothing says so.

    It reads files. A script that changes its PATH before is not judged.
    """
    if not Engine.reshapes(spec.engine) and spec.profile is None:
        return ""
    if spec.script is not None and CHANGES_PATH.search(spec.script):
        return ""
    for word in launchers_of(spec):
        if not STARTS_ALL.fullmatch(word.rpartition("/")[2]):
            continue
        found = word if "/" in word else shutil.which(word, path=spec.env.get("PATH", os.defpath))
        if found is None:
            return f"there is no {word} on the job's PATH: where its nodes have none either, no rank starts"
        what = kind_of_mpirun(os.path.join(spec.cwd, found))  # noqa: PTH118  # it stays as it is where it is absolute
        if what not in _SUPPORTED:
            known = "ranks of Open MPI 4 and 5 and MPICH alone run on several nodes"
            return f"{found} is {what or 'of a kind that is not known'}: {known}"
        return ""
    return ""


def with_launcher(spec: JobSpec) -> JobSpec:
    """Of a job with a profile, a program that names no MPI (OpenFOAM's solvers, Python) has that of its mpirun.

    It reads files. So it is where every launch of a script is by an mpirun of Open MPI, and the job says nothing.
    """
    if spec.profile is None or spec.mpi != "auto" or CHANGES_PATH.search(spec.script or ""):
        return spec
    if not (launches := launchers_of(spec)):
        return spec
    path = spec.env.get("PATH", os.defpath)
    for word in launches:
        found = shutil.which(word, path=path)
        if not STARTS_ALL.fullmatch(word.rpartition("/")[2]) or not found or not is_mpirun_of_open_mpi(found):
            return spec
    if any(linked_with(words, spec.cwd, spec.env) != "none" for words in programs_of(spec)):
        return spec
    return replace(spec, mpi="openmpi")
