"""A daemon that was deposed while it stood still writes to no spool, and marks no intent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ejbd.errors import Code, EjbError
from ejbd.manager.hands.fenced import FencedFiles
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.spool import Spool
from ejbd.store.standby import Standby, beat
from ejbd.store.store import Store
from tests.fakes.daemon import until
from tests.integration.test_standby import Clock, leader, looks

pytestmark = pytest.mark.postgresql

# Leads, writes, stands still until it is told to go on, and then tries everything that a daemon writes.
DEPOSED = """
import os
import sys
from functools import partial
from pathlib import Path
from ejbd.manager.hands.fenced import FencedFiles
from ejbd.manager.hands.files import OWN_FILES
from ejbd.manager.hands.spool import Spool
from ejbd.store.standby import beat
from ejbd.store.store import Store
from tests.store_fixtures import make_job

store = Store(sys.argv[1])
store.acquire_single_writer()
store.begin_term()
store.write_sync(beat)
spool = Spool(Path(sys.argv[2]), FencedFiles(OWN_FILES, partial(store.prove_term_now, float(sys.argv[3]))))
spool.prepare()
spool.publish_url("http://first")
sys.stdin.readline()
root = spool.root
tries = {
    "url": lambda: spool.publish_url("http://first"),
    "put": lambda: spool.files.put(root / "jobs" / "env.json", b"{}"),
    "folder": lambda: spool.files.folder(root / "jobs" / "late"),
    "link": lambda: spool.files.link(root / "manager.json", "late.json"),
    "remove": lambda: spool.files.remove(root / "jobs"),
    "intent": lambda: store.write_sync(lambda session: session.add(make_job("late"))),
}
for name, attempt in tries.items():
    try:
        attempt()
        os.write(1, f"\\ntried {name} done\\n".encode())
    except Exception as error:
        os.write(1, f"\\ntried {name} {type(error).__name__} {error}\\n".encode())
store.close()
"""


def test_a_process_that_was_stopped_while_another_took_over_changes_nothing(
    postgres_tables_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "spool"
    argv = [sys.executable, "-c", DEPOSED, postgres_tables_url, str(root), "0"]
    plain = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": Path(__file__).parents[2]}
    first = subprocess.Popen(argv, **plain)  # type: ignore[call-overload]
    try:
        until(lambda: (root / "manager.json").exists(), "it does not lead", 120)
        first.send_signal(signal.SIGSTOP)
        second, clock = Store(postgres_tables_url), Clock()
        assert True in looks(Standby(second, 8.0, clock), clock, 12)
        second.begin_term()
        own = Spool(root, FencedFiles(OWN_FILES, lambda: second.prove_term_now(0.0)))
        own.publish_url("http://second")
        first.send_signal(signal.SIGCONT)
        said, _ = first.communicate("go on\n", timeout=120)
    finally:
        if first.poll() is None:
            first.send_signal(signal.SIGCONT)
            first.kill()
            first.wait(60)
    tried = [line.split(maxsplit=2) for line in said.splitlines() if line.startswith("tried ")]
    told = {name: words for _, name, words in tried}
    assert set(told) == {"url", "put", "folder", "link", "remove", "intent"}, said
    assert told.pop("remove") == "done", "which says nothing, and leaves things as they are"
    assert all("another ejbd has taken this database over" in words for words in told.values()), told
    assert "http://second" in (root / "manager.json").read_text()
    assert {one.name for one in root.rglob("*")} == {"jobs", "manager.json"}
    own.files.put(root / "jobs" / "env.json", b"{}")  # the one that leads goes on
    second.close()


def test_a_daemon_that_was_heard_of_a_moment_ago_asks_nothing(postgres_tables_url: str, tmp_path: Path) -> None:
    """Each file would else cost a commit."""
    first = leader(postgres_tables_url)
    first.write_sync(beat)
    asked: list[float] = []
    wrote = first.write_sync
    first.write_sync = lambda fn: asked.append(0.0) or wrote(fn)  # type: ignore
    files = FencedFiles(OWN_FILES, lambda: first.prove_term_now(60.0))
    for number in range(20):
        files.put(tmp_path / str(number), b"")
    assert asked == []
    first._proved_s -= 100  # it stood still, and leads all the same
    files.put(tmp_path / "late", b"")
    assert asked == [0.0] and (tmp_path / "late").exists()
    first.close()


def test_the_writers_own_thread_does_not_wait_for_itself(postgres_tables_url: str, tmp_path: Path) -> None:
    first = leader(postgres_tables_url)
    first._proved_s -= 100
    files = FencedFiles(OWN_FILES, lambda: first.prove_term_now(0.0))
    first.write_sync(lambda session: files.put(tmp_path / "a", b"1"))
    assert (tmp_path / "a").read_bytes() == b"1"
    first._fenced = EjbError(Code.CONFLICT, "another ejbd has taken this database over")
    with pytest.raises(EjbError, match="another ejbd"):
        files.put(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1"
    first._fenced = None
    first.close()
