"""Jobs of widths that are known ahead, in the fake world: increments come, decrements go, and what is late is waited
for. Under best effort; what is queued ahead is in test_manager_evolving_guaranteed.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, read
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

PROFILE = {"steps": [[100, 4], [200, 12], [100, 4]], "best_effort": True}


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store, omax=4)


async def submitted(live: LiveWorld, walltime_s: float = 600.0) -> str:
    return await live.submit(12, walltime_s, elastic=True, evolving=PROFILE)


async def moved(live: LiveWorld) -> None:
    """Checkpointed where it was, and begun where it is wanted."""
    for _ in range(4):
        await live.work()
        await live.poll()


async def test_a_job_of_4_12_4_holds_what_its_steps_need(live: LiveWorld) -> None:
    job = await submitted(live)
    (j0,) = live.subjobs(job)
    assert (j0.role, j0.processors) == ("placeholder", 4)
    await live.begin(j0.id)
    await moved(live)
    assert live.job(job).state == "running"
    assert live.epochs(job)[-1].processors == 4
    await live.poll(70)
    assert len(live.subjobs(job)) == 1, "not before its time"
    await live.poll(22)
    increment = live.subjobs(job)[-1]
    assert (increment.role, increment.processors) == ("subjob", 8)
    await live.begin(increment.id)
    await live.poll(12)
    await moved(live)
    assert live.epochs(job)[-1].processors == 12
    assert set(live.job(job).members) == {j0.id, increment.id}
    await live.poll(205)
    await moved(live)
    assert live.job(job).members == [j0.id]
    assert live.epochs(job)[-1].processors == 4
    await live.poll()
    assert [s.state for s in live.subjobs(job)][1] in ("completed", "cancelled") or live.subjobs(job)[1].releasing
    last = live.epochs(job)[-1]
    await live.workers[j0.id].finish_ranks(last.number)
    await moved(live)
    assert live.job(job).state == "completed"
    told = [data["reason"] for kind, data in live.events(job) if kind == "decision.evolve"]
    assert told == [
        "its widths from now on", "step 2 of 3: 12 of the 12 places that it has then",
        "step 3 of 3: 4 of the 4 places that it has then",
    ]  # fmt: skip


async def test_a_step_whose_width_is_late_begins_late_and_lasts_as_long(live: LiveWorld) -> None:
    job = await submitted(live)
    (j0,) = live.subjobs(job)
    await live.begin(j0.id)
    await moved(live)
    begun_s = live.job(job).spec["evolving"]["starts_s"][0]
    for _ in range(10):
        await live.poll(15)
    increment = live.subjobs(job)[-1]
    assert live.job(job).members == [j0.id]
    assert len(live.subjobs(job)) == 2
    await live.begin(increment.id)
    await live.poll()
    course = live.job(job).spec["evolving"]
    assert course["starts_s"][1] >= begun_s + 145
    assert course["starts_s"][2] - course["starts_s"][1] == 200
    assert set(live.job(job).members) == {j0.id, increment.id}


async def test_an_increment_that_is_lost_is_asked_for_again(live: LiveWorld) -> None:
    job = await submitted(live)
    (j0,) = live.subjobs(job)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(93)
    increment = live.subjobs(job)[-1]
    await live.begin(increment.id)
    await live.poll(15)
    await moved(live)
    ends_s = live.job(job).spec["evolving"]["starts_s"][2]
    live.batch.end(f"ejb-{increment.id}", BatchState.FAILED, 1)
    for _ in range(6):
        await live.poll(5)
        await live.work()
    again = live.subjobs(job)[-1]
    assert again.id != increment.id
    assert again.processors == 8
    assert live.job(job).spec["evolving"]["starts_s"][2] == ends_s, "its step is not begun anew"


async def test_the_tail_is_replaced_while_it_runs(live: LiveWorld) -> None:
    job = await submitted(live)
    with pytest.raises(EjbError, match="does not run now"):
        await live.manager.evolve(job, "now:8", False, "ada")
    (j0,) = live.subjobs(job)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(20)
    before = live.job(job).spec["evolving"]
    said = await live.manager.evolve(job, "now:8,+60s:4", True, "ada")
    assert live.job(job).spec["evolving"] == before, "it was only asked"
    assert [places for _, places in said["steps"]] == [4, 8, 4]
    assert said["end_s"] == before["end_s"]
    await live.manager.evolve(job, "now:8,+60s:4", False, "ada")
    await live.poll()
    increment = live.subjobs(job)[-1]
    assert increment.processors == 4
    await live.begin(increment.id)
    await moved(live)
    assert live.epochs(job)[-1].processors == 8
    await live.poll(70)
    await moved(live)
    assert live.job(job).members == [j0.id]
    for tail, words in (("now:3", "4 places are held"), ("now:13", "wider than the job"), ("8", "no time and width")):
        with pytest.raises(EjbError, match=words):
            await live.manager.evolve(job, tail, False, "ada")
    other = await live.submit(4, 100.0)
    with pytest.raises(EjbError, match="has no profile"):
        await live.manager.evolve(other, "now:8", False, "ada")


async def test_a_job_is_resized_from_now_on_and_the_same_twice_is_one(live: LiveWorld) -> None:
    job = await submitted(live)
    with pytest.raises(EjbError, match="does not run now"):
        await live.manager.resize(job, 8, "ada")
    (j0,) = live.subjobs(job)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(20)
    said = await live.manager.resize(job, 8, "ada")
    assert ([places for _, places in said["steps"]], said["base"]) == ([4, 8], 4)
    await live.poll()
    increment = live.subjobs(job)[-1]
    assert increment.processors == 4
    await live.begin(increment.id)
    await moved(live)
    assert live.epochs(job)[-1].processors == 8
    told = len(live.events(job))
    again = await live.manager.resize(job, 8, "ada")
    assert [places for _, places in again["steps"]][-1] == 8
    assert len(live.events(job)) == told and len(live.subjobs(job)) == 2, "nothing is asked for twice"
    with pytest.raises(EjbError, match="wider than the job"):
        await live.manager.resize(job, 13, "ada")
    for _ in range(2):
        less = await live.manager.resize(job, None, "ada", -2, "behind phase 1")
        assert less["steps"][-1][1] == 6, "a request with this key is one, however often it comes"
    state = await live.manager.elastic_call(j0.id, {"call": "show", "to": None, "by": None, "key": ""})
    assert (state["held"], state["asked"], state["base"], state["most"], state["job"]) == (8, 4, 4, 12, job)
    with pytest.raises(EjbError, match="4 places are held"):
        await live.manager.resize(job, None, "ada", -20)
    back = await live.manager.resize(job, None, "ada")
    assert back["steps"][-1][1] == 4
    await live.poll(1)
    await moved(live)
    assert live.job(job).members == [j0.id]
    other = await live.submit(4, 100.0)
    with pytest.raises(EjbError, match="has no profile"):
        await live.manager.resize(other, None, "ada")


async def test_explain_and_timeline_show_the_plan(live: LiveWorld) -> None:
    job = await submitted(live)
    (j0,) = live.subjobs(job)
    told = await live.manager.explain(job)
    assert "its widths are 4:1m40s,12:3m20s,4:1m40s, and begin once 4 places are there" in told["now"]
    await live.begin(j0.id)
    await moved(live)
    told = await live.manager.explain(job)
    assert "step 1 of 3, 4 of 4 places; 12 in" in told["now"]
    assert [interval["processors"] for interval in told["planned"]] == [4, 12, 4]


async def test_a_dry_run_draws_the_profile_in_what_is_free(live: LiveWorld) -> None:
    live.batch.free = 16
    await live.poll()
    told = await live.plan(processes=12, walltime_s=600.0, elastic=True, evolving=PROFILE)
    assert told["placeholder"]["processors"] == 4
    decision = told["decision"]
    assert decision is not None
    assert [interval["processors"] for interval in decision["timeline"]] == [4, 12, 4]
    assert decision["reason"].startswith("all its widths fit from now on")
    assert [processors for _, processors in told["free_ahead"]] == [16]
    live.batch.free = 8
    await live.poll()
    told = await live.plan(processes=12, walltime_s=600.0, elastic=True, evolving=PROFILE)
    assert (told["decision"] or {})["timeline"] == []
    now = live.clock.now
    other = BatchJobView("9", "other", "bob", "batch", BatchState.RUNNING, 8, 1000.0, foreign=True)
    live.batch.others = [replace(other, start_s=now - 800, end_s=now + 200, nodes=("n1",))]
    await live.poll()
    told = await live.plan(processes=12, walltime_s=600.0, elastic=True, evolving=PROFILE)
    decision = told["decision"]
    assert decision is not None
    assert [interval["kind"] for interval in decision["timeline"]] == ["wait", "run", "run", "run"]
    assert [interval["degree"] for interval in decision["timeline"]] == [0, 3, 1, 3]
    assert "all its widths fit 1m40s from now" in decision["reason"]
    assert [(round(at_s - now), processors) for at_s, processors in told["free_ahead"]][1:] == [(200, 16)]


def asked(profile: str, **overrides: str) -> JobRequest:
    return JobRequest(cwd="/", command=("./heat",), overrides=Overrides(profile=profile, **overrides))  # type: ignore[arg-type]


def test_a_profile_says_how_wide_and_how_long() -> None:
    spec = read(asked("4:10m,12:5m,4:20m")).elastic_spec()
    assert (spec.processes, spec.walltime_s, spec.elastic) == (12, 38 * 60, True)
    assert spec.evolving == {"steps": [[600, 4], [300, 12], [1200, 4]]}
    lines = "#!/bin/sh\n#EJB profile=4:10m,12:5m\n#SBATCH -t 30\nsrun ./heat\n"
    assert read(JobRequest(cwd="/", script=lines)).elastic_spec().walltime_s == 1800


def test_the_profile_that_sbatch_means_is_still_its_own() -> None:
    spec = read(asked("Task,Energy", time="10", ntasks="4")).spec
    assert spec.evolving is None
    assert "--profile=Task,Energy" in spec.rigid_options


@pytest.mark.parametrize(
    ("profile", "overrides", "said"),
    [
        ("4:10m,,4:5m", {}, "step 2 of the profile is empty"),
        ("4:10m", {"time": "5"}, "the profile lasts 10m, longer than the walltime"),
        ("4:10m", {"ntasks": "8"}, "the profile's widest step has 4 ranks' places, and the job 8 ranks"),
        ("4:10m", {"engine": "none"}, "a program under engine none cannot change its width"),
        ("4:10m", {"elastic": "off"}, "a job that is passed through has one width"),
        ("4:10m", {"nodes": "2"}, "the widths of a profile have no fixed layout"),
    ],
)
def test_what_cannot_evolve_is_refused_in_one_sentence(profile: str, overrides: dict[str, str], said: str) -> None:
    with pytest.raises(EjbError) as refusal:
        read(asked(profile, **overrides))
    assert said in refusal.value.sentence()
    assert refusal.value.where == "--profile"


async def test_nothing_is_submitted_of_what_its_queue_cannot_hold(live: LiveWorld) -> None:
    for steps, said in (([[10, 200], [10, 400]], "more than queue"), ([[10, 1], [10, 12]], "12 ranks would share")):
        peak = max(width for _, width in steps)
        with pytest.raises(EjbError, match=said):
            await live.submit(peak, 600.0, elastic=True, evolving={"steps": steps})
    assert live.intents("submit") == []


async def test_one_width_from_now_on_and_the_same_call_twice_is_one(live: LiveWorld) -> None:
    job = await submitted(live)
    (j0,) = live.subjobs(job)
    await live.begin(j0.id)
    await moved(live)
    await live.poll(20)
    with pytest.raises(EjbError, match="never has the 12 places free"):
        await live.manager.evolve(job, "to:12", False, "ada")
    first = await live.manager.evolve(job, "to:8", False, "ada")
    await live.poll()
    assert await live.manager.evolve(job, "to:8", False, "ada") == first
    _, increment = live.subjobs(job)
    assert increment.processors == 4
    await live.begin(increment.id)
    await moved(live)
    assert live.epochs(job)[-1].processors == 8
    await live.manager.evolve(job, "to:4", False, "ada")
    await live.poll()
    await moved(live)
    assert live.job(job).members == [j0.id]
    assert live.epochs(job)[-1].processors == 4
    with pytest.raises(EjbError, match="4 places are held"):
        await live.manager.evolve(job, "to:3", False, "ada")
