"""A daemon's database is restored from an older copy, a second daemon runs on a copy, and the spool is away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ejbd.store.backup import backup, restore
from ejbd.store.engine import parse_url
from tests.acceptance.journeys import each_tag_once, undisturbed
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until

pytestmark = [pytest.mark.xdist_group("restored")]
STEPS = 400


class Place:
    """A daemon on an embedded cluster, with a spool beside its state."""

    def __init__(self, folder: Path) -> None:
        self.spool = folder / "spool"
        self.site = LocalSite(folder, block=8, fillers=(), settings=f'spool = "{self.spool}"\n')
        self.daemon = Daemon(folder, self.site.toml)
        self.url = parse_url(f"sqlite:///{self.daemon.state / 'ejbd.sqlite'}")

    def heat(self, name: str, ranks: int, key: str | None = None, steps: int = STEPS) -> str:
        words = self.daemon.heat(steps, self.daemon.folder / name, pace="50ms")
        return str(self.daemon.post_job(*words, ranks=ranks, time="5:00", key=key)["id"])

    def sign(self) -> int:
        return int(json.loads((self.spool / "daemon.json").read_text())["number"])

    def later_sign(self) -> None:
        before = self.sign()
        until(lambda: self.sign() > before, "no further sign", 60)

    def ended_well(self, job: str, name: str) -> None:
        final = self.daemon.wait(job, timeout_s=200)
        assert (final["state"], final["exit_code"]) == ("completed", 0), (final, self.daemon.events(job))
        assert (self.daemon.folder / name).read_bytes() == undisturbed(self.daemon.folder, STEPS)
        each_tag_once(self.daemon, self.site, job)


def faults(daemon: Daemon) -> list[dict[str, Any]]:
    return list(daemon.client.get("/v1/health").json()["faults"])


def says(daemon: Daemon, words: str) -> Callable[[], bool]:
    return lambda: any(words in fault["what"] for fault in faults(daemon))


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Place(tmp_path)
    try:
        place.daemon.start()
        yield place
    finally:
        place.daemon.stop()
        place.site.close()


def test_a_database_is_restored_from_an_older_copy(place: Place, tmp_path: Path) -> None:
    """Jobs that run on are followed, those that the copy does not know are found, and none runs twice."""
    daemon = place.daemon
    known = place.heat("known", 4)
    daemon.wait_event(known, "epoch.running")
    place.site.start("block", 4)
    waits = place.heat("waits", 2)
    until(lambda: daemon.job(waits)["state"] == "waiting", "it does not wait")
    backup(place.url, tmp_path / "copy")
    place.site.end("block")
    daemon.wait_event(waits, "epoch.running")
    lost = place.heat("lost", 2, key="a-key")
    daemon.wait_event(lost, "epoch.running")
    place.later_sign()
    daemon.kill()
    restore(place.url, tmp_path / "copy", replace=True)
    daemon.start()
    assert place.heat("lost", 2, key="a-key") == lost
    for job, name in ((known, "known"), (waits, "waits"), (lost, "lost")):
        place.ended_well(job, name)
        assert daemon.kinds(job).count("epoch.running") == 1, daemon.events(job)
    assert "job.adopted" in daemon.kinds(lost) and faults(daemon) == []


def test_a_second_daemon_on_a_copy_stands_still_and_a_spool_that_was_away_is_found(
    place: Place, tmp_path: Path
) -> None:
    daemon = place.daemon
    job = place.heat("runs", 4)
    daemon.wait_event(job, "epoch.running")
    (tmp_path / "second").mkdir()
    second = Daemon(tmp_path / "second", place.site.toml)
    second.state.mkdir(mode=0o700)
    backup(place.url, second.state / "ejbd.sqlite")
    second.start()
    try:
        assert says(second, "another daemon")(), faults(second)
        place.later_sign()
        until(says(second, "a later copy of this database"), "it is not told", 60, lambda: str(faults(second)))
        answer = second.client.post(f"/v1/jobs/{job}/cancel")
        assert answer.status_code == 409, answer.text
    finally:
        second.stop()
    place.ended_well(job, "runs")
    adopt = [sys.executable, "-m", "ejbd.daemon", "adopt", "--config", str(second.config)]
    refused = subprocess.run(adopt, capture_output=True, text=True, timeout=180)
    assert refused.returncode == 4 and "--leave-jobs" in refused.stderr, refused.stderr
    assert subprocess.run([*adopt, "--leave-jobs"], timeout=180).returncode == 0
    second.start()
    told = second.log.read_text()
    second.stop()
    assert second.process is not None and second.process.poll() == 4 and "belongs to a database of its own" in told

    place.spool.rename(tmp_path / "away")
    place.spool.mkdir(mode=0o700)
    until(says(daemon, "the spool's mark is gone"), "health says nothing", 60, lambda: str(faults(daemon)))
    late = place.heat("late", 4, steps=10)
    assert not list(place.spool.iterdir())
    shutil.rmtree(place.spool)
    (tmp_path / "away").rename(place.spool)
    assert daemon.wait(late)["state"] == "completed"
    assert faults(daemon) == []
