"""MPICH, where it is installed: how to build a rank, and what a launch's payload says about it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from ejbd.manager.mpi import profiles

PROGRESS = Path(__file__).resolve().parents[2] / "workers" / "native" / "progress.c"
SOURCE = Path(__file__).parent / "mpi_rank.c"


def mpicc() -> str | None:
    return shutil.which("mpicc.mpich") or (shutil.which("mpicc") if shutil.which("mpichversion") else None)


def missing_mpich() -> str:
    return "" if mpicc() and shutil.which("cc") else "MPICH is not installed (apt-get install mpich libmpich-dev gcc)"


def build_rank(folder: Path) -> Path:
    compiler = mpicc()
    assert compiler is not None
    program = folder / "mpi_rank"
    subprocess.run([compiler, "-O1", "-o", str(program), str(SOURCE)], check=True, timeout=120)
    return program


def build_open_mpi_rank(folder: Path) -> tuple[Path | None, str]:
    """The same rank for Open MPI, or why there is none."""
    compiler = shutil.which("mpicc.openmpi")
    if compiler is None or shutil.which("mpirun.openmpi") is None:
        return None, "Open MPI is not installed (apt-get install openmpi-bin libopenmpi-dev)"
    program = folder / "open_mpi_rank"
    done = subprocess.run(
        [compiler, "-O1", "-o", str(program), str(SOURCE)], capture_output=True, timeout=120, check=False
    )
    return (program, "") if done.returncode == 0 else (None, "Open MPI's headers are not installed (libopenmpi-dev)")


def open_mpi_launcher(size: int) -> dict[str, Any]:
    profile = profiles(None)["openmpi"]
    return {"argv": ["mpirun.openmpi", *profile.launcher[1:], "-np", str(size)], "env": dict(profile.env)}


def build_progress(folder: Path) -> Path:
    """The library that yields while polling and sees MPI_Finalize through."""
    library = folder / "libejbprogress.so"
    words = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-o", str(library), str(PROGRESS), "-ldl"]
    subprocess.run(words, check=True, timeout=120)
    return library


def mpi_payload(*nodes: str) -> dict[str, Any]:
    return {"env": dict(profiles(None)["mpich-ucx"].env), "nodes": list(nodes)}
