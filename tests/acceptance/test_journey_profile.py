"""An application that writes its own state, by its profile, on the embedded cluster: it starts on what is free, widens
twice, and ends on all that it asked for; its result is the same to the bit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import made_again, nothing_left
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until
from tests.integration.test_worker_profile import PROGRAM, TEXT, total

STEPS = 400


def script(launch: str, folder: Path, engine: str) -> str:
    return f"#!/bin/sh\n#SBATCH -n 8 -t 2 -o {folder}/out.txt\n#EJB engine={engine} restartable\n{launch}\n"


def widened(daemon: Daemon, site: Any, text: str) -> list[int]:
    """The widths that it had, one after the other, up to its end."""
    plan = daemon.client.post("/v1/jobs/plan", json=body(text)).json()
    assert plan["engine"] == "profile" and "field stops and resumes it" in plan["why"], plan
    assert plan["application"]["profile"] == "field" and plan["application"]["widths"][0]["ranks"] == 8
    job = daemon.submit(script=text, ranks=8, time="2:00", overrides={"engine": None})
    daemon.wait_event(job, "epoch.running", 1)
    site.more()
    daemon.wait_event(job, "epoch.running", 2)
    site.more()
    daemon.wait_event(job, "epoch.running", 3)
    until(lambda: daemon.job(job)["progress"] > 0.1, "it does not get on")
    site.unblock()
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    told = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
    assert all(one["ranks"] == one["processors"] for one in told), "each rank has a processor of its own"
    assert made_again(daemon, daemon.folder)["differing"] == [], "its decisions are made again, rungs and all"
    nothing_left(daemon, site, job)
    return [one["ranks"] for one in told]


def body(text: str) -> dict[str, Any]:
    return {"cwd": "/", "script": text, "script_name": "job", "env": {}, "overrides": {}}


@pytest.mark.parametrize(("ranks", "engine"), [("-n $SLURM_NTASKS", "profile"), ("-n 8", "auto")])
def test_it_starts_narrow_widens_twice_and_its_result_is_the_same(tmp_path: Path, ranks: str, engine: str) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "field.toml").write_text(TEXT)
    site = LocalSite(tmp_path, 4, 4, block=8, fillers=(2, 2, 2))
    daemon = Daemon(tmp_path, site.toml, {"EJB_PROFILES": str(profiles)}, as_program=True)
    case = tmp_path / "case"
    case.mkdir()
    try:
        site.fill()
        daemon.start()
        text = script(f"cd {case}\nsrun {ranks} {sys.executable} {PROGRAM} {STEPS} 0.2", tmp_path, engine)
        widths = widened(daemon, site, text)
        assert widths[0] == 2 and widths == sorted(set(widths)) and len(widths) >= 3, widths
        assert (case / "result.txt").read_text() == total(STEPS), "bit for bit what one rank alone makes"
    finally:
        daemon.stop()
        site.close()
