"""The embedded cluster as a pool: the next job starts by folding the one that runs, which is unfolded when none waits.

No checkpoint is made of either, and both compute what they would have computed alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import ROOT, Daemon, until


@dataclass
class PoolSite(LocalSite):
    @property
    def toml(self) -> str:
        queues = '[queues.default]\npolicy = "fcfs-malleable"\n'
        return f"{super().toml}pool = true\n".replace("[queues.default]\n", queues)


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paced") / "paced"
    subprocess.run(["cc", "-O2", "-o", made, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    return made


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[PoolSite, Daemon]]:
    site = PoolSite(tmp_path, 2, 4)
    daemon = Daemon(tmp_path, site.toml, as_program=True)
    try:
        daemon.start()
        yield site, daemon
    finally:
        daemon.stop()
        site.close()


def alone(paced: Path, steps: int, ranks: int) -> bytes:
    words = [str(paced), "--steps", str(steps), "--expect", str(ranks)]
    return subprocess.run(words, check=True, capture_output=True, timeout=60).stdout


def resizes(daemon: Daemon, job: str) -> list[tuple[int, int]]:
    events: list[dict[str, Any]] = daemon.events(job)
    return [(e["data"]["was"], e["data"]["processors"]) for e in events if e["kind"] == "epoch.resized"]


def test_the_next_job_starts_by_folding_the_first(pool: tuple[PoolSite, Daemon], paced: Path, tmp_path: Path) -> None:
    _, daemon = pool
    first, second = tmp_path / "first", tmp_path / "second"
    words = [str(paced), "--pace", "100ms", "--result"]
    one = daemon.submit(*words, str(first), "--steps", "120", ranks=8)
    daemon.wait_event(one, "epoch.running")
    two = daemon.submit(*words, str(second), "--steps", "40", ranks=4)
    daemon.wait_event(two, "epoch.running")
    until(lambda: resizes(daemon, one) == [(8, 4)], "the first job was not folded")
    assert daemon.wait(two)["state"] == "completed"
    until(lambda: resizes(daemon, one) == [(8, 4), (4, 8)], "the first job was not unfolded")
    assert daemon.wait(one)["state"] == "completed"
    assert first.read_bytes() == alone(paced, 120, 8)
    assert second.read_bytes() == alone(paced, 40, 4)
    for job in (one, two):
        assert daemon.kinds(job).count("epoch.launching") == 1, "no checkpoint, and no second placement"
    assert resizes(daemon, two) == [], "it started whole"
