"""MPICH ranks on so many cores, timed by the program itself: what the benchmarks of over-subscription share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ejbd.manager.facts.placing.mpi import profiles
from harness import ROOT
from tests.fakes.mpi import PROGRESS, build_progress, missing_mpich, mpicc

SECONDS = re.compile(r"seconds (\S+)")


def missing() -> str:
    """Why nothing can be measured here, or ""."""
    if reason := missing_mpich():
        return reason
    without = [name for name in ("mpiexec.mpich", "taskset") if shutil.which(name) is None]
    return f"{', '.join(without)} not on PATH" if without else ""


def compile_rank(folder: Path, source: str, *options: str) -> Path:
    compiler = mpicc()
    assert compiler is not None
    program = folder / Path(source).stem
    words = [compiler, "-O2", "-o", str(program), str(ROOT / "benchmarks" / source), *options, "-lm"]
    subprocess.run(words, check=True, timeout=120)
    return program


def library(folder: Path, source: Path = PROGRESS) -> Path:
    """The part of EJB's plugin that works by LD_PRELOAD."""
    return build_progress(folder, source)


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def run(
    argv: Sequence[str],
    ranks: int,
    on: Sequence[int],
    preload: Path | None,
    timeout_s: float,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> float | None:
    """Seconds that the program tells, of `ranks` ranks dealt out to the cores `on`; None: not within `timeout_s`.

    Bound as EJB binds them: each to one core, ranks going round. What happens after the program has told its time (some
    MPICH hang in MPI_Finalize) is cut off.
    """
    env = {**os.environ, **profiles(None)["mpich-ucx"].dmtcp_env, "OPENBLAS_NUM_THREADS": "1", **(environment or {})}
    if preload is not None:
        env["LD_PRELOAD"] = str(preload)
    chosen = "".join(f"{i}) cpu={cpu};; " for i, cpu in enumerate(on))
    bind = f'case $((PMI_RANK % {len(on)})) in {chosen}esac; exec taskset -c $cpu "$@"'
    words = ["mpiexec.mpich", "-n", str(ranks), "sh", "-c", bind, "sh", *argv]
    process = subprocess.Popen(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as late:
        process.terminate()
        try:
            said = process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] or (late.stdout or b"").decode()
    found = SECONDS.search(said or "")
    return float(found.group(1)) if found else None
