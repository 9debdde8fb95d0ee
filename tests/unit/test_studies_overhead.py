"""Moves weighed by learned run times: nothing is known early, nothing is killed, and less is spent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ejbd.core.bundling.weighing import BY_MEAN, weighed_left
from ejbd.core.speculation.empirical import Run, empirical
from ejbd.core.speculation.laws import Law
from ejbd.sim.metrics import overhead
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import write_swf
from ejbd.sim.targets import TargetRuns, run_targets
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Learned
from ejbd.studies.speculative.learning import Asked
from ejbd.studies.speculative.overhead import groups_of, learn, play
from tests.fakes.ejb_sim import ejb_sim


@pytest.fixture(scope="module")
def log() -> Workload:
    made = generate(Model.LUBLIN, jobs=500, processors=64, seed=5, load=1.0, overestimate=4.0)
    return workload_of(made, "lublin", processors=64)


def targets(log: Workload, learned: Learned | None) -> TargetRuns:
    known = replace(log, jobs=log.jobs._replace(learned=learned))
    return run_targets(known, trim=False, plain=True, checking=True)


def test_what_is_left_by_quantile_and_by_mean() -> None:
    points = [10.0, 20.0, 30.0, 100.0]
    assert weighed_left(points, 0.0, 500.0, 0.25) == 20.0
    assert weighed_left(points, 0.0, 500.0, BY_MEAN) == 40.0
    assert weighed_left(points, 20.0, 500.0, 0.25) == 10.0, "of those that got so far"
    assert weighed_left(points, 20.0, 500.0, BY_MEAN) == 45.0
    assert weighed_left(points, 0.0, 500.0, 1.0) == 100.0
    assert weighed_left(points, 0.0, 15.0, 0.25) == 15.0, "never more than what is planned"
    assert weighed_left(points, 100.0, 500.0, 0.25) == 500.0 == weighed_left([], 0.0, 500.0, BY_MEAN)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.83, 0.95, 0.9999])
def test_an_empirical_quantile_is_where_the_law_has_it(share: float) -> None:
    law = empirical([Run(30.0 * at * at + 7.0, at % 5 == 4, 0.9**at) for at in range(1, 30)])
    assert law.quantile(share) == pytest.approx(Law.quantile(law, share), rel=1e-9)
    assert law.cdf(law.quantile(share)) == pytest.approx(share, rel=1e-9)
    assert law.quantile(0.0) == law.low


def test_who_learns_the_request_decides_as_ever(log: Workload) -> None:
    asked = log.jobs.walltime
    before, after = targets(log, None), targets(log, Learned(asked, asked[:, None], BY_MEAN))
    assert before.targets.size >= 50
    for name in ("start", "end", "used", "moves", "subjobs"):
        at = before.targets
        assert np.array_equal(getattr(before.outcome, name)[at], getattr(after.outcome, name)[at]), name


def test_moves_that_the_job_will_not_live_to_use_are_left_out(log: Workload) -> None:
    before = targets(log, None)
    after = targets(log, Learned(log.jobs.walltime, log.jobs.run[:, None], BY_MEAN))
    at = before.targets
    spent = [float(overhead(log.jobs, one.outcome)[at].mean()) for one in (before, after)]
    assert spent[1] < 0.75 * spent[0]
    ends = [float((one.outcome.end - log.jobs.submit)[at].mean()) for one in (before, after)]
    assert ends[1] == pytest.approx(ends[0], rel=0.01)


def test_who_outlives_his_plan_is_saved_and_goes_on(log: Workload) -> None:
    """Planned with half of the true run time, everybody does; the invariants are looked at after every event."""
    jobs = log.jobs
    planned = np.minimum(jobs.walltime, np.maximum(60.0, jobs.run // 2))
    found = targets(log, Learned(planned, planned[:, None], BY_MEAN))
    at, outcome = found.targets, found.outcome
    assert (outcome.end[at] - outcome.start[at] >= jobs.run[at] - 1.0).all(), "all work is done"
    assert (outcome.used[at] >= (jobs.processors * (jobs.run - 1.0))[at]).all()
    assert outcome.moves[at].sum() > targets(log, None).outcome.moves[at].sum(), "it is a move more"


@pytest.mark.parametrize("alike", [True, False])
def test_nothing_is_known_before_it_has_ended(log: Workload, alike: bool) -> None:
    half = len(log) // 2
    users = np.zeros(len(log), dtype=np.int64)
    asked = np.where(log.jobs.run > 3600.0, 1e6, 3600.0)
    jobs = log.jobs._replace(walltime=asked, processors=np.where(log.jobs.processors > 8, 16, 4))
    known = replace(log, jobs=jobs, users=users)
    easy = run(known, Policy.EASY, plain=True)
    later = jobs.run.copy()
    still = easy.end > jobs.submit[half]
    later[still] = np.maximum(1.0, later[still] / 3)
    one, other = (learn(replace(known, jobs=jobs._replace(run=of)), easy, alike=alike) for of in (jobs.run, later))
    for name in ("law", "quantile_s", "points"):
        assert np.array_equal(getattr(one, name)[: half + 1], getattr(other, name)[: half + 1]), name
    assert not np.array_equal(one.points, other.points) and one.law[:half].any(), "something is learned at all"


def test_the_nearest_runs_tell_of_a_job() -> None:
    first, *others = groups_of(Asked(7, 16, 3600.0))
    assert first == groups_of(Asked(7, 16, 3600.0))[0] != groups_of(Asked(7, 32, 3600.0))[0]
    assert others[0] == groups_of(Asked(7, 32, 3600.0))[1] != groups_of(Asked(8, 32, 3600.0))[1]
    assert [part_of for _, part_of in others] == [1.0, 3600.0, 3600.0]
    assert others[2][0] == groups_of(Asked(8, 1, 60.0))[3][0], "everybody's"


def test_a_log_without_targets_has_no_overhead(log: Workload) -> None:
    narrow = replace(log, jobs=log.jobs._replace(processors=np.minimum(log.jobs.processors, 2)))
    told = play(narrow, run(narrow, Policy.EASY, plain=True), None)
    assert (told["targets"], told["overhead_percent"], told["turnaround_change_percent"]) == (0, 0.0, None)


def test_the_command_makes_the_tables(tmp_path: Path) -> None:
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.LUBLIN, jobs=200, processors=100, seed=3, load=1.0))
    words = ["reproduce", "overhead", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), "--limit", "150"]
    page, document, table = (Path(line) for line in ejb_sim(*words).stdout.split())
    plays = json.loads(document.read_text())["plays"]
    assert len(plays) == len({(one["planned_by"], one["weighed_by"]) for one in plays}) == 19
    assert len(table.read_text().splitlines()) == 20 and "| KTH | request | request |" in page.read_text()
    assert "first 150 rows" in page.read_text()
    refused = ejb_sim("reproduce", "overhead", "--out", str(tmp_path / "out"), code=None)
    assert refused.returncode != 0 and "say in which folder they are" in refused.stderr
