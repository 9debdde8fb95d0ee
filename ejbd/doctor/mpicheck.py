"""`ejb doctor --mpi`: what this site's MPI can do, by trying it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from importlib import resources
from pathlib import Path

from ejbd.doctor.compiling import compile_c
from ejbd.errors import Code, EjbError

RANKS = 4
RINGS = 20
PATIENCE_S = 30.0
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
SOURCE = """#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv)
{
  int rank, size, got = -1, sum = 0, one = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (write(1, ".", 1) != 1)
    return 4;
  MPI_Finalize();
  return sum == 4 && got == (rank + size - 1) % size ? 0 : 3;
}
"""
"""A ring: after it MPICH's ranks have connections to take down, in which MPI_Finalize can hang."""

MOVED_SOURCE = """#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
  int rank, stop = 0;
  long count = 0;
  char mine[4096], end[4096];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(mine, sizeof mine, "%s/count-%d", argv[1], rank);
  snprintf(end, sizeof end, "%s/end", argv[1]);
  while (!stop) {
    long sent = ++count, sum = 0;
    int mine_stop = access(end, F_OK) == 0;
    MPI_Allreduce(&sent, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine_stop, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (sum != 2 * count)
      return 4;
    FILE *file = fopen(mine, "w");
    if (file) {
      fprintf(file, "%ld", count);
      fclose(file);
    }
    usleep(10000);
  }
  MPI_Finalize();
  return 0;
}
"""
"""For the proof of the DMTCP plugin: counts in step, until a file is there."""

_MPICH_MARKS = (b"libmpich.so", b"libmpi.so.12")


def build_moved_rank(folder: Path) -> tuple[Path | None, str]:
    """The program of two ranks that are to be moved, or None and why there is none."""
    try:
        return _build(MOVED_SOURCE, folder / "moved-rank")[1], ""
    except EjbError as error:
        return None, error.sentence()


def rank_environment() -> dict[str, str]:
    """The variables that the first profile that comes with EJB has under DMTCP."""
    text = (resources.files("ejbd") / "manager/facts/placing/mpi_profiles.toml").read_text()
    return {str(name): str(value) for name, value in next(iter(tomllib.loads(text).values()))["dmtcp_env"].items()}


def _build(source: str, program: Path) -> tuple[str, Path]:
    """Compile with an MPICH's compiler, whatever `mpicc` is. Returns which one that was, and the program.

    Raises EjbError (UNSUPPORTED) where there is none.
    """
    found = [path for path in (shutil.which("mpicc.mpich"), shutil.which("mpicc")) if path is not None]
    if not found:
        raise EjbError(
            Code.UNSUPPORTED, "no mpicc is on PATH, so nothing was tried", hint="Debian: apt-get install libmpich-dev"
        )
    file = program.with_suffix(".c")
    file.write_text(source)
    for compiler in found:
        compile_c(compiler, file, program)
        if any(mark in program.read_bytes() for mark in _MPICH_MARKS):
            return compiler, program
    raise EjbError(
        Code.UNSUPPORTED,
        f"{found[0]} is not of the MPICH family, so nothing was tried: ranks of Open MPI are started by its own mpirun",
        hint="to try MPICH, Debian: apt-get install libmpich-dev, which has mpicc.mpich",
    )


def check(library: Path | None) -> tuple[bool, str]:
    """Whether ranks of the MPICH on PATH start without mpiexec and come to their end, and a sentence about it.

    `library`: what EJB has them load, where it was built. Raises EjbError (UNSUPPORTED) where nothing can be tried.
    """
    preload = {"LD_PRELOAD": str(library)} if library is not None else {}
    ways = (
        ("", preload),
        (" over TCP alone, as between hosts", {**preload, "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}),
    )
    with tempfile.TemporaryDirectory(prefix="ejb-mpi-") as name:
        compiler, program = _build(SOURCE, Path(name) / "rank")
        for way, env in ways:
            for ring in range(1, RINGS + 1):
                folder = Path(name) / f"{len(env)}-{ring}"
                folder.mkdir()
                why = _ring(program, folder, env)
                if why:
                    without = "" if library is not None else " (ejb doctor --build-plugin builds what cures it)"
                    return False, f"ranks built by {compiler}{way}: ring {ring} of {RINGS}: {why}{without}"
    return True, (
        f"ranks built by {compiler} start without mpiexec and end: {RINGS} of {RINGS} rings of {RANKS} ranks, "
        f"and {RINGS} of {RINGS} over TCP alone"
    )


def _ring(program: Path, folder: Path, variables: dict[str, str]) -> str:
    """Start the ranks, and wait for their end; what went wrong, or ""."""
    tickets = [secrets.randbits(30) for _ in range(RANKS)]
    (folder / "tickets.json").write_text(json.dumps({"tickets": tickets, "nodes": ["127.0.0.1"]}))
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(resources.files("ejbd._workers"))]
    children = [subprocess.Popen([*words, "pmi", "--folder", str(folder), "--host", "127.0.0.1"])]
    try:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "port.json").exists():
            if time.monotonic() > until or children[0].poll() is not None:
                return "the PMI server did not come up"
            time.sleep(0.02)
        port = json.loads((folder / "port.json").read_text())["port"]
        for ticket in tickets:
            env = {**os.environ, **variables, "PMI_PORT": f"127.0.0.1:{port}", "PMI_ID": str(ticket)}
            with (folder / "dots").open("ab") as dots:
                children.append(subprocess.Popen([str(program)], env=env, stdout=dots, stderr=subprocess.DEVNULL))
        codes = [child.wait(max(1.0, until - time.monotonic())) for child in children[1:]]
    except subprocess.TimeoutExpired:
        where = "in MPI_Finalize" if (folder / "dots").stat().st_size == RANKS else "before MPI_Finalize"
        return f"the ranks hang {where}: not through after {PATIENCE_S:g} s"
    finally:
        for child in children:
            child.kill()
            child.wait()
    if "connected" not in _record(folder):
        return "the ranks do not ask for PMI-1, by which EJB starts them"
    return f"the ranks ended with {codes}" if any(codes) else ""


def _record(folder: Path) -> str:
    try:
        return (folder / "events.jsonl").read_text()
    except OSError:
        return ""
