"""The embedded cluster as a pool: who starts on what, who is folded for it, and who is unfolded, node by node."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ejbd.batch.local.binding import places
from ejbd.batch.local.cluster import Cluster
from ejbd.batch.local.folding import Pool, turn
from ejbd.batch.local.jobs import Job, JobFile
from ejbd.batch.local.nodes import Nodes, Shares
from ejbd.core.view import BatchState


def job(id: int, processors: int, nodes: Shares = (), holds: Shares = (), *, folds: bool = True) -> Job:
    state = BatchState.RUNNING if nodes else BatchState.PENDING
    return Job(id, f"j{id}", "", "me", processors, 60.0, state, 0.0, float(id), nodes=nodes, folds=folds, holds=holds)


def pool(running: list[Job], count: int = 2, processors: int = 4) -> Nodes:
    nodes = Nodes(count, processors)
    for one in running:
        nodes.retake(one.held)
    return nodes


def test_the_head_starts_whole_by_folding_the_oldest_on_each_of_its_nodes() -> None:
    running = [job(1, 8, (("n1", 4), ("n2", 4)))]
    nodes = pool(running)
    found = turn([job(2, 4)], running, nodes)
    assert [(one.id, holds) for one, holds in found.shares] == [(1, (("n1", 2), ("n2", 2)))]
    ((start, where, holds),) = found.starts
    assert (start.id, sum(count for _, count in where), holds) == (2, 4, ())
    assert nodes.all_free == 0


def test_it_starts_folded_where_it_cannot_whole() -> None:
    running = [job(1, 8, (("n1", 4), ("n2", 4)))]
    found = turn([job(2, 8)], running, pool(running))
    ((_, where, holds),) = found.starts
    assert holds == (("n1", 2), ("n2", 2)) and where == (("n1", 4), ("n2", 4))


@pytest.mark.parametrize("folds", [True, False])
def test_none_is_folded_in_vain_and_none_passes_the_head(folds: bool) -> None:
    running = [job(1, 6, (("n1", 4), ("n2", 2)), (("n1", 2), ("n2", 1)))] if folds else []
    running += [job(2, 5 if folds else 7, (("n1", 2), ("n2", 3)) if folds else (("n1", 4), ("n2", 3)), folds=folds)]
    nodes = pool(running)
    before = dict(nodes.free)
    found = turn([job(3, 8, folds=folds), job(4, 1)], running, nodes)
    assert (found.shares, found.starts) == ((), ())
    assert nodes.free == before


def test_jobs_are_unfolded_where_their_own_nodes_are_free_and_none_waits() -> None:
    running = [job(1, 4, (("n1", 4),), (("n1", 2),)), job(2, 4, (("n2", 4),), (("n2", 2),)), job(3, 2, (("n1", 2),))]
    assert [(one.id, holds) for one, holds in turn([], running, pool(running)).shares] == [(2, ())]
    assert turn([job(4, 8, folds=False)], running, pool(running)).shares == ()


def test_no_processor_is_given_twice() -> None:
    """Whatever comes and goes: what is free and what jobs have are all there is, and MPL 2 is never passed."""
    for seed in range(40):
        draw = random.Random(seed)
        nodes = Nodes(3, 4)
        running: dict[int, Job] = {}
        waiting: list[Job] = []
        for id in range(1, 40):
            if draw.random() < 0.6:
                waiting.append(job(id, draw.randint(1, 12), folds=draw.random() < 0.8))
            elif running:
                nodes.give_back(running.pop(draw.choice(list(running))).held)
            found = turn(waiting, list(running.values()), nodes)
            for one, holds in found.shares:
                one.holds = holds
            for start in found.starts:
                assert start.job is waiting.pop(0), "they start in their order"
                start.job.nodes, start.job.holds, start.job.state = start.nodes, start.holds, BatchState.RUNNING
                running[start.job.id] = start.job
            for one in running.values():
                assert sum(count for _, count in one.nodes) == one.processors
                assert all(2 * has >= count for (_, count), (_, has) in zip(one.nodes, one.held, strict=True))
            for id, mine in places(running.values(), nodes.free, 4).items():
                running[id].places = mine
            given = [(name, n) for one in running.values() for name, mine in one.places for n in mine]
            assert len(given) == len(set(given)) and set(given) <= {(f"n{n}", at) for n in (1, 2, 3) for at in range(4)}
            for one in running.values():
                assert tuple((name, len(mine)) for name, mine in one.places) == one.held
            had = sum(count for one in running.values() for _, count in one.held)
            assert nodes.all_free == nodes.total - had and min(nodes.free.values()) >= 0
            assert not (waiting and found.shares and not found.starts), "folded in vain"


async def test_before_a_pool_ends_only_what_ends_starts_or_what_saves_its_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    cluster = Cluster(tmp_path, 2, 4, lambda: now, pool=Pool(1100.0, 20.0))
    monkeypatch.setattr(cluster._steps, "launch", lambda job: None)

    def asked(walltime_s: float, *, moves: bool) -> int:
        return cluster.submit(Job(0, "j", "", "me", 1, walltime_s, BatchState.PENDING, now, moves=moves), {})

    try:
        too_long, moving, short = asked(101.0, moves=False), asked(500.0, moves=True), asked(100.0, moves=False)
        ends = {int(row["id"]): row["end_s"] for row in cluster.listing()["jobs"]}
        assert ends == {too_long: None, moving: 1100.0, short: 1100.0}, "one that cannot start is in no other's way"
        now = 1085.0
        late, in_time = asked(500.0, moves=True), asked(15.0, moves=False)
        ends = {int(row["id"]): row["end_s"] for row in cluster.listing()["jobs"]}
        assert (ends[late], ends[in_time]) == (None, 1100.0)
    finally:
        cluster.close()
    again = Cluster(tmp_path, 1, 4, lambda: now, pool=Pool(9000.0), names=["m7"])  # the next allocation is another one
    again.close()


def test_what_a_job_has_outlives_the_server(tmp_path: Path) -> None:
    file = JobFile(tmp_path / "jobs.sqlite")
    one = job(0, 4, (("n1", 4),), (("n1", 2),))
    one.id = file.add(one, {})
    file.close()
    (again,) = JobFile(tmp_path / "jobs.sqlite").by_ids([one.id])
    assert again == one and again.held == (("n1", 2),)
