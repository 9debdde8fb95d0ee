"""The number that a job goes by: its J0's, one of EJB's own where that is not there, and never another afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, BatchState
from ejbd.errors import BatchError, EjbError
from ejbd.manager.facts import arrays
from ejbd.manager.facts.batchjob.begins import READ_S, UNREAD_S
from ejbd.manager.jobspec import JobKind, JobRequest, JobSpec, Overrides, Reading, read
from ejbd.manager.submission import intake
from ejbd.store import queries
from ejbd.store.models import Subjob
from ejbd.store.store import Store
from ejbd.wire.numbers import OWN, batch_number, is_number, own_number
from tests.fakes.live import LiveWorld

SCRIPT: dict[str, Any] = {"kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def named(live: LiveWorld, word: str) -> str:
    return live.store.read_sync(lambda s: queries.resolve_job(s, word, "ada").id)


async def test_a_job_is_told_and_found_by_the_number_of_its_j0(live: LiveWorld) -> None:
    job = await live.submit(engine="none", **SCRIPT)
    number = await live.manager.number(job, 0.0)
    assert number == live.batch.of(f"ejb-{job}.0").id
    assert named(live, number) == job


async def test_a_submission_is_told_the_number_that_comes_while_it_waits(live: LiveWorld) -> None:
    await live.poll()
    given = JobSpec(name="heat", processes=16, walltime_s=100.0, cwd=str(live.folder), output="o", **SCRIPT)
    job = (await live.manager.submit(Reading(given), "ada", None, "body")).id
    waiting = asyncio.create_task(live.manager.number(job, 60.0))
    assert not (await asyncio.wait({waiting}, timeout=0.2))[0]
    await live.act()
    live.manager.woken(frozenset({"events"}))
    assert await asyncio.wait_for(waiting, 30) == live.batch.of(f"ejb-{job}.0").id


async def numbered(live: LiveWorld, *options: str, refused: BatchError | None = None, **more: Any) -> str:
    words = ("-n", "16", "-t", "2", *options)
    asked = JobRequest(
        cwd=str(live.folder), command=("./heat",), overrides=Overrides(options=words, engine="application", **more)
    )
    job = (await live.manager.submit(read(replace(asked, numbered=True)), "ada", None, "body")).id
    live.batch.refuse = refused
    await live.act()
    return job


@pytest.mark.parametrize("elastic", ["on", "off"])
async def test_no_job_begins_before_its_number_was_read(live: LiveWorld, elastic: str) -> None:
    await live.poll()
    job = await numbered(live, elastic=elastic)
    number = await live.manager.number(job, 60.0)
    assert live.batch.begins[number] == live.clock.now + UNREAD_S
    await live.poll(1)
    assert len(live.subjobs(job)) == 1 and live.job(job).rigid_start_s is None, "nothing is asked for before it"
    await live.manager.number_read(job)
    await live.act()
    assert number not in live.batch.begins
    await live.poll(1)
    assert [subjob.role for subjob in live.subjobs(job)[1:]] == (["subjob"] if elastic == "on" else [])
    await live.manager.number_read(job)
    await live.act()
    assert len(live.intents("begin")) == 1, "what was read is read"


async def test_a_number_that_is_never_read_keeps_a_job_for_a_moment(live: LiveWorld) -> None:
    await live.poll()
    job = await numbered(live)
    number = await live.manager.number(job, 60.0)
    await live.poll(READ_S - 1)
    assert number in live.batch.begins
    await live.restart()
    await live.poll(1)
    assert number not in live.batch.begins


async def test_j0_has_the_comment_of_its_job(live: LiveWorld) -> None:
    await live.poll()
    number = await live.manager.number(await numbered(live, "--comment=my words", elastic="on"), 60.0)
    assert live.batch.requests[number].comment == "my words"


async def test_a_submission_that_is_refused_waits_for_no_reader(live: LiveWorld) -> None:
    await live.poll()
    live.batch.refuse = BatchError("no such account", transient=False)
    job = await numbered(live, refused=live.batch.refuse)  # which is not asked before
    assert live.job(job).state == "failed"
    await live.manager.number(job, 60.0)
    assert live.job(job).number is None, "its submitter is told of the refusal, and squeue shows nothing"
    assert [(one.kind, one.state) for one in live.intents("submit") + live.intents("begin")] == [
        ("submit", "failed"), ("begin", "dropped")
    ]  # fmt: skip


@pytest.mark.parametrize("options", [("--begin=now+1hour",), ("--hold",), ("--deadline=now+1hour",)])
async def test_what_begins_later_by_itself_waits_for_no_reader(live: LiveWorld, options: tuple[str, ...]) -> None:
    await live.poll()
    job = await numbered(live, *options)
    assert live.job(job).number is not None and live.batch.begins == {} and live.intents("begin") == []


async def test_the_elements_of_an_array_wait_for_the_one_that_reads_its_number(live: LiveWorld) -> None:
    await live.poll()
    array = await numbered(live, "--array=0-7%2", elastic="on")
    first = {live.batch.of(f"ejb-{array}_{index}.0").id for index in (0, 1)}
    assert await live.manager.number(array, 60.0) in first, "whichever Slurm had first"
    assert len(live.batch.begins) == 2
    await live.manager.number_read(array)
    await live.act()
    assert live.batch.begins == {}
    await live.manager.cancel(f"{array}_0", "ada")
    await live.poll(1)
    await live.poll(1)
    assert live.batch.of(f"ejb-{array}_2.0") and live.batch.begins == {}


async def test_a_job_that_waits_for_another_is_told_a_number_at_once_and_keeps_it(live: LiveWorld) -> None:
    await live.poll()
    first = await live.submit(engine="none", **SCRIPT)
    words = ("-n", "2", "-t", "1", "-d", f"afterok:{await live.manager.number(first, 0.0)}")
    wanted = read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=Overrides(options=words)))
    second = (await live.manager.submit(wanted, "ada", None, "body")).id
    number = await asyncio.wait_for(live.manager.number(second, 60.0), 10)
    assert int(number) >= OWN and named(live, number) == second
    with pytest.raises(EjbError, match="there is no job"):
        named(live, str(int(number) + 2**32))


async def test_a_job_that_cannot_reach_slurm_is_told_a_number_all_the_same(live: LiveWorld) -> None:
    await live.poll()
    live.batch.silent = True
    job = await live.submit(engine="none", **SCRIPT)
    number = await asyncio.wait_for(live.manager.number(job, 0.1), 10)
    live.batch.silent = False
    await live.poll(600)
    assert live.batch.of(f"ejb-{job}.0").id != number == await live.manager.number(job, 0.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), ["--output={cwd}/slurm-{number}.out"]),
        (("-o", "log/%j/%12j-%%j", "-e", "e"), ["--output={cwd}/log/{number}/{long}-%%j"]),
    ],
)
async def test_files_go_by_the_number_that_was_told_before_slurm_gave_another(
    live: LiveWorld, options: tuple[str, ...], told: list[str]
) -> None:
    await live.poll()
    live.batch.silent = True
    job = await numbered(live, *options, elastic="off")
    number = await live.manager.number(job, 0.0)
    live.batch.silent = False
    await live.poll(600)
    row = live.batch.of(f"ejb-{job}.0")
    asked = live.batch.requests[row.id].asked
    assert row.id != number and asked is not None
    words = [word.format(cwd=live.folder, number=number, long=number.zfill(12)) for word in told]
    assert list(asked.options[-len(words) :]) == words and len(asked.options) == len(options) // 2 + 2 + len(words)


async def test_another_j0_is_another_number_by_which_the_job_is_found_too(live: LiveWorld) -> None:
    job = await live.submit(engine="none", **SCRIPT | {"restartable": True})
    first = await live.manager.number(job, 0.0)
    live.batch.free = 0
    await live.begin(f"{job}.0")
    await live.poll(1)
    live.batch.end(f"ejb-{job}.0", BatchState.NODE_FAIL, None)
    await live.poll(1)
    await live.poll(30)
    again = live.batch.of(f"ejb-{job}.1").id
    assert again != first == await live.manager.number(job, 0.0)
    assert named(live, first) == named(live, again) == job


async def test_a_number_goes_before_the_beginning_of_an_id(live: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = iter(("aaaaaaaa", "12ab34cd"))
    monkeypatch.setattr(intake, "new_id", lambda: next(ids))
    one, other = await live.submit(**SCRIPT), await live.submit(**SCRIPT)
    assert named(live, "12") == other
    await live.store.write(lambda s: setattr(queries.job(s, one), "number", "12"))
    assert named(live, "12") == one


async def test_a_number_that_was_given_twice_means_the_job_that_lives(live: LiveWorld) -> None:
    one, other = await live.submit(**SCRIPT), await live.submit(**SCRIPT)

    def same(session: Session) -> None:
        for id in (one, other):
            queries.job(session, id).number = "77"
        queries.job(session, other).state = "completed"

    await live.store.write(same)
    assert named(live, "77") == one


def test_numbers_of_ejbs_own_are_none_of_slurms_in_32_bits() -> None:
    for serial in (1, 2**20, 2**31, 2**40):
        number = int(own_number(serial))
        assert 2**26 <= OWN <= number < 2**32 - 2
    assert own_number(1) != own_number(2)
    assert is_number("140") and not any(map(is_number, ("0140", "1a2b3c4d", "", "12_3", "99999999999")))
    assert [batch_number(word) for word in ("12", "12.head", "12[].head", None, "abc")] == ["12"] * 3 + [None, None]


def test_an_array_of_slurms_own_tells_which_elements_are_in_which_state() -> None:
    new = arrays.new_elements("0-5:1%2")
    assert new is not None and arrays.which(new) == {"waiting": "0-5"}
    kept = {"all": "0-5", "ended": {"completed": "0", "failed": "1,3"}, "code": 3, "running": 1, "now": "2"}
    assert arrays.which(kept) == {"completed": "0", "failed": "1,3", "running": "2", "waiting": "4-5"}
    assert arrays.which({"all": "0", "ended": {"completed": "0"}, "code": 0}) == {"completed": "0"}


def test_the_elements_of_an_array_that_was_cancelled_before_it_began_are_cancelled_too() -> None:
    def waiting(state: BatchState) -> BatchJobView:
        return BatchJobView("8_[1-2,4]", "", "", "", state, 2)

    subjob = Subjob(batch_id="8", processors=2, tag="", elements=arrays.new_elements("1-4"))
    subjob.elements = arrays.note(subjob, [waiting(BatchState.PENDING)], {})
    assert subjob.elements is not None and arrays.which(subjob.elements) == {"waiting": "1-4"}
    subjob.elements = arrays.note(subjob, [waiting(BatchState.CANCELLED)], {})
    assert arrays.which(subjob.elements) == {"cancelled": "1-2,4", "waiting": "3"}
    assert arrays.as_one(subjob, [waiting(BatchState.CANCELLED)]) is None  # nobody knows of the third
    subjob.elements = arrays.rest_ended(subjob, BatchState.CANCELLED)
    assert subjob.elements is not None and arrays.which(subjob.elements) == {"cancelled": "1-4"}
    unseen = Subjob(batch_id="9", processors=2, tag="", elements=arrays.new_elements("1-2"))
    unseen.elements = arrays.rest_ended(unseen, BatchState.CANCELLED)
    assert unseen.elements is not None and arrays.which(unseen.elements) == {"cancelled": "1-2"}


def test_an_element_that_is_cancelled_while_others_wait_with_it_is_cancelled_though_slurm_forgets_it() -> None:
    def row(id: str, state: BatchState) -> BatchJobView:
        return BatchJobView(id, "", "", "", state, 2)

    pending, runs = BatchState.PENDING, BatchState.RUNNING
    subjob = Subjob(batch_id="8", processors=2, tag="", elements=arrays.new_elements("1-4"))
    subjob.elements = arrays.note(subjob, [row("8_[1,3-4]", pending)], {}, lately=True)
    assert subjob.elements is not None
    assert arrays.which(subjob.elements) == {"cancelled": "2", "waiting": "1,3-4"}
    subjob.elements = arrays.note(
        subjob, [row("8_1", runs), row("8_[4]", pending)], {}, lately=False
    )  # it may have run meanwhile
    assert arrays.which(subjob.elements) == {"cancelled": "2", "running": "1", "waiting": "3-4"}
    subjob.elements = arrays.note(subjob, [row("8_1", runs), row("8_4", BatchState.COMPLETED)], {}, lately=True)
    assert arrays.which(subjob.elements) == {"cancelled": "2", "completed": "4", "running": "1", "waiting": "3"}
    cut = Subjob(batch_id="9", processors=2, tag="", elements=arrays.new_elements("1-4"))
    cut.elements = arrays.note(cut, [row("9_[1,...]", pending)], {}, lately=True)
    elsewhere = Subjob(batch_id="7", processors=2, tag="", elements=arrays.new_elements("1-4"))
    elsewhere.elements = arrays.note(
        elsewhere, [row("7_1", runs)], {}, lately=True
    )  # a listing of those that matter alone
    began = Subjob(batch_id="6", processors=2, tag="", elements=arrays.new_elements("1-2"))
    began.elements = arrays.note(began, [row("6_1", runs)], {}, lately=False, all_listed=True)
    assert began.elements is not None
    assert arrays.which(began.elements) == {"running": "1", "waiting": "2"}, "it may have run long ago"
    began.elements = arrays.note(began, [row("6_1", runs)], {}, lately=True, all_listed=True)
    assert began.elements is not None and arrays.which(began.elements) == {"cancelled": "2", "running": "1"}
    for other in (cut, elsewhere):
        assert other.elements is not None and "cancelled" not in arrays.which(other.elements)
