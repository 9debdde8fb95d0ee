"""`ejb sim`: settings by their names, sweeps that go on where they stopped, and the commands as processes."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.errors import EjbError
from ejbd.sim import sweep as sweeps
from ejbd.sim.compiled import PLAIN
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, Ties
from ejbd.sim.settings import Setting, Source, differing, parse_setting, play
from ejbd.sim.swf import write_swf
from tests.fakes.ejb_sim import ejb_sim


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "made.swf.gz"
    write_swf(path, generate(Model.UNIFORM, jobs=120, processors=32, seed=3, load=1.0))
    return path


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiling takes longer than these little logs."""
    from ejbd.sim.compiled import can_compile

    monkeypatch.setenv(PLAIN, "1")
    can_compile.cache_clear()
    yield
    can_compile.cache_clear()


def test_settings_by_their_names() -> None:
    setting = parse_setting("ejb:omax=16,suspend,order=least-work,lambda=60,min-procs=1,ties=batch,trim=paper")
    assert setting.policy is Policy.EJB
    assert setting.ties is Ties.BATCH
    assert setting.trimmed
    assert setting.choice.min_processors == 1
    p = setting.parameters
    assert isinstance(p, BundlingParameters)
    assert (p.omax, p.suspend, p.order is Order.LEAST_WORK, p.lambda_s, p.delta) == (16, True, True, 60, 1)
    assert setting.name == "ejb:omax=16,suspend=on,order=least-work,lambda=60,min-procs=1,ties=batch,trim=paper"
    assert differing({"policy": "ejb", "omax": "8", "lambda": "60"}).name == "ejb:lambda=60"
    assert parse_setting("easy").name == "easy"


def test_a_policy_that_is_not_there_is_said_so_in_one_sentence() -> None:
    with pytest.raises(EjbError, match="no policy is called sjf; there are: bundling"):
        parse_setting("sjf:omax=4")


def test_a_setting_that_was_renamed_is_told_by_its_new_name() -> None:
    with pytest.raises(EjbError, match="act-in-migration is called act-in-move now"):
        parse_setting("ejb:act-in-migration")


@pytest.mark.parametrize(
    "text",
    ["ejb:omax=0", "ejb:omax=two", "ejb:nonsense=1", "ejb:order=random", "ejb:lambda=-1", "ejb:delta=nan"],
)
def test_a_setting_that_cannot_be_names_what_can(text: str) -> None:
    with pytest.raises(EjbError) as refusal:
        parse_setting(text)
    assert "settings are policy, ties" in refusal.value.sentence()


def test_check_says_what_was_checked(log: Path) -> None:
    """It said nothing, and nobody knew whether anything was checked."""
    words = ("run", str(log), "--policy", "easy")
    assert re.search(r"^ejb: checked after each event of \d+ jobs, and held: ", ejb_sim(*words, "--check").stderr, re.M)
    assert "checked" not in ejb_sim(*words).stderr


def test_a_report_has_what_the_command_promises(log: Path) -> None:
    _, outcome, report = play(Source(log), parse_setting("ejb:min-procs=4"), checking=True)
    assert report["trace"] == "made"
    assert report["policy"] == "ejb"
    assert report["parameters"]["min_procs"] == 4
    for group in (report, report["elastic"], report["non_elastic"], report["all"]):
        assert group["mean_wait_s"] + group["mean_run_s"] == pytest.approx(group["mean_turnaround_s"])
        assert group["mean_bounded_slowdown"] >= 1
    assert report["elastic"]["jobs"] + report["non_elastic"]["jobs"] == report["jobs"] == 120
    assert report["elastic"]["jobs"] == int(outcome.elastic.sum()) > 20
    assert 0 < report["utilization"] <= 1
    assert {"makespan_s", "idle_procs_while_queued", "elapsed_s"} <= set(report)
    json.dumps(report, allow_nan=False)
    json.dumps(play(Source(log), parse_setting("ejb:min-procs=999"))[2], allow_nan=False)


def test_a_sweep_goes_on_where_it_stopped(log: Path, tmp_path: Path) -> None:
    axes = {"omax": ["2", "8"], "lambda": ["60", "120"]}
    points = list(sweeps.grid([Source(log)], Setting(), axes, sweeps.Kind.RUN))
    assert [point.setting.name for point in points][:2] == ["ejb:omax=2,lambda=60", "ejb:omax=2,lambda=120"]
    folder = tmp_path / "results"
    told: list[tuple[int, int, str]] = []

    def tell(*what: object) -> None:
        told.append(what)  # type: ignore[arg-type]

    sweeps.sweep(points, folder, workers=1, part=(1, 2), tell=tell)
    assert [done for done, _, _ in told] == [0, 1, 2]
    file = next(folder.glob("*.jsonl"))
    torn = file.read_text()
    file.write_text(torn[: len(torn) - 30])  # interrupted while writing the second
    told.clear()
    results = sweeps.sweep(points, folder, workers=1, part=(1, 1), tell=tell)
    assert [done for done, _, _ in told] == [1, 2, 3, 4]
    assert [row["setting"] for row in results] == [point.setting.name for point in points]
    told.clear()
    assert sweeps.sweep(points, folder, workers=1, part=(1, 1), tell=tell) == results
    assert told == [(4, 4, "")]
    other = list(sweeps.grid([Source(log, limit=50)], Setting(), axes, sweeps.Kind.RUN))
    assert {point.key for point in other}.isdisjoint({point.key for point in points})


@pytest.mark.parametrize("text", ["3/2", "0/2", "1", "a/b", "1/"])
def test_parts_that_cannot_be(text: str) -> None:
    assert sweeps.parse_part("2/8") == (2, 8)
    with pytest.raises(EjbError, match="not a part"):
        sweeps.parse_part(text)


@pytest.mark.slow
def test_a_sweep_is_submitted_as_an_array(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an sbatch of our own on the path, that says what it was given."""
    fake = tmp_path / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    out = tmp_path / "out"
    words = ["sweep", str(log), "--out", str(out), "--vary", "omax=2,8"]
    said = ejb_sim(*words, "--submit", "sbatch", "--parts", "2").stdout
    assert "--array=1-2" in said
    script = (out / "sweep.sh").read_text()
    assert '--part "$SLURM_ARRAY_TASK_ID/2"' in script
    assert "--submit" not in script
    for part in ("1", "2"):  # each task of the array does its part
        env = {**os.environ, PLAIN: "1", "SLURM_ARRAY_TASK_ID": part}
        subprocess.run(["sh", str(out / "sweep.sh")], check=True, env=env, timeout=120, capture_output=True)
    assert len(sweeps.Results(out).read()) == 2


def test_run_as_a_process(log: Path, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    words = [
        "run",
        str(log),
        "--policy",
        "ejb",
        "--min-procs",
        "4",
        "--suspend",
        "--jobs-csv",
        str(table),
        "--json",
        "-",
    ]
    report = json.loads(ejb_sim(*words).stdout)
    assert report["parameters"]["suspend"] is True
    with table.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 120
    assert list(rows[0]) == [
        "job_id", "submit_s", "start_s", "end_s", "procs", "elastic", "subjobs", "migrations", "processor_seconds",
    ]  # fmt: skip
    turnaround = sum(float(row["end_s"]) - float(row["submit_s"]) for row in rows) / 120
    assert turnaround == pytest.approx(report["mean_turnaround_s"])
    easy = ejb_sim("run", str(log), "--policy", "easy", "--jobs-csv", str(table)).stdout
    assert "mean_turnaround_s" in easy
    assert table.read_text().splitlines()[0] == "job_id,submit_s,start_s,end_s,procs"


def test_the_other_commands_as_processes(log: Path, tmp_path: Path) -> None:
    target = json.loads(ejb_sim("target", str(log), "--trim", "none", "--min-procs", "4", "--json").stdout)
    assert target["targets"] > 20
    assert target["wait_change_percent"] < 0
    compared = json.loads(ejb_sim("compare", str(log), "easy", "ejb", "ejb:omax=64", "--json").stdout)
    assert [row["setting"] for row in compared] == ["easy", "ejb", "ejb:omax=64"]
    assert compared[1]["mean_turnaround_s"] < compared[0]["mean_turnaround_s"]
    made = tmp_path / "more.swf.xz"
    assert "50 jobs" in ejb_sim("generate", str(made), "--jobs", "50").stdout
    assert "mean_wait_s" in ejb_sim("run", str(made), "--policy", "conservative").stdout


def test_mistakes_are_told_in_a_sentence(log: Path, tmp_path: Path) -> None:
    assert "cannot be read" in ejb_sim("run", str(tmp_path / "absent.swf"), code=2).stderr
    assert "no policy is called sjf" in ejb_sim("compare", str(log), "sjf", code=2).stderr
    assert (
        "is not KEY=VALUE" in ejb_sim("sweep", str(log), "--out", str(tmp_path / "o"), "--vary", "omax", code=2).stderr
    )
    assert (
        "none of the logs CTC"
        in ejb_sim("reproduce", "sc15", "--traces", str(tmp_path), "--out", str(tmp_path), code=2).stderr
    )


def loaded_by(modules: str) -> list[str]:
    """Which of the simulator's heavy libraries come with these modules."""
    heavy = ("numpy", "numba", "matplotlib", "ejbd.sim")
    code = f"import sys, json, {modules}; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    found: list[str] = json.loads(result.stdout)
    return found


def test_the_other_commands_do_not_wait_for_the_simulator() -> None:
    """numpy, numba and matplotlib are imported by `ejb sim`'s commands alone."""
    assert loaded_by("ejbd.cli.main") == []


def test_the_live_daemons_core_needs_no_compiler() -> None:
    code = (
        "import sys, ejbd.core.bundling.handlers, ejbd.core.room.windows\n"
        "print([m for m in ('numpy', 'numba') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=180)
    assert result.stdout.strip() == "[]"
