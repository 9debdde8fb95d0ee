"""Evolving jobs of a paced program on any site: what tests of several batch systems do with them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ejbd.client import AsyncClient, Client, Job
from tests.acceptance.test_evolving_local import all_ended
from tests.fakes.daemon import ROOT, Daemon, until

PACE = "250ms"
GRACE = "[limits]\ngive_back_grace_s = 1\n"
"""In the place of `[limits]`: what is queued for a step is then hardly longer than it."""


def build_paced(folder: Path) -> Path:
    made = folder / "paced"
    subprocess.run(["cc", "-O2", "-o", made, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    return made


@dataclass
class Paced:
    """Jobs of `ranks` ranks of the program on a daemon that runs."""

    daemon: Daemon
    program: Path
    folder: Path
    ranks: int = 12
    steps: int = 60

    def words(self, name: str) -> list[str]:
        return [str(self.program), "--steps", str(self.steps), "--pace", PACE, "--result", str(self.folder / name)]

    def submit(self, name: str, profile: str, **more: Any) -> str:
        return self.daemon.submit(*self.words(name), overrides=self.overrides(profile) | more)

    def submit_script(self, name: str, profile: str, before: str) -> Job:
        """A script that does something else first, beside its ranks; by the Python client, which names the daemon."""
        script = self.folder / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{before}\nsrun {' '.join(self.words(name))}\n")
        with Client(socket=str(self.daemon.state / "ejbd.sock")) as client:
            return client.submit(script=str(script), **self.overrides(profile))

    @staticmethod
    def overrides(profile: str) -> dict[str, Any]:
        return {"profile": profile, "ntasks": None, "time": "10", "engine": "application"}

    def ended_well(self, name: str, job: str, timeout_s: float = 150) -> None:
        """It completes, with the result of ranks that never moved."""
        final = self.daemon.wait(job, timeout_s=timeout_s)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        argv = [str(self.program), "--steps", str(self.steps), "--expect", str(self.ranks)]
        expected = subprocess.run(argv, check=True, capture_output=True, timeout=180).stdout
        assert (self.folder / name).read_bytes() == expected

    def epochs(self, job: str) -> list[int]:
        return [e["data"]["processors"] for e in self.daemon.events(job) if e["kind"] == "epoch.launching"]

    def increment(self, job: str) -> tuple[float, float]:
        """When its one increment held its processors."""
        (found,) = [s for s in all_ended(self.daemon, job)["subjobs"] if s["processors"] == self.ranks - self.base(job)]
        return found["start_s"], found["end_s"]

    def base(self, job: str) -> int:
        return int(self.daemon.job(job)["subjobs"][0]["processors"])


def peaks_interlock(paced: Paced, profile: str) -> None:
    """Two jobs whose peaks do not fit at once: both run from now on, and one peak comes when the other is over."""
    daemon = paced.daemon
    jobs = {name: paced.submit(name, profile) for name in ("first", "second")}
    for name, job in jobs.items():
        paced.ended_well(name, job)
    for job in jobs.values():
        assert paced.epochs(job) == [paced.base(job), paced.ranks, paced.base(job)]
    first, second = (paced.increment(job) for job in jobs.values())
    assert first[1] <= second[0], "the second peak waits for the first one's processors"
    begun = [next(e["at_s"] for e in daemon.events(job) if e["kind"] == "epoch.running") for job in jobs.values()]
    assert begun[1] < first[1], "and the second job has begun by then"


def a_tail_is_replaced_from_inside(paced: Paced, profile: str, tail: str) -> str:
    """The script replaces what comes while its ranks run, and its job has those widths; the job."""
    said = paced.folder / "said"
    ejb = Path(sys.executable).parent / "ejb"
    before = f"(sleep 3; {ejb} evolve $EJB_JOB_ID '{tail}' > {said}.new 2>&1; mv {said}.new {said}) &"
    job = paced.submit_script("inside", profile, before)
    until(said.exists, "nothing was said to `ejb evolve`", 60, paced.daemon.trace(job.id))
    assert "STEP" in said.read_text(), said.read_text()
    answers = [job.evolve("+30s:8", dry_run=True), asyncio.run(_asked_by_the_other_client(paced, job.id))]
    for asked in answers:
        assert [places for _, places in asked["steps"]][-1] == 8, asked
    assert 8 not in [one["processors"] for one in job.explain()["planned"]], "it was only asked"
    paced.ended_well("inside", job.id)
    return job.id


async def _asked_by_the_other_client(paced: Paced, job: str) -> dict[str, Any]:
    async with AsyncClient(socket=str(paced.daemon.state / "ejbd.sock")) as client:
        return await (await client.job(job)).evolve("+30s:8", dry_run=True)
