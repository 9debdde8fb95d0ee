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


def check() -> tuple[bool, str]:
    """Whether ranks of the MPI whose compiler is on PATH start without mpiexec, and a sentence about it."""
    compiler = shutil.which("mpicc.mpich") or shutil.which("mpicc")
    if compiler is None:
        return False, "no mpicc is on PATH: nothing was tried (Debian: apt-get install libmpich-dev)"
    with tempfile.TemporaryDirectory(prefix="ejb-mpi-") as name:
        folder = Path(name)
        (folder / "rank.c").write_text(SOURCE)
        words = [compiler, "-o", str(folder / "rank"), str(folder / "rank.c")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            return False, f"{compiler} compiles nothing: {(done.stderr.strip().splitlines() or ['no reason'])[0]}"
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
