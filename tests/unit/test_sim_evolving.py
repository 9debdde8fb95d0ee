"""Evolving jobs in the simulator: on logs, from the command line, and the paper's tables in their bands."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ejbd.errors import EjbError
from ejbd.sim.evolving import run_evolving
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import Workload, workload_of
from ejbd.studies.evolving.courses import courses
from ejbd.studies.evolving.experiment import experiment
from ejbd.studies.evolving.onefit import fit_words
from ejbd.studies.evolving.printed import PRINTED, off
from ejbd.studies.evolving.reproduce import reproduce_evolving, wide_of
from tests.fakes.ejb_sim import ejb_sim

GOLDEN = ("--nodes", "10", "--resource", "8:6,5:5,5:3", "--profile", "2:4,3:2,3:6")


@pytest.fixture(scope="module")
def log() -> Workload:
    made = generate(Model.LUBLIN, jobs=150, processors=32, seed=4, load=1.0, overestimate=2.0)
    return workload_of(made, "lublin", processors=32)


def test_with_rigid_jobs_alone_it_is_conservative_backfilling(log: Workload) -> None:
    conservative = run(log, Policy.CONSERVATIVE, ties=Ties.BATCH, plain=True)
    evolving = run_evolving(log, [None] * len(log), plain=True)
    assert evolving.start.tolist() == conservative.start.tolist()
    assert evolving.end.tolist() == conservative.end.tolist()
    assert evolving.used == pytest.approx(conservative.used)


@pytest.mark.parametrize(("limit", "compact"), [(1.0, False), (2.0, True), (math.inf, False)])
def test_no_more_processors_are_held_than_there_are_and_nothing_runs_short(
    log: Workload, limit: float, compact: bool
) -> None:
    profiles = courses(log, log.jobs.processors >= 4, 1)
    outcome = run_evolving(log, profiles, limit=limit, compact=compact, plain=True)
    assert (outcome.start >= log.jobs.submit).all()
    held = outcome.end - outcome.start - log.jobs.run
    assert (held >= 0).all()
    assert (held == 0).all() or limit > 1
    span = outcome.end.max() - log.jobs.submit.min()
    assert outcome.used.sum() <= 32 * span
    needed = sum(
        log.jobs.processors[at] * log.jobs.run[at] if profile is None else _area(profile.to_json(), log.jobs.run[at])
        for at, profile in enumerate(profiles)
    )
    assert outcome.used.sum() == pytest.approx(needed) if limit == 1 else outcome.used.sum() > needed


def _area(steps: list[list[float]], run_s: float) -> float:
    area = 0.0
    for duration, width in steps:
        area += min(duration, run_s) * width
        run_s -= min(duration, run_s)
    return area


def test_a_course_lasts_as_long_as_its_job_and_has_its_width_as_peak(log: Workload) -> None:
    chosen = log.jobs.processors >= 8
    profiles = courses(log, chosen, 1)
    assert [profile is not None for profile in profiles] == chosen.tolist()
    for profile, run_s, walltime, width in zip(
        profiles, log.jobs.run, log.jobs.walltime, log.jobs.processors, strict=True
    ):
        if profile is not None:
            assert profile.duration_s == walltime
            assert profile.duration_s - profile.steps[-1].duration_s < run_s
            assert profile.peak <= width
    some = courses(log, chosen & (np.arange(len(log)) % 2 == 0), 1)
    assert all(one is None or one == other for one, other in zip(some, profiles, strict=True))


def test_a_profile_of_another_job_is_refused(log: Workload) -> None:
    profiles = [None] * (len(log) - 1) + courses(log, log.jobs.processors > 0, 1)[:1]
    with pytest.raises(EjbError, match="is none of a job that long"):
        run_evolving(log, profiles, plain=True)


@pytest.mark.parametrize(
    ("words", "start", "profile"),
    [
        (("--limit", "1"), 8, [[2, 4], [3, 2], [3, 6]]),
        (("--limit", "2"), 5, [[2, 4], [6, 2], [3, 6]]),
        (("--limit", "inf"), 0, [[2, 4], [11, 2], [3, 6]]),
        (("--limit", "inf", "--compact"), 8, [[2, 4], [3, 2], [3, 6]]),
    ],
)
def test_golden_values_from_the_command_line(words: tuple[str, ...], start: int, profile: list[list[int]]) -> None:
    told = json.loads(ejb_sim("fit", *GOLDEN, *words, "--json").stdout)
    assert (told["start"], told["end"], told["profile"]) == (start, 16, profile)


def test_a_fit_in_words() -> None:
    told = ejb_sim("fit", *GOLDEN, "--limit", "2").stdout.splitlines()
    assert told[0] == "starts at 5 s, ends at 16 s, 18.8 % more than it computes"
    assert told[3].split() == ["2", "7", "13", "2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "5", "--profile", "2:6"), "--profile: the profile needs 6 nodes, and there are 5"),
        (("--nodes", "5", "--profile", "2:4,,3:1"), "--profile: step 2 of the profile is empty"),
        (
            ("--nodes", "5", "--profile", "2:4", "--resource", "3:7"),
            "--resource: step 1 of the occupation takes 7 of 5",
        ),
        (("--nodes", "5", "--profile", "2:4", "--limit", "0.5"), "--limit: '0.5' is no limit"),
    ],
)
def test_bad_input_is_one_sentence(words: tuple[str, ...], said: str) -> None:
    refused = ejb_sim("fit", *words, code=2)
    where, _, detail = said.partition(": ")
    assert where in refused.stderr and detail in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert refused.stdout == ""


def test_units_are_read_on_either_side() -> None:
    assert fit_words(10, "", "4:1m,2m:3", "1", compact=False)["profile"] == [[60, 4], [120, 3]]


def test_the_tables_are_the_papers() -> None:
    """Twenty tests of the thousand: means that hardly vary. The whole is docs/evolving.md's."""
    rows = {row.algorithm: row.values for row in experiment(20, 2011)}
    for name, values in rows.items():
        for measure in ("utilisation", "makespan", "completion", "waiting"):
            assert abs(values[measure][1] - PRINTED[name][measure][1]) < 0.06
        assert abs(values["effective"][1] - PRINTED[name]["effective"][1]) < 4
    assert rows["noX"]["waste"] == (0, 0, 0)
    assert off("waste", 7, 9.0)
    assert not off("waste", 7, 8.4)


def test_reproduction_writes_tables_and_plots(tmp_path: Path, undrawn: None) -> None:
    paths = reproduce_evolving(tmp_path, tests=2)
    assert [path.name for path in paths] == [f"evolving.{kind}" for kind in ("json", "md", "png", "svg", "pdf")]
    page = paths[1].read_text()
    assert "## Table 2: of the jobs" in page
    assert len(json.loads(paths[0].read_text())["rows"]) == 6
    assert all(isinstance(wide_of(row), list) for row in experiment(1, 1))


def test_what_evolving_jobs_are_worth_on_a_log(tmp_path: Path) -> None:
    path = tmp_path / "made.swf"
    write_swf(path, generate(Model.LUBLIN, jobs=80, processors=32, seed=3, load=1.0))
    told = json.loads(ejb_sim("run", str(path), "--evolving-share", "0.5", "--json", "-").stdout)
    ways = {way["way"]: way for way in told["ways"]}
    assert list(ways) == [
        "rigid, EASY", "bundling", "rigid, conservative", "evolving, noX", "evolving, 2X+c", "evolving, infX+c",
    ]  # fmt: skip
    saved = ways["rigid, conservative"]["processor_seconds"] - ways["evolving, noX"]["processor_seconds"]
    assert saved == pytest.approx(told["their_peak_processor_seconds"] - told["evolving_processor_seconds"])
    assert ways["rigid, EASY"]["processor_seconds"] == pytest.approx(ways["rigid, conservative"]["processor_seconds"])
    assert told["evolving_jobs"] == ways["bundling"]["evolving"]["jobs"]
    table = ejb_sim("run", str(path), "--evolving-share", "0.5").stdout
    assert "evolving, noX" in table
    refused = ejb_sim("run", str(path), "--evolving-share", "0.5", "--policy", "easy", code=2)
    assert "--policy: evolving jobs are set beside EASY" in refused.stderr
