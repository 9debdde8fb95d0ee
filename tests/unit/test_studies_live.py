"""A log played against something real, beside its simulation: what is played, when, and how the two are compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.cli.main import main
from ejbd.cli.sim.live import factor
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.errors import Code, EjbError
from ejbd.sim.replay_jobs import JobBook
from ejbd.sim.run import Policy
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs
from ejbd.studies.live.comparison import (
    Overheads,
    PlayedJob,
    comparison,
    line_through,
    live_times,
    play,
    pooled,
    rows_of,
    scaled,
    simulated_times,
)
from ejbd.studies.live.ejb import ElasticRuns
from ejbd.studies.live.figure import draw
from ejbd.studies.live.program import Program
from ejbd.wire.kinds import EventKind

Row = tuple[float, float, float, int]  # submit, run, walltime, processors
PAPER = BundlingParameters()
NOBODY = [False, False, False]


def load(rows: list[Row], processors: int = 4) -> Workload:
    submit, run, walltime, width = (np.array(column) for column in zip(*rows, strict=True))
    jobs = Jobs(
        submit.astype(float), run.astype(float), walltime.astype(float), width.astype(np.int64),
        np.arange(1, len(rows) + 1),
    )  # fmt: skip
    return Workload("made", processors, jobs)


@dataclass
class FakeTime:
    now: float = 1000.0

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Instant:
    """Starts every job at once; those in `fails` have no end."""

    time: FakeTime
    fails: frozenset[int] = frozenset()
    jobs: dict[int, tuple[float, float, int]] = field(default_factory=dict)

    def submit(self, number: int, processors: int, walltime_s: float, run_s: float) -> None:
        self.jobs[number] = (self.time.now, run_s, processors)

    def running(self) -> int:
        return sum(1 for at, run_s, _ in self.jobs.values() if at + run_s > self.time.now)

    def played(self) -> dict[int, PlayedJob]:
        return {n: PlayedJob(at, at, None if n in self.fails else at + run) for n, (at, run, _) in self.jobs.items()}

    def close(self) -> None:
        self.jobs.clear()


def test_times_are_scaled_widths_follow_the_cluster_and_walltimes_are_whole_quanta() -> None:
    found = scaled(load([(600, 600, 7000, 100), (1200, 30, 60, 1), (1800, 6000, 6000, 13)], 100), 1 / 60, 32, 60.0)
    assert found.processors == 32
    assert found.jobs.submit.tolist() == [0, 10, 20]
    assert found.jobs.run.tolist() == [10, 1, 100]
    assert found.jobs.walltime.tolist() == [120, 60, 180]  # the last: 100 s, and room for a start
    assert found.jobs.processors.tolist() == [32, 1, 5]


def test_a_scale_of_nothing_and_a_log_without_rows_are_refused() -> None:
    with pytest.raises(EjbError, match="above 0"):
        scaled(load([(0, 1, 1, 1)]), 0.0, 4, 60.0)
    assert rows_of(load([(0, 1, 1, 1), (1, 1, 1, 1), (2, 1, 1, 1)]), 1, 1).jobs.submit.tolist() == [1]
    with pytest.raises(EjbError, match="none are left"):
        rows_of(load([(0, 1, 1, 1)]), 1, None)


def test_every_job_is_submitted_at_its_time_and_wide_ones_to_the_manager() -> None:
    time = FakeTime()
    rigid, elastic = Instant(time), Instant(time)
    log = load([(0, 5, 60, 1), (3, 20, 60, 4), (7.5, 1, 60, 2)])
    played = play(log, rigid, elastic, [False, True, False], limit_s=60, clock=time.clock, pause=time.pause)
    assert {n: job[0] - 1000 for n, job in rigid.jobs.items()} == {0: 0, 2: 7.5}
    assert elastic.jobs == {1: (1003, 20, 4)}
    assert [job.end_s for job in played] == [1005, 1023, 1008.5]
    assert time.now >= 1023


def test_jobs_that_do_not_end_are_told() -> None:
    time = FakeTime()
    with pytest.raises(EjbError, match="1 jobs are not over 30 s") as late:
        play(load([(0, 500, 600, 1)]), Instant(time), None, NOBODY[:1], limit_s=30, clock=time.clock, pause=time.pause)
    assert late.value.hint and "--patience" in late.value.hint
    broken = Instant(time, frozenset({1}))
    with pytest.raises(EjbError, match="1 jobs did not run to their end"):
        log = load([(0, 1, 60, 1), (0, 1, 60, 1)])
        play(log, broken, None, NOBODY[:2], limit_s=30, clock=time.clock, pause=time.pause)


def test_the_simulation_pays_the_measured_overheads() -> None:
    # The second job waits for the first, and the third slips past it.
    log = load([(0, 10, 60, 4), (2, 10, 60, 4), (4, 5, 60, 1)])
    free = simulated_times(log, Policy.EASY, PAPER, NOBODY, Overheads(), plain=True)
    assert free.start.tolist() == [0, 10, 20] and free.end.tolist() == [10, 20, 25]
    paid = Overheads(arrival_s=0.5, handover_s=1.5)
    real = simulated_times(log, Policy.EASY, PAPER, NOBODY, paid, plain=True)
    assert real.start.tolist() == [0.5, 12.0, 23.5]
    assert real.end.tolist() == [10.5, 22.0, 28.5]


def test_under_easy_the_program_takes_what_was_measured_of_it_and_others_sleep() -> None:
    log = load([(0, 10, 60, 4), (2, 10, 60, 4)])
    paid = Overheads(handover_s=1.5, begin_s=0.5, pace=1.1)
    real = simulated_times(log, Policy.EASY, PAPER, [True, False], paid, plain=True)
    assert real.start.tolist() == [0, 13.0]
    assert real.end.tolist() == [11.5, 23.0]


def test_an_elastic_job_is_not_simulated_a_second_longer_for_a_pace_of_a_hair_more_than_one() -> None:
    log = load([(0, 1, 60, 4), (0, 1, 60, 4), (0, 100, 160, 4)])
    paid = Overheads(pace=1.004)
    real = simulated_times(log, Policy.EJB, PAPER, [True, True, True], paid, plain=True)
    assert real.end.tolist() == [1, 2, 102]
    slower = simulated_times(log, Policy.EJB, PAPER, [True, True, True], Overheads(pace=1.1), plain=True)
    assert slower.end.tolist() == [1, 2, 112]


def test_a_comparison_says_the_error_of_each_mean_for_all_and_for_the_elastic() -> None:
    log = load([(0, 10, 60, 4), (2, 10, 60, 1)])
    live = live_times([PlayedJob(100, 100, 110, 1), PlayedJob(102, 112, 120)])
    simulated = live_times([PlayedJob(0, 0, 11), PlayedJob(2, 10, 20)])
    told = comparison(log, Policy.EJB, [True, False], Overheads(), live, [simulated])
    assert told["all"]["live"] == {"mean_wait_s": 5, "mean_run_s": 9, "mean_turnaround_s": 14}
    assert told["all"]["simulated"] == {"mean_wait_s": 4, "mean_run_s": 10.5, "mean_turnaround_s": 14.5}
    assert told["all"]["error_percent"]["mean_wait_s"] == pytest.approx(-20)
    assert told["elastic"]["error_percent"]["mean_wait_s"] is None  # nothing to divide by
    assert told["elastic"]["error_percent"]["mean_run_s"] == pytest.approx(10)
    assert told["non_elastic"]["jobs"] == 1
    assert told["moves"] == {"live": 1, "simulated": 0}
    assert [job["live"] for job in told["each"]] == [[0, 10], [12, 20]]
    assert "elastic" not in comparison(log, Policy.EASY, NOBODY[:2], Overheads(), live, [simulated])


def test_what_a_play_began_with_counts_in_no_mean() -> None:
    log = load([(0, 10, 60, 4), (2, 10, 60, 4), (3, 4, 60, 1)])
    live = live_times([PlayedJob(100, 100, 200), PlayedJob(102, 112, 120), PlayedJob(103, 120, 126)])
    told = comparison(log, Policy.EJB, [False, True, False], Overheads(), live, [live], np.array([False, True, True]))
    assert (told["jobs"], told["all"]["jobs"], told["elastic"]["jobs"], told["non_elastic"]["jobs"]) == (2, 2, 1, 1)
    assert told["all"]["live"]["mean_turnaround_s"] == pytest.approx((18 + 23) / 2)
    assert [job["counted"] for job in told["each"]] == [False, True, True]
    assert len(pooled([told])[0]["each"]) == 2


def test_plays_of_one_policy_are_pooled_job_by_job() -> None:
    live = live_times([PlayedJob(0, 0, 10), PlayedJob(2, 10, 20)])
    other = live_times([PlayedJob(0, 0, 11), PlayedJob(2, 12, 22)])
    log, one = load([(0, 10, 60, 4), (2, 10, 60, 1)]), load([(0, 10, 60, 4)])
    first = comparison(log, Policy.EASY, NOBODY[:2], Overheads(), live, [other])
    second = comparison(
        one, Policy.EASY, NOBODY[:1], Overheads(), live_times([PlayedJob(0, 5, 10)]), [live_times([PlayedJob(0, 0, 4)])]
    )
    third = comparison(log, Policy.EJB, NOBODY[:2], Overheads(), live, [live])
    easy, ejb = pooled([first, second, third])
    assert (easy["policy"], easy["jobs"], easy["plays"], len(easy["each"])) == ("easy", 3, 2, 3)
    assert easy["all"]["live"] == {
        "mean_wait_s": pytest.approx(13 / 3),
        "mean_run_s": pytest.approx(25 / 3),
        "mean_turnaround_s": pytest.approx(38 / 3),
    }
    assert easy["all"]["error_percent"]["mean_turnaround_s"] == pytest.approx(100 * (35 / 38 - 1))
    assert (ejb["policy"], ejb["jobs"]) == ("ejb", 2)


@pytest.mark.slow
def test_the_figure_is_written_in_three_formats_with_a_row_for_each_comparison(tmp_path: Path) -> None:
    log = load([(0, 10, 60, 4), (2, 10, 60, 1)])
    times = live_times([PlayedJob(0, 0, 10), PlayedJob(2, 10, 20)])
    told = comparison(log, Policy.EASY, NOBODY[:2], Overheads(), times, [times])
    paths = draw(tmp_path / "both.png", [told, told])
    assert [path.name for path in paths] == ["both.png", "both.svg", "both.pdf"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in paths[1].read_text()
    assert paths[2].read_bytes().startswith(b"%PDF-")
    with pytest.raises(EjbError, match="cannot be written"):
        draw(tmp_path / "missing" / "both", [told])


@pytest.mark.parametrize(("text", "value"), [("1/60", 1 / 60), ("0.5", 0.5), ("2", 2.0)])
def test_scales(text: str, value: float) -> None:
    assert factor(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["1/0", "a", "1/2/3", "0", "-1", "nan", "1/inf"])
def test_what_is_no_scale_is_refused(text: str) -> None:
    with pytest.raises(EjbError) as refused:
        factor(text)
    assert refused.value.code is Code.INVALID


@pytest.mark.parametrize(
    ("words", "env", "code", "said"),
    [
        (["missing.swf"], {}, 2, "cannot be read"),
        (["log.swf", "--scale", "0"], {}, 2, "--scale 0"),
        (["log.swf", "--policy", "fcfs"], {}, 2, "'fcfs' cannot be played"),
        (["log.swf", "--cluster", "nowhere"], {}, 2, "scripts/cluster"),
        (["log.swf", "--policy", "ejb", "--program", "nowhere.py"], {}, 2, "nowhere.py is not there"),
        (["log.swf", "--beside", "log.swf"], {}, 2, "is not what"),
        (["log.swf", "--json", "nowhere/out.json"], {}, 2, "cannot be written"),
        (["log.swf"], {"PATH": "/nowhere"}, 6, "sinfo is not on PATH"),
        (["log.swf"], {"SLURM_CONF": "/nowhere/slurm.conf"}, 7, "there is no Slurm"),
    ],
)
def test_what_cannot_be_played_is_told_in_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    env: dict[str, str],
    code: int,
    said: str,
) -> None:
    (tmp_path / "log.swf").write_text("; MaxProcs: 4\n1 0 -1 1 1 -1 -1 1 60 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys, "argv", ["ejb", "sim", "live", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (code, "")
    assert said in told.err and len(told.err.splitlines()) == 1


class FakeDaemon:
    """Answers as the REST API does about one job that starts on a subjob, moves once, and ends."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Mapping[str, Any]]] = []
        self.over = False
        self.events = [
            (100.5, "job.received", {"elastic": True}),
            (100.5, "subjob.planned", {"role": "placeholder", "processors": 8, "walltime_s": 120.0}),
            (101.0, "subjob.pending", {}),
            (104.0, "epoch.launching", {"epoch": 1, "ranks": 8, "restart_from": None, "launch": 0}),
            (107.0, "epoch.running", {"processors": 4}),
            (117.0, "epoch.stopping", {}),
            (118.0, "epoch.stopped", {}),
            (118.5, "epoch.launching", {"epoch": 2, "ranks": 8, "restart_from": 1, "launch": 0}),
            (121.0, "epoch.running", {"processors": 8}),
            (127.0, "epoch.ended", {}),
            (127.5, "job.completed", {}),
        ]

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        self.posted.append((path, body))
        return {"id": "abc"}

    def get(self, path: str, **query: Any) -> Any:
        if path.endswith("/events"):
            return {"events": [{"at_s": at, "kind": kind, "data": data} for at, kind, data in self.events]}
        if path == "/v1/jobs":
            return {"jobs": [] if self.over else [{"id": "abc"}]}
        return {
            "state": "completed" if self.over else "running",
            "submit_s": 100.5,
            "end_s": 127.5,
            "subjobs": [
                {"state": "ended", "start_s": 119.0, "end_s": 129.0},
                {"state": "ended", "start_s": 104.0, "end_s": 122.0},
                {"state": "cancelled", "start_s": None, "end_s": None},
            ],
        }


def test_elastic_jobs_run_the_paced_program_and_their_costs_are_those_of_their_events(tmp_path: Path) -> None:
    daemon = FakeDaemon()
    runs = ElasticRuns(daemon, Program(("python3", "heat.py"), "heat.py", 0.05, False), tmp_path)
    runs.submit(7, 8, 120.0, 10.0)
    path, body = daemon.posted[0]
    assert path == "/v1/jobs"
    said = ["--size", "32", "--steps", "200", "--pace", "50ms", "--result", str(tmp_path / "7.result")]
    assert body["command"] == ["python3", "heat.py", *said]
    assert (body["overrides"]["ntasks"], body["overrides"]["time"], body["overrides"]["delta"]) == (8, "00:02:00", 1.0)
    assert runs.running() == 1
    daemon.over = True
    assert runs.running() == 0
    assert runs.played() == {7: PlayedJob(100.5, 104.5, 127.5, 1)}
    found = runs.measured(Overheads(arrival_s=0.25, handover_s=0.5))
    # 10 s at half speed and 6 s at full speed were needed for 10 s of work.
    assert found == Overheads(
        arrival_s=0.25,
        handover_s=0.5,
        elastic_arrival_s=0.75,
        start_up_s=2.5,
        giving_back_s=2.0,
        move_s=4.0,
        pace=1.1,
    )
    runs.close()
    assert len(daemon.posted) == 1  # there was nothing left to cancel


def test_what_a_start_takes_and_what_computing_takes_longer_are_told_apart() -> None:
    told = [line_through(x, y) for x, y in (([10, 20, 40], [12, 23, 45]), ([10, 10], [12, 14]), ([10, 20], [9, 19.5]))]
    assert [pace for pace, _ in told] == pytest.approx([1.1, 1.3, 0.95])
    assert [begin_s for _, begin_s in told] == pytest.approx([1.0, 0.0, 0.0])


def test_a_job_that_its_j0_ran_without_workers_is_no_elastic_one_in_a_replay() -> None:
    book = JobBook()
    for kind, at_s, data in (
        (EventKind.JOB_RECEIVED, 100.0, {"elastic": True}),
        (EventKind.JOB_ALONE, 112.0, {"began_s": 110.0, "reason": ""}),
        (EventKind.JOB_RUNNING, 112.0, {}),
        (EventKind.JOB_COMPLETED, 130.0, {}),
    ):
        book.note(kind, at_s, "a", data)
    (job,) = book.jobs()
    assert (job.elastic, job.start_s, job.run_s) == (False, 110.0, 20.0)
