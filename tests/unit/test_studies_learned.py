"""Logs played with walltimes that are learned on the way: nothing is known early, and nothing of a job is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.parameters import simulated
from ejbd.sim.metrics import means, utilization
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Jobs
from ejbd.studies.speculative.learning import (
    Asked,
    Way,
    learned,
    longest_of_ten,
    mean_of_two,
    own,
    quantile,
    t_optimal,
    up_to,
)
from ejbd.studies.speculative.traces import LearningPlay
from tests.fakes.ejb_sim import ejb_sim


def made(submit: list[float], run_s: list[float], walltime: list[float], processors: list[int], total: int) -> Workload:
    submitted, ran, asked = (np.array(one, dtype=np.float64) for one in (submit, run_s, walltime))
    jobs = Jobs(submitted, ran, asked, np.array(processors), np.arange(len(submit)))
    return Workload("made", total, jobs, users=np.zeros(len(submit), dtype=np.int64))


@pytest.fixture(scope="module")
def log() -> Workload:
    return workload_of(generate(Model.LUBLIN, jobs=600, processors=64, seed=5, load=0.9), "lublin", processors=64)


@pytest.mark.parametrize("policy", [Policy.EASY, Policy.EJB])
def test_with_the_users_requests_it_is_the_simulator(log: Workload, policy: Policy) -> None:
    outcome = run(log, policy, parameters=simulated(BundlingParameters), plain=True)
    played = LearningPlay(log, own(), elastic=policy is Policy.EJB).play()
    theirs = means(log.jobs, outcome, np.full(len(log), True))
    assert played.turnaround_s == pytest.approx(theirs.mean_turnaround_s, rel=1e-12)
    assert played.bounded_slowdown == pytest.approx(theirs.mean_bounded_slowdown, rel=1e-12)
    work = float((log.jobs.processors * log.jobs.run).sum())
    assert played.wasted_h * 3600.0 == pytest.approx(float(outcome.used.sum()) - work, abs=1e-3)
    share = utilization(log.jobs, outcome, log.processors) * work / float(outcome.used.sum())
    assert played.utilisation == pytest.approx(share, rel=1e-9)
    assert (played.attempts, played.killed) == (len(log), 0.0)


def test_a_run_that_times_out_begins_again_behind_those_who_wait() -> None:
    """On one processor: 600 s in vain, then the other job, then all of the first."""
    way = Way(lambda asked: up_to([600.0], asked.requested_s), lambda asked, run_s: None)
    played = LearningPlay(made([0, 10], [900, 300], [3600, 3600], [1, 1], 1), way, elastic=False).play()
    assert played.turnaround_s == ((600 + 300 + 900) + (600 + 300 - 10)) / 2
    assert (played.wasted_h, played.attempts, played.killed) == (600 / 3600, 3, 1 / 3)
    assert played.utilisation == 1200 / 1800
    assert played.requested_h == (600 + 600 + 3600) / 3600


def test_what_is_elastic_goes_on_from_where_it_was_saved() -> None:
    """It starts at once in its own shape, and loses a move where a rigid one would lose all."""
    way = Way(lambda asked: up_to([600.0], asked.requested_s), lambda asked, run_s: None)
    workload = made([0], [900], [3600], [8], 8)
    lambda_s = simulated(BundlingParameters).lambda_s
    saved = LearningPlay(workload, way, elastic=True).play()
    assert saved.turnaround_s == 900 + lambda_s and saved.attempts == 2
    assert saved.overhead == pytest.approx(lambda_s / 900)
    assert LearningPlay(workload, way, elastic=False).play().turnaround_s == 600 + 900


def test_narrow_jobs_keep_their_request_under_ejb() -> None:
    way = Way(lambda asked: up_to([60.0], asked.requested_s), lambda asked, run_s: None)
    assert LearningPlay(made([0], [900], [3600], [7], 8), way, elastic=True).play().attempts == 1


@pytest.mark.parametrize(
    "way", [longest_of_ten, mean_of_two, lambda: learned(t_optimal), lambda: learned(t_optimal, alike=False)]
)
def test_nothing_is_known_before_it_has_ended(log: Workload, way: Callable[[], Way]) -> None:
    """Other run times of the later half change no walltime that was chosen before one of them could end."""
    half = len(log) // 2
    wide, long = log.jobs.processors > 8, log.jobs.run > 3600.0
    asked = np.where(long, np.maximum(log.jobs.walltime, 1e6), 3600.0)
    alike = log.jobs._replace(processors=np.where(wide, 16, 4), walltime=np.where(long, asked.max(), 3600.0))
    later = alike.run.copy()
    later[half:] = np.maximum(1.0, later[half:] / 3)

    def chosen(jobs: Jobs) -> list[tuple[float, ...]]:
        inner = way()
        said: list[tuple[float, ...]] = []

        def walltimes(asked: Asked) -> tuple[float, ...]:
            said.append(inner.walltimes(asked))
            return said[-1]

        LearningPlay(replace(log, jobs=jobs), Way(walltimes, inner.ended), elastic=False).play()
        return said

    plain = chosen(alike)
    other = chosen(alike._replace(run=later))
    assert plain[: half + 1] == other[: half + 1]
    assert plain != other and any(len(one) > 1 for one in plain[:half]), "something is learned at all"


def test_walltimes_are_minutes_below_the_request_which_comes_last() -> None:
    assert up_to([30.0, 45.0, 61.0, 5000.0], 3600.0) == (60.0, 120.0, 3600.0)
    assert up_to([], 90.0) == (90.0,)
    assert up_to([3541.0], 3600.0) == (3600.0,)


def test_a_law_needs_ten_runs_that_asked_for_as_much() -> None:
    way, asked = learned(quantile(0.5)), Asked(1, 4, 7200.0)
    for run_s in range(1000, 1009):
        way.ended(asked, float(run_s))
    way.ended(asked._replace(processors=8), 1000.0)
    assert way.walltimes(asked) == (7200.0,)
    way.ended(asked, 1009.0)
    assert way.walltimes(asked) == (1020.0, 7200.0)
    assert way.walltimes(asked._replace(user=2)) == (7200.0,)


def test_the_command_makes_the_tables_and_plays_nothing_twice(tmp_path: Path) -> None:
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.LUBLIN, jobs=150, processors=100, seed=3, load=0.9))
    words = ["reproduce", "learned", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), "--limit", "120"]
    page, document, table = (Path(line) for line in ejb_sim(*words).stdout.split())
    plays = json.loads(document.read_text())["plays"]
    assert len(plays) == 19 and len({(one["scheduler"], one["walltimes"]) for one in plays}) == 19
    assert len(table.read_text().splitlines()) == 20 and "| KTH | EASY | user's request |" in page.read_text()
    fresh = [{**one, "turnaround_s": 3600.0} for one in plays]
    document.write_text(json.dumps({"rows_of_each_log": 120, "plays": fresh}))
    ejb_sim(*words)
    assert json.loads(document.read_text())["plays"] == fresh, "what was there is taken as it is"
    refused = ejb_sim(*words[:-1], "100", code=None)
    assert refused.returncode != 0 and "120 rows" in refused.stderr


def test_some_ways_alone_can_be_played_beside_the_request(tmp_path: Path) -> None:
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.LUBLIN, jobs=60, processors=100, seed=3, load=0.9))
    words = ["reproduce", "learned", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), "--only"]
    document = Path(ejb_sim(*words, "request, sent into windows").stdout.split()[1])
    plays = json.loads(document.read_text())["plays"]
    assert [(one["scheduler"], one["walltimes"]) for one in plays] == [
        ("EASY", "user's request"), ("EASY", "request, sent into windows"),
    ]  # fmt: skip
    assert "is no way to choose walltimes" in ejb_sim(*words, "guess", code=2).stderr
