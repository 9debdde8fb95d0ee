"""`ejb explain --moves`: every hop of a start, a move and an end, from what is stored of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ejbd.cli.output import Mode, Output
from ejbd.cli.show import moves as showing_moves
from ejbd.manager.telling.hops import moves
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld, Worker

pytestmark = pytest.mark.sql


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def come(live: LiveWorld, subjob: str, late_s: float) -> Worker:
    """The batch system starts a subjob; its worker comes 2 s later, and is told what to do after `late_s` more."""
    live.batch.start(f"ejb-{subjob}")
    live.clock.now += 2
    worker = live.workers[subjob] = Worker(live, subjob, live.batch.of(f"ejb-{subjob}").processors)
    await worker.register()
    await live.poll(late_s)
    worker.takes = {"launch": 0.5, "checkpoint": 1.0}
    await live.work()
    return worker


async def moved(live: LiveWorld) -> tuple[str, list[dict[str, Any]]]:
    """A job that started on 4 processors, moved onto 8, and ended."""
    job = await live.submit()
    await live.poll(1)
    await come(live, f"{job}.1", 3.0)
    await live.poll(10)
    second = live.subjobs(job)[2].id
    await come(live, second, 4.0)
    for worker in live.workers.values():
        await worker.finish_ranks(2)
    await live.work()
    for id in (f"{job}.1", second):
        live.batch.end(f"ejb-{id}")
    await live.poll(0.75)
    return job, live.store.read_sync(lambda s: moves(s, job))


def gaps(move: dict[str, Any]) -> dict[tuple[str, str], float]:
    """(what, subjob's number) -> seconds since the move's first hop."""
    begun = move["hops"][0]["at_s"]
    return {(h["what"], (h["subjob"] or ".").rpartition(".")[2]): round(h["at_s"] - begun, 3) for h in move["hops"]}


async def test_every_hop_has_its_time(live: LiveWorld) -> None:
    _, (start, move, end) = await moved(live)
    assert [one["kind"] for one in (start, move, end)] == ["start", "move", "end"]
    assert (start["before"], start["processors"]) == (0, 4) and (move["before"], move["processors"]) == (4, 8)
    assert (end["before"], end["processors"]) == (8, 0)
    for one in (start, move, end):
        times = [hop["at_s"] for hop in one["hops"]]
        assert times == sorted(times)
    # Decided and submitted at once; 2 s until the worker is there, 3 until it asks what to do, 0.5 for the launch.
    assert gaps(start) == {
        ("window seen", ""): 0.0,
        ("decided", "1"): 0.0,
        ("submission begun", "1"): 0.0,
        ("submission answered", "1"): 0.0,
        ("started by the batch system", "1"): 0.0,
        ("worker registered", "1"): 2.0,
        ("seen as running", "1"): 2.0,
        ("launch sent", ""): 5.0,
        ("ranks started", "1"): 5.5,
        ("all ranks run", ""): 5.5,
    }
    assert start["started_to_running_s"] == 5.5 and start["seen_to_running_s"] == 3.5
    assert start["still_s"] is None, "nothing stood still before it began"
    told = gaps(move)
    seen = told["seen as running", "2"]
    assert seen - told["started by the batch system", "2"] == 2.0
    assert told["checkpoint asked for", ""] == seen
    assert told["ranks have ended, images written", "1"] == told["worker asks its ranks", "1"] + 1.0
    assert told["ranks have ended, images written", "1"] == told["first image begun", "1"] + 0.5
    assert told["every rank has stopped, every image is whole", ""] == seen + 5.0 == told["launch sent", ""]
    assert ("ranks started", "1") in told and ("ranks started", "2") in told
    assert move["still_s"] == move["seen_to_running_s"] == told["all ranks run", ""] - seen
    assert end["end_to_free_s"] == gaps(end)["seen as ended, its processors are free", "2"] == 0.75
    assert {("worker leaves", "1"), ("worker leaves", "2"), ("job completed", "")} <= set(gaps(end))


async def test_what_a_worker_tells_is_put_before_the_moment_of_its_report(live: LiveWorld) -> None:
    """In seconds of its own: what its machine's clock shows counts for nothing."""
    job = await live.submit()
    await live.poll(1)
    live.batch.start(f"ejb-{job}.1")
    live.clock.now += 2
    about = {"node": "n1", "processors": 4, "host": "h", "pid": 1, "address": "127.0.0.1", "boot": "b", "age_s": 0.75}
    id = (await live.manager.register_worker(f"{job}.1", about))["worker"]
    await live.poll(1)
    n = 0
    for _ in range(3):
        for operation in await live.manager.worker_operations(f"{job}.1", id, 0, 0):
            n += 1
            live.clock.now += 0.5
            data = {"pids": {}, "seconds": 0.4, "first_s": 0.1} if operation["kind"] == "launch" else {}
            result = {"n": n, "kind": "result", "seq": operation["seq"], "ok": True, "error": "", "data": data}
            await live.manager.worker_reports(f"{job}.1", id, [result])
    (start,) = live.store.read_sync(lambda s: moves(s, job))
    told = gaps(start)
    assert told["worker began", "1"] == told["worker registered", "1"] - 0.75
    running = told["all ranks run", ""]
    assert told["ranks started", "1"] == running
    assert told["worker begins to launch", "1"] == round(running - 0.4, 3)
    assert told["first rank started", "1"] == round(running - 0.3, 3)


async def test_a_job_that_waits_has_no_moves_yet(live: LiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    live.batch.free = 0
    job = await live.submit()
    await live.poll(1)
    assert live.store.read_sync(lambda s: moves(s, job)) == []
    showing_moves.moves({"job": job, "moves": []}, Output(Mode.HUMAN))
    assert "its ranks have not been anywhere yet" in capsys.readouterr().out


async def test_people_read_them(live: LiveWorld, capsys: pytest.CaptureFixture[str]) -> None:
    job, found = await moved(live)
    showing_moves.moves({"job": job, "moves": found}, Output(Mode.HUMAN))
    text = capsys.readouterr().out
    assert "start of placement 1: on 4 processors" in text
    assert "move to placement 2: from 4 processors to 8" in text
    assert "end: 8 processors given back" in text
    assert "3.500 s from when the last new subjob was known to run until all ranks ran" in text
    marked = [line for line in text.splitlines() if line.startswith("*")]
    assert any("launch sent" in line and "+  3.000" in line for line in marked)
