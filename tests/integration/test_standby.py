"""Two daemons on one PostgreSQL: what becomes of the one that leads, and of its jobs."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ejbd.errors import Code, EjbError
from ejbd.store.engine import parse_url
from ejbd.store.models import Mark
from ejbd.store.standby import Standby, beat
from ejbd.store.store import Store
from tests.fakes.daemon import FAST, Daemon, until
from tests.store_fixtures import make_job

pytestmark = pytest.mark.postgresql


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def leader(url: str) -> Store:
    store = Store(url)
    store.acquire_single_writer()
    store.upgrade()
    store.begin_term()
    return store


def looks(standby: Standby, clock: Clock, seconds: int) -> list[bool]:
    found = []
    for _ in range(seconds):
        clock.now += 1
        found.append(standby.look().leads)
    return found


# -- the rule, against a clock ----------------------------------------------------------------------------------------


def test_a_leader_that_beats_is_left_alone_and_one_that_stands_still_is_ended(postgres_tables_url: str) -> None:
    first, clock = leader(postgres_tables_url), Clock()
    second = Store(postgres_tables_url)
    standby = Standby(second, 8.0, clock)
    for _ in range(5):
        first.write_sync(beat)
        assert not any(looks(standby, clock, 5))
    taken = looks(standby, clock, 12)
    assert True in taken and not any(taken[:3])
    second.begin_term()
    with pytest.raises(EjbError, match="another ejbd has taken this database over") as refused:
        first.write_sync(lambda s: s.add(make_job("late")))
    assert refused.value.code is Code.CONFLICT and first.fenced
    second.write_sync(lambda s: s.add(make_job("new")))
    first.close()
    second.close()


def test_a_daemon_that_was_away_itself_does_not_take_that_for_the_others_absence(postgres_tables_url: str) -> None:
    first, clock = leader(postgres_tables_url), Clock()
    second = Store(postgres_tables_url)
    standby = Standby(second, 8.0, clock)
    first.write_sync(beat)
    assert not any(looks(standby, clock, 3))
    clock.now += 3600
    assert not any(looks(standby, clock, 7))
    first.write_sync(beat)
    first.write_sync(lambda s: s.add(make_job("a")))
    assert not first.fenced
    first.close()
    assert looks(standby, clock, 5).count(True) >= 1  # the right is free
    second.close()


def test_a_daemon_that_counts_no_beat_is_never_ended(postgres_tables_url: str) -> None:
    first, clock = leader(postgres_tables_url), Clock()
    second = Store(postgres_tables_url)
    assert not any(looks(Standby(second, 8.0, clock), clock, 60))
    first.write_sync(lambda s: s.add(make_job("a")))
    first.close()
    second.close()


def test_a_commit_that_is_under_way_is_undone_and_the_number_is_held_against_every_one(
    postgres_tables_url: str,
) -> None:
    """Also where the right to write does not go with the session, as behind a pooler: the number alone fences."""
    first = leader(postgres_tables_url)
    first._right_wanted = False  # as if the server had forgotten which session has it
    with first._writer.connect() as other:
        other.exec_driver_sql("UPDATE marks SET value = '99' WHERE name = 'term'")
        other.commit()
    with pytest.raises(EjbError, match="another ejbd has taken this database over"):
        first.write_sync(lambda s: s.add(make_job("late")))
    assert first.fenced
    first.close()
    check = Store(postgres_tables_url)
    assert check.read_sync(lambda s: s.get_one(Mark, "term").value) == "99"
    check.close()


async def test_an_action_after_a_standstill_is_made_only_by_the_daemon_that_leads(postgres_tables_url: str) -> None:
    from ejbd.batch.fenced import fenced

    done: list[str] = []

    class Batch:
        name = "x"

        async def submit(self, *words: str) -> None:
            done.append(words[0])

        async def find(self) -> str:
            return "found"

    first = leader(postgres_tables_url)
    batch = fenced(Batch(), lambda: first.prove_term(4.0))  # type: ignore[arg-type]
    await batch.submit("at once")  # type: ignore[call-arg, arg-type]
    first._proved_s -= 100  # it stood still
    await batch.submit("still leads")  # type: ignore[call-arg, arg-type]
    clock, second = Clock(), Store(postgres_tables_url)
    first.write_sync(beat)
    assert True in looks(Standby(second, 8.0, clock), clock, 12)
    second.begin_term()
    first._proved_s -= 100
    with pytest.raises(EjbError, match="another ejbd"):
        await batch.submit("late")  # type: ignore[call-arg, arg-type]
    assert done == ["at once", "still leads"] and batch.name == "x" and await batch.find() == "found"  # type: ignore
    first.close()
    second.close()


def test_sqlite_has_no_standby(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'ejbd.sqlite'}")
    with pytest.raises(EjbError, match="only daemons on PostgreSQL"):
        Standby(store, 8.0)
    store.close()


# -- real daemons -----------------------------------------------------------------------------------------------------


class Relay:
    """A way over TCP to the server's unix socket that can be cut: what is sent goes nowhere, and nothing is closed."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = threading.Event()
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._target)
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                if not self.cut.is_set():
                    other.sendall(data)
        with suppress(OSError):  # an end that was killed resets the connection
            if not self.cut.is_set():
                other.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.close()


class Pair:
    """Two daemons, each with a socket and a log of its own, on one database, one spool and one embedded cluster."""

    def __init__(self, folder: Path, database: str) -> None:
        url = parse_url(database)
        host = url.query["host"]
        assert isinstance(host, str)
        self.relay = Relay(f"{host}/.s.PGSQL.5432")
        through = f"postgresql+psycopg://{url.username}@127.0.0.1:{self.relay.port}/{url.database}"
        self.first = self._daemon(folder, "first", through)
        self.second = self._daemon(folder, "second", url.render_as_string())

    def _daemon(self, folder: Path, name: str, url: str) -> Daemon:
        (folder / name).mkdir()
        shared = f'database_url = "{url}"\nspool = "{folder / "spool"}"\nstandby = true\npoll_s = 1\n'
        shared += f'audit = "{folder / name / "audit"}"\n'
        local = f'[local]\ndirectory = "{folder / "cluster"}"\n'
        return Daemon(folder / name, shared + local + FAST)

    def close(self) -> None:
        for daemon in (self.first, self.second):
            if daemon.process is not None and not daemon.ended():
                daemon.process.send_signal(signal.SIGCONT)
                daemon.kill()
        self.relay.close()


@pytest.fixture
def pair(tmp_path: Path, postgres_tables_url: str) -> Iterator[Pair]:
    made = Pair(tmp_path, postgres_tables_url)
    yield made
    made.close()


def said(daemon: Daemon, word: str) -> Callable[[], bool]:
    return lambda: word in daemon.log.read_text(errors="replace")


@pytest.mark.serial
@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["killed", "stopped", "cut"])
def test_the_other_one_takes_over_and_the_job_goes_on(pair: Pair, tmp_path: Path, how: str) -> None:
    pair.first.start()
    pair.second.begin()
    until(said(pair.second, "standing-by"), "the second does not stand by", 120)
    result = tmp_path / "result"
    job = pair.first.submit(*pair.first.heat(300, result, pace="150ms"), ranks=4, time="10:00")
    pair.first.wait(job, "running")
    process = pair.first.process
    assert process is not None
    match how:
        case "killed":
            pair.first.kill()
        case "stopped":
            process.send_signal(signal.SIGSTOP)
        case _:
            pair.relay.cut.set()
    until(said(pair.second, "listening"), "the second does not take over", 120)
    assert said(pair.second, "leader-ended")() is (how != "killed")
    if how == "stopped":
        process.send_signal(signal.SIGCONT)
    if how != "killed":
        until(pair.first.ended, "the first did not end", 120)
        assert process.poll() in ((4,) if how == "stopped" else (8, 70))  # 70: what hangs in the kernel is left behind
    assert pair.second.wait(job, timeout_s=240)["state"] == "completed"
    kinds = pair.second.kinds(job)
    assert kinds.count("epoch.running") == 1 and "subjob.lost" not in kinds  # its ranks have noticed nothing


def test_a_daemon_that_stands_by_ends_when_told_to_and_one_that_leads_opens_its_audit_anew(pair: Pair) -> None:
    pair.first.start()
    pair.second.begin()
    until(said(pair.second, "standing-by"), "the second does not stand by", 120)
    pair.second.stop()
    assert pair.second.process is not None and pair.second.process.poll() == 0
    audit = pair.first.folder / "audit"
    audit.rename(audit.with_suffix(".1"))
    assert pair.first.process is not None
    pair.first.process.send_signal(signal.SIGHUP)
    until(audit.exists, "no new audit on HUP", 120)
    until(lambda: pair.first.client.get("/v1/health").status_code == 200, "the first is not well", 120)
    assert not (pair.second.state / "ejbd.sock").exists()
