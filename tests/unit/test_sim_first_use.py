"""A researcher's first hour: a number at once without a compiler, progress where it takes long, strict JSON, `-`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ejbd.cli.main import main
from ejbd.cli.sim import progress as sim_progress
from ejbd.sim import compiled, playing, progress
from ejbd.sim.compiled import NUMBA_PLAIN
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import format_swf, read_swf, write_swf
from ejbd.sim.targets import play_targets, run_targets
from ejbd.sim.workload import workload_of

Ejb = Callable[..., str]


@pytest.fixture
def ejb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ejb:
    """`ejb sim WORDS` in this process: what it says on stdout."""

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["ejb", "sim", *words])
        try:
            main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "made.swf.gz"
    write_swf(path, generate(Model.UNIFORM, jobs=120, processors=32, seed=3, load=1.0))
    return path


def strict(text: str) -> Any:
    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_first_number_comes_without_the_compiler(log: Path, tmp_path: Path) -> None:
    """On a fresh installation, with numba there and nothing compiled: nobody waits for it, not even for its import."""
    code = (
        "import sys; from ejbd.cli.main import main\n"
        f"sys.argv = ['ejb', 'sim', 'run', {str(log)!r}, '--limit', '100']\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\n"
        "print([name for name in ('numba', 'matplotlib', 'rich.progress') if name in sys.modules])"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), NUMBA_PLAIN: "0"}
    env.pop("EJB_SIM_PLAIN", None)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    assert result.returncode == 0, result.stderr
    assert "mean_turnaround_s" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"
    assert not list(tmp_path.rglob("*.nbc")), "nothing was compiled"


def test_what_another_clone_has_compiled_is_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba would not find it there: minutes of compiling, where seconds of interpreting were enough."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rooms = Path(compiled.__file__).parents[1]
    clone = tmp_path / "clone" / "ejbd"
    shutil.copytree(rooms / "sim", clone / "sim")
    compiled._folder.cache_clear()
    try:
        mark = compiled._done_mark(play_targets)
        mark.parent.mkdir(parents=True)
        mark.touch()
        assert compiled.at_hand(play_targets)
        compiled._folder.cache_clear()
        monkeypatch.setattr(compiled, "__file__", str(clone / "sim" / "compiled.py"))
        assert not compiled.at_hand(play_targets)
    finally:
        compiled._folder.cache_clear()


@pytest.mark.parametrize("policy", list(Policy))
def test_a_simulation_goes_on_compiled_where_it_stood(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch, without a compiler: from the middle on the same kernels are called with arrays."""
    jobs = 120 if policy is Policy.CONSERVATIVE else 300  # whose profile is long, for arrays that are not compiled
    load = workload_of(generate(Model.UNIFORM, jobs=jobs, processors=32, seed=3, load=1.2), "made")
    plain = run(load, policy, plain=True)
    switched_after(monkeypatch, [jobs // 2])
    compiled = run(load, policy)
    assert (plain.compiled, compiled.compiled) == (False, True)
    for name in ("start", "end", "used", "moved_s", "subjobs", "moves", "elastic"):
        assert getattr(plain, name).tolist() == getattr(compiled, name).tolist(), name
    assert (plain.idle_s, plain.queued_s, plain.events) == (compiled.idle_s, compiled.queued_s, compiled.events)


def test_targets_go_on_compiled_where_they_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    load = workload_of(generate(Model.UNIFORM, jobs=150, processors=32, seed=3, load=1.2), "made")
    plain = run_targets(load, trim=False, plain=True)
    switched_after(monkeypatch, [700])
    compiled = run_targets(load, trim=False, baseline=plain.baseline)
    assert compiled.outcome.compiled and plain.targets.size > 20
    for name in ("start", "end", "used", "moved_s", "subjobs", "moves"):
        assert getattr(plain.outcome, name).tolist() == getattr(compiled.outcome, name).tolist(), name


def test_a_loop_over_small_logs_is_compiled_once_that_was_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log alone is over too soon for a compiler, and the loop does not say how many there are."""
    load = workload_of(generate(Model.UNIFORM, jobs=40, processors=32, seed=3, load=1.2), "made")
    switched_after(monkeypatch, [10_000])
    steps = iter(range(1000))
    monkeypatch.setattr("ejbd.sim.playing.time.process_time", lambda: 0.4 * next(steps))  # a play takes 0.4 s of CPU
    monkeypatch.setattr(playing, "_interpreted_s", {})
    ways = [run(load, Policy.EASY).compiled for _ in range(5)]
    assert ways == [False, False, False, True, True], "a second is what code that is at hand takes to load"


@pytest.mark.slow
@pytest.mark.nightly("compiling takes long; test_core_guard.py compiles one kernel, and the others are played plain")
@pytest.mark.parametrize("policy", [Policy.EASY, Policy.EJB])
def test_compiled_it_plays_what_plain_python_plays(policy: Policy) -> None:
    if not compiled.can_compile():
        pytest.skip("numba is not installed, or switched off")
    load = workload_of(generate(Model.UNIFORM, jobs=120, processors=32, seed=3, load=1.2), "made")
    plain, fast = run(load, policy, plain=True), run(load, policy, again=math.inf)
    assert fast.compiled and not plain.compiled
    assert fast.start.tolist() == plain.start.tolist() and fast.end.tolist() == plain.end.tolist()


def switched_after(monkeypatch: pytest.MonkeyPatch, steps: list[int]) -> None:
    """Interpreted for that many steps, then on with arrays, by the same functions in the place of compiled ones."""

    def in_place(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
        assert type(arguments[0].submit).__name__ == "ndarray"
        return function

    monkeypatch.setattr(playing, "can_compile", lambda: True)
    monkeypatch.setattr(playing, "at_hand", lambda function: True)
    monkeypatch.setattr(playing, "compiled", in_place)
    monkeypatch.setattr(playing, "_loaded", set())
    monkeypatch.setattr(playing, "_FIRST_STEPS", steps[0])
    monkeypatch.setattr(playing, "_A_WHILE_S", 0.0)
    times = iter([0.0] + [1000.0 * number for number in range(1, 10_000)])
    monkeypatch.setattr("ejbd.sim.playing.time.process_time", lambda: next(times))


def test_what_takes_long_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not on a terminal: nothing for five seconds, then lines more and more seldom; compiling is told at once."""
    now = [0.0]
    monkeypatch.setattr("ejbd.cli.sim.progress.time.monotonic", lambda: now[0])
    with sim_progress.shown():
        for second in range(100):
            now[0] = float(second)
            progress.tell("BLUE, easy", second / 100)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "ejb: BLUE, easy, 5 % after 5 s"
    assert len(told.err.splitlines()) == 5
    with sim_progress.shown():
        progress.tell("compiling 29 kernels, once for this version", 0.0)
        progress.tell("compiling 29 kernels, once for this version", 0.1)
    assert capsys.readouterr().err == "ejb: compiling 29 kernels, once for this version, 0 % after 0 s\n"


def test_parts_of_something_larger_tell_how_far_the_whole_is() -> None:
    heard: list[tuple[str, float | None]] = []
    with progress.heard_by(lambda what, done: heard.append((what, done))):
        with progress.part("Table 3", 0.5, 0.7):
            progress.tell("KTH", 0.5)
            progress.tell("compiling")
        progress.tell("after")
    assert heard == [("Table 3", 0.5), ("Table 3", 0.6), ("Table 3: compiling", 0.5), ("after", None)]


def test_rows_without_a_requested_time_are_played_as_they_ran(ejb: Ejb, tmp_path: Path) -> None:
    """As in `lublin_256.swf`: such jobs became runs of 1 s, in silence."""
    made = generate(Model.LUBLIN, jobs=200, processors=64, seed=1, load=0.7)
    made.rows[:, 8] = -1
    made.rows[:3, 3:5] = -1
    path = tmp_path / "no-requests.swf"
    write_swf(path, made)
    report = strict(ejb("run", str(path), "--policy", "easy", "--json", "-"))
    assert report["utilization"] > 0.3
    assert report["mean_run_s"] == pytest.approx(made.rows[3:, 3].mean())
    assert report["rows"] == {
        "read": 200,
        "played": 197,
        "told": [
            {"what": "no run time", "rows": 3, "kept": False, "first_lines": [5, 6, 7]},
            {
                "what": "no requested time: the run time is taken",
                "rows": 197,
                "kept": True,
                "first_lines": [8, 9, 10, 11, 12],
            },
        ],
    }
    assert strict(ejb("run", str(path), "--rows", "pyss", "--json", "-"))["mean_run_s"] == 1


def test_what_is_changed_about_rows_is_told_beside_the_figures(
    ejb: Ejb, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["run"], ["target", "--trim", "none"], ["compare", "easy", "ejb"]):
        monkeypatch.setattr(sys, "argv", ["ejb", "sim", words[0], str(log), *words[1:], "--procs", "10"])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        assert "rows (lines 5, 10, 11, 21, 22, ...): wider than the cluster of 10 processors; left out" in (
            capsys.readouterr().err
        )


def test_no_json_has_a_word_that_is_none(ejb: Ejb, log: Path) -> None:
    nobody = strict(ejb("target", str(log), "--min-procs", "999", "--json"))
    assert (nobody["targets"], nobody["turnaround_change_percent"]) == (0, None)
    strict(ejb("run", str(log), "--min-procs", "999", "--lambda", "inf", "--json", "-"))
    strict(ejb("compare", str(log), "ejb:lambda=inf", "ejb:min-procs=999,trim=paper", "--json"))


def test_a_dash_is_standard_output_and_input(
    ejb: Ejb, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(csv.DictReader(io.StringIO(ejb("run", str(log), "--jobs-csv", "-"))))
    assert len(rows) == 120 and rows[0]["job_id"] == "1"
    made = ejb("generate", "-", "--jobs", "30", "--model", "uniform")
    assert made == "".join(format_swf(generate(Model.UNIFORM, jobs=30, processors=128, seed=1)))

    class Standard:
        buffer = io.BufferedReader(io.BytesIO(log.read_bytes()))

    monkeypatch.setattr(sys, "stdin", Standard())
    assert strict(ejb("run", "-", "--json", "-"))["jobs"] == len(read_swf(log))
    assert not (tmp_path / "-").exists()
    monkeypatch.setattr(sys, "argv", ["ejb", "sim", "run", str(log), "--json", "-", "--jobs-csv", "-"])
    with pytest.raises(SystemExit):
        main()
    assert "both stdout" in capsys.readouterr().err


def test_the_time_that_is_told_is_that_of_playing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loading or compiling takes has a figure of its own: here an hour, by the clock of the test."""
    now = [0.0]

    def an_hour(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
        now[0] += 3600.0
        return function

    load = workload_of(generate(Model.UNIFORM, jobs=50, processors=32, seed=3), "made")
    switched_after(monkeypatch, [20])
    monkeypatch.setattr(playing, "compiled", an_hour)
    monkeypatch.setattr("ejbd.sim.playing.time.perf_counter", lambda: now[0])
    outcome = run(load, Policy.EASY)
    assert (outcome.kernels_s, outcome.elapsed_s) == (3600.0, 0.0)
