"""What a job leaves in the place of a file can neither stop the daemon nor fill its memory."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import deque
from pathlib import Path

import pytest

from ejbd.batch.exits import exit_files
from ejbd.files import userfiles
from ejbd.files.userfiles import NotPlain, NotTheirs, apart, read_plain, within
from ejbd.manager.facts.placing import mpi
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

BOUND_S = 20.0  # on what must not wait at all

TRAPS = ["fifo", "link to /dev/zero", "link to a FIFO", "folder", "10 TB", "device", "deep nesting"]


def set_trap(path: Path, trap: str) -> None:
    """Put something else where a file is expected."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if trap == "fifo":
        os.mkfifo(path)
    elif trap == "link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif trap == "link to a FIFO":
        os.mkfifo(path.with_name(path.name + "-fifo"))
        path.symlink_to(path.with_name(path.name + "-fifo"))
    elif trap == "folder":
        path.mkdir()
    elif trap == "10 TB":
        with path.open("wb") as file:
            file.truncate(10 * 2**40)
    elif trap == "device":
        path.symlink_to("/dev/full")
    else:
        path.write_bytes(b"[" * 1_000_000 + b"\n")


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("trap", TRAPS)
async def test_a_job_that_leaves_no_report_file_but_a_trap_stops_nobody(live: LiveWorld, trap: str) -> None:
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    reports = live.manager.world.spool.subjob_dir(job, f"{job}.1") / "reports"
    for name in (f"n1-a-{job}.1-n1.jsonl", *(p.name for p in reports.glob("*.jsonl"))):
        set_trap(reports / name, trap)
    live.batch.end(f"ejb-{job}.1")
    await asyncio.wait_for(live.poll(20), BOUND_S)
    other = await asyncio.wait_for(live.submit(), BOUND_S)  # the writer still writes
    assert live.job(other).state == "waiting"
    assert "job.fault" not in live.kinds(job)


@pytest.mark.parametrize("trap", TRAPS)
async def test_an_exit_file_that_is_none_says_nothing_and_keeps_nobody(tmp_path: Path, trap: str) -> None:
    set_trap(tmp_path / "exit", trap)
    good = tmp_path / "good"
    good.write_text("3\n")
    found = await asyncio.wait_for(exit_files({"1": tmp_path / "exit", "2": good}), BOUND_S)
    assert {id: outcome.exit_code for id, outcome in found.items()} == {"2": 3}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_program_or_a_launch_that_is_a_trap_is_of_no_mpi(tmp_path: Path, trap: str) -> None:
    set_trap(tmp_path / "program", trap)
    set_trap(tmp_path / "0.json", trap)
    assert within(lambda: mpi.linked_with([str(tmp_path / "program")], "/", {}), BOUND_S) == "none"
    assert within(lambda: mpi.linked_mpi(tmp_path / "0.json"), BOUND_S) == "none"


async def test_a_command_whose_program_is_a_fifo_is_submitted_at_once(live: LiveWorld) -> None:
    os.mkfifo(live.folder / "app")
    job = await asyncio.wait_for(live.submit(argv=(str(live.folder / "app"),)), BOUND_S)
    await asyncio.wait_for(live.poll(1), BOUND_S)
    await live.begin(f"{job}.1")
    await asyncio.wait_for(live.work(), BOUND_S)
    assert live.job(job).state == "running"


async def test_a_launch_is_read_where_the_worker_keeps_it_and_nowhere_else(live: LiveWorld) -> None:
    job = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\nmpirun ./a\n")
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    elsewhere = live.folder / "elsewhere.json"
    elsewhere.write_text(json.dumps({"argv": ["/bin/true"], "cwd": "/", "env": {}}))
    await live.work()
    await worker.report("launch", ordinal=0, size=16, file=str(elsewhere))
    await live.work()
    assert live.epochs(job) == []
    assert ("launch-ended", {"ordinal": 0, "code": 2}) in worker.done


def test_a_file_of_somebody_else_is_told_from_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "file", 2)[0] == b"te"
    assert read_plain(tmp_path / "file", 9, offset=2, owner=os.geteuid())[0] == b"xt"
    assert read_plain(tmp_path / "link", 9, follow=True)[0] == b"text"
    with pytest.raises(NotPlain):
        read_plain(tmp_path / "link", 9)
    with pytest.raises(NotTheirs):
        read_plain(tmp_path / "file", 9, owner=os.geteuid() + 1)
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "none", 9)
    with pytest.raises(NotPlain):
        read_plain("a\0b", 9)


async def test_a_file_system_that_hangs_keeps_neither_the_loop_nor_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(userfiles, "_stuck", threading.BoundedSemaphore(2))
    begun = time.monotonic()
    for _ in range(3):  # the third is refused, for the threads of the first two are still there
        with pytest.raises(TimeoutError):
            await apart(lambda: answer.wait(60), 0.05)
    with pytest.raises(TimeoutError):
        within(lambda: answer.wait(60), 0.05)
    assert time.monotonic() - begun < BOUND_S
    answer.set()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "user-files")


def test_what_is_written_does_not_go_through_a_link_or_into_a_fifo(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in (f".env.json.{os.getpid()}.tmp", "env.json"):
        (tmp_path / name).symlink_to(victim)
    OWN_FILES.put(tmp_path / "env.json", b"{}")
    assert victim.read_text() == "precious"
    assert (tmp_path / "env.json").read_text() == "{}" and not (tmp_path / "env.json").is_symlink()


def test_a_thread_looks_again_and_one_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userfiles, "_idle", deque())
    first = within(threading.get_ident)
    assert until_idle() and within(threading.get_ident) == first
    assert until_idle()
    answer = threading.Event()
    with pytest.raises(TimeoutError):
        within(answer.wait, 0.05)
    assert within(threading.get_ident) != first
    answer.set()


def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userfiles, "_idle", deque())
    monkeypatch.setattr(userfiles, "IDLE_S", 0.05)
    thread = within(threading.current_thread)
    thread.join(BOUND_S)
    assert not thread.is_alive()
    # A thread that another test left behind a hanging look may have come back meanwhile. It ends as soon.
    assert until_idle(False)


def until_idle(idle: bool = True) -> bool:
    """Whether a thread waits for its next look (or none does): it does so a moment after its answer."""
    for _ in range(int(BOUND_S / 0.01)):
        if bool(userfiles._idle) == idle:
            return True
        time.sleep(0.01)
    return False
