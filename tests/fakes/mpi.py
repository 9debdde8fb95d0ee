"""MPICH, where it is installed: how to build a rank, and what a launch's payload says about it."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ejbd.manager.facts.placing.mpi import profiles

PROGRESS = Path(__file__).resolve().parents[2] / "workers" / "native" / "progress.c"
SOURCE = Path(__file__).parent / "mpi_rank.c"
PYTHON_RANK = Path(__file__).parent / "mpi_rank.py"


def mpicc() -> str | None:
    return shutil.which("mpicc.mpich") or (shutil.which("mpicc") if shutil.which("mpichversion") else None)


def missing_mpich() -> str:
    return "" if mpicc() and shutil.which("cc") else "MPICH is not installed (apt-get install mpich libmpich-dev gcc)"


def build(source: Path, program: Path, *options: str) -> Path:
    """Compile an MPI program with MPICH's compiler."""
    compiler = mpicc()
    assert compiler is not None
    subprocess.run([compiler, "-O1", *options, "-o", str(program), str(source)], check=True, timeout=120)
    return program


def build_rank(folder: Path) -> Path:
    return build(SOURCE, folder / "mpi_rank")


def build_asking_ranks(folder: Path) -> Path:
    """Two ranks that ask again and again whether something has come."""
    return build(SOURCE.with_name("ask_mpi.c"), folder / "ask_mpi")


def build_loaded_rank(folder: Path) -> list[str]:
    """The same ranks, loaded by Python as an extension module is: MPI and UCX are in nobody else's sight."""
    library = build(SOURCE, folder / "mpi_rank.so", "-shared", "-fPIC")
    words = "import ctypes, sys; given = [w.encode() for w in sys.argv[1:]]; main = ctypes.CDLL(given[0]).main; "
    return [sys.executable, "-c", words + "sys.exit(main(len(given), (ctypes.c_char_p * 9)(*given)))", str(library)]


def build_open_mpi_rank(folder: Path) -> tuple[Path | None, str]:
    """The same rank for Open MPI, or why there is none."""
    return build_open_mpi(SOURCE, folder / "open_mpi_rank")


def build_open_mpi(source: Path, program: Path) -> tuple[Path | None, str]:
    """Compile an MPI program with Open MPI, or say why that cannot be.

    Debian's libopenmpi-dev, once installed, is what `mpicc` means. Where that is not wanted, EJB_TEST_OPEN_MPI names a
    folder that it was unpacked into.
    """
    unpacked = os.environ.get("EJB_TEST_OPEN_MPI", "")
    compiler = shutil.which("cc" if unpacked else "mpicc.openmpi")
    if compiler is None or shutil.which("mpirun.openmpi") is None:
        return None, "Open MPI is not installed (apt-get install openmpi-bin libopenmpi-dev)"
    words = [compiler, "-O1"]
    if unpacked:
        headers = next(Path(unpacked).glob("usr/lib/*/openmpi/include/mpi.h"), None)
        if headers is None:
            return None, f"EJB_TEST_OPEN_MPI={unpacked}: libopenmpi-dev was not unpacked there"
        words += ["-I", str(headers.parent)]
    words += ["-o", str(program), str(source), *(["-l:libmpi.so.40"] if unpacked else [])]
    done = subprocess.run(words, capture_output=True, timeout=120, check=False)
    if done.returncode == 0:
        return program, ""
    return None, (
        "Open MPI's headers are not installed: libopenmpi-dev, or `apt-get download libopenmpi-dev`, "
        "`dpkg -x libopenmpi-dev_*.deb FOLDER` and EJB_TEST_OPEN_MPI=FOLDER"
    )


def open_mpi_first(folder: Path) -> str:
    """A PATH on which `mpirun` is Open MPI's, whatever else is installed: as a user's `module load` would have it."""
    folder.mkdir()
    found = shutil.which("mpirun.openmpi")
    assert found is not None
    (folder / "mpirun").symlink_to(found)
    return f"{folder}:{os.environ['PATH']}"


def open_mpi_launcher(size: int) -> dict[str, Any]:
    profile = profiles(None)["openmpi"]
    env = profile.env | profile.dmtcp_env
    return {"argv": ["mpirun.openmpi", *profile.launcher[1:], "-np", str(size)], "env": env}


_COMPILED: dict[Path, bytes] = {}
"""By source: a process of pytest compiles it once."""


def build_progress(folder: Path, source: Path = PROGRESS) -> Path:
    """The library that yields while polling and sees MPI_Finalize through."""
    library = folder / "libejbprogress.so"
    if source not in _COMPILED:
        words = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-pthread", "-o", str(library)]
        subprocess.run([*words, str(source), "-ldl"], check=True, timeout=120)
        _COMPILED[source] = library.read_bytes()
    library.write_bytes(_COMPILED[source])
    return library


def mpi_payload(*nodes: str) -> dict[str, Any]:
    """As a launch under DMTCP has it."""
    profile = profiles(None)["mpich-ucx"]
    return {"env": profile.env | profile.dmtcp_env, "nodes": list(nodes)}


def mpi4py(folder: Path) -> tuple[dict[str, str], str]:
    """mpi4py on MPICH, put into `folder`: the environment that a rank needs for it, or why there is none.

    Debian's own is built on Open MPI. The wheel of the package index takes any library of MPICH's ABI, by a name that
    Debian's has not.
    """
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--target",
        str(folder),
    ]
    try:
        done = subprocess.run([*words, "mpi4py>=4.1"], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return {}, "mpi4py could not be installed: pip does not reach its index"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return {}, f"mpi4py could not be installed: {why}"
    found = ctypes.util.find_library("mpich")
    if found is None:
        return {}, "the library of MPICH is not found by the linker (apt-get install libmpich-dev)"
    libraries = folder / "lib"
    libraries.mkdir()
    for listed in subprocess.run(
        ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if listed.split()[:1] == [found]:
            (libraries / "libmpi.so.12").symlink_to(listed.split()[-1])
            break
    env = {"PYTHONPATH": str(folder), "LD_LIBRARY_PATH": str(libraries), "MPI4PY_MPIABI": "mpich"}
    check = [sys.executable, "-c", "import mpi4py.MPI as m, numpy; print(m.Get_library_version())"]
    done = subprocess.run(check, env={**os.environ, **env}, capture_output=True, text=True, timeout=180, check=False)
    if not done.stdout.startswith("MPICH"):
        return {}, f"mpi4py does not work on this MPICH: {(done.stderr.strip().splitlines() or [done.stdout])[-1]}"
    return env, ""
