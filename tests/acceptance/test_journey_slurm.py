"""The first journey on a real Slurm of 8 x 4: start at once on fragments, grow, decide about J0, leave nothing."""

from __future__ import annotations

import itertools
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import undisturbed
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.background import fill
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("journey-slurm")]
POLL_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


ABOUT_J0 = ("move_to_placeholder", "keep_subjobs", "start_on_placeholder")


def shape(planned: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(one["kind"], one["processors"]) for one in planned]


def drawn(daemon: Daemon, job: str, picture: Path) -> list[dict[str, Any]]:
    """What is planned of a job; the picture of it, in which that is hatched and behind a line for now, is kept."""

    def told() -> list[dict[str, Any]]:
        plan: list[dict[str, Any]] = daemon.client.get(f"/v1/jobs/{job}/timeline").json()["planned"]
        return plan

    for _ in range(20):  # the plan may change between two requests: a picture is compared with one that held around it
        planned = told()
        svg = daemon.client.get(f"/v1/jobs/{job}/timeline", params={"format": "svg"}).text
        if shape(told()) == shape(planned):
            break
    picture.write_text(svg)
    titles = [title.text or "" for title in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert len([title for title in titles if title.startswith("planned: ")]) == len(planned)
    assert ('text-anchor="middle" fill="#222222">now</text>' in svg) == bool(planned)
    assert all(one["end_s"] == other["start_s"] for one, other in itertools.pairwise(planned))
    return planned


def test_starts_at_once_grows_and_finishes(cluster: SlurmCluster, tmp_path: Path) -> None:
    background = fill(cluster, tmp_path, free=5)
    toml = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n' + FAST
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    daemon.start()
    try:
        steps = 400
        result = tmp_path / "moved"
        submitted = time.time()
        job = daemon.submit(
            *daemon.heat(steps, result, pace="75ms"), time="2", overrides={"nodes": 4, "ntasks_per_node": 4}
        )
        daemon.wait(job, "running", timeout_s=120)
        first = next(e for e in daemon.events(job) if e["kind"] == "subjob.running")
        assert first["at_s"] - submitted < 60, "the first subjob runs within a few polls, however busy the machine is"
        daemon.wait_event(job, "placeholder.planned")  # Slurm plans it in its own time
        planned = next(e for e in daemon.events(job) if e["kind"] == "placeholder.planned")["data"]["start_s"]
        assert planned - submitted > 120, "J0 alone would start minutes later"
        to_come = drawn(daemon, job, tmp_path / "starts.svg")
        assert (to_come[0]["kind"], to_come[0]["processors"], to_come[0]["degree"]) in (("run", 4, 4), ("move", 4, 0))
        on_j0 = next(stretch for stretch in to_come if stretch["on_placeholder"])
        assert abs(on_j0["start_s"] - planned) < 60, "what is planned goes on where J0 starts"

        # 4 processors of 16, then 8 (degree 2), then 16 (degree 1): what lies between lowers no degree.
        for count, fillers in enumerate([background.fillers[2:], background.fillers[:2]], start=2):
            background.end(*fillers)
            daemon.wait_event(job, "epoch.running", count)
        grown = drawn(daemon, job, tmp_path / "grown.svg")
        ends_s = max(stretch["end_s"] for stretch in grown if stretch["end_s"] is not None)
        assert 0 < ends_s - grown[0]["start_s"] < to_come[-1]["end_s"] - to_come[0]["start_s"]
        background.end(background.block)
        until(
            lambda: any(f"decision.{kind}" in daemon.kinds(job) for kind in ABOUT_J0),
            "J0's start was not decided on",
            120,
            daemon.trace(job),
        )
        final = daemon.wait(job, timeout_s=180)
        assert final["state"] == "completed", final
        assert drawn(daemon, job, tmp_path / "over.svg") == []
        assert result.read_bytes() == undisturbed(tmp_path, steps)

        decisions = {d["kind"]: d["decision"] for d in daemon.explain(job)["decisions"]}
        assert "start by case 1: 4 processors (degree 4)" in decisions["start"]["reason"]
        assert decisions["expand"]["reason"].startswith("grow by case ")
        about_j0 = next(decisions[kind] for kind in ABOUT_J0 if kind in decisions)
        assert about_j0["reason"].startswith("J0 has started; ")
        waited = about_j0 is decisions.get("start_on_placeholder")  # J0 fitted into what it held
        asked = {"(iii) start on J0"} if waited else {"(i) move to J0", "(iii) start on J0"}
        assert asked <= {c["name"] for c in about_j0["candidates"]}

        background.end_all()
        until(lambda: not daemon.processes(), "a worker or a rank is left", 120)
        until(lambda: not {"RUNNING", "PENDING"} & set(cluster.states().values()), "a batch job is left", 60)
    finally:
        daemon.stop()
        cluster.empty()
