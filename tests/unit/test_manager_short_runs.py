"""An application with short runs is passed through while its processors are free."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from ejbd.core.overhead import Hop
from ejbd.core.shortruns import FEWEST_RUNS, NEWEST_RUNS, learned, runs_are_short, taken_for_short
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import read_swf
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Costs
from ejbd.store.models import Overhead, PastRun
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld
from tests.fakes.pastruns import remember

ALL_SHORT = f"{FEWEST_RUNS} of the last {FEWEST_RUNS} runs"


async def test_short_runs_are_passed_through_while_they_can_start_at_once(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, short_runs=20)
    live.batch.free = 16
    await live.poll(1)
    remember(live, FEWEST_RUNS, 40.0, application="app")
    told = await live.plan(processes=16, app="app")
    assert not told["elastic"] and told["code"] == "short_runs" and f"{ALL_SHORT} of app" in told["why"]
    job = await live.submit(processes=16, app="app")
    assert not live.job(job).elastic
    found = await live.manager.explain(job)
    assert f"not elastic (short_runs): {ALL_SHORT}" in found["now"]


async def test_what_waits_is_long_or_hardly_known_stays_elastic(tmp_path: Path, store: Store) -> None:
    live = LiveWorld(tmp_path, store, short_runs=20)
    live.batch.free = 16
    await live.poll(1)
    remember(live, FEWEST_RUNS - 1, 40.0, application="app")
    assert (await live.plan(processes=16, app="app"))["elastic"], "four runs are too few"
    live.batch.free = 4
    await live.poll(5)
    remember(live, 1, 40.0, application="app")
    assert (await live.plan(processes=16, app="app"))["elastic"], "it has to wait"
    live.batch.free = 16
    await live.poll(5)
    assert not (await live.plan(processes=16, app="app"))["elastic"]
    assert (await live.plan(processes=16, app="app", elastic=True))["elastic"], "it asks to be"
    remember(live, 1, 90.0, application="app")
    remember(live, 1, 90.0, application="app")
    assert (await live.plan(processes=16, app="app"))["elastic"], "two in seven were long"


async def test_what_a_start_costs_is_judged_by_its_width(tmp_path: Path, store: Store) -> None:
    """Many narrow starts that came later say nothing of a wide one."""
    live = LiveWorld(tmp_path, store, short_runs=20)
    live.batch.free = 16
    await live.poll(1)
    remember(live, FEWEST_RUNS, 40.0, application="app")  # of 16 processors, with a start of 3 s

    def narrow(session: Session) -> None:
        for _ in range(100):
            session.add(
                Overhead(
                    hop=Hop.READY.value, queue="batch", application="", job_id="b", subjob_id="b.1", at_s=2.0,
                    processors=2, seconds=0.2,
                )
            )  # fmt: skip
        for at in range(FEWEST_RUNS):
            session.add(
                PastRun(
                    key=1000 + at, user="ada", application="app", processors=2, input_class="", run_s=40.0,
                    requested_s=100.0, outcome="completed", end_s=1000.0 + at,
                )
            )  # fmt: skip

    live.store.write_sync(narrow)
    assert not (await live.plan(processes=16, app="app"))["elastic"], "40 s are short beside 20 times 3 s"
    assert (await live.plan(processes=2, app="app"))["elastic"], "and not beside 20 times .2 s"


def test_the_newest_runs_count() -> None:
    bits = runs = short = 0
    for _ in range(2 * NEWEST_RUNS):
        bits, runs, short = learned(bits, runs, short, True)
    assert (runs, short) == (NEWEST_RUNS, NEWEST_RUNS) and runs_are_short(runs, short)
    for at in range(NEWEST_RUNS):
        bits, runs, short = learned(bits, runs, short, False)
        assert short == NEWEST_RUNS - 1 - at
    assert bits == 0 and not runs_are_short(runs, short)


def played(folder: Path, rows: str) -> Workload:
    """These rows of a log, on a cluster of 8 processors."""
    (folder / "log.swf").write_text(rows)
    return workload_of(read_swf(folder / "log.swf"), "short", processors=8)


def test_runs_at_any_width_count_where_its_own_are_too_few() -> None:
    few, many = FEWEST_RUNS - 1, FEWEST_RUNS
    assert taken_for_short(few, 0, many, many) and not taken_for_short(many, 0, NEWEST_RUNS, NEWEST_RUNS)
    assert taken_for_short(many, many, NEWEST_RUNS, 0) and not taken_for_short(0, 0, few, few)


def test_a_simulated_j0_that_begins_a_short_job_pays_no_start(tmp_path: Path) -> None:
    """Jobs of one user at two widths, which all wait: no window is free. The first five are what is learned from."""
    rows = "".join(f"{n} {n} -1 30 8 -1 -1 {7 + n % 2} 100 -1 1 7 -1 -1 -1 -1 -1 -1\n" for n in range(1, 16))
    workload = played(tmp_path, rows)
    costs = Costs(launch_s=2.0, release_s=1.0)
    for below, paid in ((0.0, 15), (5.0, 15), (20.0, FEWEST_RUNS)):
        outcome = run(workload, Policy.EJB, min_processors=2, costs=costs, plain_below=below)
        assert (outcome.subjobs[1:] == 1).all(), "each ran on its J0 alone"
        assert outcome.end.max() - 1.0 == 33.0 * paid + 30.0 * (15 - paid)


def test_a_simulated_job_pays_no_start_where_runs_like_it_are_short(tmp_path: Path) -> None:
    """Fifteen runs of one user one after the other, on an empty cluster: the first five are what is learned from."""
    rows = "".join(f"{n} {1000 * n} -1 30 8 -1 -1 8 100 -1 1 7 -1 -1 -1 -1 -1 -1\n" for n in range(1, 16))
    workload = played(tmp_path, rows)
    costs = Costs(launch_s=2.0, release_s=1.0)
    for times, paid in ((0.0, 15), (5.0, 15), (20.0, FEWEST_RUNS)):
        ended = run(workload, Policy.EJB, costs=costs, short_runs=times).end - workload.jobs.submit
        assert list(ended) == [33.0] * paid + [30.0] * (15 - paid)
