"""The library for over-subscribed ranks gives the core away while they poll: shown by counting polls and yields."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.mpi import build_asking_ranks, build_progress, build_rank, missing_mpich, mpi_payload

pytestmark = [pytest.mark.xdist_group("mpich")]
COUNTER = Path(__file__).resolve().parents[1] / "fakes" / "count_polls.c"
RANKS = 4
# Polls `argv[1]` times where nothing can be found, then once where something can, then once more in vain: by Python
# itself, or (`argv[2]`) by a library that is named as UCX's is.
POLLS = """
import ctypes, os, select, sys
epoll, (reader, writer) = select.epoll(), os.pipe()
epoll.register(reader, select.EPOLLIN)
poll = (lambda: ctypes.CDLL(sys.argv[2]).poll_once(epoll.fileno())) if sys.argv[2:] else (lambda: len(epoll.poll(0)))
for _ in range(int(sys.argv[1])):
    assert poll() == 0
os.write(writer, b"x")
assert poll() == 1
os.read(reader, 1)
assert poll() == 0
"""
UCX = """#include <sys/epoll.h>
int poll_once(int epfd) { struct epoll_event event; return epoll_wait(epfd, &event, 1, 0); }
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one process: polls that did not wait and found nothing, polls that waited, yields."""

    empty: int
    waiting: int
    yields: int


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The library, and the one that counts."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    folder = tmp_path_factory.mktemp("libraries")
    counter = folder / "count_polls.so"
    words = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-o", str(counter), str(COUNTER), "-ldl"]
    subprocess.run(words, check=True, timeout=120)
    return build_progress(folder), counter


def counting(libraries: tuple[Path, Path], folder: Path, yielding: bool) -> dict[str, str]:
    """Variables of a process that counts into `folder`, with the library or without."""
    folder.mkdir()
    loaded = libraries if yielding else libraries[1:]
    return {"LD_PRELOAD": ":".join(map(str, loaded)), "COUNT_POLLS": str(folder)}


def counted(folder: Path) -> list[Counted]:
    return [Counted(*struct.unpack("@3l", file.read_bytes())) for file in sorted(folder.iterdir())]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"UCX_TLS": "tcp,self"}, Counted(251, 150, 101)),
        ({"UCX_TLS": "tcp,self", "EJB_YIELDS": "10"}, Counted(251, 240, 11)),
        ({"UCX_TLS": "tcp,self", "EJB_BLOCK_MS": "0"}, Counted(251, 0, 251)),
        ({}, Counted(251, 0, 101)),
    ],
    ids=["TCP alone", "fewer yields", "never waits", "naps where memory is polled too"],
)
def test_an_empty_poll_yields_and_a_long_row_of_them_waits(
    libraries: tuple[Path, Path], tmp_path: Path, settings: dict[str, str], expected: Counted
) -> None:
    """250 empty polls in a row, one that finds something, and one more: the row begins anew behind what was found."""
    source, ucx = tmp_path / "ucx.c", tmp_path / "libuct_test.so"
    source.write_text(UCX)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(ucx), str(source)], check=True, timeout=120)
    env = {**os.environ, **counting(libraries, tmp_path / "counts", True), **settings}
    subprocess.run([sys.executable, "-c", POLLS, "250", str(ucx)], env=env, check=True, timeout=180)
    assert counted(tmp_path / "counts") == [expected]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        (b"\1\2", Counted(251, 150, 101)),
        (b"\2\1", Counted(251, 0, 0)),
        (b"\1\0", Counted(251, 150, 101)),
        (b"\1", Counted(251, 150, 101)),
        (None, Counted(251, 150, 101)),
    ],
    ids=["two ranks", "alone", "not told", "told of others", "no page"],
)
def test_a_rank_that_has_its_processor_to_itself_spins_as_mpi_would(
    libraries: tuple[Path, Path], tmp_path: Path, degrees: bytes | None, expected: Counted
) -> None:
    source, ucx = tmp_path / "ucx.c", tmp_path / "libuct_test.so"
    source.write_text(UCX)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(ucx), str(source)], check=True, timeout=120)
    if degrees is not None:
        (tmp_path / "page").write_bytes(degrees)
    env = {**os.environ, **counting(libraries, tmp_path / "counts", True), "UCX_TLS": "tcp,self"}
    env |= {"EJB_DEGREE_PAGE": str(tmp_path / "page"), "EJB_RANK": "1"}
    subprocess.run([sys.executable, "-c", POLLS, "250", str(ucx)], env=env, check=True, timeout=180)
    assert counted(tmp_path / "counts") == [expected]


def test_what_the_page_says_counts_from_when_it_is_written(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    """As where a process is restored in another placement: its page is mapped again, and says something else."""
    source, ucx = tmp_path / "ucx.c", tmp_path / "libuct_test.so"
    source.write_text(UCX)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(ucx), str(source)], check=True, timeout=120)
    program = "import ctypes, os, select, sys\nepoll = select.epoll()\npoll = ctypes.CDLL(sys.argv[1]).poll_once\n"
    program += "sys.path.insert(0, sys.argv[3])\nfrom workers.ejb_worker.degrees import write\n"
    program += "for degree in (1, 4, 1):\n write(sys.argv[2], {0: degree}, 1)\n"
    program += " assert not any(poll(epoll.fileno()) for _ in range(50))\n"
    page = tmp_path / "page"
    page.write_bytes(b"\0")
    env = {**os.environ, **counting(libraries, tmp_path / "counts", True), "EJB_DEGREE_PAGE": str(page)}
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run([sys.executable, "-c", program, str(ucx), str(page), root], env=env, check=True, timeout=180)
    assert counted(tmp_path / "counts") == [Counted(150, 0, 50)]


def test_a_programs_own_event_loop_is_never_made_to_wait(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    """The library is in every process of a launch: asyncio, say, polls without waiting while it has work to do."""
    env = {**os.environ, **counting(libraries, tmp_path / "counts", True), "UCX_TLS": "tcp,self"}
    subprocess.run([sys.executable, "-c", POLLS, "250"], env=env, check=True, timeout=180)
    assert counted(tmp_path / "counts") == [Counted(251, 0, 0)]


def test_without_it_nobody_yields(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    env = {**os.environ, **counting(libraries, tmp_path / "counts", False)}
    subprocess.run([sys.executable, "-c", POLLS, "250"], env=env, check=True, timeout=180)
    assert counted(tmp_path / "counts") == [Counted(251, 0, 0)]


def run_on_one_processor(program: Path, env: dict[str, str], ends: bool) -> None:
    """All ranks of the program share one processor. Without `ends` they are stopped before MPI_Finalize."""
    ours = min(os.sched_getaffinity(0))
    variables = {**mpi_payload()["env"], **env}
    words = [
        sys.executable,
        "-c",
        f"import os, sys; os.sched_setaffinity(0, {{{ours}}}); os.execvp(sys.argv[1], sys.argv[1:])",
    ]
    words += ["mpiexec.mpich" if shutil.which("mpiexec.mpich") else "mpiexec"]
    words += [word for name, value in variables.items() for word in ("-genv", name, value)]
    process = subprocess.Popen(
        [*words, "-n", str(RANKS), str(program), "5"],
        env={**os.environ, "MPIEXEC_TIMEOUT": "60"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        left = RANKS
        while left:
            line = process.stdout.readline()
            assert line, f"mpiexec ended early, with {process.wait()}"
            left -= line.endswith("ends, bad 0\n")
        if ends:
            assert process.wait(60) == 0
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(60)


def test_over_subscribed_mpich_ranks_give_the_core_away(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    """Four ranks on one processor. Without the library those that wait poll on; with it an empty poll yields or waits.

    Those without it are not waited for: without it they may wait for ever in MPI_Finalize.
    """
    if reason := missing_mpich():
        pytest.skip(reason)
    program = build_rank(tmp_path)
    for name in ("without", "with"):
        yielding = name == "with"
        run_on_one_processor(program, counting(libraries, tmp_path / name, yielding), yielding)
    without, given = counted(tmp_path / "without"), counted(tmp_path / "with")
    assert len(without) == len(given) == RANKS
    for rank in without:
        assert rank.yields < rank.empty / 100, f"MPICH yields by itself: {without}"
    for rank in given:
        assert 0 < rank.empty <= rank.yields + rank.waiting, given
    # Polls in vain are what takes the processor from the rank that has something to do.
    assert 10 * sum(rank.empty for rank in given) < sum(rank.empty for rank in without), (without, given)


def test_ranks_that_share_a_processor_all_the_same_find_out(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    """The page says that each has one to itself, as on a cluster of virtual nodes; they get a quarter of its time."""
    if reason := missing_mpich():
        pytest.skip(reason)
    (tmp_path / "page").write_bytes(b"\1")
    env = counting(libraries, tmp_path / "counts", True) | {"EJB_DEGREE_PAGE": str(tmp_path / "page")}
    run_on_one_processor(build_rank(tmp_path), env, True)
    found = counted(tmp_path / "counts")
    assert len(found) == RANKS
    assert all(rank.yields + rank.waiting > 0 for rank in found), found


def test_who_asks_whether_something_has_come_is_never_made_to_wait(
    libraries: tuple[Path, Path], tmp_path: Path
) -> None:
    """MPI_Test and MPI_Iprobe: their caller has something else to do, so that none of their polls waits."""
    if reason := missing_mpich():
        pytest.skip(reason)
    program = build_asking_ranks(tmp_path)
    env = {**mpi_payload()["env"], **counting(libraries, tmp_path / "counts", True)}
    words = ["mpiexec.mpich" if shutil.which("mpiexec.mpich") else "mpiexec"]
    words += [word for name, value in env.items() for word in ("-genv", name, value)]
    done = subprocess.run(
        [*words, "-n", "2", str(program), "1000"],
        env={**os.environ, "MPIEXEC_TIMEOUT": "60"}, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done
    waited = [int(line.removeprefix("waited ")) for line in done.stdout.splitlines()]
    # Of 2,000 polls hundreds would wait. A thread of UCX's own may look after its timers meanwhile on a busy machine.
    assert len(waited) == 2 and all(0 <= polls < 20 for polls in waited), done
    assert all(rank.empty >= 1000 for rank in counted(tmp_path / "counts"))
