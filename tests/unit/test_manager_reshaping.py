"""An application that checkpoints itself and takes any number of ranks (`#EJB widths=...`): as many as fit, each at
full speed; fewer, more and all of them in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.core.rungs import ALPHA
from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import EjbError
from ejbd.manager.facts.past.history import NARROWED
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, read
from ejbd.store.models import Speed
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.unit.test_manager_penalty import at_full_width, over


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def payloads(live: LiveWorld) -> list[tuple[int, int, int]]:
    """(epoch, size, ranks) of every launch that workers were told of."""
    return sorted(
        (payload["epoch"], payload["size"], len(payload["ranks"]))
        for worker in live.workers.values()
        for kind, payload in worker.done
        if kind == "launch"
    )


async def running_on_four(live: LiveWorld, widths: str = "any") -> str:
    job = await live.submit(widths=widths)
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    return job


async def test_it_starts_with_as_many_ranks_as_fit_and_widens(live: LiveWorld) -> None:
    job = await running_on_four(live)
    row, epoch = live.job(job), live.epochs(job)[0]
    assert (row.state, epoch.size, epoch.processors, len(epoch.placement)) == ("running", 4, 4, 4)
    assert row.work_rate == pytest.approx((4 / 16) ** ALPHA)
    launch = next(p for worker in live.workers.values() for kind, p in worker.done if kind == "launch")
    assert launch["size"] == 4 and launch["variables"]["SLURM_NTASKS"] == "4"
    await live.poll(10)
    second = live.subjobs(job)[2]
    assert second.processors == 4
    await live.begin(second.id)
    await live.work()
    await live.poll(1)
    await live.work()
    epochs = live.epochs(job)
    assert [(e.state, e.size) for e in epochs] == [("stopped", 4), ("running", 8)]
    assert epochs[1].restart_from == 1 and live.job(job).work_rate == pytest.approx((8 / 16) ** ALPHA)
    assert payloads(live) == [(1, 4, 4), (2, 8, 4), (2, 8, 4)]
    for worker in live.workers.values():
        await worker.finish_ranks(2)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"


async def test_on_j0_it_has_all_its_ranks_and_is_at_full_speed(live: LiveWorld) -> None:
    job = await running_on_four(live)
    live.batch.free = 0
    await live.poll(10)
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    epochs = live.epochs(job)
    assert [(e.size, e.processors) for e in epochs] == [(4, 4), (16, 16)] and live.job(job).work_rate == 1.0


async def test_it_is_planned_by_its_rungs_and_the_decision_keeps_them(live: LiveWorld) -> None:
    job = await running_on_four(live, "power-of-two")
    decided = next(data["decision"] for kind, data in live.events(job) if kind == "decision.start")
    assert "reshaped" in decided["reason"] and "degree" not in decided["reason"]
    asked = next(data["question"] for kind, data in live.events(job) if kind == "decision.start")
    assert asked["parameters"]["rungs"]["widths"] == [16, 8, 4, 2, 1]


async def test_widths_of_whole_nodes_are_multiples_of_what_a_node_holds(live: LiveWorld) -> None:
    live.batch.node_processors = 4
    job = await running_on_four(live, "nodes")
    asked = next(data["question"] for kind, data in live.events(job) if kind == "decision.start")
    assert asked["parameters"]["rungs"]["widths"] == [16, 12, 8, 4]


async def test_only_widths_of_its_list_are_used(live: LiveWorld) -> None:
    job = await running_on_four(live, "3,8")
    epoch = live.epochs(job)[0]
    assert live.subjobs(job)[1].processors == 3 and (epoch.size, epoch.processors) == (3, 3)


async def test_what_was_measured_at_a_width_counts_in_the_place_of_the_law(live: LiveWorld) -> None:
    job, ranks = await over(live, 5.0, widths="any")
    assert live.job(job).work_rate == pytest.approx((4 / 16) ** ALPHA), "the law, with one width alone"
    await at_full_width(live, job, ranks)
    rows = live.store.read_sync(lambda session: [(r.processors, r.degree) for r in session.scalars(select(Speed))])
    assert sorted(rows) == [(4, NARROWED), (16, 1)]
    live.batch.free = 4
    second = await live.submit(walltime_s=1000.0, widths="any")
    await live.poll(1)
    await live.begin(f"{second}.1")
    await live.work()
    assert live.epochs(second)[0].size == 4 and live.job(second).work_rate == pytest.approx(5 / 10)
    decided = next(data["question"] for kind, data in live.events(second) if kind == "decision.start")
    assert decided["parameters"]["delta"] == 1.0, "of Delta nothing was learned"


async def test_a_resume_that_fails_at_its_new_width_goes_back_to_the_old_one(live: LiveWorld) -> None:
    job = await running_on_four(live)
    await live.poll(10)
    second = live.subjobs(job)[2]
    live.workers[f"{job}.1"].fail["launch"] = {}
    await live.begin(second.id)
    await live.work()
    await live.poll(1)
    await live.work()
    live.workers[f"{job}.1"].fail.clear()
    await live.poll(10)
    await live.work()
    failed, back = live.epochs(job)[1], live.epochs(job)[-1]
    assert (failed.state, failed.size) == ("failed", 8) and (back.state, back.size) == ("running", 4)
    assert back.restart_from == 1 and live.job(job).work_rate == pytest.approx((4 / 16) ** ALPHA)


async def test_a_dry_run_tells_the_width_and_what_it_would_take(live: LiveWorld) -> None:
    plan = await live.plan(widths="any")
    assert plan["decision"] is not None
    assert "start by case 1: 4 processors (reshaped) take 400 s" in plan["decision"]["reason"]


async def test_a_job_that_says_nothing_keeps_its_ranks(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    await live.begin(f"{job}.1")
    await live.work()
    assert live.epochs(job)[0].size == 16 and "widths" not in live.job(job).spec


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("engine=application widths=some", "widths are any, divides, power-of-two, nodes, or a list of numbers"),
        ("engine=application widths=4,x", "not '4,x'"),
        ("engine=dmtcp widths=any", "widths are of an application that checkpoints itself"),
        ("engine=dmtcp ntasks-max=32", "ntasks-max is of an application that can be restarted on another number"),
        ("engine=application widths=any ntasks-max=8", "ntasks-max 8 is less than the 16 ranks"),
        ("engine=application widths=any ntasks-max=many", "ntasks-max must be a whole number above 0, not 'many'"),
    ],
)
def test_what_widths_cannot_be_is_said(tmp_path: Path, line: str, says: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -n 16 -t 10\n#EJB {line}\nsrun ./app\n"
    with pytest.raises(EjbError, match=says):
        read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides()))


def test_a_script_says_its_widths(tmp_path: Path) -> None:
    script = "#!/bin/sh\n#SBATCH -n 16 -t 10\n#EJB engine=application widths=4,8,24 ntasks-max=24\nsrun ./app\n"
    spec = read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides())).spec
    assert (spec.widths, spec.ntasks_max) == ("4,8,24", 24) and JobSpec.from_json(spec.to_json()) == spec
    typed = read(JobRequest(cwd=str(tmp_path), script=script, overrides=Overrides(ntasks_max="32"))).spec
    assert typed.ntasks_max == 32, "the command line wins"


def other_waits(live: LiveWorld, processors: int) -> None:
    live.batch.others = [BatchJobView("900", "other", "eve", "batch", BatchState.PENDING, processors, 600.0)]


async def on_j0(live: LiveWorld, **spec: Any) -> str:
    """A job of 16 ranks, of up to 24, on its J0, and nothing else waits."""
    live.batch.free = 0
    job = await live.submit(walltime_s=1000.0, widths="any", ntasks_max=24, **spec)
    await live.poll(1)
    await live.begin(f"{job}.0")
    await live.work()
    await live.poll(1)
    await live.work()
    assert [(e.state, e.size) for e in live.epochs(job)] == [("running", 16)]
    return job


async def grown_beyond(live: LiveWorld) -> str:
    job = await on_j0(live)
    live.batch.free = 10
    await live.poll(10)
    more = live.subjobs(job)[1]
    assert more.processors == 8, "up to 24, and no further"
    await live.begin(more.id)
    await live.work()
    await live.poll(1)
    await live.work()
    live.batch.free = 2
    return job


async def test_on_j0_it_grows_beyond_what_it_asked_for_while_no_other_waits_and_gives_that_back_first(
    live: LiveWorld,
) -> None:
    job = await grown_beyond(live)
    epochs = live.epochs(job)
    assert [(e.state, e.size, e.processors) for e in epochs] == [("stopped", 16, 16), ("running", 24, 24)]
    assert live.job(job).work_rate == pytest.approx(1.5)
    await live.poll(60)
    await live.work()
    assert len(live.epochs(job)) == 2, "nothing changes while no other job waits"
    other_waits(live, 8)
    for _ in range(4):
        await live.poll(2)
        await live.work()
    epochs = live.epochs(job)
    assert [(e.state, e.size) for e in epochs[1:]] == [("stopped", 24), ("running", 16)]
    assert live.job(job).members == [f"{job}.0"] and live.job(job).state == "running"
    why = next(data["reason"] for kind, data in live.events(job) if kind == "decision.shrink")
    assert why == "another job waits: the 8 processors beyond the 16 that were asked for are given back"
    await live.poll(60)
    assert len(live.subjobs(job)) == 2, "it does not grow while the other waits"


async def test_it_does_not_grow_beyond_while_another_job_waits(live: LiveWorld) -> None:
    job = await on_j0(live)
    other_waits(live, 40)
    live.batch.free = 10
    await live.poll(10)
    assert len(live.subjobs(job)) == 1


async def test_a_dry_run_tells_the_widths_beyond(live: LiveWorld) -> None:
    plan = await live.plan(widths="any", ntasks_max=32)
    found = plan["application"]
    assert found is not None
    assert {one["ranks"]: one["takes_s"] for one in found["widths"]}[32] == 50.0


async def test_where_what_is_beyond_j0_is_lost_it_goes_on_with_j0_alone(live: LiveWorld) -> None:
    job = await grown_beyond(live)
    live.batch.free = 0
    live.batch.end(f"ejb-{live.subjobs(job)[1].id}")
    for _ in range(5):
        await live.poll(31)
        await live.work()
    last = live.epochs(job)[-1]
    assert (last.state, last.size, last.restart_from) == ("running", 16, 1)
    assert live.job(job).members == [f"{job}.0"]
