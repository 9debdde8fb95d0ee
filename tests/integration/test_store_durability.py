"""A writer that is killed with SIGKILL at any moment has lost nothing that it acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from ejbd.errors import Code, EjbError
from ejbd.store.models import Event, Job
from ejbd.store.store import Store

WRITER = Path(__file__).with_name("store_writer.py")
PATIENCE_S = 60.0


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(WRITER), url], stdout=subprocess.PIPE, text=True, bufsize=1)


def run_and_kill(url: str, acknowledgements: int) -> list[str]:
    """The ids that a writer acknowledged before it was killed, some time after the given number of them."""
    child = start(url)
    watchdog = threading.Timer(PATIENCE_S, child.kill)
    watchdog.start()
    try:
        assert child.stdout is not None
        seen = [child.stdout.readline().strip() for _ in range(acknowledgements)]
        time.sleep(random.uniform(0.0, 0.02))
        child.kill()
        seen += [line.strip() for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        return seen
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_everything_acknowledged_is_there_after_a_kill(store: Store, store_url: str) -> None:
    store.close()
    seen = run_and_kill(store_url, random.randint(1, 300))
    assert all(seen), "the writer ended by itself"
    again = Store(store_url)
    deadline = time.monotonic() + PATIENCE_S
    while True:  # the right to write is free again: at once with SQLite, when the server has noticed with PostgreSQL
        try:
            again.acquire_single_writer()
            break
        except EjbError as error:
            assert error.code is Code.CONFLICT and time.monotonic() < deadline
            time.sleep(0.05)
    stored = again.read_sync(lambda session: set(session.scalars(select(Job.id))))
    assert set(seen) <= stored
    # Each change is there with its event or not at all.
    moved = again.read_sync(lambda session: set(session.scalars(select(Job.id).where(Job.state == "waiting"))))
    told = again.read_sync(lambda session: list(session.scalars(select(Event.job_id).order_by(Event.job_id))))
    assert moved == stored and told == sorted(stored)
    again.close()


def test_a_second_daemon_is_refused_with_one_sentence(store: Store, store_url: str) -> None:
    store.acquire_single_writer()
    store.acquire_single_writer()  # its own right does not stand in its way
    second = start_and_fail(store_url)
    assert "another ejbd is running on this database" in second
    store.close()
    third = Store(store_url)
    third.acquire_single_writer()
    third.close()


def start_and_fail(url: str) -> str:
    done = subprocess.run([sys.executable, str(WRITER), url], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://x/y", "not supported"),
        ("sqlite://", "plain file"),
        ("sqlite:///:memory:", "plain file"),
        ("sqlite:///file:x?mode=memory&uri=true", "plain file"),
        ("not a url", "cannot be read"),
        ("sqlite:////proc/none/ejbd.sqlite", "cannot open the database file"),
    ],
)
def test_databases_that_cannot_be_used(url: str, sentence: str) -> None:
    with pytest.raises(EjbError, match=sentence):
        Store(url)


def test_the_database_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "ejbd.sqlite"
    store = Store(f"sqlite:///{file}")
    store.upgrade()
    store.acquire_single_writer()
    modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    assert modes["ejbd.sqlite"] == 0o600 and set(modes.values()) == {0o600}
    assert file.parent.stat().st_mode & 0o777 == 0o700
    store.close()


@pytest.mark.postgresql
def test_a_password_is_not_told() -> None:
    store = Store("postgresql://ada:secret@127.0.0.1:1/ejb")
    with pytest.raises(EjbError) as refused:
        store.upgrade()
    assert refused.value.code is Code.STORE and refused.value.transient
    assert "secret" not in refused.value.sentence()
    store.close()
