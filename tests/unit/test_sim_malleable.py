"""FCFS-malleable simulated: Figure 2 of Utrera et al., the loop against a second reading of it, and folded bundling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.malleable.parameters import First, MalleableParameters
from ejbd.core.malleable.stretching import Model
from ejbd.sim import play
from ejbd.sim.malleable import drawn, run_malleable
from ejbd.sim.metrics import fragmentation, multiprogramming
from ejbd.sim.models import Model as Made
from ejbd.sim.models import generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Jobs
from ejbd.studies.malleable import beside, breakeven, logs
from ejbd.studies.malleable.printed import LOGS
from ejbd.studies.malleable.small import parameters
from tests.fakes.ejb_sim import ejb_sim


def made(
    jobs: int = 60, seed: int = 3, load: float = 0.9, model: Made = Made.UNIFORM, processors: int = 32
) -> Workload:
    return workload_of(generate(model, jobs=jobs, processors=processors, seed=seed, load=load), "made")


@pytest.mark.slow
def test_figure_2_by_one_command(tmp_path: Path, undrawn: None) -> None:
    paths = [Path(line) for line in ejb_sim("reproduce", "malleable", "--out", str(tmp_path)).stdout.split()]
    assert paths[:2] == [tmp_path / "malleable.md", tmp_path / "malleable.json"]
    assert all(path.stat().st_size for path in paths)
    found = json.loads(paths[1].read_text())["figure2"]
    wanted = {
        "fcfs": (4.667, 3.5, 30.0, [2, 3, 3, 5, 7, 8]),
        "easy": (4.333, 3.167, 30.0, [2, 3, 1, 5, 7, 8]),
        "malleable": (3.667, 2.5, 6.7, [4, 1, 1, 5, 5, 6]),
    }
    told = ("mean_response", "mean_slowdown", "fragmentation_percent", "ends")
    assert {name: tuple(of[key] for key in told) for name, of in found.items()} == wanted
    assert "No logs were given" in paths[0].read_text()


def by_the_second(workload: Workload, pace: float) -> list[float]:
    """The same algorithm second by second, with a fold that takes `pace` times as long; for whole figures."""
    jobs = workload.jobs
    widths, left = jobs.processors.tolist(), [2.0 * run for run in jobs.run.tolist()]
    queue: list[int] = []
    held: dict[int, int] = {}
    ends, come, now = [0.0] * len(widths), 0, 0.0
    while come < len(widths) or queue or held:
        changed = False
        for job in [job for job in held if left[job] <= 1e-9]:
            del held[job]
            ends[job], changed = now, True
        while come < len(widths) and jobs.submit[come] <= now:
            queue.append(come)
            come, changed = come + 1, True
        while changed and queue:
            job = queue[0]
            free = workload.processors - sum(held.values())
            whole = [one for one in held if held[one] == widths[one] > 1]
            for target in (widths[job], (widths[job] + 1) // 2):
                folds: list[int] = []
                gained = free
                for one in whole:
                    if gained >= target:
                        break
                    folds.append(one)
                    gained += widths[one] // 2
                if gained >= target:
                    held |= {one: (widths[one] + 1) // 2 for one in folds}
                    held[queue.pop(0)] = target
                    break
            else:
                break
        if changed and not queue:
            for job in held:
                if widths[job] - held[job] <= workload.processors - sum(held.values()):
                    held[job] = widths[job]
        now += 1.0
        for job, processors in held.items():
            left[job] -= 2.0 if processors == widths[job] else 2.0 / pace
    return ends


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_algorithm_played_second_by_second(seed: int) -> None:
    load = made(jobs=40, seed=seed, load=1.1)
    short = load.jobs._replace(
        submit=np.floor(load.jobs.submit / 200), run=np.maximum(1.0, 2 * np.floor(load.jobs.run / 400))
    )
    workload = Workload("short", load.processors, short._replace(walltime=short.run))
    outcome = run_malleable(workload, MalleableParameters(model=Model.LINEAR), checking=True)
    # The loop ends jobs on whole seconds, as the second reading does; a half second of work may be left over.
    assert np.abs(outcome.end - np.array(by_the_second(workload, 2.0))).max() <= 1.0
    assert outcome.moves.sum() > 0


@pytest.mark.parametrize("first", list(First))
@pytest.mark.parametrize("model", list(Model))
def test_every_job_ends_and_none_passes_the_head(first: First, model: Model) -> None:
    load = made()
    outcome = run_malleable(load, MalleableParameters(first=first, model=model), checking=True)
    assert (np.diff(outcome.start) >= 0).all(), "FCFS: starts are in the order of arrival"
    assert (outcome.end > outcome.start).all()
    assert outcome.used.sum() <= load.processors * (outcome.end.max() - load.jobs.submit.min())


def test_without_folding_it_is_fcfs() -> None:
    load = made()
    fcfs = run(load, Policy.FCFS, plain=True)
    for asked, candidates in (
        (MalleableParameters(mpl=1), None),
        (MalleableParameters(), np.full(len(load), False)),
    ):
        outcome = run_malleable(load, asked, candidates=candidates)
        assert (outcome.end == fcfs.end).all() and not outcome.moves.any()


def test_folding_that_costs_nothing_harms_no_mean() -> None:
    load = made(load=1.0)
    easy = run(load, Policy.EASY, plain=True)
    free, dear = (run_malleable(load, MalleableParameters(model=Model.STRETCH, stretch=s)) for s in (1.0, 2.0))
    assert free.end.mean() < easy.end.mean() and free.end.mean() < dear.end.mean()
    assert fragmentation(load.jobs, free, 32) < fragmentation(load.jobs, easy, 32)
    assert multiprogramming(load.jobs, dear, 32) > multiprogramming(load.jobs, easy, 32)


def test_use_is_the_logs_where_it_has_one() -> None:
    log = generate(Made.UNIFORM, jobs=30, processors=16, seed=1)
    rows = log.rows.copy()
    rows[:10, 5] = rows[:10, 3] * 0.25
    workload = workload_of(type(log)(rows, log.header), "made")
    use, overhead = drawn(workload, MalleableParameters(use=0.5))
    assert use[:10] == pytest.approx(np.ceil(rows[:10, 3]) * 0 + 0.25, rel=1e-3)
    assert ((use > 0) & (use <= 1)).all() and ((overhead >= 0) & (overhead <= 1)).all() and len(set(use[10:])) == 20


def test_it_is_chosen_by_name(tmp_path: Path) -> None:
    write_swf(tmp_path / "made.swf", generate(Made.UNIFORM, jobs=60, processors=32, seed=3, load=0.9))
    words = ["run", str(tmp_path / "made.swf"), "--json", "-", "--policy"]
    report = json.loads(ejb_sim(*words, "fcfs-malleable:model=stretch,stretch=1.2").stdout)
    by_hand = run_malleable(made(), MalleableParameters(model=Model.STRETCH, stretch=1.2))
    assert report["mean_turnaround_s"] == pytest.approx((by_hand.end - made().jobs.submit).mean())
    assert (report["parameters"]["model"], report["parameters"]["min_procs"]) == ("stretch", 1)
    assert play(made(), "fcfs-malleable", candidates=np.full(60, True)).end.size == 60
    assert "mpl=3 is no setting" in ejb_sim(*words, "fcfs-malleable:mpl=3", code=2).stderr
    assert "only, not for fcfs-malleable" in ejb_sim(*words, "fcfs-malleable", "--fold", code=2).stderr


GUARDED: dict[str, Any] = {"suspend": True, "order": Order.LEAST_WORK, "guard": Guard.ON}


def test_room_that_is_given_back_by_folding_is_there_at_once_and_taken_again() -> None:
    """J2 of 8 runs over-subscribed on 4; J3 of 2 comes at 500 s, and fits into half of that."""
    run_s = np.array([20_000.0, 4000.0, 100.0])
    table = Jobs(np.array([0.0, 1.0, 500.0]), run_s, run_s, np.array([4, 8, 2]), np.array([1, 2, 3]))
    load, given = Workload("made", 8, table), BundlingParameters(**GUARDED, lambda_s=120.0)
    starts, ends = [], []
    for folds in (False, True):
        outcome = run(load, Policy.EJB, parameters=given, plain=True, checking=True, folds=folds)
        starts.append(outcome.start[2])
        ends.append(outcome.end[1])
    assert starts == [620.0, 500.0], "without folding it waits for a checkpoint"
    assert ends[1] < ends[0]


@pytest.mark.parametrize("seed", range(3))
def test_folded_bundling_keeps_every_invariant(seed: int) -> None:
    load = made(jobs=150, seed=seed, load=1.0, model=Made.BURSTY, processors=64)
    given = BundlingParameters(**GUARDED, lambda_s=120.0)
    guard = run(load, Policy.EJB, parameters=given, plain=True)
    folds = run(load, Policy.EJB, parameters=given, plain=True, checking=True, folds=True)
    assert (folds.end >= load.jobs.submit + load.jobs.run).all() and (guard.end != folds.end).any()
    off = BundlingParameters(**{**GUARDED, "guard": Guard.OFF})
    without = run(load, Policy.EJB, parameters=off, plain=True, folds=True)
    assert (without.end == run(load, Policy.EJB, parameters=off, plain=True).end).all(), "no guard, no folding"


@pytest.mark.slow
def test_the_logs_of_a_folder_make_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> None:
    monkeypatch.setattr(logs, "DRAWS", 2)
    monkeypatch.setattr(beside, "DELTAS", ("1", "1.5"))
    monkeypatch.setattr(breakeven, "LOGS", LOGS)
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Made.UNIFORM, jobs=80, processors=100, seed=3, load=0.9))
    out = tmp_path / "out"
    ejb_sim("reproduce", "malleable", "--traces", str(tmp_path), "--out", str(out))
    found = json.loads((out / "malleable.json").read_text())
    assert [(one["log"], one["stretch"]) for one in found["break_even"]] == [
        ("KTH", s) for s in (1.0, 1.4, 1.6, 1.8, 2.0)
    ]
    assert [(one["policy"], one["delta"]) for one in found["beside"]] == [
        (policy, delta) for policy in ("guard", "guard, folding", "malleable") for delta in (1.0, 1.5)
    ]
    assert "Worst cell" in (out / "malleable.md").read_text()


def test_a_part_of_a_log_becomes_tables_2_and_3(tmp_path: Path) -> None:
    log = generate(Made.UNIFORM, jobs=120, processors=64, seed=5, load=1.0)
    log.rows[100, 3] = log.rows[100, 4] = -1  # cancelled before it started: a job of a second all the same
    write_swf(tmp_path / "made.swf", log)
    part = LOGS[0].__class__("made", "made", 64, 40, 120, 0.5, 0.7, 1.0, 0.7, 0.9)
    found = logs.play_log(tmp_path / "made.swf", part, draws=2)
    assert len(found.workload) == 80 and found.workload.jobs.run.min() == 1.0
    head, rows = logs.table_3([found])
    assert head[0] == "log" and rows[0][:2] == ["made", 0.7] and rows[0][2] == f"{found.easy.mpl:.2f}"
    assert logs.figure_3([found])[1][1][-1] in {"0 of 2", "1 of 2", "2 of 2"}


def test_what_a_job_takes_beside_its_work_is_not_longer_for_being_folded() -> None:
    """Two jobs of 4 on 4 processors: each is folded for as long as both work, and ends 3 s after its work."""
    run_s, widths = np.array([10.0, 10.0]), np.array([4, 4], dtype=np.int64)
    jobs = Jobs(np.zeros(2), run_s, run_s.copy(), widths, np.arange(1, 3))
    found = run_malleable(Workload("two", 4, jobs), parameters(model=Model.LINEAR), fixed_s=3.0, checking=True)
    assert list(found.end) == [23.0, 23.0]
    alone = run_malleable(Workload("two", 8, jobs), parameters(model=Model.LINEAR), fixed_s=3.0)
    assert list(alone.end) == [13.0, 13.0]
