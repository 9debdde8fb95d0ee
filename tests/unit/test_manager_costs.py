"""Moves are measured, remembered by application, and planned with: the manager with workers that take their time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from ejbd.core.question import Question
from ejbd.manager.acts.learnt import remember
from ejbd.manager.facts.past.history import KEPT, application_of, program_of
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobKind, JobSpec, Reading
from ejbd.store.models import Move
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker, some


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


def slow(worker: Worker, checkpoint: float, launch: float) -> None:
    worker.takes = {"checkpoint": checkpoint, "launch": launch}


async def started(live: LiveWorld, **spec: Any) -> str:
    """A job of 16 on a subjob of 4, whose checkpoints take 8 s."""
    job = await live.submit(**{"walltime_s": 1000.0, **spec})
    await live.poll(1)
    slow(await live.begin(f"{job}.1"), 8.0, 2.0)
    await live.work()
    return job


async def grown(live: LiveWorld) -> str:
    """... that has grown to 8."""
    job = await started(live)
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.work()
    assert live.epochs(job)[-1].state == "running"
    return job


def moves(live: LiveWorld) -> list[Move]:
    return live.store.read_sync(lambda s: list(s.scalars(select(Move).order_by(Move.id))))


async def test_a_move_is_measured_from_the_decision_to_the_running_epoch(live: LiveWorld) -> None:
    job = await grown(live)
    (move,) = moves(live)
    first, second = live.epochs(job)
    assert (move.application, move.job_id, move.epoch) == ("ada:16:application:heat", job, 1)
    assert (move.processors, move.nodes, move.to_processors, move.to_nodes, move.bytes) == (4, 1, 8, 2, 160)
    assert (move.checkpoint_s, move.write_s, move.restart_s) == (8.0, 4.0, 2.0)
    assert first.stopping_s is not None and second.running_s is not None
    parts = move.checkpoint_s + move.wait_s + (move.restart_s or 0.0)
    assert parts == pytest.approx(second.running_s - first.stopping_s)
    assert move.by_node == [{"node": "n1", "bytes": 160, "seconds": 8.0, "write_s": 4.0}]


async def test_what_was_measured_is_planned_with_and_told(live: LiveWorld) -> None:
    job = await grown(live)
    await live.poll(1)
    found = await live.manager.explain(job)
    cost = some(found["cost"])
    assert (cost["source"], cost["lambda_s"], cost["samples"]) == ("measured", 10.0, 1)
    assert cost["why"] == "measured once on 4 processors: 160 B, checkpoint 8 s, restart 2 s, wait 0 s"
    assert cost["reserve_s"] == 1.5 * 8 + 2 + live.settings.poll_s
    assert [m["by_node"][0]["seconds"] for m in found["moves"]] == [8.0]
    asked = [data for kind, data in live.events(job) if "question" in data]
    assert asked[0]["cost"]["source"] == "configured"
    assert asked[-1]["cost"]["source"] == "measured"
    for data in asked:  # what is stored is what was asked, and gives the same answer
        question = Question.from_json(data["question"])
        assert question.parameters.lambda_s == data["cost"]["lambda_s"]
        assert question.answer().to_json() == data["decision"]


async def test_the_next_job_of_the_application_begins_with_it(live: LiveWorld) -> None:
    heat = replace(spec("./heat", name="heat"), processes=16, engine="application")
    await grown(live)
    live.batch.free = 0
    again = await live.submit()
    assert some((await live.manager.explain(again))["cost"])["lambda_s"] == 10.0
    planned = await live.manager.plan(Reading(heat), "ada")
    assert some(planned["cost"])["lambda_s"] == 10.0
    for other in ({"argv": ("./cool",)}, {"processes": 8}, {"engine": "none"}):
        job = await live.submit(**other)
        assert some((await live.manager.explain(job))["cost"])["source"] == "configured", other


async def test_a_job_may_say_what_its_moves_cost(live: LiveWorld) -> None:
    await grown(live)
    live.batch.free = 0
    job = await live.submit(lambda_s=3.0)
    cost = some((await live.manager.explain(job))["cost"])
    assert (cost["lambda_s"], cost["source"], cost["reserve_s"]) == (3.0, "job", 19.0)


async def test_before_the_first_move_memory_and_the_spools_speed_tell(live: LiveWorld) -> None:
    job = await started(live)
    live.manager.world.spool_speed = 10e6
    worker = live.workers[f"{job}.1"]
    sample = {"epoch": 1, "resident": 400_000_000, "done": None, "total": None, "at_s": None}
    await worker.report("sample", **{**sample, "epoch": 7})
    assert some((await live.manager.explain(job))["cost"])["source"] == "configured", "of another epoch"
    await worker.report("sample", **sample)
    cost = some((await live.manager.explain(job))["cost"])
    assert (cost["source"], cost["lambda_s"], cost["reserve_s"]) == ("guessed", 82.0, 87.0)
    assert cost["why"] == "guessed: 400 MB of memory at 10 MB/s"


async def test_the_speed_of_others_checkpoints_beats_the_daemons_own_trial(live: LiveWorld) -> None:
    job = await started(live)
    live.workers[f"{job}.1"].rank_bytes = 25_000_000  # 400 MB in 4 s
    live.manager.world.spool_speed = 1e3
    await live.poll(10)
    await live.begin(f"{job}.2")
    await live.work()
    other = await live.submit(argv=("./cool",), walltime_s=1000.0)
    await live.poll(1)
    worker = await live.begin(f"{other}.1")
    await worker.report("sample", epoch=1, resident=500_000_000, done=None, total=None, at_s=None)
    why = some((await live.manager.explain(other))["cost"])["why"]
    assert why == "guessed: 500 MB of memory at 100 MB/s"


async def test_time_in_the_queue_is_no_part_of_a_move(live: LiveWorld) -> None:
    job = await started(live, walltime_s=100.0)
    live.batch.free = 0
    await live.poll(420)  # it outlives what was planned: checkpointed, and back to waiting
    await live.work()
    assert live.job(job).state == "waiting" and [m.restart_s for m in moves(live)] == [None]
    live.batch.end(f"ejb-{job}.1")
    await live.poll(500)
    slow(await live.begin(f"{job}.0"), 8.0, 2.0)
    await live.poll(1)
    await live.work()
    (move,) = moves(live)
    assert move.to_processors == 16 and move.wait_s < 5 and move.restart_s is not None


async def test_a_large_state_gets_the_time_that_it_takes(live: LiveWorld) -> None:
    job = await started(live)
    slow(live.workers[f"{job}.1"], 100.0, 2.0)
    await live.poll(10)
    slow(await live.begin(f"{job}.2"), 100.0, 2.0)
    await live.work()
    live.batch.free = 8
    await live.poll(10)
    await live.begin(f"{job}.3")
    await live.work()
    asked = [p["timeout_s"] for w in live.workers.values() for k, p in w.done if k == "checkpoint"]
    assert asked[0] == live.settings.limits.checkpoint_timeout_s
    assert set(asked[1:]) == {4 * 100}


async def test_a_subjobs_walltime_has_room_for_the_last_checkpoint(live: LiveWorld) -> None:
    await grown(live)
    live.batch.free = 4
    job = await live.submit(walltime_s=100.0)
    await live.poll(1)
    subjob = live.subjobs(job)[1]
    reserve = 1.5 * 8 + 2 + live.settings.poll_s
    assert subjob.usable_s >= 400.0 and subjob.walltime_s - subjob.usable_s == pytest.approx(reserve)


def spec(*argv: str, kind: JobKind = JobKind.COMMAND, name: str = "job") -> JobSpec:
    return JobSpec(name=name, kind=kind, argv=argv, processes=4, walltime_s=60.0, cwd="/", output="o")


@pytest.mark.parametrize(
    ("argv", "program"),
    [
        (("/opt/bin/heat", "--steps", "5"), "heat"),
        (("/usr/bin/python3.11", "-u", "/home/ada/heat.py", "5"), "python3.11 heat.py"),
        (("python3", "-m", "ada.heat"), "python3 ada.heat"),
        (("bash",), "bash"),
        (("pythonic", "x"), "pythonic"),
    ],
)
def test_what_an_application_is_called(argv: tuple[str, ...], program: str) -> None:
    assert program_of(spec(*argv)) == program
    assert application_of("ada", spec(*argv), "dmtcp") == f"ada:4:dmtcp:{program}"


def test_a_script_is_known_by_its_name() -> None:
    assert program_of(spec("5", kind=JobKind.SCRIPT, name="heat.sbatch")) == "heat.sbatch"
    assert len(application_of("a" * 256, spec("x" * 5000), "application")) <= 512


async def test_old_moves_are_forgotten(live: LiveWorld) -> None:
    await grown(live)
    (row,) = moves(live)
    columns = {c.name: getattr(row, c.name) for c in Move.__table__.columns if c.name != "id"}

    def many(session: Any) -> None:
        for _ in range(KEPT + 5):
            remember(session, Move(**columns))
        remember(session, Move(**{**columns, "application": "another"}))

    live.store.write_sync(many)
    counted = live.store.read_sync(
        lambda s: list(s.execute(select(Move.application, func.count()).group_by(Move.application)))
    )
    assert sorted(map(tuple, counted)) == [(row.application, KEPT), ("another", 1)]


def test_the_speed_of_a_spool_is_tried_where_there_is_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    speed = spool.measure_speed(1 << 20)
    assert speed is not None and speed > 0
    assert list(tmp_path.iterdir()) == []
    assert spool.measure_speed(1 << 60) is None
    assert Spool(tmp_path / "missing").measure_speed(1 << 20) is None
