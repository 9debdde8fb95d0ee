"""A daemon on a real Slurm has its database restored from an older copy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.store.backup import backup, restore
from ejbd.store.engine import parse_url
from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("restored-slurm")]

GATE = "while [ ! -e go ]; do sleep .2; done"


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        yield cluster
        cluster.empty()


@pytest.fixture
def daemon(cluster: SlurmCluster, tmp_path: Path, store_url: str) -> Iterator[Daemon]:
    toml = f'batch = "slurm"\npoll_s = 1\nspool = "{tmp_path / "spool"}"\nworker_python = "{sys.executable}"\n'
    toml += f'database_url = "{store_url}"\n'
    toml += '[queues.default]\nelasticity = "on"\nmin_processors = 1\n'
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


class Submissions:
    """Jobs by their names, which are their keys, too. Each notes its name, and at its end once more."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def elastic(self, name: str, gate: str = GATE) -> str:
        return self._submit(name, "sh", "-c", self._body(name, gate))

    def passed_through(self, name: str, gate: str = GATE, *options: str) -> str:
        script = f"#!/bin/sh\n{self._body(name, gate)}\n"
        return self._submit(name, script=script, overrides={"elastic": "off", "options": list(options)})

    def _body(self, name: str, gate: str) -> str:
        return f"echo {name} >> begun; {gate}; echo {name} >> ended"

    def _submit(self, name: str, *argv: str, **body: Any) -> str:
        return str(self._daemon.post_job(*argv, ranks=1, time="5", key=name, **body)["id"])


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


@pytest.mark.sampled(2)
def test_nothing_is_lost_doubled_or_taken_from_others(
    cluster: SlurmCluster, daemon: Daemon, tmp_path: Path, store_url: str
) -> None:
    """What runs is followed, what the copy does not know is found, and a key that was used gives the same job."""
    submit, copy, url = Submissions(daemon), tmp_path / "copy", parse_url(store_url)
    jobs = {"known": submit.elastic("known"), "passed": submit.passed_through("passed")}
    until(lambda: lines(tmp_path / "begun") == ["known", "passed"], "they do not run", 60)
    backup(url, copy)

    def later() -> dict[str, str]:
        return {
            "lost": submit.elastic("lost"),
            "array": submit.passed_through("array", GATE, "--array=0-1"),
            "fails": submit.passed_through("fails", "false; exit 3"),
            "ends": submit.elastic("ends", "exit 4"),
        }

    jobs |= (found := later())
    begun = ["array", "array", "ends", "fails", "known", "lost", "passed"]
    until(lambda: lines(tmp_path / "begun") == begun, "they do not run", 60)
    assert [daemon.wait(jobs[name])["exit_code"] for name in ("fails", "ends")] == [3, 4]
    noted = tmp_path / "spool" / "ended"
    until(lambda: any(jobs["ends"] in file.read_text() for file in noted.glob("*.json")), "its end is not noted", 60)
    stranger = cluster.sbatch("--job-name=stranger", "--time=5", script="exec sleep 300")

    def sign() -> int:
        return int(json.loads((tmp_path / "spool" / "daemon.json").read_text())["number"])

    before = sign()
    until(lambda: sign() > before, "no further sign", 60)
    daemon.kill()
    restore(url, copy, replace=True)
    daemon.start()
    until(lambda: "database-is-older" in daemon.log.read_text(), "it is not told", 60)
    assert later() == found
    (tmp_path / "go").touch()
    ends = {name: daemon.wait(job) for name, job in jobs.items()}
    told = {name: (end["state"], end["exit_code"]) for name, end in ends.items()}
    assert (told.pop("fails"), told.pop("ends")) == (("failed", 3), ("failed", 4))
    assert set(told.values()) == {("completed", 0)}, told
    assert lines(tmp_path / "begun") == begun
    assert lines(tmp_path / "ended") == ["array", "array", "known", "lost", "passed"]
    assert cluster.states().get(stranger) in ("RUNNING", "PENDING")
