"""What a job is told of itself, where EJB's shape of it and the one that was asked for differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.manager.jobspec import JobKind
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

SCRIPT: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def told(live: LiveWorld, subjob: str, kind: str) -> list[dict[str, str]]:
    payloads = [payload for k, payload in live.workers[subjob].done if k == kind]
    return [(p["script"] if kind == "lead" else p)["variables"] for p in payloads]


async def test_a_job_keeps_its_number_when_j0_is_asked_for_again(live: LiveWorld) -> None:
    job = await live.submit(engine="none", **SCRIPT | {"restartable": True})
    first = live.batch.of(f"ejb-{job}.0").id
    live.batch.free = 0
    await live.begin(f"{job}.0")
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.NODE_FAIL, None)
    await live.poll(1)
    await live.poll(30)
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    numbers = [v["SLURM_JOB_ID"] for subjob in ("0", "1") for v in told(live, f"{job}.{subjob}", "lead")]
    assert numbers == [first, first] != [job, job]


async def test_a_script_reckons_with_the_nodes_that_it_asked_for(live: LiveWorld) -> None:
    """It starts on 4 processors of one node; `srun -N $SLURM_NNODES --ntasks-per-node=8` still means 16 ranks."""
    job = await live.submit(engine="none", nodes=2, processors_per_node=8, **SCRIPT)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.poll(1)
    await live.work()
    (script,) = told(live, f"{job}.1", "lead")
    assert (script["SLURM_NNODES"], script["SLURM_NTASKS"], script["SLURM_TASKS_PER_NODE"]) == ("2", "16", "8(x2)")
    assert (script["SLURM_JOB_NODELIST"], script["SLURM_NTASKS_PER_NODE"]) == ("n1", "8")  # there is no other
    assert (script["EJB_NODELIST"], script["EJB_NNODES"], script["EJB_CPUS_PER_NODE"]) == ("n1", "1", "4")
    await live.workers[f"{job}.1"].report(
        "launch", ordinal=0, size=3, file=str(live.manager.world.spool.launch_file(job, 0))
    )
    await live.work()
    (step,) = told(live, f"{job}.1", "launch")
    assert (step["SLURM_STEP_ID"], step["SLURM_NTASKS"], step["SLURM_STEP_TASKS_PER_NODE"]) == ("0", "3", "3")
    assert step["SLURM_JOB_ID"] == script["SLURM_JOB_ID"] == live.batch.of(f"ejb-{job}.0").id
