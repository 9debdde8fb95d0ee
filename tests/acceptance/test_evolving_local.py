"""An evolving job on the embedded cluster: 4, then 12, then 4 processors, and the result of a run that never moved."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import nothing_left, one_copy_only
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import ROOT, Daemon, until

STEPS = 90


def processor_seconds(final: dict[str, Any]) -> tuple[float, float]:
    """What its batch jobs held, and what its peak would have held from the first start to the last end."""
    held = [s for s in final["subjobs"] if s["start_s"] is not None]
    used = sum(s["processors"] * (s["end_s"] - s["start_s"]) for s in held)
    return used, 12 * (max(s["end_s"] for s in held) - min(s["start_s"] for s in held))


def all_ended(daemon: Daemon, job: str) -> dict[str, Any]:
    """The job once the daemon has seen its batch jobs end: until then their ends are planned ones."""

    def over() -> bool:
        return not any(s["state"] in ("planned", "pending", "running") for s in daemon.job(job)["subjobs"])

    until(over, "the end of a batch job was not seen", 60)
    return daemon.job(job)


@pytest.mark.nightly("test_evolving_slurm.py asks for 12 from inside; unit/test_manager_evolving.py has 4, 12, 4")
def test_holds_4_then_12_then_4_and_computes_the_same(tmp_path: Path) -> None:
    paced = tmp_path / "paced"
    subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True)
    expected = subprocess.run(
        [paced, "--steps", str(STEPS), "--expect", "12"], check=True, capture_output=True, timeout=180
    ).stdout
    site = LocalSite(tmp_path, 8, 4)
    daemon = Daemon(tmp_path, site.toml)
    try:
        daemon.start()
        result = tmp_path / "result"
        command = [str(paced), "--steps", str(STEPS), "--pace", "250ms", "--result", str(result)]
        profile = {"profile": "4:8s,12:12s,4:5m", "ntasks": None, "time": "10"}
        job = daemon.submit(*command, overrides=profile)
        with one_copy_only(job):
            daemon.wait_event(job, "epoch.running", 1)
            assert "step 1 of 3, 4 of 4 places; 12 in" in daemon.explain(job)["now"]
            daemon.wait_event(job, "epoch.running", 2)
            assert [i["processors"] for i in daemon.explain(job)["planned"]] == [12, 4]
            daemon.wait_event(job, "epoch.running", 3)
            until(lambda: daemon.job(job)["subjobs"][1]["end_s"] is not None, "what is over is not given back", 30)
            final = daemon.wait(job)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert result.read_bytes() == expected
        epochs = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert [(e["processors"], e["restart_from"]) for e in epochs] == [(4, None), (12, 1), (4, 2)]
        assert [s["processors"] for s in final["subjobs"]] == [4, 8]
        nothing_left(daemon, site, job)
        used, peak = processor_seconds(all_ended(daemon, job))
        print(f"{used:.0f} processor-seconds were held; the peak throughout would have been {peak:.0f}")
        assert used < peak
    finally:
        daemon.stop()
        site.close()


@pytest.mark.nightly("test_evolving_slurm.py has the same program on a real Slurm")
def test_a_program_asks_for_more_and_gives_it_back(tmp_path: Path) -> None:
    from tests.acceptance.elastic import asks_from_inside  # which asks this module how jobs end
    from tests.acceptance.evolving import Paced, build_paced

    site = LocalSite(tmp_path, 8, 4)
    daemon = Daemon(tmp_path, site.toml)
    try:
        daemon.start()
        asks_from_inside(Paced(daemon, build_paced(tmp_path), tmp_path, ranks=16, steps=60))
    finally:
        daemon.stop()
        site.close()
