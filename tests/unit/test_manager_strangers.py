"""A controller that lost its state gives numbers again: nothing is done to the jobs that have got them, and nothing
believed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.batch.base import NO_MARKS, BatchEnd, Mark
from ejbd.batch.process import ActTime, CommandResult, CommandTimedOut
from ejbd.batch.slurm import SlurmBatch
from ejbd.core.view import BatchJobView, BatchState
from ejbd.manager.acts.subjobs import add_intent
from ejbd.manager.facts.tags import still_theirs
from ejbd.manager.jobspec import JobKind
from ejbd.store.models import Subjob
from ejbd.store.states import JobState
from ejbd.store.store import Store
from ejbd.wire.kinds import IntentKind
from tests.fakes.live import LiveWorld, some

RUNNING, COMPLETED = BatchState.RUNNING, BatchState.COMPLETED
OWN = Mark("ejb-a1.0", 100.0)


@pytest.mark.parametrize(
    ("mark", "submit_s", "is_it"),
    [
        ("ejb-a1.0", 100.0, True),
        ("ejb-a1.0", 300.0, True),  # it was put back into the queue
        ("ejb-b2.0", 100.0, False),
        ("a name", 100.0, True),  # its user has changed its comment
        ("a name", 101.0, False),
        ("a name", None, False),
        ("", 100.0, True),
    ],
)
def test_a_batch_job_is_known_by_its_tag_or_by_the_moment_of_its_submission(
    mark: str, submit_s: float | None, is_it: bool
) -> None:
    assert OWN.is_on(mark, submit_s) is is_it


def test_a_job_of_which_the_batch_system_has_told_no_time_is_known_by_its_tag_alone() -> None:
    assert not Mark("ejb-a1.0").is_on("", None) and not Mark("").is_on("", None)


@pytest.mark.parametrize(
    ("shown", "id", "is_it"),
    [
        ({"id": "12_3"}, "12", True),
        ({"id": "12_[4-9]"}, "12_5", True),
        ({"id": "12+1"}, "12", True),
        ({"id": "11_1"}, "12", False),  # the element of a stranger's array has the number 12 besides
        ({"id": "12", "foreign": True}, "12", False),
        ({"id": "12", "user": "eve"}, "12", False),
    ],
)
def test_elements_and_components_are_of_the_number_of_the_whole(shown: dict[str, object], id: str, is_it: bool) -> None:
    row = replace(BatchJobView("12", "a name", "ada", "batch", RUNNING, 1, tag=OWN.tag), **shown)  # type: ignore[arg-type]
    assert (still_theirs({1: id}, {1: [OWN]}, [row], "ada") == {1: id}) is is_it


async def test_an_act_that_takes_long_is_ended_and_has_longer_the_next_time() -> None:
    given: list[float] = []

    async def command(seconds: float, took_s: float) -> CommandResult:
        given.append(seconds)
        if took_s > seconds:
            raise CommandTimedOut("scancel", seconds, "")
        return CommandResult("scancel", 0, "", "", took_s)

    act = ActTime(20.0)
    for took_s in (0.1, 5.0, 5.0, 5.0, 0.1, 0.1, *[60.0] * 4):
        with suppress(CommandTimedOut):
            await act.run(lambda seconds, took_s=took_s: command(seconds, took_s))  # type: ignore[misc]
    assert given == [3.0, 3.0, 6.0, 10.0, 10.0, 3.0, 3.0, 6.0, 12.0, 20.0]


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def untouched(live: LiveWorld, *begun: str) -> None:
    """Whatever bears one of these numbers is as it was."""
    for id in begun:
        job = live.batch.jobs[id]
        assert (job.state, job.walltime_s, job.processors) == (RUNNING, 600.0, 1), live.batch.calls


@pytest.mark.parametrize("polls", [False, True], ids=["at-once", "after-a-poll"])
async def test_cancels_that_a_dead_daemon_left_go_to_no_stranger(live: LiveWorld, polls: bool) -> None:
    live.batch.free = 0
    jobs = [await live.submit() for _ in range(4)]
    await live.poll(1)
    live.batch.silent = True
    for job in jobs:
        await live.manager.cancel(job, "ada")
    await live.act()
    live.clock.now += 30
    live.batch.silent = False
    numbers = live.batch.give_again()
    await live.restart()
    await (live.poll() if polls else live.act())
    await live.poll(60)
    untouched(live, *numbers)
    assert {live.job(job).state for job in jobs} == {"cancelled"}


async def test_no_intent_of_any_kind_goes_to_a_stranger(live: LiveWorld) -> None:
    """The daemon lives, and its listing is older than the controller's start."""
    live.batch.free = 0
    job = await live.submit()
    rigid = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    await live.poll(1)
    numbers = live.batch.give_again()
    kinds = [kind for kind in IntentKind if kind not in (IntentKind.SUBMIT, IntentKind.CANCEL)]
    for id in (job, rigid):
        for kind in kinds:
            subjob = live.subjobs(id)[0].id
            await live.store.write(
                lambda s, id=id, kind=kind, subjob=subjob: add_intent(  # type: ignore[misc]
                    live.manager.world.context(s), kind, id, subjob=s.get_one(Subjob, subjob)
                )
            )
    await live.act()
    await live.manager.hold(rigid, "ada")
    await live.manager.cancel(job, "ada")
    await live.act()
    untouched(live, *numbers)
    acts = {call.split()[0] for call in live.batch.calls}
    assert acts <= {"observe", "submit", "check", "list", "find", "waited-for", "outcomes"}


async def test_nothing_is_believed_of_a_job_that_got_the_number_a_second_later(live: LiveWorld) -> None:
    live.batch.free = 0
    elastic = await live.submit()
    rigid = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    live.clock.now += 1.3
    numbers = live.batch.give_again(name="heat")  # the same user's, and of the same name
    await live.poll()
    assert {live.job(job).state for job in (elastic, rigid)} == {"waiting"}
    for id in numbers:
        live.batch.jobs[id] = replace(live.batch.jobs[id], state=COMPLETED, exit_code=0)
    for _ in range(3):
        await live.poll(20)
    assert live.job(rigid).state == JobState.UNKNOWN, "how it ended is not known"
    assert live.job(elastic).state == "waiting" and live.subjobs(elastic)[-1].batch_id not in numbers


async def test_a_changed_comment_is_no_stranger_where_the_tag_was_seen_before(live: LiveWorld) -> None:
    job = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    await live.poll(1)
    ours = live.batch.of(f"ejb-{job}.0")
    live.batch.jobs[ours.id] = replace(ours, name="heat", tag="", state=RUNNING, start_s=live.clock.now)
    await live.restart()
    await live.poll(1)
    assert live.job(job).state == "running"
    await live.manager.cancel(job, "ada")
    await live.act()
    assert live.batch.jobs[ours.id].state is BatchState.CANCELLED


async def test_an_older_state_gives_a_new_job_the_number_of_one_that_is_still_open(live: LiveWorld) -> None:
    """Each is known by its own tag, and each has its own end."""
    live.batch.free = 0
    lost = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    await live.poll(1)
    live.batch.jobs.clear()
    live.batch.requests.clear()
    new = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    assert live.subjobs(lost)[0].batch_id == live.subjobs(new)[0].batch_id == "100"
    live.batch.start(f"ejb-{new}.0")
    await live.poll(5)
    assert [live.job(job).state for job in (lost, new)] == ["waiting", "running"]
    await live.manager.cancel(lost, "ada")
    await live.act()
    assert live.batch.jobs["100"].state is RUNNING
    live.batch.jobs.clear()

    async def outcomes(ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        ended = BatchEnd(COMPLETED, 0, live.clock.now, "accounting")
        return {id: ended for id, mark in marks.items() if mark.tag == f"ejb-{new}.0"}

    live.batch.outcomes = outcomes  # type: ignore[method-assign]
    await live.poll(5)
    assert [live.job(job).state for job in (lost, new)] == ["ending", "completed"]


async def test_an_end_is_asked_for_also_where_a_stranger_has_the_number(live: LiveWorld) -> None:
    job = await live.submit(kind=JobKind.SCRIPT, argv=(), script="#!/bin/sh\n", elastic=False)
    await live.poll(1)
    submitted_s = some(live.subjobs(job)[0].told_submit_s)
    live.clock.now += 5
    live.batch.give_again()
    asked: dict[str, Mark] = {}

    async def outcomes(ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        asked.update(marks)
        return {id: BatchEnd(COMPLETED, 0, live.clock.now, "accounting") for id in ids}

    live.batch.outcomes = outcomes  # type: ignore[method-assign]
    await live.poll(5)
    assert asked == {"100": Mark(f"ejb-{job}.0", submitted_s)}
    assert live.job(job).state == "completed"


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([("COMPLETED", 100, "ejb-a1.0"), ("FAILED", 900, "")], COMPLETED),  # the number was given again
        ([("FAILED", 900, ""), ("COMPLETED", 100, "")], COMPLETED),
        ([("FAILED", 900, "")], None),
        ([("FAILED", 100, "ejb-b2.0")], None),
        ([("NODE_FAIL", 100, "ejb-a1.0"), ("COMPLETED", 900, "ejb-a1.0")], COMPLETED),  # put back into the queue
        ([("NODE_FAIL", 100, ""), ("COMPLETED", 900, "")], None),  # that, or a stranger's
        ([("NODE_FAIL", 100, "")], BatchState.NODE_FAIL),
    ],
)
async def test_accounts_tell_an_end_of_the_very_submission(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: list[tuple[str, int, str]], found: BatchState | None
) -> None:
    batch = SlurmBatch()
    batch._config = {"AccountingStorageType": "accounting_storage/slurmdbd"}

    async def answers(argv: Sequence[str], timeout_s: float, doing: str) -> str:
        between = next(word.partition("=")[2] for word in argv if word.startswith("--delimiter="))
        return "".join(
            between.join(
                ("7", state, "0:0", "1970-01-01T01:00:00", f"1970-01-01T00:{at // 60:02}:{at % 60:02}", comment)
            )
            + "\n"
            for state, at, comment in rows
        )

    monkeypatch.setattr(batch, "_query", answers)
    ends = await batch.outcomes({"7": tmp_path / "none"}, {"7": OWN})
    assert {id: end.state for id, end in ends.items()} == ({} if found is None else {"7": found})
