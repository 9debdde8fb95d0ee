"""Delta is measured from the progress that ranks tell, remembered, planned with and told: the live world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from ejbd.core.delta import delta_at
from ejbd.core.question import Question
from ejbd.core.view import BatchState
from ejbd.manager.acts.learnt import remember
from ejbd.manager.facts.past.history import KEPT, calibrations, work_of
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.store.models import Run, Speed
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker, some


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


class Ranks:
    """An application of 16 ranks that tells of its progress, by a clock of its own."""

    def __init__(self, live: LiveWorld, worker: Worker, epoch: int, done: float = 0.0, total: float | None = 1e4):
        self.live, self.worker, self.epoch, self.done, self.total = live, worker, epoch, done, total

    async def tell(self, **changes: Any) -> None:
        at_s = self.live.clock.now - 3000.0
        told = {"epoch": self.epoch, "resident": 1000, "done": self.done, "total": self.total, "at_s": at_s}
        await self.worker.report("sample", **{**told, **changes})

    async def run(self, seconds: float, per_s: float) -> None:
        await self.live.poll(seconds)
        self.done += seconds * per_s
        await self.tell()


async def over(live: LiveWorld, per_s: float = 2.0, **spec: Any) -> tuple[str, Ranks]:
    """A job of 16 ranks that is over-subscribed by 4, and tells that it does so much a second."""
    live.batch.free = 4
    job = await live.submit(**{"walltime_s": 1000.0, **spec})
    await live.poll(1)
    ranks = Ranks(live, await live.begin(f"{job}.1"), 1)
    await ranks.tell()
    await ranks.run(3, per_s)
    await ranks.run(20, per_s)
    return job, ranks


async def at_full_width(live: LiveWorld, job: str, before: Ranks, per_s: float = 10.0) -> Ranks:
    """... that has moved to J0, and tells of that, too."""
    worker = await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    number = live.epochs(job)[-1].number
    assert (live.epochs(job)[-1].processors, live.epochs(job)[-1].state) == (16, "running")
    ranks = Ranks(live, worker, number, before.done, before.total)
    await ranks.tell()
    await ranks.run(3, per_s)
    await ranks.run(20, per_s)
    return ranks


async def measured(live: LiveWorld, **spec: Any) -> str:
    """A job that was measured and is over."""
    job, ranks = await over(live, **spec)
    ranks = await at_full_width(live, job, ranks)
    await ranks.worker.finish_ranks(ranks.epoch)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"
    return job


def speeds(live: LiveWorld) -> list[Speed]:
    return live.store.read_sync(lambda s: list(s.scalars(select(Speed).order_by(Speed.id))))


async def penalty(live: LiveWorld, job: str) -> dict[str, Any]:
    found = (await live.manager.explain(job))["penalty"]
    assert isinstance(found, dict)
    return found


async def test_speeds_are_measured_by_placement_and_give_delta(live: LiveWorld) -> None:
    job = await measured(live)
    first, second = speeds(live)
    assert (first.application, first.job_id, first.launch, first.total) == ("ada:16:application:heat", job, 0, 1e4)
    assert (first.epoch, first.processors, first.degree, first.units, first.seconds) == (1, 4, 4, 40.0, 20.0)
    assert (second.epoch, second.processors, second.degree, second.units, second.seconds) == (2, 16, 1, 200.0, 20.0)
    assert await penalty(live, job) == {
        "delta": 1.25,
        "source": "measured",
        "why": "measured once at degree 4 by the progress told: 2 a second, 10 at full width",
        "samples": 1,
    }
    (only,) = (await live.manager.explain(job))["deltas"]
    assert only == {"degree": 4, **await penalty(live, job)}
    told = (await live.manager.explain(job))["speeds"]
    assert [(s["epoch"], s["units"], s["seconds"]) for s in told] == [(2, 200.0, 20.0), (1, 40.0, 20.0)]


async def test_the_next_job_of_the_application_is_planned_with_it(live: LiveWorld) -> None:
    heat = JobSpec("heat", JobKind.COMMAND, ("./heat",), 16, 1000.0, "/", "o", engine="application")
    assert some((await live.manager.plan(Reading(heat), "ada"))["penalty"])["source"] == "configured"
    await measured(live)
    live.batch.free = 4
    assert some((await live.manager.plan(Reading(heat), "ada"))["penalty"])["delta"] == 1.25
    job = await live.submit(walltime_s=1000.0, argv=("./heat", "--other"))
    await live.poll(1)
    asked = [data for _, data in live.events(job) if "question" in data]
    assert asked[0]["penalty"]["source"] == "measured" and asked[0]["question"]["parameters"]["delta"] == "4:1.25"
    assert live.subjobs(job)[1].usable_s >= 4 * 1.25 * 1000.0
    for data in asked:  # what is stored is what was asked, and gives the same answer
        assert Question.from_json(data["question"]).answer().to_json() == data["decision"]
    await live.begin(f"{job}.1")
    assert live.job(job).work_rate == 1 / (4 * 1.25), "and its progress is reckoned by it"
    for other in ({"argv": ("./cool",)}, {"processes": 8}, {"engine": "none"}):
        live.batch.free = 0
        strange = await live.submit(**other)
        assert (await penalty(live, strange))["source"] == "configured", other


async def test_delta_is_measured_at_each_degree_and_planned_with_by_degree(live: LiveWorld) -> None:
    """At degree 4 a process makes 2 units a second of the 2.5 that it should, at degree 8 only 0.5 of 1.25."""
    job, ranks = await over(live)
    await at_full_width(live, job, ranks)
    live.batch.free = 2
    other = await live.submit(walltime_s=1000.0, argv=("./heat",))
    await live.poll(1)
    live.batch.free = 0
    narrow = Ranks(live, await live.begin(f"{other}.1"), 1)
    assert live.job(other).work_rate == pytest.approx(1 / (8 * (1 + 0.25 / 3 * 7))), "on along the line through 4"
    await narrow.tell()
    await narrow.run(3, 0.5)
    await narrow.run(20, 0.5)
    found = await live.manager.explain(other)
    assert [(one["degree"], one["delta"]) for one in found["deltas"]] == [(4, 1.25), (8, 2.5)]
    assert found["penalty"] == {name: value for name, value in found["deltas"][1].items() if name != "degree"}
    await live.poll(1)
    assert live.job(other).work_rate == 1 / 20
    live.batch.free = 6
    again = await live.submit(walltime_s=1000.0)
    await live.poll(1)
    (asked, *_) = [data for _, data in live.events(again) if "question" in data]
    question = Question.from_json(asked["question"])
    assert asked["question"]["parameters"]["delta"] == "4:1.25,8:2.5"
    assert [round(delta_at(question.parameters.delta, at), 4) for at in (2, 4, 6, 8)] == [1.0833, 1.25, 1.875, 2.5]
    assert question.answer().to_json() == asked["decision"], "a replay asks the same"


async def test_a_job_may_say_its_delta(live: LiveWorld) -> None:
    await measured(live)
    live.batch.free = 4
    job = await live.submit(delta=1.5, walltime_s=1000.0)
    assert (await penalty(live, job))["why"] == "the job says 1.5"
    await live.poll(1)
    await live.begin(f"{job}.1")
    assert live.job(job).work_rate == 1 / 6


async def test_what_is_learnt_while_a_job_runs_counts_from_then_on(tmp_path: Path, store: Store) -> None:
    """Another job of the application tells what over-subscription costs: what was credited stays as it is."""
    live = LiveWorld(tmp_path, store, max_subjobs=1)
    job, _ = await over(live)
    begun = live.epochs(job)[0].running_s
    await measured(live, argv=("./heat", "2"))
    learnt = live.clock.now
    assert live.job(job).work_rate == 1 / 4, "nobody has looked at it yet"
    await live.poll(0)
    now = live.job(job)
    assert begun is not None and now.work_rate == 1 / 5 and now.work_s == pytest.approx((learnt - begun) / 4)
    (event,) = [data for kind, data in live.events(job) if kind == "epoch.rate"]
    assert event == {"epoch": 1, "rate": 1 / 5}
    await live.poll(10)
    await live.poll(10)
    assert live.kinds(job).count("epoch.rate") == 1
    assert live.job(job).work_s == pytest.approx((learnt - begun) / 4)


async def test_the_move_before_a_placement_is_no_part_of_its_speed(live: LiveWorld) -> None:
    """What is told first in a placement was written before it: with the move in between it would look slow."""
    job, ranks = await over(live)
    before = live.clock.now - 3000.0
    worker = await live.begin(f"{job}.0")
    await live.poll(100)
    await live.work()
    ranks = Ranks(live, worker, 2, ranks.done)
    await ranks.tell(at_s=before)
    await ranks.run(50, 1.0)
    assert [s.epoch for s in speeds(live)] == [1], "there is nothing to count from yet"
    await ranks.run(10, 10.0)
    assert (await penalty(live, job))["delta"] == 1.25


async def test_what_an_older_checkpoint_takes_back_begins_a_new_stretch(live: LiveWorld) -> None:
    job, ranks = await over(live)
    ranks.done = 10.0
    await ranks.run(3, 0.0)
    assert len(speeds(live)) == 1
    await ranks.run(10, 4.0)
    assert [(s.units, s.seconds) for s in speeds(live)] == [(40.0, 20.0), (40.0, 10.0)]
    await ranks.run(10, 4.0)
    assert [(s.units, s.seconds) for s in speeds(live)] == [(40.0, 20.0), (80.0, 20.0)], "and it grows"
    ranks.total = 2e4
    await ranks.run(10, 4.0)
    await ranks.run(10, 4.0)
    assert [s.total for s in speeds(live)] == [1e4, 1e4, 2e4]
    assert job == speeds(live)[0].job_id


async def test_ranks_that_stood_still_for_a_checkpoint_that_failed_are_counted_anew(live: LiveWorld) -> None:
    job, ranks = await over(live)
    ranks.worker.fail = {"checkpoint": {"exits": {}, "bytes": {}}}
    await live.begin(f"{job}.0")
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[0].state == "running" and len(live.epochs(job)) == 1
    await ranks.run(100, 0.1)
    await ranks.run(3, 2.0)
    await ranks.run(10, 2.0)
    assert [(s.units, s.seconds) for s in speeds(live)] == [(40.0, 20.0), (20.0, 10.0)]


async def test_what_tells_nothing_is_left_alone(live: LiveWorld) -> None:
    job, ranks = await over(live, per_s=0.0)
    await ranks.tell(done=None, total=None, at_s=None)
    await ranks.tell(epoch=7, done=99.0)
    assert speeds(live) == [] and (await penalty(live, job))["source"] == "configured"
    for _ in range(2):
        await ranks.run(3, 1.0)
        assert speeds(live) == [], "too short"
    await ranks.run(3, 1.0)
    assert [(s.units, s.seconds) for s in speeds(live)] == [(6.0, 6.0)]


async def test_what_was_left_in_a_file_may_be_no_number(live: LiveWorld) -> None:
    """A worker's own file is read where its subjob ended before it could tell: nobody has checked what is in it."""
    job, ranks = await over(live)
    folder = live.manager.world.spool.subjob_dir(job, f"{job}.1") / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    sample = {"kind": "sample", "epoch": 1, "resident": 1, "done": 60.0, "total": 1e4, "at_s": live.clock.now - 2990.0}
    lines = [{**sample, "done": float("nan")}, {**sample, "at_s": float("inf")}, sample]
    text = "".join(json.dumps({**line, "n": ranks.worker.n + 1 + at}) + "\n" for at, line in enumerate(lines))
    (folder / f"n1-a-{job}.1-n1.jsonl").write_text(text)
    live.batch.end(f"ejb-{job}.1")
    await live.poll(20)
    assert (live.epochs(job)[0].progress or {})["done"] == 60.0
    assert "job.fault" not in live.kinds(job)


async def test_the_same_speed_is_not_told_again_and_again(live: LiveWorld) -> None:
    _, ranks = await over(live)
    known = live.manager.world.remembered
    await ranks.run(5, 2.0)
    assert live.manager.world.remembered is known and speeds(live)[0].seconds == 20.0
    await ranks.run(20, 2.0)
    assert live.manager.world.remembered is not known and speeds(live)[0].seconds == 45.0
    known = live.manager.world.remembered
    await ranks.run(5, 3.0)
    assert live.manager.world.remembered is not known and speeds(live)[0].units == 105.0


async def test_old_speeds_are_forgotten_of_each_degree(live: LiveWorld) -> None:
    await measured(live)
    row = speeds(live)[0]
    columns = {c.name: getattr(row, c.name) for c in Speed.__table__.columns if c.name != "id"}

    def many(session: Any) -> None:
        for _ in range(KEPT + 5):
            remember(session, Speed(**columns))
        remember(session, Speed(**{**columns, "application": "another"}))

    live.store.write_sync(many)
    counted = live.store.read_sync(
        lambda s: list(
            s.execute(select(Speed.application, Speed.degree, func.count()).group_by("application", "degree"))
        )
    )
    assert sorted(map(tuple, counted)) == [(row.application, 1, 1), (row.application, 4, KEPT), ("another", 4, 1)]


async def passed_through(live: LiveWorld, seconds: float, code: int = 0, **spec: Any) -> str:
    """A job that runs at full width for so long, as an ordinary one."""
    job = await live.submit(**{"walltime_s": 1000.0, "elastic": False, **spec})
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    live.clock.now += seconds - 1
    live.batch.end(f"ejb-{job}.0", BatchState.FAILED if code else BatchState.COMPLETED, code)
    await live.poll(3)
    assert live.job(job).state == ("failed" if code else "completed")
    return job


async def silent(live: LiveWorld, over_s: float, full_s: float, **spec: Any) -> str:
    """A job that tells nothing: so long on 4 processors, the rest on J0's 16."""
    live.batch.free = 4
    job = await live.submit(**{"walltime_s": 1000.0, **spec})
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    live.batch.free = 0
    await live.poll(over_s)
    worker.takes = {"checkpoint": 50.0}
    worker = await live.begin(f"{job}.0")
    worker.takes = {"launch": 30.0}
    await live.poll(1)
    await live.work()
    assert live.epochs(job)[-1].state == "running"
    await live.poll(full_s)
    await worker.finish_ranks(live.epochs(job)[-1].number)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"
    return job


def runs(live: LiveWorld) -> list[Run]:
    return live.store.read_sync(lambda s: list(s.scalars(select(Run).order_by(Run.id))))


async def test_two_runs_of_a_command_that_tells_nothing_give_delta(live: LiveWorld) -> None:
    rigid = await passed_through(live, 400.0)
    job = await silent(live, over_s=1000.0, full_s=200.0)
    first, second = runs(live)
    assert (first.job_id, first.application, first.full_s, first.over) == (rigid, "ada:16:none:heat", 400.0, {})
    assert (second.job_id, second.application) == (job, "ada:16:application:heat")
    assert second.full_s == pytest.approx(200.0, abs=2) and second.over == {"4": pytest.approx(1000.0, abs=2)}
    found = await penalty(live, job)
    assert (found["source"], found["samples"]) == ("calibrated", 1) and found["delta"] == pytest.approx(1.25, abs=0.02)
    told = (await live.manager.explain(job))["runs"]
    assert [r["job_id"] for r in told] == [job, rigid]
    live.batch.free = 4
    other = await live.submit(argv=("./heat", "--other"))
    await live.poll(1)
    asked = [data for _, data in live.events(other) if "question" in data]
    assert asked[0]["question"]["parameters"]["delta"] == f"4:{found['delta']}"


async def test_it_does_not_matter_which_of_the_two_comes_first(live: LiveWorld) -> None:
    job = await silent(live, over_s=1000.0, full_s=200.0)
    assert (await penalty(live, job))["source"] == "configured"
    await passed_through(live, 400.0, code=3)
    await passed_through(live, 400.0, argv=("./heat", "--other"))
    await passed_through(live, 20.0)
    assert (await penalty(live, job))["source"] == "configured", "it failed, was another command, was too short"
    await passed_through(live, 400.0)
    assert (await penalty(live, job))["source"] == "calibrated"


async def test_progress_told_goes_before_runs_compared(live: LiveWorld) -> None:
    await passed_through(live, 400.0)
    await silent(live, over_s=1000.0, full_s=200.0)
    job = await measured(live, argv=("./heat", "--other"))
    assert (await penalty(live, job))["source"] == "measured"


async def test_a_run_that_was_disturbed_is_not_kept(live: LiveWorld) -> None:
    """A failed checkpoint: for how long its ranks computed nobody knows."""
    job, ranks = await over(live)
    ranks.worker.fail = {"checkpoint": {"exits": {}, "bytes": {}}}
    await live.begin(f"{job}.0")
    await live.poll(100)
    await live.work()
    await ranks.worker.finish_ranks(1)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed" and runs(live) == []


async def test_a_scripts_own_steps_count_as_full_width(live: LiveWorld) -> None:
    live.batch.free = 4
    script: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/sh\nmpirun ./heat\n"}
    job = await live.submit(walltime_s=1000.0, **script)
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.poll(70)
    await worker.report("launch", ordinal=0, size=16, file=str(live.manager.world.spool.launch_file(job, 0)))
    await live.work()
    live.batch.free = 0
    await live.poll(100)
    await worker.finish_ranks(1)
    await live.work()
    await live.poll(20)
    await worker.report("script-exit", run=1, code=0)
    (run,) = runs(live)
    assert run.full_s == pytest.approx(90.0, abs=3) and run.over == {"4": pytest.approx(100.0, abs=3)}


async def test_only_an_applications_own_over_subscribed_runs_count_for_it(live: LiveWorld) -> None:
    await passed_through(live, 400.0)
    await silent(live, over_s=1000.0, full_s=200.0)
    found = live.store.read_sync(
        lambda s: [len(calibrations(s, f"ada:16:{engine}:heat")) for engine in ("application", "none", "dmtcp")]
    )
    assert found == [1, 0, 0]


def test_what_is_the_same_work() -> None:
    spec = JobSpec("a", JobKind.COMMAND, ("./heat", "5"), 16, 60.0, "/x", "o")
    same = JobSpec("b", JobKind.COMMAND, ("./heat", "5"), 16, 90.0, "/x", "p", engine="dmtcp", elastic=False)
    assert work_of("ada", spec) == work_of("ada", same) and len(work_of("ada", spec)) == 64
    others = [
        JobSpec("a", JobKind.COMMAND, ("./heat", "6"), 16, 60.0, "/x", "o"),
        JobSpec("a", JobKind.COMMAND, ("./heat", "5"), 8, 60.0, "/x", "o"),
        JobSpec("a", JobKind.COMMAND, ("./heat", "5"), 16, 60.0, "/y", "o"),
        JobSpec("a", JobKind.SCRIPT, ("./heat", "5"), 16, 60.0, "/x", "o", script="#!/bin/sh\n"),
    ]
    digests = {work_of("ada", spec), work_of("eve", spec), *(work_of("ada", other) for other in others)}
    assert len(digests) == 6
