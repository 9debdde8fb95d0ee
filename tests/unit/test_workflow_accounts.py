"""Core-hours by Eq. 1 to 7 of E-HPC: the golden values, by arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.workflow.accounts import (
    HOUR_S,
    Held,
    cost,
    doubt,
    faster,
    gained_core_s,
    lost_to_moves_core_s,
    move_pays,
    one_allocation_core_s,
    staged_core_s,
    turnaround_s,
    waits_less,
)
from ejbd.workflow.reading import read_plan

TWO = [Held(32, 600.0, 6.0), Held(128, 300.0, 6.0)]
PLAN = """\
workflow:
  command: python workflow.py
  stage1: {nodes: 32, walltime: 00:10:00}
  stage2: {nodes: 128, walltime: 00:05:00}
"""


def test_two_stages_and_their_moves() -> None:
    whole, staged = one_allocation_core_s(TWO) / HOUR_S, staged_core_s(TWO) / HOUR_S
    assert whole == 32.0 and staged == pytest.approx(16.267, abs=5e-4)
    assert 100 * (1 - staged / whole) == pytest.approx(49.2, abs=0.05)
    assert whole - staged == pytest.approx((gained_core_s(TWO) - lost_to_moves_core_s(TWO)) / HOUR_S), "Eq. 3"


def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    found = CliRunner().invoke(app, ["workflow", "cost", str(file), "--move", "6", "--json"])
    assert found.exit_code == 0
    told = json.loads(found.stdout)
    assert (told["one_allocation_core_h"], told["staged_core_h"], told["pays"]) == (32.0, 16.267, True)


def test_moves_that_cost_more_than_they_save_are_told() -> None:
    assert not cost(read_plan(PLAN), 600.0)["pays"]
    assert cost(read_plan(PLAN), 600.0)["saved_percent"] < 0


def test_bundled_stages_are_reached_by_one_move() -> None:
    text = "workflow: {command: x, stage1: {nodes: 4, walltime: 10}, stage2: {nodes: 4, walltime: 10}}"
    found = cost(read_plan(text), 6.0)
    assert [one["stages"] for one in found["allocations"]] == [["stage1", "stage2"]]
    assert found["lost_to_moves_core_h"] == round(6.0 * 4 / HOUR_S, 3)


@pytest.mark.parametrize(("width", "ratio"), [(32, 1.0), (64, 1.5), (128, 2.5), (256, 4.5)])
def test_the_synthetic_workflow(width: int, ratio: float) -> None:
    """Fig. 9b: one unit in turn at 32 cores, and one that scales; staged it costs the same whatever the width."""
    stages = [Held(32, 1.0), Held(width, 32.0 / width)]
    assert staged_core_s(stages) == 64.0
    assert one_allocation_core_s(stages) / staged_core_s(stages) == pytest.approx(ratio)


@pytest.mark.parametrize(("width", "saving"), [(64, 41.9), (128, 68.4), (256, 83.4)])
def test_montage(width: int, saving: float) -> None:
    """72 % of it is serial at 32 cores (5.4.1), and the rest scales perfectly."""
    stages = [Held(32, 0.72), Held(width, 0.28 * 32 / width)]
    assert 100 * (1 - staged_core_s(stages) / one_allocation_core_s(stages)) == pytest.approx(saving, abs=0.05)


def test_turnaround() -> None:
    waited = [Held(32, 600.0, 6.0, 100.0), Held(128, 300.0, 6.0, 200.0)]
    assert turnaround_s(waited) == 1212.0
    assert faster(waited, 313.0) and not faster(waited, 312.0)
    assert waits_less([100.0, 200.0], 301.0) and not waits_less([100.0, 200.0], 300.0)


def test_when_a_move_pays() -> None:
    """Fig. 6a: to twice the width after 40 % of the work leaves 0.7 of the time."""
    left = 0.4 + (1 - 0.4) / 2
    assert left == pytest.approx(0.7)
    assert move_pays(0.4, 100.0, 64, 128, 29.9) and not move_pays(0.4, 100.0, 64, 128, 30.1)


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        ("a: {tasks: 16, walltime: 60}\n    b: {tasks: 4, walltime: 1}", "need nearly the same"),
        ("a: {tasks: 16, walltime: 0:30}\n    b: {tasks: 4, walltime: 0:50}", "its stages are short"),
        ("a: {tasks: 16, walltime: 60}\n    b: {tasks: 4, walltime: 60}", ""),
        ("a: {tasks: 4, walltime: 0:30}\n    b: {tasks: 4, walltime: 0:30}", ""),
    ],
)
def test_a_plan_that_will_hardly_pay_is_told_so(stages: str, words: str, tmp_path: Path) -> None:
    text = f"workflow:\n  command: run\n  stages:\n    {stages}\n"
    said = doubt(read_plan(text, "plan.yaml"))
    assert words in said and bool(said) == bool(words)
    (tmp_path / "plan.yaml").write_text(text)
    shown = CliRunner().invoke(app, ["workflow", "check", str(tmp_path / "plan.yaml")])
    assert ("one job may do better" in shown.output) == bool(words)
