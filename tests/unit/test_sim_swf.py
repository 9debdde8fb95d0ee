"""Logs: what is read is what was written, and whatever is odd is told with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ejbd.errors import EjbError
from ejbd.sim.models import Model, generate
from ejbd.sim.swf import FIELDS, format_swf, parse_swf, read_swf, write_swf
from ejbd.sim.workload import RowRule, scaled_arrivals, workload_of

HEADER = ["; Version: 2.2\n", "; MaxProcs: 16\n", ";\n", "; Note: of our own\n"]


def row(job: int, submit: float, run: float, processors: int, requested: float = -1, asked: int = -1) -> str:
    return f"{job} {submit} 5 {run} {processors} 1.5 2 {asked} {requested} 3 1 4 5 6 7 8 9 10\n"


@pytest.mark.parametrize("suffix", [".swf", ".swf.gz", ".swf.xz"])
def test_all_fields_and_the_header_survive_a_file(tmp_path: Path, suffix: str) -> None:
    log = parse_swf([*HEADER, row(1, 0, 10, 4, 20), row(2, 3, 7, 1, 9)])
    path = tmp_path / f"log{suffix}"
    write_swf(path, log)
    again = read_swf(path)
    assert again.rows.tolist() == log.rows.tolist()
    assert again.rows[0].tolist() == [1, 0, 5, 10, 4, 1.5, 2, -1, 20, 3, 1, 4, 5, 6, 7, 8, 9, 10]
    assert len(FIELDS) == again.rows.shape[1] == 18
    assert again.header == (("Version", "2.2"), ("MaxProcs", "16"), ("Note", "of our own"))
    assert (again.value("maxprocs"), again.value("nothing")) == ("16", None)
    assert again.column("requested_s").tolist() == [20, 9]
    assert again.faults == ()


def test_odd_rows_are_told_with_their_lines_and_none_is_lost_in_silence() -> None:
    lines = [
        "; MaxProcs: 8\n",
        row(1, 100, 10, 4),
        "2 110 5\n",  # torn
        "3 x 5 10 4\n",
        "\n",
        row(4, 50, 10, 4),  # out of order
        row(5, -1, 10, 4),  # negative
        "6 120 5 10 4 -1\n",  # some fields are missing
        row(7, 130, 10, 4).rstrip() + " 99\n",
        row(8, 140, float("nan"), 4),
    ]
    log = parse_swf(lines)
    assert log.column("job").tolist() == [1, 4, 5, 6, 7]
    assert log.lines == (2, 6, 7, 8, 9)
    told = {fault.line: (fault.what, fault.kept) for fault in log.faults}
    assert set(told) == {3, 4, 6, 7, 8, 9, 10}
    assert "torn" in told[3][0]
    assert "not 18 numbers" in told[4][0]
    assert told[6] == ("job 4 was submitted before the row above it", True)
    assert "negative submit" in told[7][0]
    assert "6 fields instead of 18" in told[8][0]
    assert told[9][0] == "19 fields instead of 18: the rest is left out"
    assert [line for line, (_, kept) in told.items() if not kept] == [3, 4, 10]
    assert str(log.faults[0]).startswith("line 3: ")
    assert str(log.faults[0]).endswith("the row is left out")
    assert log.rows[3, 6:].tolist() == [-1.0] * 12


def test_a_limit_stops_reading() -> None:
    assert len(parse_swf([row(i, i, 1, 1) for i in range(10)], limit=4)) == 4


def test_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.swf"
    empty.write_text("; Version: 2\n")
    broken = tmp_path / "broken.swf.xz"
    broken.write_bytes(b"no xz at all")
    for path in (empty, broken, tmp_path / "absent.swf"):
        with pytest.raises(EjbError, match=path.name):
            read_swf(path)


def test_the_rules_of_pyss_and_of_a_clean_log() -> None:
    lines = [
        "; MaxProcs: 16\n",
        row(1, 0, 10, 4, 20),
        row(2, 1, 30, 4, 20),  # ran over its request
        row(3, 2, 10, 99, 20),  # wider than the cluster
        row(4, 3, -1, 4, 20),  # bad: no run time
        row(5, 4, 10, -1, 20, asked=6),  # bad for pyss: not allocated
        row(6, 5, 10, 2),  # no request
    ]
    log = parse_swf(lines)
    jobs = workload_of(log, "log").jobs
    assert jobs.walltime.tolist() == [20, 30, 20, 1, 1, 10]
    assert jobs.run.tolist() == [10, 20, 10, 1, 1, 1]
    assert jobs.processors.tolist() == [4, 4, 16, 4, 1, 2]
    clean = workload_of(log, "log", rule=RowRule.CLEAN)
    assert clean.jobs.id.tolist() == [1, 2, 3, 5, 6]
    assert clean.jobs.run.tolist() == [10, 20, 10, 10, 10]
    assert clean.jobs.processors.tolist() == [4, 4, 16, 6, 2]
    assert [(f.line, f.kept) for f in clean.faults] == [(5, False)]
    assert [(f.line, f.kept) for f in workload_of(log, "log").faults] == [(5, True), (6, True)]


def test_jobs_come_in_the_order_of_submission_equal_ones_as_in_the_log() -> None:
    log = parse_swf([row(1, 9, 1, 1), row(2, 3, 1, 1), row(3, 9, 1, 1), row(4, 3, 1, 1)])
    load = workload_of(log, "log", processors=4)
    assert load.jobs.id.tolist() == [2, 4, 1, 3]
    assert len(workload_of(log, "log", processors=4, limit=2)) == 2
    with pytest.raises(EjbError, match="MaxProcs"):
        workload_of(log, "log")
    with pytest.raises(EjbError, match="1 processor at least"):
        workload_of(log, "log", processors=0)


def test_arrivals_are_scaled_from_the_first_submission() -> None:
    load = workload_of(parse_swf([row(1, 100, 1, 1), row(2, 200, 1, 1), row(3, 400, 1, 1)]), "log", processors=4)
    assert scaled_arrivals(load, 2).jobs.submit.tolist() == [100, 150, 250]
    with pytest.raises(EjbError, match="above 0"):
        scaled_arrivals(load, 0)


@pytest.mark.parametrize("model", list(Model))
def test_a_generated_log_is_a_log_and_the_same_for_the_same_seed(model: Model, tmp_path: Path) -> None:
    log = generate(model, jobs=400, processors=64, seed=4, load=0.8)
    assert list(format_swf(log)) == list(format_swf(generate(model, jobs=400, processors=64, seed=4, load=0.8)))
    assert list(format_swf(log)) != list(format_swf(generate(model, jobs=400, processors=64, seed=5, load=0.8)))
    write_swf(tmp_path / "made.swf", log)
    load = workload_of(read_swf(tmp_path / "made.swf"), "made")
    jobs = load.jobs
    assert load.faults == ()
    assert load.processors == 64
    assert (jobs.run <= jobs.walltime).all()
    assert (jobs.walltime <= np.ceil(5 * jobs.run)).all()
    offered = (jobs.processors * jobs.run).sum() / (64 * (jobs.submit[-1] - jobs.submit[0]))
    assert offered == pytest.approx(0.8, rel=0.01)


def test_lublins_model_has_the_published_shape() -> None:
    """Shares and means of the model's distributions, from its published parameters (JPDC 2003, whole sample)."""
    log = generate(Model.LUBLIN, jobs=20_000, processors=128, seed=1)
    width, run, submit = log.rows[:, 4], log.rows[:, 3], log.rows[:, 1]
    assert np.mean(width == 1) == pytest.approx(0.244, abs=0.03)  # and a few parallel ones that round to 1
    powers = np.isin(width, 2 ** np.arange(1, 8))
    assert np.mean(powers) == pytest.approx(0.576, abs=0.08)  # some of the others are powers of two by chance
    assert run.max() <= np.exp(12)
    short = run[width == 1]
    assert np.mean(np.log(np.maximum(short, 1))) == pytest.approx(0.7746 * 4.2 * 0.94 + 0.2254 * 312 * 0.03, abs=0.15)
    hours = (submit // 3600) % 24
    assert np.mean((hours >= 8) & (hours < 18)) > 0.55  # most arrive by day
    gaps = np.diff(submit)
    assert gaps.min() >= 0
    assert gaps.max() > 20 * np.median(gaps)


def test_a_burst_is_a_burst() -> None:
    gaps = np.diff(generate(Model.BURSTY, jobs=400, processors=32, seed=2).column("submit_s"))
    assert np.sort(gaps)[-15:].sum() > 0.7 * gaps.sum()


@pytest.mark.parametrize("words", [{"jobs": 0}, {"processors": 0}, {"load": 0.0}, {"overestimate": 0.5}])
def test_impossible_workloads_are_refused(words: dict[str, float]) -> None:
    usual: dict[str, float] = {"jobs": 5, "processors": 5}
    with pytest.raises(EjbError, match="cannot be generated"):
        generate(Model.UNIFORM, seed=1, **{**usual, **words})  # type: ignore[arg-type]
