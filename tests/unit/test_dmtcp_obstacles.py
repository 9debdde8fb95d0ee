"""What a worker sees in running processes that DMTCP does not bring back: each by a program that has it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from workers.ejb_worker.engines import dmtcp_obstacles
from workers.ejb_worker.engines.dmtcp_obstacles import Process, Turnover, obstacle

# Says that it is ready once it has what it is tried for, and waits for its end.
WAIT = "\nprint('ready', flush=True)\nimport time\ntime.sleep(600)\n"
SYSCALL = "import ctypes, sys\nfd = ctypes.CDLL(None).syscall({})\n"
GONE = "\nif fd < 0: print('cannot', flush=True); sys.exit(0)\n"

# Main thread ended: pthread_exit, as C programs have it that leave their work to others.
MAIN_ENDS = """
import ctypes, threading, time
def work():
    time.sleep(0.2)
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=work, daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)
"""

SEEN = {
    "a file in memory": ("import os\nfd = os.memfd_create('x')", "a file in memory open (memfd_create)"),
    "io_uring": (SYSCALL.format("425, 4, ctypes.create_string_buffer(256)") + GONE, "has an io_uring"),
    "userfaultfd": (SYSCALL.format("323, 1") + GONE, "has a userfaultfd"),
    "few files": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))",
        "may have no more than 256 files open",
    ),
    "small files": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))",
        "may write no file of more than 4096 bytes",
    ),
    "a main thread that has ended": (MAIN_ENDS, "main thread has ended"),
}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started = []

    def begin(*argv: str) -> subprocess.Popen[str]:
        nothing = subprocess.DEVNULL  # pytest's own files have no name
        child = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, text=True)
        started.append(child)
        assert child.stdout is not None
        said = child.stdout.readline().strip()
        if said == "cannot":
            pytest.skip(f"this kernel refuses it: {argv[-1]!r}")
        assert said == "ready"
        return child

    yield begin
    for child in started:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def seen(child: subprocess.Popen[str], *, held: bool = False) -> str:
    return obstacle({0: child.pid}, held=held)


ENDS = r"""
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static void *rest(void *unused) { pause(); return unused; }
int main(void)
{
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  puts("ready");
  fflush(stdout);
  for (;;) {
    pid_t child = fork();
    if (!child) {
      pthread_t thread;
      for (int number = 0; number < 200; number++)
        pthread_create(&thread, &small, rest, NULL);
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
}
"""


def test_children_with_threads_that_end_all_the_time_are_not_in_the_way(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """A Fortran program that runs a child in its loop could not be moved now and then: a child was just ending."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source, program = tmp_path / "ends.c", tmp_path / "ends"
    source.write_text(ENDS)
    subprocess.run(["cc", "-pthread", str(source), "-o", str(program)], check=True, timeout=180)
    child = start(str(program))
    assert {seen(child) for _ in range(60)} == {""}


@pytest.mark.parametrize("name", SEEN)
def test_a_rank_with_this_is_seen_not_to_be_movable(name: str, start: Callable[..., subprocess.Popen[str]]) -> None:
    """Each lost its ranks once: at the checkpoint, or at the restart."""
    code, sentence = SEEN[name]
    child = start(sys.executable, "-c", code + WAIT)
    assert sentence in seen(child) and seen(child).startswith("rank 0 ")


def test_nothing_is_seen_in_a_plain_program(start: Callable[..., subprocess.Popen[str]]) -> None:
    assert seen(start(sys.executable, "-c", WAIT)) == ""


# A file of that name that is mapped is all that /proc/PID/maps tells of the library, too.
HOLD = """
import ctypes, os, sys
map = ctypes.CDLL(None).mmap
map.restype, map.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
fd = os.open(sys.argv[1], os.O_RDONLY)
assert map(None, 4096, 1, 2, fd, 0) not in (None, 2**64 - 1)
os.close(fd)
"""


@pytest.mark.slow
def test_a_program_that_dmtcp_does_not_hold_is_left_alone(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`exec ./static` behind a shell, and every program in Go: it was killed when the checkpoint did not come."""
    library = tmp_path / "libdmtcp.so"
    library.write_bytes(b"x" * 4096)
    held, own = start(sys.executable, "-c", HOLD + WAIT, str(library)), start(sys.executable, "-c", WAIT)
    monkeypatch.setattr(dmtcp_obstacles, "LASTING_S", 3600.0)
    assert seen(own, held=True) == "", "it has just been started, and may not have loaded its libraries yet"
    monkeypatch.setattr(dmtcp_obstacles, "LASTING_S", 0.0)
    assert seen(held, held=True) == ""
    assert "which DMTCP does not hold" in seen(own, held=True)


@pytest.mark.slow
def test_a_child_that_dmtcp_does_not_hold_keeps_its_rank_where_it_is(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libdmtcp.so"
    library.write_bytes(b"x" * 4096)
    sleep = shutil.which("sleep") or "sleep"
    child = "import subprocess\nchild = subprocess.Popen([sys.argv[2], '600'])\n"
    parent = start(sys.executable, "-c", HOLD + child + WAIT, str(library), sleep)
    monkeypatch.setattr(dmtcp_obstacles, "LASTING_S", 0.0)
    assert f"runs {Path(sleep).resolve().name}, which DMTCP does not hold" in seen(parent, held=True)
    for one in psutil.Process(parent.pid).children():
        one.kill()
    for _ in range(1200):
        if not seen(parent, held=True):
            return
        time.sleep(0.05)
    pytest.fail("it has ended since")


LOOP = "echo ready; while :; do sleep 0.05; done"


def test_a_shell_that_starts_programs_one_after_the_other_is_seen_after_two_ends(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    """Moved, it took the lost end of one for a failure, and went on with what that had not done."""
    child = start("sh", "-c", LOOP)
    turnover, said = Turnover(), ""
    for _ in range(200):
        said = obstacle({3: child.pid}, held=False, turnover=turnover)
        if said:
            break
        time.sleep(0.05)
    assert said.startswith("rank 3 has ") and "start programs one after the other" in said


@pytest.mark.parametrize(
    ("waited", "seen_at"),
    [
        ([(1, 5), (2, 6), (4, 7), (5, 7), (8, 7)], [2, 4, 5]),  # what prepares for something longer
        ([(1, 5), (2, 5), (60, 5), (100, 6), (600, 7), (601, 7)], []),  # one in ten minutes
        ([(1, 0), (2, 0), (4, 0), (60, 0)], []),
        ([(60, 5), (120, 6), (180, 7), (181, 7), (240, 8)], [120, 180, 181, 240]),  # one in half a minute
    ],
)
def test_programs_that_follow_each_other_are_told_from_one_now_and_then(
    waited: list[tuple[float, int]], seen_at: list[float]
) -> None:
    turnover = Turnover()
    looks = [(at, turnover.look([Process(1, 0, "S", 0.0, 1, count)], at)) for at, count in waited]
    assert [at for at, said in looks if said] == seen_at
