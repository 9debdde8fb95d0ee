"""Debian's slurm-wlm-torque over a real Slurm: commands with PBS's names, and Slurm behind them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ejbd.batch.base import SubmitRequest
from ejbd.batch.pbs import PbsBatch
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError
from tests.fakes.me import ME
from tests.integration.slurm_clusters import SlurmCluster

pytestmark = pytest.mark.slurm

PATH = f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin:/bin"
SCRIPT = "#!/bin/sh\n#PBS -N theirs\n#PBS -l nodes=2:ppn=4\n#PBS -l walltime=0:05:00\nsleep 300\n"


@pytest.fixture
def wrapped(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    qstat = shutil.which("qstat", path=PATH)
    if qstat is None or b"perl" not in Path(qstat).read_bytes()[:40]:
        pytest.skip("not installed: slurm-wlm-torque (qsub, qstat and qdel over Slurm)")
    prefix = Path(shutil.which("squeue", path=PATH) or "/").parents[1]
    if not any(prefix.glob("lib/*/perl*/*/Slurm.pm")):
        pytest.skip(f"not installed below {prefix}: Slurm's interface to Perl, without which qstat cannot ask it")
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return slurm


def run(*argv: str, cwd: Path) -> str:
    done = subprocess.run(
        argv, env={**os.environ, "PATH": PATH}, cwd=cwd, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


async def test_pbs_over_slurms_wrappers_is_refused_with_one_sentence(wrapped: SlurmCluster) -> None:
    adapter = PbsBatch(path=PATH)
    with pytest.raises(BatchError) as caught:
        await adapter.observe()
    assert not caught.value.transient
    for word in ("slurm-wlm-torque", 'batch = "slurm"', "[pbs]"):
        assert word in caught.value.sentence()
    assert "\n" not in caught.value.sentence()
    failed = [text for _, fine, text in await adapter.doctor() if not fine]
    assert failed == [caught.value.sentence()]


async def test_jobs_of_those_who_use_the_wrappers_are_seen_and_ejbs_own_obey_them(
    wrapped: SlurmCluster, tmp_path: Path
) -> None:
    """Their `qsub` holds processors in EJB's view, their `qstat` lists EJB's jobs, and their `qdel` ends one."""
    adapter = wrapped.batch()

    async def job(id: str, right: Callable[[BatchJobView], bool]) -> BatchJobView:
        deadline = time.monotonic() + 60
        while True:
            view = await adapter.observe()
            if found := next((job for job in view.jobs if job.id == id and right(job)), None):
                return found
            assert time.monotonic() < deadline, view.jobs
            await asyncio.sleep(0.1)

    script = tmp_path / "theirs.pbs"
    script.write_text(SCRIPT)
    theirs = run("qsub", "-o", "/dev/null", "-e", "/dev/null", str(script), cwd=tmp_path).strip().partition(".")[0]
    seen = await job(theirs, lambda job: job.state is BatchState.RUNNING)
    assert (seen.name, seen.processors, seen.walltime_s, seen.tag) == ("theirs", 8, 300.0, "")
    sleep = "#!/bin/sh\nsleep 300\n"
    ours = await adapter.submit(
        ME, SubmitRequest("ejb-f00d.1", "", "batch", 4, 600.0, sleep, tmp_path, tmp_path / "out")
    )
    await job(ours, lambda job: job.state is BatchState.RUNNING)
    listed = run("qstat", cwd=tmp_path)
    assert "theirs" in listed and "ejb-f00d.1" in listed
    run("qdel", ours, cwd=tmp_path)
    await job(ours, lambda job: job.state is BatchState.CANCELLED)
    wrapped.empty()
