"""Logs: what is read is what was written, and whatever is odd is told with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import EjbError
from ejbd.sim.models import Model, generate
from ejbd.sim.swf import FIELDS, format_swf, read_swf, write_swf
from ejbd.sim.workload import RowRule, scaled_arrivals, workload_of
from tests.fakes.swf import log_of
from tests.nightly import examples

HEADER = ["; Version: 2.2\n", "; MaxProcs: 16\n", ";\n", "; Note: of our own\n"]


def row(
    job: int, submit: float, run: float, processors: int, requested: float = -1, asked: int = -1, status: int = 1
) -> str:
    return f"{job} {submit} 5 {run} {processors} 1.5 2 {asked} {requested} 3 {status} 4 5 6 7 8 9 10\n"


@pytest.mark.parametrize("suffix", [".swf", ".swf.gz", ".swf.xz"])
def test_all_fields_and_the_header_survive_a_file(tmp_path: Path, suffix: str) -> None:
    log = log_of([*HEADER, row(1, 0, 10, 4, 20), row(2, 3, 7, 1, 9)])
    path = tmp_path / f"log{suffix}"
    write_swf(path, log)
    again = read_swf(path)
    assert again.rows.tolist() == log.rows.tolist()
    assert again.rows[0].tolist() == [1, 0, 5, 10, 4, 1.5, 2, -1, 20, 3, 1, 4, 5, 6, 7, 8, 9, 10]
    assert len(FIELDS) == again.rows.shape[1] == 18
    assert again.header == (("Version", "2.2"), ("MaxProcs", "16"), ("Note", "of our own"))
    assert (again.value("maxprocs"), again.value("nothing")) == ("16", None)
    assert again.column("requested_s").tolist() == [20, 9]
    assert again.odd == ()


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
    log = log_of(lines)
    assert log.column("job").tolist() == [1, 4, 5, 6, 7]
    assert log.lines is not None and log.lines.tolist() == [2, 6, 7, 8, 9]
    assert [str(oddity) for oddity in log.odd] == [
        "1 row (line 3): torn: fewer than 5 of 18 fields; left out",
        "1 row (line 4): not 18 numbers; left out",
        "1 row (line 6): submitted before a row above; put in order",
        "1 row (line 8): fewer than 18 fields: the rest is not known",
        "1 row (line 9): more than 18 fields: the rest is not read",
        "1 row (line 10): a field is not a finite number; left out",
    ]
    assert log.rows[3, 6:].tolist() == [-1.0] * 12
    no_time = "1 row (line 7): no submit time; left out"
    assert no_time in [str(oddity) for oddity in workload_of(log, "log").odd]


SHAPES = {
    "no header": lambda text: text.split("\n", 1)[1],
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "carriage returns alone": lambda text: text.replace("\n", "\r"),
    "no last line feed": lambda text: text.rstrip("\n"),
    "tabs and blanks": lambda text: text.replace(" ", " \t "),
    "blank lines": lambda text: text.replace("\n", "\n\n  \n"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "comments in the middle": lambda text: text.replace("\n", "\n;a remark of 18 words 4 5 6 7 8 9 0 1 2 3 4 5 6 7\n"),
    "Latin letters": lambda text: "; Installation: Universit\u00e4t\n" + text,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logs_of_other_shapes_have_the_same_rows(shape: str, tmp_path: Path) -> None:
    usual = "; MaxProcs: 16\n" + "".join(row(i, 3 * i, i % 50 + 0.25 * (i % 3), i % 16 + 1, 60) for i in range(1, 900))
    path = tmp_path / "log.swf"
    path.write_bytes(SHAPES[shape](usual).encode("latin-1" if shape == "Latin letters" else "utf-8"))
    log = read_swf(path)
    assert log.rows.tolist() == [[float(word) for word in line.split()] for line in usual.splitlines()[1:]]
    assert log.odd == ()
    assert log.value("MaxProcs") == (None if shape == "no header" else "16")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(-(10**18), 10**18).map(str),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.decimals(-(10**9), 10**9, places=3).map(str),
            st.sampled_from(
                ["-0", "+5", "1.", ".5", "-.25", "007", "1e3", "-1", "0.1000000000000000055511151231257827"]
            ),
        ),
        min_size=18,
        max_size=18,
    )
)
def test_every_number_is_read_as_python_reads_it(words: list[str]) -> None:
    log = log_of(["1 " * 17 + "1\n", " ".join(words) + "\n"])
    assert log.rows[1].tolist() == [float(word) for word in words]


@pytest.mark.parametrize("word", ["x", "-", ".", "--1", "1-", "1.2.3", "1,5", "12345678x", "0x10", "nan", "inf", "\0"])
def test_what_is_no_number_is_told_with_its_line(word: str) -> None:
    log = log_of([row(1, 0, 1, 1), row(2, 0, 1, 1).replace(" 5 ", f" {word} ", 1), row(3, 0, 1, 1)])
    assert log.column("job").tolist() == [1, 3]
    assert [(oddity.lines, oddity.kept) for oddity in log.odd] == [((2,), False)]


@pytest.mark.slow
def test_few_rows_of_a_long_log_are_read_without_the_rest(tmp_path: Path) -> None:
    """What comes after them is not even well-formed: the compressed file breaks off in the middle."""
    path = tmp_path / "long.swf.gz"
    write_swf(path, generate(Model.UNIFORM, jobs=30_000, processors=32, seed=3))
    path.write_bytes(path.read_bytes()[:-100_000])
    assert len(read_swf(path, limit=200)) == 200
    with pytest.raises(EjbError, match=r"long\.swf\.gz cannot be read as a workload log"):
        read_swf(path)


def test_a_limit_stops_reading() -> None:
    assert len(log_of([row(i, i, 1, 1) for i in range(10)], limit=4)) == 4


def test_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.swf"
    empty.write_text("; Version: 2\n")
    broken = tmp_path / "broken.swf.xz"
    broken.write_bytes(b"no xz at all")
    for path in (empty, broken, tmp_path / "absent.swf"):
        with pytest.raises(EjbError, match=path.name):
            read_swf(path)


def test_the_rule_of_pyss() -> None:
    lines = [
        "; MaxProcs: 16\n",
        row(1, 0, 10, 4, 20),
        row(2, 1, 30, 4, 20),  # ran over its request
        row(3, 2, 10, 99, 20),  # wider than the cluster
        row(4, 3, -1, 4, 20),  # bad: no run time
        row(5, 4, 10, -1, 20, asked=6),  # bad for pyss: not allocated
        row(6, 5, 10, 2),  # no request
    ]
    log = log_of(lines)
    pyss = workload_of(log, "log", rule=RowRule.PYSS)
    jobs = pyss.jobs
    assert jobs.walltime.tolist() == [20, 30, 20, 1, 1, 10]
    assert jobs.run.tolist() == [10, 20, 10, 1, 1, 1]
    assert jobs.processors.tolist() == [4, 4, 16, 4, 1, 2]
    assert {oddity.what: oddity.lines for oddity in pyss.odd} == {
        "no run time, no processors or no submit time: 1 s is played": (5, 6),
        "no requested time: the run time becomes 1 s": (7,),
        "ran longer than requested: the run is cut to the request": (3,),
        "wider than the cluster: cut to its 16 processors": (4,),
    }
    assert all(oddity.kept for oddity in pyss.odd)


def test_a_row_becomes_the_job_that_a_researcher_expects_and_what_is_changed_is_told() -> None:
    lines = [
        "; MaxProcs: 16\n",
        row(1, 0, 10, 4, 20),
        row(2, 1, 30, 4, 20),  # ran over its request
        row(3, 2, 10, 99, 20),  # wider than the cluster
        row(4, 3, -1, 4, 20),  # no run time
        row(5, 4, 10, -1, 20, asked=6),  # allocated is not known
        row(6, 5, 900, 2),  # no request
        row(7, 6, 0, 2, 60),  # over within the second
        row(8, 7, 0, 2, 60, status=5),
        row(9, 8, 2.5, 1, 9),
        row(10, 9, 10, -1, 20),
        row(1, 10, 4, 4, 20, status=2),  # a part of job 1
        row(11, 11, 4, 4, 20, status=3),  # no other row has it
    ]
    load = workload_of(log_of(lines), "log")
    jobs = load.jobs
    assert jobs.id.tolist() == [1, 2, 5, 6, 7, 9, 11]
    assert jobs.run.tolist() == [10, 30, 10, 900, 1, 3, 4]
    assert jobs.walltime.tolist() == [20, 30, 20, 900, 60, 9, 20]
    assert jobs.processors.tolist() == [4, 4, 6, 2, 2, 1, 4]
    assert (load.read, len(load)) == (12, 7)
    assert {(oddity.what, oddity.kept): oddity.lines for oddity in load.odd} == {
        ("a part of a job that has a row of its own", False): (12,),
        ("cancelled before it started", False): (9,),
        ("no run time", False): (5,),
        ("no processors, allocated or requested", False): (11,),
        ("wider than the cluster of 16 processors", False): (4,),
        ("no allocated processors: those requested are taken", True): (6,),
        ("run time 0: 1 s is played", True): (8,),
        ("a run time that is no whole number of seconds: rounded up", True): (10,),
        ("no requested time: the run time is taken", True): (7,),
        ("ran longer than requested: the request is raised to the run time", True): (3,),
    }
    with pytest.raises(EjbError, match=r"no row of log is a job that can be played: 1 row \(line 1\): no run time"):
        workload_of(log_of([row(1, 0, -1, 1)]), "log", processors=4)


def test_jobs_come_in_the_order_of_submission_equal_ones_as_in_the_log() -> None:
    log = log_of([row(1, 9, 1, 1), row(2, 3, 1, 1), row(3, 9, 1, 1), row(4, 3, 1, 1)])
    load = workload_of(log, "log", processors=4)
    assert load.jobs.id.tolist() == [2, 4, 1, 3]
    assert len(workload_of(log, "log", processors=4, limit=2)) == 2
    with pytest.raises(EjbError, match="MaxProcs"):
        workload_of(log, "log")
    with pytest.raises(EjbError, match="1 processor at least"):
        workload_of(log, "log", processors=0)


def test_arrivals_are_scaled_from_the_first_submission() -> None:
    load = workload_of(log_of([row(1, 100, 1, 1), row(2, 200, 1, 1), row(3, 400, 1, 1)]), "log", processors=4)
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
    assert load.odd == ()
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
