"""Scripts with `#EJB stages` in the fake world: each launch has its own width and time, the script one place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.core.view import BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.manager.facts.launches import of_stages
from ejbd.manager.jobspec import JobRequest, Reading, read
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker, some

TEXT = "#!/bin/bash\n#SBATCH -n 16 -t 30\n#EJB stages\nsrun -n 4 -t 5 ./a\nsrun ./b\nsrun -n 1 ./c\n"


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def reading(live: LiveWorld, text: str = TEXT) -> Reading:
    return read(JobRequest(cwd=str(live.folder), script=text))


async def begun(live: LiveWorld, text: str = TEXT) -> tuple[str, Worker]:
    """On its own place, before its first launch."""
    job = await live.submit_script(text)
    await live.act()
    (j0,) = live.subjobs(job)
    assert (j0.role, j0.processors, j0.walltime_s) == ("placeholder", 1, 1800.0)
    worker = await live.begin(j0.id)
    await live.poll()
    await live.work()
    assert live.job(job).state == "running" and "one place between launches" in (await live.manager.explain(job))["now"]
    return job, worker


async def launch(live: LiveWorld, worker: Worker, job: str, ordinal: int, size: int, **more: Any) -> None:
    file = str(live.manager.world.spool.launch_file(job, ordinal))
    await worker.report("launch", ordinal=ordinal, size=size, file=file, **more)
    await live.poll()


async def comes(live: LiveWorld, job: str) -> str:
    """What was asked for last is started, and the ranks on it."""
    subjob = live.subjobs(job)[-1]
    await live.begin(subjob.id)
    await live.poll()
    await live.work()
    return subjob.id


async def finish(live: LiveWorld, job: str) -> None:
    number = live.epochs(job)[-1].number
    for worker in list(live.workers.values()):
        await worker.finish_ranks(number)
    await live.work()
    await live.poll()
    await live.work()


async def test_each_launch_holds_what_it_needs_and_the_script_one_place_between_them(live: LiveWorld) -> None:
    job, lead = await begun(live)
    await launch(live, lead, job, 0, 4, time="5")
    asked = live.subjobs(job)[-1]
    assert (asked.role, asked.processors) == ("subjob", 3) and 300 < asked.walltime_s < 500
    assert "waits for 3 of them beside the script's" in (await live.manager.explain(job))["now"]
    await live.poll(60)
    assert not live.epochs(job) and len(live.subjobs(job)) == 2, "it waits, and is not asked for twice"
    await comes(live, job)
    assert [(e.size, e.processors, e.state) for e in live.epochs(job)] == [(4, 4, "running")]
    assert "launch 1 of 4 places has run for" in (await live.manager.explain(job))["now"]
    await finish(live, job)
    assert live.job(job).members == [f"{job}.0"] and live.subjobs(job)[1].releasing
    await launch(live, lead, job, 1, 16)
    assert live.subjobs(job)[-1].processors == 15
    await comes(live, job)
    assert live.epochs(job)[-1].processors == 16
    await live.poll(20)
    await finish(live, job)
    await launch(live, lead, job, 2, 1)
    await live.work()
    assert len(live.subjobs(job)) == 3 and live.epochs(job)[-1].processors == 1, "the script's own place does"
    await finish(live, job)
    await lead.report("script-exit", run=1, code=0)
    await live.work()
    await live.poll()
    assert live.job(job).state == "completed"
    held = live.store.read_sync(lambda s: of_stages(s, live.job(job), live.clock.now))
    assert [(one["ranks"], one["code"]) for one in held] == [(4, 0), (16, 0), (1, 0)]
    assert held[0]["wait_s"] >= 60 and held[1]["beside_processor_s"] > 0 == held[2]["beside_processor_s"]


async def test_a_launch_ends_with_its_time_and_the_script_goes_on(live: LiveWorld) -> None:
    job, lead = await begun(live)
    await launch(live, lead, job, 0, 4, time="5")
    await comes(live, job)
    await live.poll(290)
    assert live.epochs(job)[-1].state == "running"
    await live.poll(15)
    await live.work()
    await live.poll()
    await live.work()
    ended = [payload for kind, payload in lead.done if kind == "launch-ended"]
    assert [one["code"] for one in ended] == [143] and live.job(job).state == "running"
    await launch(live, lead, job, 1, 16, time="soon")
    await live.work()
    (refused,) = [data for kind, data in live.events(job) if kind == "launch.refused"]
    assert "'soon' is not a walltime" in refused["reason"]


async def test_what_a_launch_had_is_lost_and_asked_for_again(live: LiveWorld) -> None:
    job, lead = await begun(live)
    await launch(live, lead, job, 0, 4)
    lost = await comes(live, job)
    live.batch.end(f"ejb-{lost}", BatchState.FAILED, 1)
    for _ in range(4):
        await live.poll(5)
        await live.work()
    again = live.subjobs(job)[-1]
    assert again.id != lost and again.processors == 3
    await comes(live, job)
    assert live.epochs(job)[-1].state == "running" and live.job(job).state == "running"


async def test_a_daemon_killed_between_two_launches_gives_back_and_asks_once(live: LiveWorld) -> None:
    job, lead = await begun(live)
    await launch(live, lead, job, 0, 4)
    await comes(live, job)
    await live.restart()
    await finish(live, job)
    await live.restart()
    await live.poll()
    assert live.job(job).members == [f"{job}.0"]
    await launch(live, lead, job, 1, 16)
    await live.restart()
    await live.poll()
    await live.poll(20)
    assert [s.processors for s in live.subjobs(job)] == [1, 3, 15]
    await comes(live, job)
    assert live.epochs(job)[-1].processors == 16


async def test_what_no_script_with_stages_can_be_is_refused_in_a_sentence(live: LiveWorld) -> None:
    for line, words in {
        "#SBATCH -t 30\n#EJB stages": "how wide its widest launch may be",
        "#SBATCH -N 2 -n 8 -t 30\n#EJB stages": "no fixed layout",
        "#SBATCH -n 8 -t 30\n#EJB stages profile=4:5m,8:5m": "a profile or stages",
        "#SBATCH -n 8 -t 30 -a 1-3\n#EJB stages": "have no stages",
        "#SBATCH -n 8 -t 30\n#EJB stages elastic=off": "has one width",
    }.items():
        with pytest.raises(EjbError, match=words):
            reading(live, f"#!/bin/bash\n{line}\nsrun ./a\n")
    with pytest.raises(EjbError, match="17 ranks are asked for, but the job has 16"):
        await live.submit_script(TEXT.replace("-n 4", "-n 17"))
    job, lead = await begun(live)
    await launch(live, lead, job, 0, 17)
    (refused,) = [data for kind, data in live.events(job) if kind == "launch.refused"]
    assert "more ranks than the job has" in refused["reason"] and len(live.subjobs(job)) == 1
    with pytest.raises(EjbError, match="width of its own"):
        await live.manager.resize(job, 8, "ada")
    dry = await live.manager.plan(reading(live), "ada")
    assert dry["placeholder"]["processors"] == 1
    assert "the script begins on one place" in some(dry["decision"])["reason"]


AHEAD = """\
#!/bin/bash
#SBATCH -n 16 -t 30
#EJB stages
srun -n 4 -t 5 ./a && touch a
[ -e a ] && srun -t 2 ./b
./work
srun ./c
srun -n $N ./d
srun -n 2 ./e || srun -n 3 ./f
srun -n 4 ./g
"""


async def ahead(live: LiveWorld) -> tuple[str, Worker, str]:
    """While its first launch runs, what the second one needs is queued behind that."""
    live.batch.chains = True
    job, lead = await begun(live, AHEAD)
    await launch(live, lead, job, 0, 4, time="5")
    first = await comes(live, job)
    await live.poll()
    await live.act()
    coming = live.subjobs(job)[-1]
    assert coming.processors == 15 and 120 < coming.walltime_s < 400
    request = live.batch.requests[live.batch.of(f"ejb-{coming.id}").id]
    assert f"--dependency=afterany:{live.batch.of(f'ejb-{first}').id}" in request.options
    await live.poll(60)
    await finish(live, job)
    assert live.job(job).members == [f"{job}.0"]
    assert [s.releasing for s in live.subjobs(job)] == [False, True, False]
    return job, lead, coming.id


async def test_what_the_next_launch_needs_is_queued_behind_this_one_where_the_text_shows_it(live: LiveWorld) -> None:
    told = some(reading(live, AHEAD).spec.evolving)["ahead"]
    assert not any("so short" in note for note in reading(live, AHEAD).notes)
    (note,) = [note for note in reading(live, AHEAD.replace("-t 2", "-t 0:20")).notes if "so short" in note]
    assert note.startswith("line 5: its launch has 20s at most")
    assert told == [None, [16, 120.0], None, None, [2, None], None, None], "what takes time, what does not show, ||"
    assert "ahead" not in some(reading(live, TEXT.replace("srun", "for i in 1 2; do srun", 1) + "done\n").spec.evolving)
    job, lead, coming = await ahead(live)
    await live.begin(coming)
    await launch(live, lead, job, 1, 16, time="2")
    await live.work()
    assert live.epochs(job)[-1].processors == 16 and len(live.subjobs(job)) == 3
    await live.poll()
    assert len(live.subjobs(job)) == 3, "work stands before the third"


async def test_what_was_queued_for_a_launch_that_does_not_come_is_given_back(live: LiveWorld) -> None:
    job, lead, coming = await ahead(live)
    await live.poll(60)
    assert not live.subjobs(job)[-1].releasing, "it holds nothing while it waits"
    await live.begin(coming)
    await live.poll(5)
    assert not live.subjobs(job)[-1].releasing
    await live.poll(10)
    assert live.subjobs(job)[-1].releasing
    await launch(live, lead, job, 1, 16)
    assert live.subjobs(job)[-1].id != coming and live.subjobs(job)[-1].processors == 15
    other, lead, _ = await ahead(live)
    await launch(live, lead, other, 1, 8)
    assert [(s.processors, s.releasing) for s in live.subjobs(other)[2:]] == [(15, True), (7, False)]
    lost, lead, _ = await ahead(live)
    await launch(live, lead, lost, 1, 16)
    await comes(live, lost)
    assert live.epochs(lost)[-1].state == "running"


async def test_a_launch_waits_for_no_poll(live: LiveWorld) -> None:
    """What it needs is asked for as the script comes to it, used as its last worker is there, and given back as its
    ranks have ended."""
    job, lead = await begun(live)
    file = str(live.manager.world.spool.launch_file(job, 0))
    await lead.report("launch", ordinal=0, size=4, file=file)
    asked = live.subjobs(job)[-1]
    assert asked.processors == 3
    await live.act()
    live.batch.start(f"ejb-{asked.id}")
    await live.poll()
    assert not live.epochs(job), "no worker is there"
    await live.begin(asked.id)
    await live.work()
    assert [(e.size, e.processors) for e in live.epochs(job)] == [(4, 4)]
    for worker in list(live.workers.values()):
        await worker.finish_ranks(1)
    await live.work()
    assert live.subjobs(job)[-1].releasing and live.job(job).members == [f"{job}.0"]


async def test_a_width_that_the_batch_system_does_not_take_is_told_and_asked_for_again(live: LiveWorld) -> None:
    job, lead = await begun(live)
    live.batch.refuse, live.batch.refuse_role = BatchError("no such node", transient=False), ".1"
    await launch(live, lead, job, 0, 4)
    now = (await live.manager.explain(job))["now"]
    assert "launch 1 of 4 places cannot begin, and is asked for again, " in now and "no such node" in now
    live.batch.refuse = None
    for _ in range(30):
        await live.poll(60)
        if live.subjobs(job)[-1].state == "pending":
            break
    assert "waits for 3 of them beside the script's" in (await live.manager.explain(job))["now"]
