"""The C sources under threads, signals, fork and checkpoints: no result changes, and the sanitizers find nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes.mpi import build_progress

NATIVE = Path(__file__).resolve().parents[2] / "workers" / "native"
FAKES = Path(__file__).resolve().parents[1] / "fakes"
STRICT = ["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"]
SANITIZERS = {"a thread sanitizer": ["-fsanitize=thread"], "an address sanitizer": ["-fsanitize=address,undefined"]}


def compile_c(*words: str) -> None:
    done = subprocess.run(["gcc", *STRICT, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=list(SANITIZERS))
def sanitizer(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    options = SANITIZERS[request.param]
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    words = ["gcc", *options, "-o", str(tmp_path / "empty"), str(empty)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode or run(tmp_path / "empty").returncode:
        pytest.skip(f"this gcc has no {options[0]}: {done.stderr.strip()[-200:]}")
    return options


def run(program: Path, **env: str) -> subprocess.CompletedProcess[str]:
    # A thread sanitizer does not know the addresses that a kernel with much randomness gives.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    return subprocess.run(
        [*fixed, str(program)], env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )


def right(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", ""), done


def linked(folder: Path, library: str) -> list[str]:
    return [f"-L{folder}", f"-l{library}", f"-Wl,-rpath,{folder}", "-rdynamic", "-ldl"]


def test_ranks_go_through_threads_signals_and_forks_unharmed(tmp_path: Path) -> None:
    """As a preloaded library, as jobs have it: two threads of MPI's, own polls and reads, SIGALRM every 2 ms, fork."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    compile_c("-shared", "-fPIC", "-o", str(tmp_path / "libucpfake.so"), str(FAKES / "fake_ucx.c"))
    program = tmp_path / "stress"
    compile_c("-o", str(program), str(FAKES / "stress_progress.c"), *linked(tmp_path, "ucpfake"))
    right(run(program, LD_PRELOAD=str(build_progress(tmp_path))))
    tcp = {"UCX_TLS": "tcp,self", "EJB_YIELDS": "3"}  # waits in epoll_wait, where signals come
    right(run(program, LD_PRELOAD=str(build_progress(tmp_path)), **tcp))


@pytest.mark.sampled(2)
def test_the_progress_library_passes(tmp_path: Path, sanitizer: list[str]) -> None:
    compile_c("-shared", "-fPIC", "-o", str(tmp_path / "libucpfake.so"), str(FAKES / "fake_ucx.c"))
    program = tmp_path / "stress"
    sources = [str(FAKES / "stress_progress.c"), str(NATIVE / "progress.c")]
    compile_c(*sanitizer, "-o", str(program), *sources, *linked(tmp_path, "ucpfake"))
    right(run(program))
    right(run(program, UCX_TLS="tcp,self", EJB_YIELDS="3"))


@pytest.mark.sampled(2)
def test_the_dmtcp_plugin_passes(tmp_path: Path, sanitizer: list[str]) -> None:
    """With a DMTCP that has no lock around its table of sockets, and checkpoints at any moment."""
    headers = ["-I", str(FAKES / "dmtcp_headers"), '-DEJB_DMTCP_VERSION="fake"']
    library = [*sanitizer, *headers, "-shared", "-fPIC", "-o", str(tmp_path / "libdmtcpfake.so")]
    compile_c(*library, str(FAKES / "fake_dmtcp.c"), "-ldl")
    program = tmp_path / "stress"
    sources = [str(FAKES / "stress_move.c"), str(NATIVE / "move.c")]
    compile_c(*sanitizer, *headers, "-o", str(program), *sources, *linked(tmp_path, "dmtcpfake"))
    right(run(program))
