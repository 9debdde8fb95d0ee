"""Whether a job runs under the batch system's own srun just as under EJB's, as far as its text and programs show."""

from __future__ import annotations

import os
import re
import shutil
from functools import partial
from pathlib import Path

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS, program
from ejbd.files.userfiles import read_plain, within
from ejbd.manager.facts.placing.appprofile import launches_of
from ejbd.manager.facts.placing.mpi import LOOK_S, linked_with
from ejbd.manager.facts.placing.mpirun import CHANGES_PATH
from ejbd.manager.jobspec import JobKind, JobSpec

_OURS = re.compile(r"EJB_|\bejb_elastic\b|(?:^|[\s;&|(`])ejb\s", re.MULTILINE)
_WORD = re.compile(r"[^\s;&|()<>\"'`=]+")
_LAUNCHES = re.compile(rb"\b(?:" + b"|".join(re.escape(name.encode()) for name in LAUNCHERS) + rb")\b")
MOST_WORDS, LOOKED_AT_BYTES = 500, 64 << 10
_WIRES = re.compile(r"^\S*srun (-\S+ )*--mpi=(pmi|cray)")
"""A launch that says how srun is to wire up its ranks."""
_STARTS_OTHERS = re.compile(
    r"((ba|da|k|z|c|tc)?sh$|python|perl|ruby|julia|R$|Rscript|java|lua|tclsh|node|env$|nice$|time$|taskset$|numactl$|singularity|apptainer)"
)


def is_plain(spec: JobSpec) -> bool:
    """True only where that is sure: one rank, or launches by srun of which each says how srun is to wire up its ranks
    (`--mpi`), or has a program that surely is no MPI's. A command is such a launch.

    EJB wires up the ranks of any MPI that it knows; with Slurm's own srun that is the site's affair. It reads files.
    """
    if spec.pbs or spec.restartable or spec.chain or spec.widths or spec.ntasks_max or spec.wants.has_gpus:
        return False  # workers do something for it
    if spec.mpi not in ("auto", "none") or _OURS.search(_without_directives(spec.script or " ".join(spec.argv))):
        return False
    if spec.kind is JobKind.COMMAND:
        return spec.processes == 1 or spec.mpi == "none" or _is_no_mpis(list(spec.argv), spec)
    if spec.kind is not JobKind.SCRIPT or spec.script is None:
        return False
    launches = list(launches_of(spec))
    if any(words[0].rpartition("/")[2] != "srun" for words in launches):
        return False
    if spec.processes == 1 or spec.mpi == "none":
        return True
    if not launches or CHANGES_PATH.search(spec.script) or _may_launch_elsewhere(spec):
        return False
    return all(_WIRES.search(" ".join(words)) or _is_no_mpis(program("srun", words[1:]), spec) for words in launches)


def is_plain_in_time(spec: JobSpec) -> bool:
    """The same; False where the user's file system does not answer."""
    try:
        return within(partial(is_plain, spec), LOOK_S)
    except TimeoutError:
        return False


def _is_no_mpis(words: list[str], spec: JobSpec) -> bool:
    return bool(words) and _is_binary(words[0], spec) and linked_with(words, spec.cwd, spec.env) == "none"


def _may_launch_elsewhere(spec: JobSpec) -> bool:
    """Whether the script names another one, which launches what its own lines do not show."""
    words = sorted(set(_WORD.findall(_without_directives(spec.script or ""))))
    if len(words) > MOST_WORDS:
        return True
    for word in words:
        try:
            text = read_plain(Path(spec.cwd) / word, LOOKED_AT_BYTES, follow=True)[0]
        except (OSError, ValueError):
            continue
        if (text.startswith(b"#!") or word.endswith("sh")) and _LAUNCHES.search(text):
            return True
    return False


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
