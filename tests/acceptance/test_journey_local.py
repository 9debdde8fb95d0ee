"""The first journey on the embedded cluster: start at once, grow, move to J0 or off a subjob that ends, and be gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import each_tag_once, made_again, nothing_left, one_copy_only, undisturbed
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until


def decisions(daemon: Daemon, job: str) -> list[dict[str, Any]]:
    """What `explain` tells, oldest first, with the kind of each."""
    return [{"kind": d["kind"], **d["decision"]} for d in daemon.explain(job)["decisions"]]


def test_starts_at_once_grows_twice_and_moves_to_its_placeholder(tmp_path: Path) -> None:
    """8 ranks begin on 1 processor, grow to 2 and to 4; then J0 starts, and moving to it is the earliest end."""
    site = LocalSite(tmp_path, 4, 4, block=8, fillers=(1, 2, 4))
    daemon = Daemon(tmp_path, site.toml, as_program=True)
    try:
        site.fill()
        daemon.start()
        steps, result = 400, tmp_path / "moved"
        job = daemon.submit(*daemon.heat(steps, result, pace="50ms"), ranks=8)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running", 1)
            for count in (2, 3):
                site.more()
                daemon.wait_event(job, "epoch.running", count)
            # With less behind it than a move costs, starting over on J0 would be the earlier end.
            until(lambda: daemon.job(job)["progress"] > 0.2, "it does not get on")
            site.unblock()
            daemon.wait_event(job, "epoch.running", 4)
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)

        told = [d for d in decisions(daemon, job) if d["kind"] != "nothing"]
        assert [d["kind"] for d in told] == ["start", "expand", "expand", "move_to_placeholder"]
        assert told[0]["reason"].startswith("start by case 1: 1 processor (degree 8)")
        assert all(d["reason"].startswith("grow by case ") for d in told[1:3])
        assert told[3]["reason"].startswith("J0 has started; (i) move to J0: a move of ")
        cost = daemon.explain(job)["cost"]
        assert (cost["source"], cost["samples"]) == ("measured", 3)
        weighed = {c["name"]: c["completion_s"] for c in told[3]["candidates"]}
        assert weighed["(i) move to J0"] == min(weighed.values())

        epochs = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert [(e["processors"], e["restart_from"]) for e in epochs] == [(1, None), (2, 1), (4, 2), (8, 3)]
        again = made_again(daemon, tmp_path)
        assert (again["decisions"] >= 4, again["differing"]) == (True, [])
        assert len(made_again(daemon, tmp_path, "--omax", "4")["differing"]) >= 1, "degree 8 was used"
        nothing_left(daemon, site, job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        site.close()


@pytest.mark.nightly("test_last_checkpoint.py leaves before the end; test_standby.py runs a job on PostgreSQL")
@pytest.mark.postgresql
def test_leaves_a_subjob_before_its_end(tmp_path: Path, postgres_url: str) -> None:
    """Two slots at once, one of them short: the ranks are off the short one before it ends, and none is killed.

    An ordinary job of 24 waits first. Until its start 8 processors are idle, and 4 of them afterwards, too.
    """
    site = LocalSite(tmp_path, 8, 4, settings=f'database_url = "{postgres_url}"\n')
    daemon = Daemon(tmp_path, site.toml)
    try:
        daemon.start()
        site.start("filler", 4)
        site.start("block", 20, walltime_s=40)
        site.start("wide", 24)
        steps, result = 1000, tmp_path / "moved"
        job = daemon.submit(*daemon.heat(steps, result))
        with one_copy_only(job):
            daemon.wait_event(job, "decision.shrink", timeout_s=90)
            until(lambda: site.state("wide") == "running", "the job that was first did not start when promised", 60)
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == undisturbed(tmp_path, steps)

        subjobs = {s["id"]: s for s in final["subjobs"]}
        shrink = next(e["data"] for e in daemon.events(job) if e["kind"] == "decision.shrink")
        (left,), (stayed,) = shrink["leaves"], shrink["stays"]
        assert subjobs[left]["walltime_s"] < subjobs[stayed]["walltime_s"]
        first = next(d for d in decisions(daemon, job) if d["kind"] != "nothing")
        assert first["kind"] == "start" and first["reason"].startswith("start by case 3: "), first["reason"]
        assert shrink["reason"] == f"the application outlasts {left}; processors that stay: 4"
        nothing_left(daemon, site, job)
        # Its workers were told to leave in time: it is no time-out, and no epoch failed with it.
        until(lambda: {s["id"]: s["state"] for s in daemon.job(job)["subjobs"]}[left] == "completed", "not left")
        assert "epoch.failed" not in daemon.kinds(job)
        each_tag_once(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
