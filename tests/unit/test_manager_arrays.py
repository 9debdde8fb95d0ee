"""Elastic arrays: a job that stands for its elements, each a job of its own when its turn comes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read
from ejbd.manager.jobspec.indices import Indices, folded, unfolded
from ejbd.manager.rules.linked import elements
from ejbd.manager.telling import explaining
from ejbd.store import queries
from ejbd.store.models import Job, Subjob
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def reading(live: LiveWorld, array: str, **more: Any) -> Reading:
    overrides = Overrides(ntasks="2", time="10", engine="application", options=(f"--array={array}",), **more)
    return read(JobRequest(cwd=str(live.folder), command=("./heat",), overrides=overrides))


def states(live: LiveWorld, array: str) -> dict[int, str]:
    query = select(Job.array_index, Job.state).where(Job.array_id == array).order_by(Job.seq)
    return live.store.read_sync(lambda s: {index or 0: state for index, state in s.execute(query)})


def told(live: LiveWorld, array: str) -> dict[str, str]:
    return live.store.read_sync(lambda s: elements.indices(s, array))


async def settle(live: LiveWorld, rounds: int = 6) -> None:
    for _ in range(rounds):
        await live.act()


async def end(live: LiveWorld, id: str, code: int = 0) -> None:
    """An element runs on its J0 and ends."""
    worker = await live.begin(f"{id}.0")
    await live.poll()
    await live.work()
    await worker.finish_ranks(next(iter(worker.ranks)), code)
    for _ in range(2):
        await live.poll(1.0)
        await live.work()


@pytest.mark.parametrize(
    ("text", "all_of_them", "most", "step"),
    [
        ("0-3", [0, 1, 2, 3], None, 1),
        ("1,3,5-9:2%4", [1, 3, 5, 7, 9], 4, 1),
        ("0-9:3", [0, 3, 6, 9], None, 3),
        ("7", [7], None, 1),
        ("4,2,2-4%0", [2, 3, 4], None, 1),
    ],
)
def test_indices_are_read_as_sbatch_reads_them(text: str, all_of_them: list[int], most: int | None, step: int) -> None:
    found = Indices.read(text)
    assert found is not None
    assert sorted(found.all.intiter()) == all_of_them and (found.most, found.step) == (most, step)
    assert sorted(unfolded(folded(found.all)).intiter()) == all_of_them


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-5:0", "1--2", "1,", "1%", "1%x", "12345678", "1-5%2%3"])
def test_what_is_no_index_is_left_to_sbatch(text: str) -> None:
    assert Indices.read(text) is None


async def test_ten_thousand_elements_are_one_commit_of_a_few_rows(live: LiveWorld) -> None:
    await live.poll()
    commits = 0

    def counted(_: Any) -> None:
        nonlocal commits
        commits += 1

    event.listen(live.store._writer, "commit", counted)
    try:
        array = (await live.manager.submit(reading(live, "0-9999%3"), "ada", "key", "body")).id
    finally:
        event.remove(live.store._writer, "commit", counted)
    assert commits == 1
    assert live.store.read_sync(lambda s: len(s.scalars(select(Job.id)).all())) == 1
    await settle(live)
    assert states(live, array) == {0: "waiting", 1: "waiting", 2: "waiting"}
    assert told(live, array) == {"waiting": "0-2", "to come": "3-9999"}
    again = await live.manager.submit(reading(live, "0-9999%3"), "ada", "key", "body")
    assert (again.id, again.created) == (array, False)
    listed = live.store.read_sync(lambda s: queries.list_jobs(s, user="ada"))
    assert [job.id for job in listed] == [array]
    assert [job.array_index for job in live.store.read_sync(lambda s: queries.list_jobs(s, array=array))] == [2, 1, 0]
    assert live.store.read_sync(lambda s: queries.resolve_job(s, "last_1", "ada")).id == f"{array}_1"
    with pytest.raises(EjbError, match="is no job"):
        live.store.read_sync(lambda s: queries.resolve_job(s, f"{array}_77", "ada"))


async def test_too_large_an_array_is_refused_in_a_sentence(live: LiveWorld) -> None:
    await live.poll()
    with pytest.raises(EjbError, match="10001 is not below 10001") as refused:
        await live.manager.submit(reading(live, "0,10001"), "ada", None, "body")
    assert refused.value.code is Code.INVALID and "max_array_size" in refused.value.hint


async def test_each_element_runs_and_the_whole_is_what_the_worst_of_them_is(live: LiveWorld) -> None:
    await live.poll()
    array = (await live.manager.submit(reading(live, "4,6-8:2%2"), "ada", None, "body")).id
    await settle(live)
    assert states(live, array) == {4: "waiting", 6: "waiting"} and live.job(array).state == "waiting"
    await end(live, f"{array}_4")
    await settle(live)
    assert live.job(array).state == "running"
    assert states(live, array) == {4: "completed", 6: "waiting", 8: "waiting"}
    number = live.store.read_sync(lambda s: queries.job(s, array).number)
    assert number in {live.subjobs(f"{array}_{index}")[0].batch_id for index in (4, 6)}  # whose was known first
    await end(live, f"{array}_6", code=3)
    await end(live, f"{array}_8")
    await settle(live)
    whole = live.job(array)
    assert (whole.state, whole.exit_code) == ("failed", 3)
    assert whole.reason == "elements: 2 completed, 1 failed (6)"
    assert whole.start_s is not None and whole.end_s is not None


async def test_some_elements_are_cancelled_and_the_others_go_on(live: LiveWorld) -> None:
    await live.poll()
    array = (await live.manager.submit(reading(live, "0-9%2"), "ada", None, "body")).id
    await settle(live)
    await live.manager.cancel_elements(array, "1,5-9", "ada")
    await settle(live)
    assert told(live, array) == {"waiting": "0,2", "cancelled": "1,5-9", "to come": "3-4"}
    with pytest.raises(EjbError, match="no element of"):
        await live.manager.cancel_elements(array, "5", "ada")
    with pytest.raises(EjbError, match="names no elements"):
        await live.manager.cancel_elements(array, "9-5", "ada")
    said = live.store.read_sync(lambda s: explaining.explain(live.manager.world.context(s), array, ""))["now"]
    assert "2 waiting" in said and "2 to come" in said
    await live.manager.cancel(array, "ada")
    await settle(live)
    assert live.job(array).state == "cancelled"
    assert told(live, array) == {"cancelled": "0-9"}


async def test_a_held_array_begins_nothing_more_until_it_is_released(live: LiveWorld) -> None:
    await live.poll()
    array = (await live.manager.submit(reading(live, "0-3", hold=True), "ada", None, "body")).id
    await settle(live)
    assert states(live, array) == {}
    await live.manager.release(array, "ada")
    await settle(live)
    assert list(states(live, array)) == [0, 1, 2, 3]
    await live.manager.hold(array, "ada")
    held = live.store.read_sync(lambda s: list(s.scalars(select(Job.held).where(Job.array_id == array))))
    assert held == [True] * 4


async def test_a_crash_in_between_loses_and_doubles_no_element(live: LiveWorld) -> None:
    await live.poll()
    array = (await live.manager.submit(reading(live, "0-29"), "ada", None, "body")).id
    for _ in range(8):
        await live.store.write(live.manager.acting.receiving.receive)
        await live.restart()
        await live.poll()
    await settle(live)
    assert list(states(live, array)) == list(range(30))
    assert told(live, array) == {"waiting": "0-29"}
    placed = live.store.read_sync(lambda s: Counter(s.scalars(select(Subjob.job_id))))
    assert placed == {f"{array}_{index}": 1 for index in range(30)}
    assert len([job for job in live.batch.jobs.values() if not job.state.ended]) == 30


async def test_more_of_an_array_follow_as_the_first_end(live: LiveWorld) -> None:
    live.settings.limits.array_jobs = 2
    await live.poll()
    array = (await live.manager.submit(reading(live, "0-3"), "ada", None, "body")).id
    await settle(live)
    assert list(states(live, array)) == [0, 1]
    await live.manager.cancel(f"{array}_0", "ada")
    await settle(live)
    assert states(live, array) == {0: "cancelled", 1: "waiting", 2: "waiting"}
