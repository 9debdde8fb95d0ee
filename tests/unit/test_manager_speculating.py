"""Learned walltimes, live: the first at submission, the next after a time-out, and nothing else."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.api.models import Explanation
from ejbd.cli.show.jobs import walltime_lines
from ejbd.config import Elasticity
from ejbd.core.view import BatchState
from ejbd.errors import EjbError
from ejbd.manager.acts.pastruns import take_in
from ejbd.manager.facts.past.pastruns import Application, key_of
from ejbd.manager.facts.past.speculating import Wanted, walltimes_of
from ejbd.manager.facts.times import expected_left_s, planned_s
from ejbd.manager.jobspec import Asked, JobKind, JobRequest, Overrides, build_spec
from ejbd.store.models import PastRun
from ejbd.store.store import Store
from ejbd.wire.toldruns import ToldRun
from tests.fakes.live import LiveWorld

OWN_S = 7200.0


def learn(store: Store, count: int = 40, application: str = "heat", processors: int = 16) -> None:
    """So many runs of ten minutes, more or less."""
    drawn = random.Random(1)
    runs = [
        ToldRun(key_of(application, at), "ada", application, "", processors, max(60.0, drawn.gauss(600, 120)), OWN_S,
             "completed", 1000.0 + at)
        for at in range(count)
    ]  # fmt: skip
    store.write_sync(lambda session: take_in(session, runs))


def past(store: Store) -> list[PastRun]:
    """What was kept of runs of this test."""
    query = select(PastRun).where(PastRun.end_s > 10_000.0).order_by(PastRun.id)
    return store.read_sync(lambda session: list(session.scalars(query)))


def only(store: Store, run_s: float, outcome: str) -> None:
    """That one run of this test is known, and what is known of it."""
    (row,) = past(store)
    assert row.run_s == pytest.approx(run_s, abs=2) and row.outcome == outcome


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    """What is submitted at a time-out, and not before (test_manager_standby.py has the other way)."""
    return LiveWorld(tmp_path, store, elasticity=Elasticity.OFF, keep_place="off")


async def submit(live: LiveWorld, **spec: Any) -> str:
    given: dict[str, Any] = {"walltime_s": OWN_S, "learned": True, "rerunnable": True, "app": "heat"} | spec
    return await live.submit(**given)


async def ends(live: LiveWorld, tag: str, state: BatchState, after_s: float, code: int | None = None) -> None:
    live.batch.start(tag)
    await live.poll(1)
    live.clock.now += after_s
    live.batch.end(tag, state, code)
    await live.poll(1)


async def test_the_requests_follow_the_sequence_up_to_the_users_own(live: LiveWorld) -> None:
    learn(live.store)
    job = await submit(live)
    kept = live.job(job).walltimes
    assert kept is not None
    sequence = kept["sequence_s"]
    assert sequence == sorted(set(sequence)) and 600 < sequence[0] < 1200 and sequence[-1] == OWN_S
    assert kept["why"] == "by 40 runs" and kept["by"] == "job" and kept["own_cost_s"] == OWN_S
    assert kept["expected_cost_s"] == kept["costs_s"][0] == min(kept["costs_s"]) < OWN_S
    for at, walltime in enumerate(sequence):
        assert live.batch.of(f"ejb-{job}.{at}").walltime_s == live.job(job).walltime_s == walltime
        await ends(live, f"ejb-{job}.{at}", BatchState.TIMEOUT, walltime)
        if at + 1 < len(sequence):
            assert live.job(job).state == "waiting", "submitted again with the poll that saw the end"
            only(live.store, walltime, "timeout")
    assert live.job(job).state == "timeout", "its own request was the last"
    assert [data["walltime_s"] for kind, data in live.events(job) if kind == "job.again"] == sequence[1:]


async def test_a_run_that_began_and_ended_between_two_looks_is_known(live: LiveWorld) -> None:
    learn(live.store)
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    live.clock.now += 60
    live.batch.end(f"ejb-{job}.0", BatchState.COMPLETED, 0)
    await live.poll(1)
    assert live.job(job).state == "completed"
    only(live.store, 60.0, "completed")


async def test_a_run_that_ends_in_its_second_attempt_is_known_once(live: LiveWorld) -> None:
    learn(live.store)
    job = await submit(live)
    first = live.job(job).walltime_s
    await ends(live, f"ejb-{job}.0", BatchState.TIMEOUT, first)
    await ends(live, f"ejb-{job}.1", BatchState.COMPLETED, first + 60, 0)
    assert live.job(job).state == "completed"
    only(live.store, first + 60, "completed")
    told = Explanation.model_validate(await live.manager.explain(job)).walltimes
    assert told is not None and told.at == 1 and len(told.costs_s) == len(told.sequence_s)
    lines = walltime_lines(told.model_dump())
    assert (
        "timed out" in lines[1]
        and "asked for now" in lines[2]
        and lines[-1] == "  the user's own: 2:00:00, asked for once"
    )


@pytest.mark.parametrize(
    ("state", "becomes"),
    [
        (BatchState.FAILED, "failed"),
        (BatchState.NODE_FAIL, "failed"),
        (BatchState.PREEMPTED, "failed"),
        (BatchState.CANCELLED, "cancelled"),
    ],
)
async def test_nothing_but_a_time_out_takes_the_next(live: LiveWorld, state: BatchState, becomes: str) -> None:
    learn(live.store)
    job = await submit(live)
    await ends(live, f"ejb-{job}.0", state, 60.0, 1)
    assert live.job(job).state == becomes and len(live.batch.requests) == 1


async def test_a_cancelled_job_is_not_run_again_though_its_time_runs_out(live: LiveWorld) -> None:
    learn(live.store)
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    await live.manager.cancel(job, "ada")
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    assert live.job(job).state in ("timeout", "cancelled") and len(live.batch.requests) == 1


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"app": "other"}, "none came to an end by itself; a law needs 10, so the user's request stands"),
        ({"rerunnable": False}, "may not be run again (`#EJB rerunnable` or --rerunnable says that it may), so"),
        ({"rigid_options": ("--array=1-4",)}, "an array's tasks time out one by one, so"),
        ({"rigid_options": ("--time-min=10",)}, "--time-min lets the batch system choose the walltime, so"),
    ],
)
async def test_where_nothing_is_learned_the_users_request_stands(
    live: LiveWorld, spec: dict[str, Any], why: str
) -> None:
    learn(live.store)
    job = await submit(live, **spec)
    assert live.batch.of(f"ejb-{job}.0").walltime_s == OWN_S
    explained = await live.manager.explain(job)
    told = Explanation.model_validate(explained).walltimes
    assert told is not None and why in told.why and told.sequence_s == []
    assert walltime_lines(told.model_dump())[0].endswith("so the user's request stands")
    await ends(live, f"ejb-{job}.0", BatchState.TIMEOUT, OWN_S)
    assert live.job(job).state == "timeout"


async def test_the_queue_may_make_it_the_default_and_a_job_opt_out(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, elasticity=Elasticity.OFF, walltime="auto")
    learn(store)
    asked = Asked(directory=str(tmp_path))
    by_queue = await submit(live, learned=None, asked=asked)
    assert live.job(by_queue).walltime_s < OWN_S and (live.job(by_queue).walltimes or {})["by"] == "queue"
    own = await submit(live, learned=False, asked=asked)
    assert live.job(own).walltime_s == OWN_S and live.job(own).walltimes is None


async def test_no_walltime_is_above_the_queues_limit(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(live.store)
    observe = live.batch.observe

    async def limited() -> Any:
        view = await observe()
        return replace(view, queues=tuple(replace(queue, max_walltime_s=500.0) for queue in view.queues))

    monkeypatch.setattr(live.batch, "observe", limited)
    await live.poll(1)
    job = await submit(live, walltime_s=0.0)
    assert (live.job(job).walltimes or {})["sequence_s"] == [500.0], "all runs were longer: it is what there is"


async def test_a_job_that_was_asked_for_as_it_is_appends_to_its_output(live: LiveWorld) -> None:
    learn(live.store)
    job = await submit(live, asked=Asked(directory=str(live.folder), options=("--mem=1G",)))
    first, second = (live.job(job).walltimes or {})["sequence_s"][:2]
    await ends(live, f"ejb-{job}.0", BatchState.TIMEOUT, first)
    one, two = list(live.batch.requests.values())
    assert one.asked is not None and two.asked is not None
    assert one.walltime_s == first and two.walltime_s == second
    assert len(one.asked.options) == 2 and one.asked.options[-1].startswith("--time=")
    assert two.asked.options[1] == "--open-mode=append" and two.asked.options[-1].startswith("--time=")


async def test_a_daemon_that_dies_loses_and_doubles_no_run(live: LiveWorld) -> None:
    """Before the commit in which the end was seen nothing has happened; after it the intent is stored."""
    learn(live.store)
    job = await submit(live)
    live.batch.start(f"ejb-{job}.0")
    await live.poll(1)
    live.clock.now += live.job(job).walltime_s
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    live.clock.now += 1
    await live.manager.poller.poll()  # seen and committed; nothing carried out
    assert live.job(job).state == "waiting" and len(live.batch.requests) == 1
    live.batch.lose_answers = 1  # and the submission is taken without an answer
    await live.restart()
    for _ in range(6):
        await live.poll(10)
    assert [request.tag for request in live.batch.requests.values()] == [f"ejb-{job}.0", f"ejb-{job}.1"]
    assert live.job(job).state == "waiting" and (live.job(job).walltimes or {})["at"] == 1
    await ends(live, f"ejb-{job}.1", BatchState.COMPLETED, 60.0, 0)
    assert live.job(job).state == "completed" and len(past(live.store)) == 1


def test_what_the_words_say() -> None:
    spec = build_spec(
        JobRequest("/", command=("./a",), overrides=Overrides(time="5", walltime="auto", rerunnable=True))
    )
    assert spec.learned is True and spec.rerunnable
    script = "#!/bin/sh\n#SBATCH -t 5\n#EJB walltime=own rerunnable\nsrun ./a\n"
    spec = build_spec(JobRequest("/", script=script))
    assert spec.learned is False and spec.rerunnable
    with pytest.raises(EjbError, match=r"walltime is auto .* or own .*, not '1:00'"):
        build_spec(JobRequest("/", command=("./a",), overrides=Overrides(time="5", walltime="1:00")))


# -- what an engine resumes -------------------------------------------------------------------------------------------


@pytest.fixture
def elastic(tmp_path: Path, store: Store) -> LiveWorld:
    """A full machine, so that J0 is what there is."""
    learn(store)
    live = LiveWorld(tmp_path, store)
    live.batch.free = 0
    return live


# Hundreds of polls: what another database would show is shown by the shorter tests.
ON_ONE = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def runs_for(live: LiveWorld, seconds: float, step: float = 20.0) -> None:
    for _ in range(int(seconds / step)):
        await live.poll(step)
        await live.work()
    await live.poll(1)
    await live.work()


@ON_ONE
async def test_an_elastic_job_is_saved_before_its_walltime_is_over_and_goes_on_with_the_next(
    elastic: LiveWorld,
) -> None:
    live = elastic
    job = await submit(live, rerunnable=False)
    kept = live.job(job).walltimes or {}
    sequence, until = kept["sequence_s"], kept["progress_s"]
    assert kept["checkpoint_s"] > 0 and until[-1] == OWN_S and max(sequence) <= OWN_S
    assert live.job(job).walltime_s == until[0] and live.batch.of(f"ejb-{job}.0").walltime_s == sequence[0]
    await live.begin(f"{job}.0")
    await live.work()
    assert live.job(job).state == "running"
    await runs_for(live, sequence[0] - 5, 5)
    row = live.job(job)
    assert row.state == "waiting" and (row.walltimes or {})["at"] == 1 and row.walltime_s == until[1]
    assert row.work_s == pytest.approx(until[0], rel=0.05), "all that was done is kept"
    told = Explanation.model_validate(await live.manager.explain(job)).walltimes
    assert told is not None and told.left == f"{job}.0" and told.progress_s == until
    if not live.batch.of(f"ejb-{job}.0").state.ended:
        await runs_for(live, 30)
    second = live.batch.of(f"ejb-{job}.1").walltime_s or 0.0
    assert until[1] - row.work_s < second < sequence[0] + until[1] - until[0], "what is left, and not the whole"
    worker = await live.begin(f"{job}.1")
    await live.work()
    assert live.job(job).state == "running" and live.epochs(job)[-1].restart_from == 1
    await live.poll(20)
    await worker.finish_ranks(live.epochs(job)[-1].number)
    for _ in range(3):
        await live.work()
        await live.poll(12)
    assert live.job(job).state == "completed" and live.batch.live() == []
    only(live.store, until[0] + 20, "completed")


@pytest.mark.parametrize("rerunnable", [True, False])
async def test_an_elastic_job_without_a_checkpoint_begins_again_if_it_may(elastic: LiveWorld, rerunnable: bool) -> None:
    live = elastic
    job = await submit(live, rerunnable=rerunnable, engine="none" if rerunnable else "application")
    first = live.batch.of(f"ejb-{job}.0").walltime_s or 0.0
    await live.begin(f"{job}.0")
    await live.work()
    live.clock.now += first - 100  # nobody looks meanwhile, and the batch system ends it early
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    if not rerunnable:
        assert live.job(job).state in ("timeout", "ending"), "there is nothing to go on from"
        return
    row = live.job(job)
    until = (row.walltimes or {})["sequence_s"]
    assert (row.state, row.work_s, row.walltime_s) == ("waiting", 0.0, until[1])
    await live.poll(1)
    assert live.batch.of(f"ejb-{job}.1").walltime_s == until[1]
    worker = await live.begin(f"{job}.1")
    await live.work()
    assert live.job(job).state == "running" and live.epochs(job)[-1].restart_from is None
    await live.poll(20)
    await worker.finish_ranks(live.epochs(job)[-1].number)
    for _ in range(3):
        await live.work()
        await live.poll(12)
    assert live.job(job).state == "completed"


@ON_ONE
async def test_what_outlives_its_subjobs_plans_with_the_next(tmp_path: Path, store: Store) -> None:
    learn(store)
    live = LiveWorld(tmp_path, store)
    live.batch.free = 8
    job = await submit(live)
    until = (live.job(job).walltimes or {})["progress_s"]
    await live.poll(1)
    await live.begin(f"{job}.1")
    live.batch.free = 0
    await runs_for(live, live.subjobs(job)[1].walltime_s - 5, 10)
    row = live.job(job)
    assert row.walltime_s == until[1] and (row.walltimes or {})["at"] == 1 and row.overruns == 0
    assert row.state == "waiting" and row.work_s >= until[0] * 0.8


# -- planned with what was learned, its own request asked for ---------------------------------------------------------


@ON_ONE
async def test_an_elastic_job_is_planned_with_its_learned_run_time_while_j0_has_the_request(
    tmp_path: Path, store: Store
) -> None:
    """What outlives that plan is saved, is no overrun yet, and is planned with the request."""
    learn(store)
    live = LiveWorld(tmp_path, store, plan_by="learned")
    live.batch.free = 8
    asked = Asked(directory=str(tmp_path))
    job = await submit(live, learned=None, rerunnable=False, asked=asked)
    row = live.job(job)
    first, own_s = (row.walltimes or {})["planned_s"]
    assert own_s == row.walltime_s == live.batch.of(f"ejb-{job}.0").walltime_s == OWN_S and 700 < first < 1000
    await live.poll(1)
    subjob = live.subjobs(job)[1]
    assert subjob.walltime_s < 0.5 * OWN_S, "16 ranks on 8 processors, for twice the learned time and no more"
    await live.begin(f"{job}.1")
    live.batch.free = 0
    assert planned_s(row, first - 1.0) == first
    await runs_for(live, subjob.walltime_s - 5, 30)
    row = live.job(job)
    assert (row.state, row.walltime_s, row.overruns) == ("waiting", OWN_S, 0) and row.work_s >= first
    assert planned_s(row, row.work_s) == OWN_S
    told = Explanation.model_validate(await live.manager.explain(job)).walltimes
    assert told is not None and told.sequence_s == []
    (line,) = walltime_lines(told.model_dump())
    assert "planned with the run time of heat" in line and " 13:29, by which 95 of 100 are over" in line


async def test_moves_are_weighed_by_earlier_runs_and_planned_by_the_request(tmp_path: Path, store: Store) -> None:
    learn(store)
    live = LiveWorld(tmp_path, store, weigh_by="learned")
    live.batch.free = 4
    job = await submit(live, learned=None, rerunnable=False, asked=Asked(directory=str(tmp_path)))
    row = live.job(job)
    points = (row.walltimes or {})["points_s"]
    assert (row.walltimes or {})["planned_s"] == [] and points == sorted(points) and planned_s(row, 0.0) == OWN_S
    assert expected_left_s(row, 0.0) == points[1] and expected_left_s(row, points[-1]) == inf
    assert expected_left_s(row, points[0]) == points[1] - points[0]
    await live.poll(1)
    assert live.subjobs(job)[1].walltime_s >= OWN_S, "what it holds lasts for the request"
    told = Explanation.model_validate(await live.manager.explain(job)).walltimes
    assert told is not None and told.sequence_s == [] and told.points_s == points
    (line,) = walltime_lines(told.model_dump())
    assert line.startswith("moves are weighed by the run times of heat on 16 processors")
    asked = [data["question"]["state"]["expected_left_s"] for _, data in live.events(job) if "question" in data]
    assert asked and set(asked) == {points[1]}


@pytest.mark.parametrize("spec", [{"learned": False}, {"app": "other"}])
async def test_where_moves_are_weighed_by_the_request(tmp_path: Path, store: Store, spec: dict[str, Any]) -> None:
    learn(store)
    live = LiveWorld(tmp_path, store, weigh_by="learned")
    live.batch.free = 0
    job = await submit(live, **{"learned": None, "asked": Asked(directory=str(tmp_path)), **spec})
    assert expected_left_s(live.job(job), 0.0) is None


async def test_a_job_that_is_planned_so_is_not_run_again_after_a_time_out(tmp_path: Path, store: Store) -> None:
    learn(store)
    live = LiveWorld(tmp_path, store, plan_by="learned")
    live.batch.free = 0
    job = await submit(live, learned=None, rerunnable=True, asked=Asked(directory=str(tmp_path)))
    await live.begin(f"{job}.0")
    await live.work()
    live.clock.now += OWN_S
    live.batch.end(f"ejb-{job}.0", BatchState.TIMEOUT, None)
    await live.poll(1)
    await live.work()
    assert live.job(job).state in ("timeout", "ending") and len(live.batch.requests) == 1


@pytest.mark.parametrize("spec", [{"engine": "none"}, {"learned": False}, {"app": "other"}, {"walltime_s": 700.0}])
async def test_where_the_request_is_planned_with(tmp_path: Path, store: Store, spec: dict[str, Any]) -> None:
    """What could not be saved where it outlives its plan, who says so, little history, a request that is as short."""
    learn(store)
    live = LiveWorld(tmp_path, store, plan_by="learned")
    live.batch.free = 0
    job = await submit(live, **{"learned": None, "asked": Asked(directory=str(tmp_path)), **spec})
    assert not (live.job(job).walltimes or {}).get("planned_s")


async def test_a_script_whose_shell_would_be_lost_keeps_its_own_walltime(elastic: LiveWorld) -> None:
    job = await submit(elastic, kind=JobKind.SCRIPT, script="#!/bin/sh\nsrun ./heat\n", argv=())
    assert elastic.job(job).walltime_s == OWN_S
    assert "its script cannot be started again" in (elastic.job(job).walltimes or {})["why"]


# -- what is worked out -----------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("resumed", [None, (22.0, 5.0), (1000.0, 400.0)])
@pytest.mark.parametrize("limit_s", [10.0, 333.3, 611.0, 5000.0, inf])
@pytest.mark.parametrize("spread_s", [0.0, 100.0])
def test_no_walltime_is_above_the_limit_whatever_the_law(
    resumed: tuple[float, float] | None, limit_s: float, spread_s: float
) -> None:
    drawn = random.Random(3)
    runs = tuple(PastRun(run_s=600 + spread_s * drawn.random(), outcome="completed") for _ in range(20))
    question = Wanted(Application("ada", "heat", 4), runs, "job", inf, limit_s, 60.0, resumed)
    kept = walltimes_of(question)
    asked, until = kept["sequence_s"], kept.get("progress_s", kept["sequence_s"])
    assert until == sorted(set(until)) and all(0 < walltime <= limit_s for walltime in asked)
    assert until[-1] == limit_s or limit_s == inf
    assert len(asked) == len(until) == len(kept["finishes"]) == len(kept["costs_s"])
    json.dumps(kept, allow_nan=False)
