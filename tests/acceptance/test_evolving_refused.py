"""What no evolving job can be: one sentence by the command line and by REST each, and nothing is submitted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "wider than the queue": ({"profile": "16:1m,64:1m", "engine": "application"}, "64"),
    "an empty step": ({"profile": "4:1m,,8:1m"}, "step 2 of the profile is empty"),
    "no step": ({"profile": ""}, "step 1 of the profile is empty"),
    "no width": ({"profile": "4:1m,0:1m"}, "step 2 of the profile has no processors"),
    "no duration": ({"profile": "4:1m,8:0s"}, "step 2 of the profile lasts 0 s"),
    "longer than the walltime": ({"profile": "4:8m,8:8m", "time": "10"}, "lasts 16m, longer than the walltime"),
    "another width": ({"profile": "4:1m,8:1m", "ntasks": 4}, "widest step has 8 ranks' places, and the job 4 ranks"),
    "no engine": ({"profile": "4:1m,8:1m", "engine": "none"}, "under engine none cannot change its width"),
    "passed through": ({"profile": "4:1m,8:1m", "elastic": "off"}, "a job that is passed through has one width"),
    "too narrow": (
        {"profile": "1:1m,16:1m", "omax": 4, "engine": "application"},
        "16 ranks would share a processor, and at most 4 may",
    ),
    "a fixed layout": ({"profile": "4:1m,8:1m", "nodes": 2}, "widths of a profile have no fixed layout"),
    "best effort of nothing": ({"best_effort": True, "ntasks": 4}, "best effort is about the widths of a profile"),
}

EXIT = {"too narrow": 6}  # unsupported, where all others are invalid


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("refused")
    site = LocalSite(folder, 8, 4)
    daemon = Daemon(folder, site.toml)
    daemon.start()
    yield daemon
    daemon.stop()
    site.close()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_is_refused_in_one_sentence(daemon: Daemon, case: str) -> None:
    overrides, said = CASES[case]
    words = [word for name, value in overrides.items() for word in _option(name, value)]
    ejb = [str(Path(sys.executable).parent / "ejb"), "--socket", str(daemon.state / "ejbd.sock")]
    done = subprocess.run(
        [*ejb, "submit", *words, "--", "./mesh"], cwd=daemon.folder, capture_output=True, text=True, timeout=180
    )
    print(done.returncode, done.stderr)
    assert done.returncode == EXIT.get(case, 2), done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, "one sentence"
    request = {"command": ["./mesh"], "cwd": str(daemon.folder), "overrides": overrides}
    for path in ("/v1/jobs", "/v1/jobs/plan"):
        answer = daemon.client.post(path, json=request)
        assert answer.status_code in (400, 422), (path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert said in answer.json()["detail"]
    assert daemon.client.get("/v1/jobs").json()["jobs"] == []


def test_a_job_may_share_more_where_it_says_so(daemon: Daemon) -> None:
    overrides = {"profile": "1:1m,16:1m", "omax": 16, "engine": "application"}
    request = {"command": ["./mesh"], "cwd": str(daemon.folder), "overrides": overrides}
    told = daemon.client.post("/v1/jobs/plan", json=request).json()
    assert [one["degree"] for one in told["planned"]] == [16, 1]


def _option(name: str, value: Any) -> list[str]:
    option = "--" + name.replace("_", "-")
    return [option] if value is True else [f"{option}={value}"]
