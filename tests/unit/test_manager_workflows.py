"""Workflows of the fake world: stages become jobs when what they need is there, and every end leads on."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.config import Elasticity
from ejbd.core.view import BatchState
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.facts.flows import following
from ejbd.manager.submission.flows import MADE_AT_ONCE, Asked
from ejbd.manager.telling import flows as telling
from ejbd.store.models import Workflow, WorkflowRun, WorkflowStage
from ejbd.store.store import Store
from tests.fakes import field_profile
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.database

FOUR = """\
workflow:
  name: four
  stages:
    prepare: {command: ./prepare, tasks: 4, walltime: 2}
    search:  {command: srun ./search, tasks: 16, walltime: 5, retries: 1}
    merge:   {command: ./merge, tasks: 4, walltime: 3}
    index:   {command: ./index, tasks: 4, walltime: 1}
"""
DIAMOND = """\
workflow:
  stages:
    a: {command: a, tasks: 1, walltime: 1}
    b: {command: b, tasks: 2, walltime: 1, needs: [a]}
    c: {command: c, tasks: 3, walltime: 1, needs: [a]}
    d: {command: d, tasks: 4, walltime: 1, needs: [b, c]}
"""


class Flow:
    """One workflow, and what its user and the batch system do."""

    def __init__(self, live: LiveWorld, id: str) -> None:
        self.live = live
        self.id = id

    def stages(self) -> dict[str, WorkflowStage]:
        query = select(WorkflowStage).where(WorkflowStage.workflow_id == self.id).order_by(WorkflowStage.ordinal)
        return {row.name: row for row in self.live.store.read_sync(lambda s: list(s.scalars(query)))}

    def states(self) -> dict[str, str]:
        return {name: row.state for name, row in self.stages().items()}

    def row(self) -> Workflow:
        return self.live.store.read_sync(lambda s: s.scalars(select(Workflow).where(Workflow.id == self.id)).one())

    def runs(self) -> list[tuple[str, int, str]]:
        query = select(WorkflowRun).order_by(WorkflowRun.submit_s, WorkflowRun.stage, WorkflowRun.attempt)
        rows = self.live.store.read_sync(lambda s: list(s.scalars(query)))
        return [(row.stage, row.attempt, row.outcome) for row in rows]

    def tag(self, stage: str) -> str:
        return f"ejb-{self.stages()[stage].job_id}.0"

    def script(self, stage: str) -> str:
        return str(self.live.job(str(self.stages()[stage].job_id)).spec["script"])

    async def start(self, stage: str) -> None:
        self.live.batch.start(self.tag(stage))
        await self.live.poll(2)

    async def end(self, stage: str, code: int = 0, state: BatchState | None = None, after_s: float = 60.0) -> None:
        """It runs for a while and ends."""
        if self.live.batch.of(self.tag(stage)).state is BatchState.PENDING:
            await self.start(stage)
        self.live.clock.now += after_s
        found = state or (BatchState.COMPLETED if code == 0 else BatchState.FAILED)
        self.live.batch.end(self.tag(stage), found, code)
        await self.live.poll(2)
        await self.live.act()


async def begun(live: LiveWorld, text: str, key: str | None = None, rounds: int = 4, **more: Any) -> Flow:
    await live.poll()
    asked = Asked(text, "plan.yaml", {"cwd": str(live.folder), "env": {"HOME": "/"}, **more})
    id, _ = await live.manager.submit_workflow(asked, "ada", key)
    await live.act(rounds)
    return Flow(live, id)


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store, elasticity=Elasticity.OFF)


async def test_stages_run_one_after_the_other_each_in_its_width(live: LiveWorld) -> None:
    flow = await begun(live, FOUR)
    assert flow.states() == {"prepare": "submitted", "search": "waiting", "merge": "waiting"}
    await flow.end("prepare")
    assert flow.states() == {"prepare": "completed", "search": "submitted", "merge": "waiting"}
    assert live.batch.of(flow.tag("search")).processors == 16
    await flow.end("search", after_s=120.0)
    script = flow.script("merge")
    assert "./merge\n" in script and "./index\n" in script, "both need 4 processors: they share a job"
    assert live.job(str(flow.stages()["merge"].job_id)).walltime_s == 240.0
    await flow.end("merge")
    assert flow.states() == dict.fromkeys(("prepare", "search", "merge"), "completed")
    assert flow.row().state == "completed" and flow.row().end_s is not None
    told = live.store.read_sync(lambda s: telling.report(s, s.merge(flow.row()), live.clock.now))
    held = {one["stage"]: one["core_h"]["held"] for one in told["attempts"]}
    assert held["search"] == pytest.approx(16 * 120 / 3600, rel=0.05)
    assert told["core_h"]["used"] == told["core_h"]["held"] > 0
    assert told["one_allocation_core_h"] == pytest.approx(16 * told["run_s"] / 3600)
    assert told["saved_percent"] > 30.0


async def test_a_stage_waits_for_all_that_it_needs(live: LiveWorld) -> None:
    flow = await begun(live, DIAMOND)
    await flow.end("a")
    assert flow.states() == {"a": "completed", "b": "submitted", "c": "submitted", "d": "waiting"}
    await flow.end("c")
    assert flow.states()["d"] == "waiting"
    await flow.end("b")
    await flow.end("d")
    assert flow.row().state == "completed"


async def test_a_stage_that_fails_is_tried_as_often_as_it_says(live: LiveWorld) -> None:
    flow = await begun(live, FOUR)
    await flow.end("prepare")
    first = flow.stages()["search"].job_id
    await flow.end("search", 3)
    assert flow.states()["search"] == "submitted" and flow.stages()["search"].job_id != first
    await flow.end("search", state=BatchState.TIMEOUT)
    assert flow.states() == {"prepare": "completed", "search": "failed", "merge": "dropped"}
    assert flow.row().state == "failed" and "ran out of time" in flow.row().reason
    assert flow.runs() == [("prepare", 1, "completed"), ("search", 1, "failed"), ("search", 2, "timeout")]
    await live.manager.retry_workflow(flow.id)
    await live.act()
    assert flow.states() == {"prepare": "completed", "search": "submitted", "merge": "waiting"}
    await flow.end("search")
    await flow.end("merge")
    assert flow.row().state == "completed"
    with pytest.raises(EjbError, match="only one that has failed can be tried again"):
        await live.manager.retry_workflow(flow.id)


async def test_of_stages_that_share_a_job_those_run_again_that_have_not_ended_well(live: LiveWorld) -> None:
    text = FOUR.replace(
        "merge:   {command: ./merge, tasks: 4, walltime: 3}",
        "merge: {command: ./merge, tasks: 4, walltime: 3, retries: 1}",
    )
    flow = await begun(live, text)
    await flow.end("prepare")
    await flow.end("search")
    marks = live.folder / ".ejb-workflow" / flow.id / "merge.1"
    marks.parent.mkdir(parents=True)
    marks.write_text("merge begin 100\nmerge end 130 0\nindex begin 130\nnonsense\nindex end 140 2\n")
    await flow.end("merge", 2)
    assert "./merge\n" not in flow.script("merge") and "./index\n" in flow.script("merge")
    assert live.job(str(flow.stages()["merge"].job_id)).walltime_s == 60.0


@pytest.mark.parametrize(("word", "states"), [("stop", "dropped"), ("continue", "submitted")])
async def test_what_becomes_of_the_rest_where_a_stage_fails(live: LiveWorld, word: str, states: str) -> None:
    flow = await begun(
        live,
        DIAMOND.replace("workflow:", f"workflow:\n  on_failure: {word}", 1)
        + "    e: {command: e, tasks: 1, walltime: 1, needs: [b]}\n",
    )
    await flow.end("a")
    await flow.end("c", 1)
    assert flow.states()["d"] == "dropped" and flow.row().state == "running"
    await flow.end("b")
    assert flow.states()["e"] == states
    if states == "submitted":
        await flow.end("e")
    assert flow.row().state == "failed" and flow.row().reason.startswith("stage c: ")


async def test_a_workflow_is_cancelled_with_what_runs(live: LiveWorld) -> None:
    flow = await begun(live, DIAMOND)
    await flow.end("a")
    await flow.start("b")
    await live.manager.cancel_workflow(flow.id, "ada")
    for _ in range(4):
        await live.poll(10)
    assert flow.states() == {"a": "completed", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    assert flow.row().state == "cancelled" and not live.batch.live()
    with pytest.raises(EjbError, match="is cancelled and cannot be cancelled"):
        await live.manager.cancel_workflow(flow.id, "ada")


async def test_a_cancelled_workflow_makes_no_further_jobs_and_keeps_no_other_waiting(
    live: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of 300 were submitted first, one by one, and those of others behind them."""
    monkeypatch.setattr("ejbd.manager.submission.flows.TURN_S", 600.0)  # however slow the machine makes jobs
    lines = (f"    s{at}: {{command: a, tasks: 1, walltime: 1, needs: []}}\n" for at in range(40))
    flow = await begun(live, "workflow:\n  stages:\n" + "".join(lines), rounds=1)
    assert Counter(flow.states().values()) == {"submitted": MADE_AT_ONCE, "submitting": 40 - MADE_AT_ONCE}
    other = await begun(live, DIAMOND, rounds=1)
    assert other.states()["a"] == "submitted"
    await live.manager.cancel_workflow(flow.id, "ada")
    await live.act()
    made = {run for run in flow.runs() if run[2] != "cancelled"}
    assert len(made) <= 2 * MADE_AT_ONCE + 1
    for _ in range(3):
        await live.poll(2)
    assert flow.row().state == "cancelled" and set(flow.states().values()) == {"cancelled"}


async def test_outputs_that_are_newer_than_inputs_are_not_made_again(live: LiveWorld) -> None:
    text = """\
workflow:
  stages:
    one: {command: one, tasks: 1, walltime: 1, inputs: [in], outputs: [mid]}
    two: {command: two, tasks: 2, walltime: 1, inputs: [mid], outputs: [out]}
    three: {command: three, tasks: 3, walltime: 1, inputs: [absent]}
"""
    for at, name in enumerate(("in", "mid", "out")):
        (live.folder / name).write_text(name)
        os.utime(live.folder / name, (1000.0 + at, 1000.0 + at))
    flow = await begun(live, text)
    assert flow.states() == {"one": "skipped", "two": "skipped", "three": "failed"}
    assert "input 'absent' of stage three is not there" in flow.row().reason
    os.utime(live.folder / "in", (2000.0, 2000.0))
    again = await begun(live, text)
    assert again.states() == {"one": "submitted", "two": "waiting", "three": "waiting"}


async def test_elements_of_a_scattered_stage_are_an_array(live: LiveWorld) -> None:
    flow = await begun(
        live, "workflow: {stages: {a: {command: 'do $EJB_SCATTER', tasks: 1, walltime: 1, scatter: [x, y z]}}}"
    )
    job = live.job(str(flow.stages()["a"].job_id))
    assert "ejb_values=(x 'y z')" in job.spec["script"] and "0-1" in str(job.spec)
    await live.act()
    tags = [one.name for one in live.batch.live()]
    for tag in tags:
        live.batch.start(tag)
    await live.poll(2)
    live.clock.now += 3600.0
    for tag in tags:
        live.batch.end(tag)
    await live.poll(2)
    await live.act()
    assert len(tags) == 2 and flow.row().state == "completed"
    told = live.store.read_sync(lambda s: telling.report(s, s.merge(flow.row()), live.clock.now))
    assert told["core_h"]["held"] == pytest.approx(2.0, rel=0.01), "both elements"


async def test_fast_mode_queues_ahead_and_gives_the_word(live: LiveWorld) -> None:
    text = FOUR.replace("name: four", "name: four\n  mode: fast\n  ahead: 1")
    flow = await begun(live, text)
    await flow.start("prepare")
    assert flow.states()["search"] == "waiting", "it has two minutes, of which one is left to wait"
    await live.poll(61)
    await live.act()
    assert flow.states()["search"] == "submitted" and flow.states()["prepare"] == "submitted"
    assert "exit 75" in flow.script("search")
    go = live.folder / ".ejb-workflow" / flow.id / "search.1.go"
    await flow.start("search")
    assert not go.exists()
    live.batch.end(flow.tag("search"), BatchState.FAILED, 75)
    await live.poll(2)
    assert flow.states()["search"] == "waiting" and flow.stages()["search"].failures == 0
    await live.poll(2)
    assert flow.states()["search"] == "waiting", "it is not queued ahead twice"
    await flow.end("prepare", after_s=10.0)
    assert flow.states()["search"] == "submitted" and "exit 75" not in flow.script("search")
    await flow.start("search")
    await live.poll(290)
    await live.act()
    assert flow.states()["merge"] == "submitted", "the next one is queued ahead, too"
    await flow.end("search", after_s=1.0)
    assert (live.folder / ".ejb-workflow" / flow.id / "merge.1.go").exists()
    await flow.end("merge")
    assert flow.row().state == "completed"


async def test_a_plan_that_the_site_would_not_take_is_refused_with_its_place(live: LiveWorld) -> None:
    with pytest.raises(EjbError) as found:
        await begun(live, FOUR.replace("tasks: 16, walltime: 5", "tasks: 64, walltime: 5, elastic: on"))
    assert found.value.sentence().startswith("plan.yaml:5:5: stage search (tasks: 64): ")
    with pytest.raises(EjbError, match="there is no queue 'nowhere'") as found:
        await begun(live, FOUR.replace("tasks: 16", "tasks: 16, partition: nowhere"))
    assert found.value.code is Code.INVALID


async def test_the_same_key_is_the_same_workflow(live: LiveWorld) -> None:
    one, two = await begun(live, FOUR, "k"), await begun(live, FOUR, "k")
    assert one.id == two.id and len(one.runs()) == 1
    with pytest.raises(EjbError) as found:
        await begun(live, DIAMOND, "k")
    assert found.value.code is Code.KEY_REUSED


async def test_stages_are_run_by_the_profiles_that_came_with_the_plan_as_jobs_are(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, omax=4)
    mine = field_profile.TEXT.replace('"reshapable.py"', '"search"')
    flow = await begun(live, FOUR.replace("retries: 1", "engine: auto"), profiles={"mine.toml": mine})
    assert "profile" not in live.job(str(flow.stages()["prepare"].job_id)).spec
    await flow.end("prepare")
    job = live.job(str(flow.stages()["search"].job_id))
    assert job.spec["profile"]["name"] == "field"


async def test_a_stage_with_a_profile_is_an_evolving_job(tmp_path: Path, store: Store) -> None:
    """Its first width is asked for by J0, the next one queued with its begin; in fast mode it is not queued ahead."""
    live = LiveWorld(tmp_path, store, omax=4)
    live.batch.free = 16
    flow = await begun(
        live,
        "workflow:\n  mode: fast\n  ahead: 1000\n  stages:\n"
        "    prepare: {command: ./prepare, tasks: 4, walltime: 2, elastic: off}\n"
        "    refine: {command: srun ./refine, profile: '4:2m,12:3m,4:2m', walltime: 10, engine: application}\n",
    )
    await flow.start("prepare")
    assert flow.states() == {"prepare": "submitted", "refine": "waiting"}
    await flow.end("prepare")
    assert flow.states()["refine"] == "submitted"
    job = str(flow.stages()["refine"].job_id)
    await live.poll(2)
    await live.act()
    assert (live.job(job).processes, live.job(job).walltime_s) == (12, 600.0)
    assert [s.processors for s in live.subjobs(job)] == [4, 8]
    assert live.job(job).spec["evolving"]["steps"] == [[120, 4], [180, 12], [120, 4]]


async def test_a_node_lost_in_an_elastic_stage_costs_no_try(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, omax=4)
    plan = "workflow:\n  stages:\n    search: {command: srun ./search, tasks: 4, walltime: 5, retries: 1}\n"
    flow = await begun(live, plan + "    last: {command: ./last, tasks: 2, walltime: 1, elastic: off}\n")

    async def begin() -> str:
        job = str(flow.stages()["search"].job_id)
        worker = await live.begin(live.subjobs(job)[-1].id)
        await live.poll()
        await live.work()
        file = str(live.manager.world.spool.launch_file(job, 0))
        await worker.report("launch", ordinal=0, size=4, file=file)
        await live.poll()
        await live.work()
        assert live.job(job).elastic and live.epochs(job)[-1].state == "running"
        return job

    first = await begin()
    live.batch.end(f"ejb-{live.subjobs(first)[0].id}", BatchState.NODE_FAIL, None)
    await live.poll(61, heartbeats=False)
    for _ in range(3):
        await live.poll(1)
        await live.act()
    assert flow.states() == {"search": "submitted", "last": "waiting"} and flow.row().state == "running"
    assert (await begin(), live.job(first).setbacks) == (first, 1)
    assert flow.stages()["search"].attempt == 1


@pytest.mark.parametrize(
    ("stage", "said"),
    [("engine: none", "a program under engine none cannot change its width"), ("elastic: off", "has one width")],
)
async def test_a_stage_that_cannot_evolve_is_refused_before_anything_is_submitted(
    tmp_path: Path, store: Store, stage: str, said: str
) -> None:
    live = LiveWorld(tmp_path, store, omax=4)
    text = "workflow: {stages: {a: {command: a, tasks: 1, walltime: 1}, b: {command: b, profile: '4:2m,8:3m', "
    with pytest.raises(EjbError, match=said) as found:
        await begun(live, text + f"walltime: 10, {stage}}}}}}}")
    assert found.value.where is not None and "stage b" in found.value.where
    assert not live.batch.jobs


async def test_a_stage_wider_than_the_site_is_refused_with_its_place_and_width(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, omax=4)
    text = "workflow:\n  stages:\n    a: {command: a, tasks: 1, walltime: 1}\n    b: {command: srun b, tasks: 4000, "
    with pytest.raises(EjbError) as found:
        await begun(live, text + "walltime: 10, elastic: on}\n")
    assert found.value.where == "plan.yaml:4:5: stage b (tasks: 4000)" and not live.batch.jobs


# -- what follows in the batch system itself ---------------------------------------------------------------------------


@pytest.fixture
def chaining(live: LiveWorld) -> LiveWorld:
    live.batch.chains = True
    return live


def waits_for(flow: Flow, stage: str) -> list[str]:
    """The stages whose batch jobs its own one waits for, by the words that it was submitted with."""
    request = flow.live.batch.requests[flow.live.batch.of(flow.tag(stage)).id]
    said = [word for word in request.options if word.startswith("--dependency=")]
    numbers = said[-1].removeprefix("--dependency=afterok:").split(":") if said else []
    names = {flow.live.batch.of(flow.tag(name)).id: name for name, row in flow.stages().items() if row.job_id}
    return [names.get(number, number) for number in numbers]


async def test_every_stage_is_in_the_queue_behind_what_it_needs(chaining: LiveWorld) -> None:
    """From the start, as `sbatch --dependency` has it; each begins without a poll in between, or another submission."""
    live, flow = chaining, await begun(chaining, FOUR)
    assert flow.states() == {"prepare": "submitted", "search": "submitted", "merge": "submitted"}
    assert waits_for(flow, "search") == ["prepare"] and "exit 75" not in flow.script("search")
    assert waits_for(flow, "merge") == ["search"] and len(live.batch.requests) == 3
    await flow.start("prepare")
    live.clock.now += 100.0
    for before, after in (("prepare", "search"), ("search", "merge")):
        live.batch.end(flow.tag(before))
        live.batch.start(flow.tag(after))
        await live.poll(2)
    assert flow.states() == {"prepare": "completed", "search": "completed", "merge": "submitted"}
    await flow.end("merge")
    assert flow.row().state == "completed" and [run[1:] for run in flow.runs()] == [(1, "completed")] * 3
    assert len(live.batch.requests) == 3
    told = live.store.read_sync(lambda s: telling.report(s, s.merge(flow.row()), live.clock.now))
    assert {one["stage"]: one["wait_s"] for one in told["attempts"]}["search"] < 10.0


async def test_a_long_chain_is_queued_piece_by_piece(chaining: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a plan of many stages does not fill what its user may have in the queue."""
    monkeypatch.setattr(following, "MOST_AHEAD", 2)
    stages = "".join(f"    s{at}: {{command: x, tasks: {1 + at % 2}, walltime: 1}}\n" for at in range(6))
    flow = await begun(chaining, "workflow:\n  stages:\n" + stages, rounds=12)
    assert list(flow.states().values()) == ["submitted"] * 3 + ["waiting"] * 3
    for at in range(6):
        await flow.end(f"s{at}")
        begun_by_now = [name for name, state in flow.states().items() if state != "waiting"]
        assert len(begun_by_now) == min(6, at + 3)
    assert flow.row().state == "completed" and len(chaining.batch.requests) == 6


async def test_a_whole_chain_is_asked_for_anew_behind_a_stage_that_is_tried_again(chaining: LiveWorld) -> None:
    live = chaining
    flow = await begun(live, FOUR.replace("tasks: 4, walltime: 2", "tasks: 4, walltime: 2, retries: 1"))
    tags = [flow.tag("search"), flow.tag("merge")]
    await flow.end("prepare", 3)
    for _ in range(6):
        await live.poll(5)
        await live.act()
    assert [live.batch.of(tag).state for tag in tags] == [BatchState.CANCELLED] * 2
    assert waits_for(flow, "search") == ["prepare"] and waits_for(flow, "merge") == ["search"]
    assert [row.attempt for row in flow.stages().values()] == [2, 2, 2]
    assert [row.failures for row in flow.stages().values()] == [1, 0, 0]
    for name in ("prepare", "search", "merge"):
        await flow.end(name)
    assert flow.row().state == "completed" and len(live.batch.requests) == 6


@pytest.mark.nightly("test_a_whole_chain_is_asked_for_anew_behind_a_stage_that_is_tried_again has it")
async def test_what_followed_a_stage_that_is_tried_again_is_asked_for_anew(chaining: LiveWorld) -> None:
    live, flow = chaining, await begun(chaining, FOUR)
    await flow.end("prepare")
    await flow.start("search")
    await live.act()
    assert waits_for(flow, "merge") == ["search"]
    first = flow.tag("merge")
    await flow.end("search", 3)
    for _ in range(4):
        await live.poll(5)
        await live.act()
    assert live.batch.of(first).state is BatchState.CANCELLED
    assert flow.states()["search"] == "submitted" and flow.stages()["search"].attempt == 2
    assert flow.tag("merge") != first and waits_for(flow, "merge") == ["search"]
    await flow.end("search")
    await flow.end("merge")
    assert flow.row().state == "completed"


async def test_what_followed_a_stage_that_is_soon_tried_again_with_success_is_asked_for_anew(
    chaining: LiveWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own end, by the batch system, is seen after the second try has ended well."""
    live, flow = chaining, await begun(chaining, FOUR)
    await flow.end("prepare")
    await flow.start("search")
    await live.act()
    first = flow.tag("merge")

    async def late(*_: object) -> None:
        pass

    with monkeypatch.context() as patched:
        patched.setattr(live.batch, "cancel", late)
        await flow.end("search", 3)
        await live.act()
        await flow.end("search")
    assert flow.states()["search"] == "completed" and flow.tag("merge") == first
    live.batch.end(first, BatchState.CANCELLED, None)
    for _ in range(3):
        await live.poll(2)
        await live.act()
    assert flow.tag("merge") != first, flow.stages()["merge"].reason
    await flow.end("merge")
    assert flow.row().state == "completed"


async def test_what_follows_a_stage_that_has_failed_for_good_never_begins(chaining: LiveWorld) -> None:
    """The batch system may have ended it by itself before the failure is seen."""
    live, flow = chaining, await begun(chaining, FOUR)
    await flow.start("prepare")
    number = live.batch.of(flow.tag("prepare")).id
    live.batch.jobs[number] = replace(live.batch.jobs[number], state=BatchState.ENDING)
    live.batch.end(flow.tag("search"), BatchState.CANCELLED, None)
    await live.poll(2)
    await live.act()
    assert flow.states()["search"] == "submitted", "what it needs has not ended, and explains its end"
    await flow.end("prepare", 1)
    await live.poll(2)
    assert flow.states() == {"prepare": "failed", "search": "dropped", "merge": "dropped"}
    again = await begun(live, DIAMOND)
    await again.end("a", 1)
    for _ in range(3):
        await live.poll(5)
        await live.act()
    assert again.states() == {"a": "failed", "b": "dropped", "c": "dropped", "d": "dropped"}
    assert again.row().state == "failed" and not live.batch.live()


async def test_what_a_user_cancels_before_it_can_follow_has_ended_at_once(chaining: LiveWorld) -> None:
    live, flow = chaining, await begun(chaining, FOUR)
    await flow.start("prepare")
    live.batch.end(flow.tag("search"), BatchState.CANCELLED, None)
    await live.poll(2)
    await live.act()
    assert flow.states()["prepare"] == "submitted" and flow.states()["search"] == "failed"
    assert "cancelled" in flow.stages()["search"].reason
    await flow.end("prepare")
    assert flow.states() == {"prepare": "completed", "search": "failed", "merge": "dropped"}
    assert flow.row().state == "failed"


async def test_several_needs_are_waited_for_together(chaining: LiveWorld) -> None:
    flow = await begun(chaining, DIAMOND)
    assert set(flow.states().values()) == {"submitted"} and waits_for(flow, "d") == ["b", "c"]
    await flow.end("a")
    await flow.start("b")
    await flow.end("c", after_s=1.0)
    assert flow.states() == {"a": "completed", "b": "submitted", "c": "completed", "d": "submitted"}
    await flow.end("b")
    await flow.end("d")
    assert flow.row().state == "completed"


async def test_where_the_batch_system_refuses_to_wait_the_end_is_waited_for_here(chaining: LiveWorld) -> None:
    live, flow = chaining, await begun(chaining, FOUR, rounds=1)
    live.batch.refuse = BatchError("Job dependency problem", transient=False, own_fault=True)
    await live.act()
    assert flow.states() == {"prepare": "submitted", "search": "waiting", "merge": "waiting"}
    assert "could not be queued ahead" in flow.stages()["search"].reason
    live.batch.refuse = None
    await live.act()
    assert flow.states()["search"] == "waiting", "it is not tried that way again"
    await flow.end("prepare")
    assert waits_for(flow, "search") == [] and waits_for(flow, "merge") == ["search"]
    await flow.end("search")
    await flow.end("merge")
    assert flow.row().state == "completed" and flow.stages()["search"].failures == 0


def in_bash(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash"], input=script, text=True, cwd=folder, capture_output=True, timeout=180, check=False)


async def test_a_stage_that_follows_looks_for_its_inputs_by_itself(chaining: LiveWorld) -> None:
    """What is missing is told, and not tried again, as it is where the daemon looks."""
    live = chaining
    text = "    a: {command: a, tasks: 1, walltime: 1}\n    b: {command: 'true', tasks: 2, walltime: 1, retries: 3, "
    flow = await begun(live, "workflow:\n  stages:\n" + text + "inputs: ['it''s [x]*']}\n")
    assert flow.states()["b"] == "submitted" and waits_for(flow, "b") == ["a"]
    for present, code in ((False, 76), (True, 0)):
        if present:
            (live.folder / "it's x1").touch()
        done = in_bash(flow.script("b"), live.folder)
        assert (done.returncode, "is not there" in done.stderr) == (code, not present)
    await flow.end("a")
    await flow.end("b", 76)
    assert (
        flow.states()["b"] == "failed" and "inputs" in flow.stages()["b"].reason and "b one is not" in flow.row().reason
    )


async def test_in_fast_mode_a_stage_follows_where_the_batch_system_can_wait(chaining: LiveWorld) -> None:
    """It begins on time by itself, and no clock is gone by."""
    text = "    a: {command: a, tasks: 1, walltime: 1}\n    b: {command: b, tasks: 2, walltime: 1}\n"
    flow = await begun(chaining, "workflow:\n  mode: fast\n  ahead: 1\n  stages:\n" + text)
    await flow.start("a")
    assert waits_for(flow, "b") == ["a"] and "exit 75" not in flow.script("b")
    assert len(chaining.batch.requests) == 2


ELASTIC = """\
workflow:
  stages:
    one: {command: srun ./one, tasks: 4, walltime: 5, engine: none}
    two: {command: srun ./two, tasks: 8, walltime: 5, engine: none}
    last: {command: ./last, tasks: 2, walltime: 1, elastic: off}
"""


def behind(flow: Flow, stage: str) -> str:
    request = flow.live.batch.requests[flow.live.batch.of(flow.tag(stage)).id]
    return next((word for word in request.options if word.startswith("--dependency=")), "")


def of_j0(flow: Flow, stage: str) -> str:
    return f"--dependency=afterany:{flow.live.batch.of(flow.tag(stage)).id}"


async def test_what_follows_an_elastic_stage_waits_for_its_j0_and_then_for_the_word(
    tmp_path: Path, store: Store
) -> None:
    """So it has its place in the queue as early as a chain has, and an elastic stage may end on other processors."""
    live = LiveWorld(tmp_path, store, omax=4)
    live.batch.chains = True
    flow = await begun(live, ELASTIC, rounds=8)
    assert set(flow.states().values()) == {"submitted"}, flow.states()
    assert (behind(flow, "two"), behind(flow, "last")) == (of_j0(flow, "one"), of_j0(flow, "two"))
    assert "exit 75" in flow.script("two") and live.job(str(flow.stages()["two"].job_id)).elastic
    job = str(flow.stages()["one"].job_id)
    worker = await live.begin(f"{job}.0")
    await live.poll()
    await live.work()
    go = live.folder / ".ejb-workflow" / flow.id / "two.1.go"
    assert not go.exists()
    await worker.report("script-exit", run=1, code=0)
    for _ in range(3):
        await live.poll(1)
        await live.work()
    assert flow.states()["one"] == "completed" and go.exists()
    assert flow.stages()["two"].attempt == flow.stages()["last"].attempt == 1
    assert not (live.folder / ".ejb-workflow" / flow.id / "last.1.go").exists()


async def test_what_follows_a_j0_that_is_asked_for_again_is_asked_for_again_too(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, omax=4)
    live.batch.chains = True
    flow = await begun(live, ELASTIC, rounds=8)
    job, before = str(flow.stages()["one"].job_id), flow.tag("two")
    live.batch.end(f"ejb-{job}.0", BatchState.NODE_FAIL, None)
    await live.poll(1)
    await live.act()
    assert live.batch.of(before).state is BatchState.CANCELLED, "it would begin behind what is not there"
    for _ in range(12):
        await live.poll(10)
        await live.act()
    again = [one for one in live.subjobs(job) if one.role == "placeholder"][-1]
    assert again.id != f"{job}.0"
    assert live.batch.of(before).state is BatchState.CANCELLED and flow.tag("two") != before
    assert behind(flow, "two") == f"--dependency=afterany:{live.batch.of(f'ejb-{again.id}').id}"
    assert flow.stages()["two"].failures == 0


async def test_a_daemon_killed_while_a_stage_follows_asks_for_none_twice(chaining: LiveWorld) -> None:
    live, flow = chaining, await begun(chaining, FOUR)
    await flow.start("prepare")
    await live.restart()
    live.batch.end(flow.tag("prepare"))
    live.batch.start(flow.tag("search"))
    await live.poll(2)
    await live.restart()
    for _ in range(2):
        await live.poll(2)
        await live.act()
    assert sorted(run[:2] for run in flow.runs()) == [("merge", 1), ("prepare", 1), ("search", 1)]
    assert len(live.batch.requests) == 3
