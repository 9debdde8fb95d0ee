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

RANKS = 2
PATIENCE_S = 30.0
PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
SOURCE = """#include <mpi.h>
int main(int argc, char **argv)
{
  int rank, sum = 0, one = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return sum == 2 ? 0 : 3;
}
"""


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
    compiler = shutil.which("mpicc.mpich") or shutil.which("mpicc")
    if compiler is None:
        return None, "no mpicc is on PATH"
    program = folder / "moved-rank"
    why = _compile(compiler, MOVED_SOURCE, program)
    if why:
        return None, why
    if not any(mark in program.read_bytes() for mark in _MPICH_MARKS):
        return None, f"{compiler} is not of the MPICH family"
    return program, ""


def rank_environment() -> dict[str, str]:
    """The variables that the first profile that comes with EJB has under DMTCP."""
    text = (resources.files("ejbd") / "manager" / "mpi_profiles.toml").read_text()
    return {str(name): str(value) for name, value in next(iter(tomllib.loads(text).values()))["dmtcp_env"].items()}


def _compile(compiler: str, source: str, program: Path) -> str:
    """Why it does not compile, or ""."""
    file = program.with_suffix(".c")
    file.write_text(source)
    words = [compiler, "-o", str(program), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        return f"{compiler} compiles nothing: {(done.stderr.strip().splitlines() or ['no reason'])[0]}"
    return ""


def check() -> tuple[bool, str]:
    """Whether ranks of the MPI whose compiler is on PATH start without mpiexec, and a sentence about it."""
    compiler = shutil.which("mpicc.mpich") or shutil.which("mpicc")
    if compiler is None:
        return False, "no mpicc is on PATH: nothing was tried (Debian: apt-get install libmpich-dev)"
    with tempfile.TemporaryDirectory(prefix="ejb-mpi-") as name:
        folder = Path(name)
        why = _compile(compiler, SOURCE, folder / "rank")
        if why:
            return False, why
        return _start(compiler, folder)


def _start(compiler: str, folder: Path) -> tuple[bool, str]:
    tickets = [secrets.randbits(30) for _ in range(RANKS)]
    (folder / "tickets.json").write_text(json.dumps({"tickets": tickets, "nodes": ["127.0.0.1"]}))
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(resources.files("workers"))]
    children = [subprocess.Popen([*words, "pmi", "--folder", str(folder), "--host", "127.0.0.1"])]
    try:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "port.json").exists():
            if time.monotonic() > until or children[0].poll() is not None:
                return False, "the PMI server did not come up"
            time.sleep(0.05)
        port = json.loads((folder / "port.json").read_text())["port"]
        for ticket in tickets:
            env = {**os.environ, "PMI_PORT": f"127.0.0.1:{port}", "PMI_ID": str(ticket), "UCX_TLS": "tcp,self"}
            children.append(
                subprocess.Popen([str(folder / "rank")], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        codes = [child.wait(max(1.0, until - time.monotonic())) for child in children[1:]]
    except subprocess.TimeoutExpired:
        return False, f"ranks built by {compiler} were not through after {PATIENCE_S:g} s"
    finally:
        for child in children:
            child.kill()
            child.wait()
    connected = (folder / "events.jsonl").exists() and "connected" in (folder / "events.jsonl").read_text()
    if not connected:
        return (
            False,
            f"ranks built by {compiler} do not ask for PMI-1 (Open MPI does not): use MPICH or one of its family",
        )
    if any(codes):
        return False, f"ranks built by {compiler} ended with {codes}"
    return True, f"ranks built by {compiler} start without mpiexec: {RANKS} ranks, allreduce and Finalize"
