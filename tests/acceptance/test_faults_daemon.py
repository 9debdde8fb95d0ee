"""What a daemon stands on breaks under a job: its machine's clock is set, another one takes its database over."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.acceptance.journeys import daemon_on, each_tag_once, nothing_left, one_copy_only, undisturbed
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until
from tests.integration.postgres import PostgresServer, why_not

pytestmark = [pytest.mark.xdist_group("faults-daemon")]
STEPS = 500
OUTLASTING = 2 * STEPS  # 80 s where the job begins: what lasts longer than a daemon's coming up under load
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def submit(daemon: Daemon, folder: Path, steps: int = STEPS) -> str:
    return daemon.submit(*daemon.heat(steps, folder / "moved"), ranks=4, time="5:00")


def completed(daemon: Daemon, site: LocalSite, folder: Path, job: str, steps: int = STEPS) -> None:
    final = daemon.wait(job, timeout_s=300)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    assert (folder / "moved").read_bytes() == undisturbed(folder, steps)
    nothing_left(daemon, site, job)
    each_tag_once(daemon, site, job)


needs_faketime = pytest.mark.skipif(
    FAKETIME is None, reason="libfaketime is not installed (Debian: apt-get install faketime)"
)


def site_by(now: Path) -> LocalSite:
    """The machine's clock is what the file `now` says, for the daemon; nothing else's is."""
    now.write_text("+0\n")
    return LocalSite(
        now.parent,
        environment={
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(now),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            # To the guard an hour has passed: it rightly asks room back for what waits, which is not of interest here.
            "EJBD_QUEUES__DEFAULT__GUARD": "off",
        },
    )


def nobody_noticed(daemon: Daemon, job: str) -> None:
    """At the end each worker leaves or ends with its subjob; none is given up for a silence that was not."""
    events = daemon.events(job)
    kinds = [event["kind"] for event in events]
    lost = [event["data"]["reason"] for event in events if event["kind"] == "worker.lost"]
    assert not any("silent" in reason for reason in lost), lost
    assert "decision.suspend" not in kinds and "epoch.failed" not in kinds


@pytest.mark.nightly("unit/test_manager_clock.py sets it on the fake world")
@needs_faketime
@pytest.mark.parametrize("by", ["+1h", "-1h"])
def test_the_clock_of_the_daemons_machine_is_set_under_a_job(tmp_path: Path, by: str) -> None:
    """The job runs on, grows and completes as if nothing were; another one is taken; it is told once."""
    now = tmp_path / "now"
    site = site_by(now)
    # An hour is more than any silence that is borne; a busy machine's own pauses are less than a minute.
    with daemon_on(site, tmp_path, worker_silence_s=60) as daemon:
        job = submit(daemon, tmp_path)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            now.write_text(f"{by}\n")
            until(lambda: "clock-was-set" in daemon.log.read_text(), "it was not noticed", 30)
            other = daemon.submit("true", ranks=1, time="1:00")
            site.more()
            daemon.wait_event(job, "epoch.running", 2, timeout_s=150)
            completed(daemon, site, tmp_path, job)
            daemon.wait(other)
        nobody_noticed(daemon, job)
        assert daemon.log.read_text().count("clock-was-set") == 1


@pytest.mark.nightly("unit/test_manager_clock.py sets it under jobs on the fake world")
@needs_faketime
def test_the_clock_goes_back_and_forth_under_load(tmp_path: Path) -> None:
    """Every second it is another hour, while jobs come, grow and end: each is told what it made of itself, once."""
    now, over = tmp_path / "now", threading.Event()
    site = site_by(now)

    def swing() -> None:
        for by in itertools.cycle(("+1h", "-1h", "+0", "+40d", "-2h")):
            if over.wait(1):
                return
            now.with_name("next").write_text(f"{by}\n")
            now.with_name("next").replace(now)

    with daemon_on(site, tmp_path, worker_silence_s=60) as daemon:
        job = submit(daemon, tmp_path)
        daemon.wait_event(job, "epoch.running")
        swinging = threading.Thread(target=swing)
        swinging.start()
        try:
            with one_copy_only(job):
                others = [daemon.submit("sh", "-c", f"exit {code}", ranks=1, time="2:00") for code in (0, 7, 0, 7)]
                site.more()
                completed(daemon, site, tmp_path, job)
                ends = [(final["state"], final["exit_code"]) for final in map(daemon.wait, others)]
        finally:
            over.set()
            swinging.join(30)
        assert ends == [("completed", 0), ("failed", 7)] * 2
        for each in (job, *others):
            nobody_noticed(daemon, each)


@pytest.fixture
def postgres() -> Iterator[str]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    server = PostgresServer()
    try:
        yield server.new_database()
    finally:
        server.stop()


@pytest.mark.nightly("integration/test_standby.py takes over; test_store_takeover.py ends the first")
@pytest.mark.postgresql
def test_a_daemon_that_was_taken_over_ends_and_its_jobs_go_on(tmp_path: Path, postgres: str) -> None:
    """The first stands still, its connection is cut, a second takes the database. The first wakes, writes nothing,
    says why, and ends with 4; workers find the second, by which the job completes."""
    site = LocalSite(tmp_path, environment={"EJBD_DATABASE_URL": postgres})
    with daemon_on(site, tmp_path) as daemon:
        first = daemon.process
        assert first is not None
        job = submit(daemon, tmp_path, OUTLASTING)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running")
            address = spool_address(daemon)
            os.kill(first.pid, signal.SIGSTOP)
            cut(postgres)
            (daemon.state / "ejbd.sock").unlink()
            daemon.start()
            until(lambda: spool_address(daemon) != address, "the second's address is not published", 60)
            os.kill(first.pid, signal.SIGCONT)
            until(lambda: first.poll() is not None, "the first goes on", 60)
            assert first.returncode == 4
            assert "has taken the database over" in daemon.log.read_text()
            site.more()
            daemon.wait_event(job, "epoch.running", 2, timeout_s=150)
            completed(daemon, site, tmp_path, job, OUTLASTING)


def spool_address(daemon: Daemon) -> str:
    return str(json.loads((daemon.state / "spool" / "manager.json").read_text())["url"])


def cut(url: str) -> None:
    """End every session of the database, as a network that is gone does."""
    engine = create_engine(url)
    with engine.connect() as connection:
        everybody = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        connection.execute(text(everybody + " AND pid <> pg_backend_pid()"))
    engine.dispose()
