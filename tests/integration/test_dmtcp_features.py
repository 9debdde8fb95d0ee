"""What of an operating system a program may use and still be moved by DMTCP: by a worker of EJB, and without EJB.

EJB_TEST_FEATURES=all tries every feature, and each with bare DMTCP commands as well (half an hour); else a few of them,
by the worker alone. docs/faults.md has the table.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ejbd.doctor.plugin import build, build_calls
from tests.fakes.features import BY_NAME, FEATURES, file_name
from tests.fakes.hosts import missing_hosts
from tests.fakes.moved import NotMoved, Program, bare, engine

pytestmark = [pytest.mark.dmtcp, pytest.mark.serial, pytest.mark.xdist_group("dmtcp-hosts")]
ALL = os.environ.get("EJB_TEST_FEATURES") == "all"
MOVES = 3

SEEN = {  # DMTCP does not bring it back, and a worker sees it before the first checkpoint
    "temporary file": "a temporary file that never had a name",
    "temporary file of C": "a temporary file that never had a name",
    "pseudo-terminal": "a pseudo-terminal of its own",
    "timerfd": "a timer of timerfd_create",
    "file in memory": "a file in memory open",
    "inotify": "has an inotify",
    "timer of C (thread)": "has a timer that wakes a thread",
    "pidfd of a child": "has a pidfd",
    "io_uring": "has an io_uring",
    "userfaultfd": "has a userfaultfd",
    "few open files": "may have no more than 256 files open",
    "main thread that has ended": "main thread has ended before the others",
    "static program behind a shell": "which DMTCP does not hold",
    "POSIX shared memory": "POSIX shared memory open",
    "shared memory of multiprocessing": "POSIX shared memory open",
    "anonymous memory shared with a child": "shares memory with a process that it has started",
    "multiprocessing, spawn": "with another program that it has started",
    "multiprocessing, forkserver": "with another program that it has started",
    "children one after the other": "start programs one after the other",
    "subprocesses of Python one after the other": "start programs one after the other",
    "system() of C": "start programs one after the other",
}
REFUSED = (  # by bare DMTCP when the program asks for it: it ends with an error at its start
    *("inotify", "timer of C (thread)", "SIGUSR2 of its own", "pidfd of a child", "environment of its own"),
    *("calls that take process ids", "program that is a descriptor"),
)
BY_PLUGIN = ("interval timer (real)", "interval timer (virtual)", "interval timer (prof)")  # not without it
BY_CHANCE = ("concurrent.futures",)
MOVED_ALL_THE_SAME = (  # by bare DMTCP: as long as nobody uses the descriptor again, and by chance
    *("POSIX shared memory", "children one after the other", "subprocesses of Python one after the other"),
    "system() of C",
)

FEW = (
    *("file opened for update", "threads", "interval timer (real)", "child that is forked", "subprocess of Python"),
    *("SIGUSR2 of its own", "calls that take process ids", "environment of its own"),
)
FEW_SEEN = (
    "timerfd",
    "timer of C (thread)",
    "pidfd of a child",
    "static program behind a shell",
    "system() of C",
)


def names(which: Any) -> list[Any]:
    if not which:
        return [pytest.param("", marks=pytest.mark.skip(reason="EJB_TEST_FEATURES is not all"), id="all")]
    return [pytest.param(name, id=file_name(BY_NAME[name])) for name in which]


def program(name: str, folder: Path, moves: int = MOVES) -> Program:
    feature = BY_NAME[name]
    if feature.needs and importlib.util.find_spec(feature.needs) is None:
        pytest.skip(f"Python's {feature.needs} is not installed")
    if feature.compiled and shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return Program(folder, feature.command(folder, "try-" + file_name(feature)), moves)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """None where it cannot be proved here: then the program is moved without it."""
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    if missing_hosts():
        return None
    spool = tmp_path_factory.mktemp("plugin")
    record = build(spool)
    assert record["trusted"], record["why"]
    return str(spool / "dmtcp" / "libejbmove.so")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    return str(build_calls(tmp_path_factory.mktemp("calls")))


def told(calls: str, plugin: str | None) -> dict[str, Any]:
    return {"calls": calls, "plugin": plugin, "compress": False, "checksum": False, "options": []}


def everything_that_moves() -> list[str]:
    return [f.name for f in FEATURES if f.name not in SEEN and f.name not in BY_CHANCE]


@pytest.mark.parametrize("name", names(everything_that_moves() if ALL else FEW))
def test_a_program_with_this_is_moved_three_times_and_ends_well(
    name: str, calls: str, plugin: str | None, tmp_path: Path
) -> None:
    if name in BY_PLUGIN and plugin is None:
        pytest.skip(f"it moves with the plugin only, which cannot be proved here: {missing_hosts()}")
    with engine(program(name, tmp_path), told(calls, plugin)) as mover:
        mover.run()


@pytest.mark.parametrize("name", names(SEEN if ALL else FEW_SEEN))
def test_a_program_with_this_is_not_checkpointed_and_ends_well_where_it_is(
    name: str, calls: str, plugin: str | None, tmp_path: Path
) -> None:
    """Its ranks ended with 99, hung until they were killed, or went on with a part of them gone."""
    with engine(program(name, tmp_path), told(calls, plugin)) as mover:
        mover.first_s = 2.0
        with pytest.raises(NotMoved, match=r"checkpoint 1: rank \d (has|shares|may|runs) ") as refused:
            mover.run()
        assert SEEN[name] in str(refused.value)
        samples = mover.there.manager.of_kind("sample")
        assert any(SEEN[name] in report["obstacle"] for report in samples)
        mover.ends()


@pytest.mark.parametrize("name", names([n for n in everything_that_moves() if n not in REFUSED] if ALL else []))
def test_bare_dmtcp_moves_it_too(
    name: str, plugin: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in BY_PLUGIN:
        with bare(program(name, tmp_path), []) as mover, pytest.raises(NotMoved):
            mover.run()
        return
    if feature_hangs_with_threads(name):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    with bare(program(name, tmp_path), []) as mover:
        mover.run()


def feature_hangs_with_threads(name: str) -> bool:
    return name == "numpy with multiprocessing"  # with OpenBLAS's own: EJB sees to that


@pytest.mark.parametrize("name", names([n for n in SEEN if n not in (*MOVED_ALL_THE_SAME, *REFUSED)] if ALL else []))
def test_bare_dmtcp_does_not_move_it_either(name: str, plugin: str | None, tmp_path: Path) -> None:
    with bare(program(name, tmp_path), []) as mover, pytest.raises(NotMoved):
        mover.run()


@pytest.mark.parametrize("name", names(REFUSED if ALL else []))
def test_bare_dmtcp_refuses_it(name: str, plugin: str | None, tmp_path: Path) -> None:
    with bare(program(name, tmp_path), []) as mover, pytest.raises(NotMoved, match="at its start"):
        mover.run()


@pytest.mark.parametrize("name", names(BY_NAME if ALL else []))
def test_the_program_is_right_where_nobody_moves_it(name: str, tmp_path: Path) -> None:
    undisturbed = program(name, tmp_path)
    words = [*undisturbed.words, str(undisturbed.end), undisturbed.mine(0)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(5):
            assert process.stdout.readline().startswith(b"step "), process.communicate(timeout=30)[1][-2000:]
        undisturbed.end.touch()
        said = process.communicate(timeout=180)
    assert process.returncode == 0, said[1][-2000:]
