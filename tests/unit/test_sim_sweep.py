"""Sweeps: what has been done stays done, what has changed is done again, and two at one time share the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ejbd.sim import sweep as sweeps
from ejbd.sim.compiled import NUMBA_PLAIN
from ejbd.sim.models import Model, generate
from ejbd.sim.settings import Setting, Source
from ejbd.sim.swf import write_swf
from tests.fakes.ejb_sim import ejb_sim

pytestmark = pytest.mark.slow

AXES = {"omax": ["2", "8"], "lambda": ["60", "120"]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "made.swf"
    write_swf(path, generate(Model.UNIFORM, jobs=60, processors=32, seed=3, load=1.0))
    return path


def points_of(log: Path, **axes: list[str]) -> list[sweeps.Point]:
    return list(sweeps.grid([Source(log)], Setting(), axes or AXES, sweeps.Kind.RUN))


def simulated(log: Path, folder: Path, **axes: list[str]) -> int:
    """How many points are simulated by a sweep now."""
    told: list[tuple[int, int, str]] = []
    points = points_of(log, **axes)
    sweeps.sweep(points, folder, workers=1, part=(1, 1), tell=lambda *what: told.append(what))
    return told[-1][1] - told[0][0]


def lines(folder: Path) -> list[str]:
    return [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_log_that_changed_at_the_same_size_is_simulated_again(log: Path, tmp_path: Path) -> None:
    assert (simulated(log, tmp_path / "out"), simulated(log, tmp_path / "out")) == (4, 0)
    text = log.read_text()
    at = text.index("\n1 0 -1 ") + len("\n1 0 -1 ")
    log.write_text(text[:at] + ("8" if text[at] != "8" else "7") + text[at + 1 :])
    assert log.stat().st_size == len(text)
    assert simulated(log, tmp_path / "out") == 4


def test_a_log_that_was_only_moved_or_copied_is_not(log: Path, tmp_path: Path) -> None:
    assert simulated(log, tmp_path / "out") == 4
    other = tmp_path / "other.swf"
    other.write_bytes(log.read_bytes())
    assert simulated(other, tmp_path / "out") == 0
    rows = sweeps.sweep(points_of(other), tmp_path / "out", workers=1, part=(1, 1), tell=lambda *what: None)
    assert {row["trace"] for row in rows} == {"other.swf"}


def test_another_version_of_the_simulator_simulates_again(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulated(log, tmp_path / "out", omax=["2"]) == 1
    monkeypatch.setattr(sweeps, "_version", lambda: "another")
    assert simulated(log, tmp_path / "out", omax=["2"]) == 1


def test_a_torn_last_line_costs_its_own_point_and_no_other(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert simulated(log, folder) == 4
    file = folder / "results-1-of-1.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    assert simulated(log, folder) == 1
    assert len([line for line in lines(folder) if line.startswith("{") and line.endswith("}")]) == 4
    assert simulated(log, folder) == 0


def test_the_change_against_easy_is_told_where_all_jobs_are_elastic(log: Path, tmp_path: Path) -> None:
    words = ["sweep", str(log), "--out", str(tmp_path / "out"), "--vary", "policy=easy,ejb", "--trim", "none"]
    plain = ejb_sim(*words).stdout
    rows = json.loads(ejb_sim(*words, "--json").stdout)
    assert [row["setting"] for row in rows] == ["easy", "ejb"]
    easy, ejb = (row["mean_turnaround_s"] for row in rows)
    assert rows[0]["turnaround_change_percent"] == 0
    assert rows[1]["turnaround_change_percent"] == pytest.approx(100 * (ejb / easy - 1))
    assert f"{rows[1]['turnaround_change_percent']:+.1f} %" in plain.splitlines()[2]


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ejbd.cli.main", *words]
    env = {**os.environ, NUMBA_PLAIN: "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_a_point_that_another_sweep_has_in_hand_is_waited_for_and_not_simulated_twice(
    log: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    first, *others = points_of(log)
    with sweeps.Claims(folder / "claims") as claims:
        assert claims.take(first.key)
        words = ["sweep", str(log), "--out", str(folder), "--vary", "omax=2,8", "--vary", "lambda=60,120", "--json"]
        other = start("sim", *words, "--trim", "none")
        deadline = time.monotonic() + 100
        while len(lines(folder)) < len(others):
            assert time.monotonic() < deadline and other.poll() is None
            time.sleep(0.05)
        ours: dict[str, Any] = {
            "key": first.key,
            "mean_turnaround_s": 1.0,
            "turnaround_change_percent": 0,
        }
        with (folder / "results-ours.jsonl").open("w") as out:
            out.write(json.dumps(ours) + "\n")
    out_text, err = other.communicate(timeout=100)
    assert other.returncode == 0, err
    keys = [json.loads(line)["key"] for line in lines(folder)]
    assert sorted(keys) == sorted(point.key for point in points_of(log))
    assert json.loads(out_text)[0]["mean_turnaround_s"] == 1.0


def test_two_sweeps_at_one_time_simulate_each_point_once(log: Path, tmp_path: Path) -> None:
    words = ["sim", "sweep", str(log), "--out", str(tmp_path / "out"), "--vary", "lambda=10,20,30,40,50,60,70,80"]
    both = [start(*words), start(*words, "--cores", "2")]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    keys = [json.loads(line)["key"] for line in lines(tmp_path / "out")]
    assert len(keys) == len(set(keys)) == 8
