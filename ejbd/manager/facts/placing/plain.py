"""Whether a script runs under the batch system's own srun just as under EJB's, as far as its text and programs show."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ejbd.files.userfiles import read_plain
from ejbd.manager.facts.placing.appprofile import launchers_of, programs_of
from ejbd.manager.facts.placing.mpi import linked_with
from ejbd.manager.facts.placing.mpirun import CHANGES_PATH
from ejbd.manager.jobspec import JobKind, JobSpec

_OURS = re.compile(r"EJB_|\bejb_elastic\b|(?:^|[\s;&|(`])ejb\s", re.MULTILINE)
_STARTS_OTHERS = re.compile(
    r"(python|perl|ruby|julia|R$|Rscript|java|lua|tclsh|node|env$|nice$|time$|taskset$|numactl$|singularity|apptainer)"
)


def is_plain(spec: JobSpec) -> bool:
    """True only where that is sure: a script of one rank, or of programs by srun that surely are no MPI's.

    EJB wires up the ranks of any MPI that it knows; with Slurm's own srun that is the site's affair. It reads files.
    """
    if spec.kind is not JobKind.SCRIPT or spec.script is None or _OURS.search(_without_directives(spec.script)):
        return False
    if spec.mpi not in ("auto", "none"):
        return False
    launchers, programs = launchers_of(spec), list(programs_of(spec))
    if any(word.rpartition("/")[2] != "srun" for word in launchers) or len(programs) != len(launchers):
        return False
    if spec.processes == 1 or spec.mpi == "none":
        return True
    if not programs or CHANGES_PATH.search(spec.script):
        return False
    return all(_is_binary(words[0], spec) and linked_with(words, spec.cwd, spec.env) == "none" for words in programs)


def _without_directives(script: str) -> str:
    return "\n".join(line for line in script.split("\n") if not line.startswith("#"))


def _is_binary(word: str, spec: JobSpec) -> bool:
    """Whether that is a program itself, and none that runs others."""
    name = word.rpartition("/")[2]
    if _STARTS_OTHERS.match(name):
        return False
    found = word if "/" in word else shutil.which(word, path=spec.env.get("PATH", os.defpath))
    try:
        return found is not None and read_plain(Path(spec.cwd) / found, 4, follow=True)[0] == b"\x7fELF"
    except (OSError, ValueError):
        return False
