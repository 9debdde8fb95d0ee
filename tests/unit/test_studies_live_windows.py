"""Which windows of a log are played, by a rule that gives the same each time; how such a play begins; pooled plays."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ejbd.errors import EjbError
from ejbd.sim.swf import read_swf
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Jobs
from ejbd.studies.live.comparison import PlayedJob, scaled
from ejbd.studies.live.ejb import ElasticRuns
from ejbd.studies.live.pairs import Pair, change_percent, interval
from ejbd.studies.live.program import Program, program_at
from ejbd.studies.live.windows import APART_S, BEGIN_S, Rule, Window, on_cluster, opened, pick

ROOT = Path(__file__).resolve().parents[2]
TRACES = Path(os.environ.get("EJB_TRACES") or ROOT.parent / "shared" / "traces")


def load(jobs: int, seed: int) -> Workload:
    """A busy cluster of 8 processors."""
    random = np.random.default_rng(seed)
    run = random.integers(100, 5000, jobs).astype(float)
    width = random.integers(1, 9, jobs)
    submit = np.arange(jobs, dtype=np.float64) * 1500.0
    return Workload("made", 8, Jobs(submit, run, run * 2, width, np.arange(1, jobs + 1)))


RULE = Rule(jobs=12, waiting=3, elastic=0.2, min_processors=5, arrivals_s=20_000.0, end_s=90_000.0)


def test_the_rule_picks_the_first_window_of_each_half_and_the_same_one_each_time() -> None:
    workload = load(200, 1)
    first, second = pick(workload, RULE, (1, 2)).values()
    again = pick(workload, RULE, (1, 2)).values()
    assert [one.arriving.tolist() for one in again] == [first.arriving.tolist(), second.arriving.tolist()]
    assert first.arriving[-1] < 100 <= second.arriving[0]
    jobs = workload.jobs
    for window in (first, second):
        ours = [*window.waiting, *window.arriving]
        assert len(window) == len(set(ours)) == 12 and window.waiting.size >= 3
        assert (jobs.submit[window.waiting] <= window.begin_s).all() and (window.left_s > 0).all()
        assert (jobs.processors[ours] >= 5).mean() >= 0.2
        assert jobs.processors[window.running].sum() <= 8
        assert jobs.submit[window.arriving[-1]] - window.begin_s <= 20_000


def test_windows_3_and_4_are_the_last_ones_of_the_halves() -> None:
    workload = load(200, 1)
    windows = pick(workload, RULE)
    assert list(windows) == [1, 2, 3, 4]
    begins = [windows[number].begin_s for number in (1, 3, 2, 4)]
    assert begins == sorted(set(begins))  # each half has several, and its last one is not its first
    halves = [workload.jobs.submit[:100], workload.jobs.submit[100:]]
    for number in (3, 4):
        half, begin_s = halves[number - 3], windows[number].begin_s
        assert begin_s in half
        assert windows[number].arriving[-1] < 100 * (number - 2)


def test_a_log_without_such_a_window_is_refused_with_what_was_looked_for() -> None:
    with pytest.raises(EjbError, match="no window of jobs 1 to 100 is as the rule says"):
        pick(load(200, 1), replace(RULE, waiting=13))


def test_a_half_without_a_window_leaves_the_other_ones() -> None:
    workload = load(200, 1)
    jobs = workload.jobs
    calm = replace(workload, jobs=jobs._replace(run=np.where(np.arange(200) < 100, 1.0, jobs.run)))
    assert list(pick(calm, RULE)) == [2, 4]
    with pytest.raises(EjbError, match="no window of jobs 1 to 100 is as the rule says"):
        pick(calm, RULE, (3,))


def test_a_play_begins_with_what_runs_and_what_waits() -> None:
    workload = load(20, 2)
    at = (np.array([3]), np.array([100.0]), np.array([400.0]), np.array([5, 6]), np.array([7, 8]))
    begun = opened(workload, Window(10500.0, *at), 0.1)
    played = scaled(begun, 0.1, 8, 60.0)
    opening_s = BEGIN_S + 2 * APART_S
    assert played.jobs.id.tolist() == [4, 6, 7, 8, 9]
    assert played.jobs.submit.tolist() == pytest.approx([0, BEGIN_S, BEGIN_S + APART_S, opening_s, opening_s + 150])
    assert played.jobs.run[0] == pytest.approx(10 + opening_s)  # what it has left counts from the beginning on
    assert played.jobs.walltime[0] == 60
    assert played.jobs.run[1:].tolist() == pytest.approx(np.round(workload.jobs.run[[5, 6, 7, 8]] * 0.1).tolist())


def test_widths_are_those_of_the_log_where_the_cluster_is_as_large() -> None:
    workload = load(50, 3)
    assert on_cluster(workload, 8).jobs.processors.tolist() == workload.jobs.processors.tolist()
    assert on_cluster(workload, 4).jobs.processors.tolist() == [(p + 1) // 2 for p in workload.jobs.processors.tolist()]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "processors", "first"),
    [
        ("KTH-SP2-1996-2.swf.xz", 100, (767, 14424, 12244, 24640)),
        ("SDSC-SP2-1998.rebuilt.swf.xz", 128, (1416, 44843, 41958, 68479)),
    ],
)
def test_the_windows_of_the_logs_are_those_that_were_written_down(
    file: str, processors: int, first: tuple[int, ...]
) -> None:
    if not (TRACES / file).is_file():
        pytest.skip(f"{file} is not in {TRACES} (EJB_TRACES)")
    workload = workload_of(read_swf(TRACES / file), file, processors=processors)
    windows = list(pick(workload, Rule()).values())
    assert tuple(int(workload.jobs.id[one.arriving[0]]) for one in windows) == first
    assert [len(one) for one in windows] == [100] * 4


def play(elastic: list[float], others: list[float]) -> dict[str, Any]:
    """As much of a comparison as is needed: jobs with these turnarounds."""
    each = [
        {"submit_s": 5.0, "live": [6.0, 5.0 + took], "simulated": [6.0, 5.0 + took], "elastic": wide, "counted": True}
        for wide, all in ((True, elastic), (False, others))
        for took in all
    ]
    before = {"submit_s": 0.0, "live": [0.0, 1e6], "simulated": [0.0, 1e6], "elastic": True, "counted": False}
    return {"each": [before, *each]}


def test_plays_are_pooled_job_by_job_with_an_interval_around_what_is_found() -> None:
    easy, ejb = play([100, 200, 300, 400], [50] * 8), play([60, 130, 280, 330], [48, 52, 50, 50, 50, 50, 49, 51])
    pairs = [Pair("a", easy, ejb), Pair("b", easy, ejb), Pair("c", easy, easy)]
    assert change_percent(pairs, "elastic") == pytest.approx(100 * (2600 / 3000 - 1))
    assert change_percent(pairs, "non_elastic") == pytest.approx(0)
    low, high = interval(pairs, "elastic")
    assert low < change_percent(pairs, "elastic") < high < 1e-9
    assert interval(pairs, "elastic") == (low, high)


def benchmark() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("sim_to_real", ROOT / "benchmarks" / "sim_to_real.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["sim_to_real"] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop(0)


def test_an_interrupted_set_of_plays_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = benchmark()
    wanted = script.plays(["kth-1", "ctc-2"], 2)
    assert [(one.window, one.policy) for one in wanted[:4]] == [
        ("kth-1", "easy"), ("kth-1", "ejb"), ("ctc-2", "easy"), ("ctc-2", "ejb"),
    ]  # fmt: skip
    assert [one.policy for one in wanted[4:6]] == ["ejb", "easy"]  # by turns, the other one first
    begun: list[str] = []

    def run_play(traces: Path, out: Path, scale: str, one: Any) -> str:
        begun.append(one.file(out).name)
        if one.window == "ctc-2" and one.policy == "ejb" and one.round == 1:
            return "Slurm went away"
        one.file(out).write_text(json.dumps({}))
        return ""

    monkeypatch.setattr(script, "run_play", run_play)
    assert not script.run_missing(tmp_path, tmp_path, "1/150", wanted, 1)
    assert len(begun) == 8 and "ctc-2 ejb 1 failed: Slurm went away" in capsys.readouterr().err
    begun.clear()
    assert not script.run_missing(tmp_path, tmp_path, "1/150", wanted, 2)
    assert begun == ["ctc-2-ejb-1.json"]


def test_without_a_compiler_the_python_example_is_run_and_why_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, other = ROOT / "examples" / "paced.c", ROOT / "examples" / "heat.py"
    monkeypatch.setenv("PATH", str(tmp_path))
    program = program_at(source, other, tmp_path, None)
    assert (program.name, program.checked, program.pace_s) == ("heat.py", False, 0.05)
    assert "there is no C compiler on PATH" in program.why and "heat.py instead" in program.why
    assert program.expected(4, 10.0) is None
    missing = program_at(tmp_path / "gone.c", other, tmp_path, 0.1)
    assert (missing.name, missing.pace_s) == ("heat.py", 0.1) and "gone.c is not there" in missing.why
    with pytest.raises(EjbError, match="is not there"):
        program_at(tmp_path / "gone.py", other, tmp_path, None)


class Ended:
    """A daemon whose one job has ended as it should."""

    def post(self, path: str, body: Any) -> Any:
        return {"id": "j1"}

    def get(self, path: str, **query: Any) -> Any:
        if path.endswith("/events"):
            return {"events": []}
        if path == "/v1/jobs":
            return {"jobs": []}
        return {"state": "completed", "submit_s": 1.0, "end_s": 9.0, "subjobs": [], "reason": ""}


def test_a_job_that_computed_something_else_is_told(tmp_path: Path) -> None:
    says = tmp_path / "says.sh"
    says.write_text("#!/bin/sh\necho right\n")
    says.chmod(0o755)
    runs = ElasticRuns(Ended(), Program((str(says),), "says.sh", 0.25, True), tmp_path)
    runs.submit(7, 8, 60.0, 5.0)
    assert runs.running() == 0
    with pytest.raises(EjbError, match=r"j1 was to compute 'right', and its result is 'nothing \(No such file"):
        runs.played()
    (tmp_path / "7.result").write_text("wrong\n")
    with pytest.raises(EjbError, match="its result is 'wrong'"):
        runs.played()
    (tmp_path / "7.result").write_text("right\n")
    assert runs.played() == {7: PlayedJob(1.0, None, 9.0)}
