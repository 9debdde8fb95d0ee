"""Jobs sent into windows, and limits that are raised, while a log is played: by hand, and beside EASY."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ejbd.sim.models import Model, generate
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Jobs
from ejbd.studies.speculative.gapplay import LAMBDA_S, GapPlay
from ejbd.studies.speculative.learning import own
from ejbd.studies.speculative.raiseplay import RaisePlay
from ejbd.studies.speculative.traces import LearningPlay

Row = tuple[float, float, float, int]  # submitted, run, request, processors

ALIKE: list[Row] = [(at * 1000.0, 300.0, 7200.0, 2) for at in range(10)]  # ten runs, one after another
BLOCKED: list[Row] = [(20_000.0, 3600.0, 3600.0, 6), (20_001.0, 600.0, 600.0, 8)]  # 2 of 8 are idle for an hour


def made(rows: list[Row], total: int = 8) -> Workload:
    submitted, ran, asked, processors = (np.array(one, dtype=np.float64) for one in zip(*rows, strict=True))
    jobs = Jobs(submitted, ran, asked, processors.astype(np.int64), np.arange(len(rows)))
    return Workload("made", total, jobs, users=(processors >= 6).astype(np.int64))


def total_s(played_s: float, rows: list[Row]) -> float:
    return played_s * len(rows)


def test_a_job_whose_runs_were_short_runs_in_the_window_before_the_heads_reservation() -> None:
    rows = [*ALIKE, *BLOCKED, (20_002.0, 300.0, 7200.0, 2)]
    played = GapPlay(made(rows)).play()
    assert total_s(played.turnaround_s, rows) == pytest.approx(10 * 300 + 3600 + (3600 + 600 - 1) + 300)
    assert (played.attempts, played.killed, played.wasted_h) == (13, 0.0, 0.0)


def test_a_run_that_was_not_over_waits_in_its_place_with_its_request_and_one_behind_it_goes_after() -> None:
    """It runs for 59 minutes in vain, which delays nobody: the head starts when it was planned to."""
    rows = [*ALIKE, *BLOCKED, (20_002.0, 7000.0, 7200.0, 2), (20_003.0, 50.0, 50_000.0, 8)]
    played = GapPlay(made(rows)).play()
    head_ends = 3600.0 + 600.0
    done = [head_ends - 1, head_ends - 2 + 7000, head_ends - 3 + 7000 + 50]
    assert total_s(played.turnaround_s, rows) == pytest.approx(10 * 300 + 3600 + sum(done))
    assert (played.attempts, played.killed) == (15, 1 / 15)
    assert played.wasted_h == pytest.approx(2 * 3540 / 3600)


def test_where_the_work_is_kept_only_the_checkpoint_and_the_restart_are_lost() -> None:
    rows = [*ALIKE, *BLOCKED, (20_002.0, 7000.0, 7200.0, 2)]
    played = GapPlay(made(rows), keeps=True).play()
    left_s = 7000 - (3540 - LAMBDA_S) + LAMBDA_S
    assert total_s(played.turnaround_s, rows) == pytest.approx(10 * 300 + 3600 + 4199 + (4200 - 2 + left_s))
    assert played.wasted_h == pytest.approx(2 * 2 * LAMBDA_S / 3600)


def test_the_head_of_the_queue_is_sent_nowhere_and_nobody_is_where_nothing_is_known() -> None:
    rows = [*ALIKE[:9], *BLOCKED, (20_002.0, 300.0, 7200.0, 2)]
    plain = LearningPlay(made(rows), own(), elastic=False).play()
    assert GapPlay(made(rows)).play() == plain


def test_a_limit_is_raised_to_the_request_and_nobody_is_killed() -> None:
    """Planned for 300 s by the last two, it runs for 1000: those who wait behind it begin later, and all is done."""
    rows = [*ALIKE[:2], (5000.0, 1000.0, 7200.0, 8), (5001.0, 100.0, 7200.0, 8)]
    played = RaisePlay(made(rows)).play()
    assert total_s(played.turnaround_s, rows) == 300 + 300 + 1000 + (1000 - 1 + 100)
    assert (played.killed, played.wasted_h, played.attempts) == (0.0, 0.0, 4)


def test_with_a_short_plan_others_fit_before_the_head() -> None:
    """By its request the last one would not be over before the head's reservation; by the last two runs it is."""
    rows = [*ALIKE[:2], *BLOCKED, (20_002.0, 300.0, 7200.0, 2)]
    plain, raised = LearningPlay(made(rows), own(), elastic=False).play(), RaisePlay(made(rows)).play()
    assert total_s(plain.turnaround_s - raised.turnaround_s, rows) == pytest.approx(3600 + 600 - 2)


@pytest.mark.parametrize("keeps", [False, True])
def test_on_a_busy_log_every_job_is_done_and_the_work_adds_up(keeps: bool) -> None:
    made_up = generate(Model.LUBLIN, jobs=600, processors=64, seed=5, load=0.9)
    log = replace(workload_of(made_up, "lublin", processors=64), users=np.arange(600) % 5)
    played = GapPlay(log, keeps=keeps).play()
    assert played.killed > 0 and played.wasted_h > 0
    assert played.utilisation == pytest.approx(RaisePlay(log).play().utilisation, rel=0.2), (
        "the same work, in about the same time"
    )
