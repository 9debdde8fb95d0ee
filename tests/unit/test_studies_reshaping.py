"""`ejb sim reproduce reshape` and `--reshape`: reshaped jobs simulated, told beside the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order, rules_of
from ejbd.core.rungs import Rungs
from ejbd.sim.models import Model, generate
from ejbd.sim.own import run_policy
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Setting, Source, parse_setting
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import RowRule, Workload, workload_of
from ejbd.studies.reshaping import reproduce
from ejbd.studies.reshaping.reference import ALL, BESIDE, LOGS, ONE
from ejbd.studies.reshaping.reproduce import Found, verdict
from tests.fakes.ejb_sim import ejb_sim

WIDE = BundlingParameters(rungs=Rungs(1.0), omax=64)


@pytest.fixture(scope="module")
def load() -> Workload:
    return workload_of(generate(Model.UNIFORM, jobs=80, processors=100, seed=3, load=0.9), "made", processors=100)


def test_reshaped_is_a_setting_of_any_simulation() -> None:
    assert parse_setting("ejb:reshape=0.9,omax=64").parameters.rungs == Rungs(0.9)
    assert parse_setting("ejb:reshape=0") == Setting().having({"policy": "ejb", "reshape": "0"})
    assert parse_setting("ejb:reshape=0").parameters.rungs is None


@pytest.mark.parametrize("guard", [Guard.OFF, Guard.ON])
def test_reshaped_jobs_keep_the_invariants_and_delta_plays_no_part(load: Workload, guard: Guard) -> None:
    given = BundlingParameters(
        suspend=True, order=Order.LEAST_WORK, guard=guard, act_in_move=True, rungs=Rungs(0.9), omax=64
    )
    found = [
        run(load, Policy.EJB, parameters=replace(given, delta=delta), plain=True, checking=True) for delta in (1.0, 3.0)
    ]
    assert (found[0].end == found[1].end).all() and found[0].elastic.any()
    over = run(load, Policy.EJB, parameters=BundlingParameters(), plain=True)
    assert (found[0].end != over.end).any()


def test_the_questions_of_the_daemon_lead_to_the_same_as_the_kernels(load: Workload) -> None:
    wide = load.jobs.processors >= 8
    kernels = run(load, Policy.EJB, parameters=WIDE, candidates=wide, plain=True)
    asked = run_policy(load, "bundling", parameters=WIDE, candidates=wide)
    assert (asked.end == kernels.end).all() and (asked.subjobs == kernels.subjobs).all()


@pytest.mark.slow
def test_the_table_is_written_beside_the_reference(tmp_path: Path) -> None:
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.UNIFORM, jobs=60, processors=100, seed=3, load=0.9))
    words = ["reproduce", "reshape", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "one"]
    paths = [Path(line) for line in ejb_sim(*words, "--only", "needed").stdout.split()]
    cells = json.loads(paths[1].read_text())["cells"]
    assert len(cells) == len(ONE) + len(reproduce.SHARES)
    assert {(one["name"], one["reference"]) for one in cells if one["table"] == "one"} == {
        (row.name, row.reference[LOGS.index("KTH")]) for row in ONE
    }
    assert all(one["off"] == pytest.approx(one["percent"] - one["reference"]) for one in cells if one["table"] == "one")
    assert "-49.2 / " in paths[0].read_text()


def test_by_the_references_rule_nothing_grows_to_be_suspended_and_all_at_once_are_means(tmp_path: Path) -> None:
    source = Source(tmp_path / "KTH.swf", 100, RowRule.PYSS, None)
    ours, theirs = (reproduce.asked({"KTH": source}, as_reference=one) for one in (False, True))
    assert all(rules_of(one.point.setting.parameters).grow_to_suspend for one in ours)
    assert not any(rules_of(one.point.setting.parameters).grow_to_suspend for one in theirs)
    assert {one.table for one in theirs} == {"one", "all"} and all(one.reference is not None for one in theirs)
    first = [one for one in theirs if one.name == ALL[1].name and one.table == "all"]
    assert [one.point.setting.parameters.lambda_s for one in first] == [float(one) for one in range(110, 131, 2)]
    played = [{"turnaround_change_percent": -14.0 - at, "others_change_percent": -1.0} for at in range(len(first))]
    (mean,) = reproduce._found(first, played, whole=True)
    assert (mean.percent, mean.others, mean.reference) == (-19.0, -1.0, -14.3)
    assert mean.deviation == pytest.approx(11**0.5) and reproduce._cell(mean) == "-14.3 / -19.0 ± 3.3; -1.0"


def test_a_table_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "KTH-SP2-1996-made.swf").touch()
    words = ["--traces", str(tmp_path), "--out", str(tmp_path), "--only", "x"]
    refused = ejb_sim("reproduce", "reshape", *words, code=None)
    assert "no table is called x" in refused.stderr and "share-0.2" in refused.stderr


def test_the_verdict_tells_what_is_worse_first_and_then_what_is_off() -> None:
    found = [
        Found("one", "a", "KTH", -38.0, None, -37.7),
        Found("all", "b", "KTH", -12.0, -3.0, -14.3),
        Found("share-1", "c", "KTH", -2.0, 0.5, None),
        Found("needed", "0.05", "KTH", -0.4, -0.1, None),
        Found("needed", "0.1", "KTH", -1.2, -0.1, None),
    ]
    assert verdict(found) == snapshot(
        "In 1 of 5 simulations all jobs, or those that are not elastic, are worse off than under EASY, at worst by "
        "0.5 % (KTH, c). Of 2 figures with a reference 1 are within 1.5 points of it; the farthest is +2.3 points off "
        "(KTH, b). KTH: all jobs' mean turnaround is 1 % shorter from 10 % of the wide jobs on."
    )


def test_each_line_of_the_reference_has_a_figure_for_each_log() -> None:
    assert all(len(row.reference) == len(LOGS) for row in (*ONE, *ALL))
    assert len({row.name for row in BESIDE}) == len(BESIDE) == 7
