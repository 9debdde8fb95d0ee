"""EJB's own files cannot be written for a while: what of a job's output comes late, and what is told."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from workers.ejb_worker import collector as collector_module
from workers.ejb_worker import files, journal, launches, linux
from workers.ejb_worker.collector import Collector, Output
from workers.ejb_worker.loop import Loop


class Spool:
    """Whether the journal can be written, and the user's file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = threading.Event()
        self.users_full = threading.Event()
        self.tried = threading.Semaphore(0)
        write_json, write_all = files.write_json, files.write_all

        def save(*args: object, **more: object) -> None:
            if self.full.is_set():
                self.tried.release()
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), "output.json")
            write_json(*args, **more)  # type: ignore[arg-type]

        def append(*args: object) -> None:
            if self.users_full.is_set():
                self.tried.release()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write_all(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(journal, "write_json", save)
        monkeypatch.setattr(journal, "write_all", append)


@pytest.fixture
def spool(monkeypatch: pytest.MonkeyPatch) -> Spool:
    return Spool(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    output = tmp_path / "epochs" / "1" / "output"
    output.mkdir(parents=True)
    (tmp_path / "epochs" / "1" / "launch.json").write_text("{}")
    (output / "0.out").write_text("one\nthe last without an end")
    return tmp_path


def collecting(folder: Path) -> Collector:
    def make() -> Output:
        return Output(str(folder), str(folder / "job.out"), None, owner="one", truncate=True, run=1)

    collector = Collector(make, call_soon=lambda call: call(), log=lambda _sentence: None)
    collector.start()
    return collector


def answer(ask: Callable[..., None], within_s: float = 20.0, **more: int) -> str:
    answers: Queue[str] = Queue()
    ask(answers.put, **more)
    return answers.get(timeout=within_s)


@pytest.mark.slow
def test_a_spool_that_is_full_for_a_moment_loses_no_output_and_fails_nobody(folder: Path, spool: Spool) -> None:
    spool.full.set()
    collector = collecting(folder)
    answers: Queue[str] = Queue()
    collector.flush(answers.put, final_epoch=1)
    collector.close(answers.put)
    for _ in range(3):
        assert spool.tried.acquire(timeout=20)
    assert answers.empty(), "it is tried again"
    spool.full.clear()
    assert [answers.get(timeout=20) for _ in range(2)] == ["", ""]
    assert (folder / "job.out").read_text() == "one\nthe last without an end"


def test_what_could_not_be_taken_at_an_end_is_taken_later(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch's last line without an end, which no ordinary pass takes."""
    monkeypatch.setattr(collector_module, "PATIENCE_S", 0.0)
    spool.full.set()
    collector = collecting(folder)
    assert "Read-only" in answer(collector.flush, final_epoch=1) and collector.own_trouble
    spool.full.clear()
    assert answer(collector.close) == "" and not collector.own_trouble
    assert (folder / "job.out").read_text() == "one\nthe last without an end"


def test_a_job_begins_though_ejbs_own_journal_cannot_be_written(folder: Path, spool: Spool) -> None:
    spool.full.set()
    assert answer(collecting(folder).open) == ""


def test_the_users_own_full_disk_is_not_taken_for_ejbs(
    folder: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "PATIENCE_S", 0.0)
    spool.users_full.set()
    collector = collecting(folder)
    assert "job.out" in answer(collector.close) and not collector.own_trouble


def test_room_for_a_programs_first_output_is_kept_and_its_file_stays_empty(tmp_path: Path) -> None:
    path = tmp_path / "out"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    linux.reserve(descriptor, 16384)
    kept, size = os.fstat(descriptor).st_blocks * 512, os.fstat(descriptor).st_size
    os.close(descriptor)
    if not kept:
        pytest.skip("this file system keeps no room")
    assert (size, kept >= 16384) == (0, True)


@pytest.mark.parametrize(("full_for", "answered"), [(3, "ordinal"), (99, "plain")])
def test_a_launch_waits_for_a_spool_that_is_full_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_for: int, answered: str
) -> None:
    """sbatch's script would not have noticed; it used to fail with "cannot write the launch down"."""
    tried: list[Any] = []
    said: list[str] = []
    write_json = files.write_json

    def save(*args: Any) -> None:
        tried.append(args)
        if len(tried) <= full_for:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(*args)

    monkeypatch.setattr(launches, "write_json", save)
    monkeypatch.setattr(launches, "FULL_PAUSE_S", 0.01)
    monkeypatch.setattr(launches, "FULL_TRIES", 5)
    loop = Loop()
    began: list[tuple[int, int]] = []
    door = launches.Launches(
        path=str(tmp_path / "socket"),
        job_dir=str(tmp_path / "job"),
        job="one",
        processors=4,
        tasks=4,
        threads=1,
        ended={},
        streams={},
        propagation=None,
        loop=loop,
        before_launch=lambda call: call(),
        on_launch=lambda ordinal, size, *_rest: began.append((ordinal, size)),
        on_cancel=lambda _ordinal: None,
        on_refused=lambda *_words: None,
        on_plain=lambda *_words: None,
        log=said.append,
    )
    with socket.socket(socket.AF_UNIX) as shim:
        shim.settimeout(20)
        shim.connect(str(tmp_path / "socket"))
        shim.sendall(json.dumps({"size": 2, "argv": ["./heat"], "cwd": "/", "env": {}}).encode() + b"\n")
        heard: Queue[dict[str, Any]] = Queue()

        def listen() -> None:
            heard.put(json.loads(shim.makefile().readline()))
            loop.call_soon(loop.stop)

        listening = threading.Thread(target=listen)
        listening.start()
        loop.run()
        listening.join()
        door.close()
    assert answered in heard.get_nowait()
    assert began == ([(0, 2)] if answered == "ordinal" else [])
    assert said == ["a launch waits: no space is left in the spool"]
