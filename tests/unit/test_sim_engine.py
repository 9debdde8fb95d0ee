"""The engine without elastic jobs, against slow simulators that are obviously right."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import EjbError
from ejbd.sim.metrics import idle_while_queued, makespan, means, paper_trim, utilization
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.workload import Workload, workload_of
from tests.fakes.sim_worlds import Row, SlowEasy, SlowJob, slow_jobs, workload
from tests.fakes.swf import log_of
from tests.nightly import examples

TIMES = st.integers(0, 60)  # small numbers, so that many events coincide
ROWS = st.lists(st.tuples(TIMES, st.integers(1, 8), st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=25)


def made(rows: list[tuple[int, int, int, int]]) -> Workload:
    return workload([(float(s), p, float(max(w, r)), float(r)) for s, p, w, r in rows], 8)


@settings(max_examples=examples(200), deadline=None)
@given(ROWS, st.sampled_from(list(Ties)))
def test_easy_is_the_slow_easy(rows: list[tuple[int, int, int, int]], ties: Ties) -> None:
    load = made(rows)
    outcome = run(load, Policy.EASY, ties=ties, checking=True, plain=True)
    slow = SlowEasy(load, ties.name.lower()).run()
    assert outcome.start.tolist() == [job.start for job in slow]
    assert outcome.end.tolist() == [job.end for job in slow]


FRACTIONS = st.integers(0, 240).map(lambda quarter: quarter / 4)
ODD_ROWS = st.lists(
    st.tuples(FRACTIONS, st.integers(1, 12), st.integers(-1, 40), st.sampled_from([-1, 0, 5, 20, 40])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(ODD_ROWS, st.sampled_from(list(Ties)))
def test_odd_logs_are_played_as_the_slow_easy_plays_their_jobs(
    rows: list[tuple[float, int, int, int]], ties: Ties
) -> None:
    """Unsorted, at fractions of seconds, of no length, wider than the cluster, without requests: from the text on."""
    words = [f"{n} {s} -1 {r} {p} -1 -1 -1 {w} -1 1 {n % 3} -1 -1 -1 -1 -1 -1\n" for n, (s, p, r, w) in enumerate(rows)]
    playable = sorted((row for row in rows if row[1] <= 8 and row[2] >= 0), key=lambda row: row[0])
    if not playable:
        with pytest.raises(EjbError, match="no row of odd is a job"):
            workload_of(log_of(words), "odd", processors=8)
        return
    load = workload_of(log_of(words), "odd", processors=8)
    asked = [(s, p, float(max(w, r, 1)), float(max(r, 1))) for s, p, r, w in playable]
    slow = SlowEasy(workload(asked, 8), ties.name.lower()).run()
    outcome = run(load, Policy.EASY, ties=ties, checking=True, plain=True)
    assert outcome.start.tolist() == [job.start for job in slow]
    assert outcome.end.tolist() == [job.end for job in slow]


def test_thousands_of_jobs_of_no_length_are_played_one_second_each() -> None:
    words = [f"{n} {n // 40} -1 0 {n % 4 + 1} -1 -1 -1 60 -1 1 1 -1 -1 -1 -1 -1 -1\n" for n in range(5000)]
    load = workload_of(log_of(words), "short", processors=128)
    outcome = run(load, Policy.EJB, checking=True, plain=True)
    assert (outcome.end - outcome.start == 1).all()
    assert [(str(one), one.kept) for one in load.odd] == [
        ("5,000 rows (lines 1, 2, 3, 4, 5, ...): run time 0: 1 s is played", True)
    ]


def long_queue() -> Workload:
    dice = random.Random(5)
    rows: list[Row] = []
    for _ in range(300):
        walltime = dice.randint(10, 900)
        rows.append((dice.randint(0, 3000), dice.randint(1, 30), walltime, dice.randint(1, walltime)))
    return workload(rows, 32)


def test_easy_is_the_slow_easy_where_the_queue_is_long() -> None:
    load = long_queue()
    for ties in Ties:
        outcome = run(load, Policy.EASY, ties=ties, checking=True, plain=True)
        assert outcome.start.tolist() == [job.start for job in SlowEasy(load, ties.name.lower()).run()]


class LetsEverybodyPast(SlowEasy):
    """Not EASY: whatever fits starts, and the head of the queue is put off."""

    def schedule(self, now: float) -> None:
        for job in list(self.queue):
            if job.processors <= self.free_at(now, now):
                self.begin(job, now)


class IgnoresTheExtra(SlowEasy):
    """Not EASY: nobody starts who runs past the shadow time, on whichever processors."""

    def free_at(self, time: float, now: float) -> int:
        free = super().free_at(time, now)
        return free if time <= now or not self.queue else min(free, self.queue[0].processors)


@pytest.mark.parametrize("wrong", [LetsEverybodyPast, IgnoresTheExtra])
def test_a_scheduler_that_is_not_easy_is_told_from_it(wrong: type[SlowEasy]) -> None:
    """The comparison above can fail: it does, with one rule of EASY broken."""
    load = long_queue()
    outcome = run(load, Policy.EASY, ties=Ties.PYSS, checking=True, plain=True)
    assert outcome.start.tolist() != [job.start for job in wrong(load, "pyss").run()]


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_first_come_first_served_starts_in_order_and_as_early_as_that_allows(
    rows: list[tuple[int, int, int, int]],
) -> None:
    load = made(rows)
    outcome = run(load, Policy.FCFS, checking=True, plain=True)
    started: list[tuple[float, float, int]] = []
    earliest = 0.0
    for job in slow_jobs(load):
        times = sorted({max(earliest, job.submit), *(end for _, end, _ in started)})
        earliest = next(
            t
            for t in times
            if t >= max(earliest, job.submit)
            and sum(p for start, end, p in started if start <= t < end) + job.processors <= load.processors
        )
        started.append((earliest, earliest + job.run, job.processors))
    assert outcome.start.tolist() == [start for start, _, _ in started]


class SlowConservative(SlowEasy):
    """Conservative backfilling written out: a promise for everybody, compressed in the order of submission."""

    def __init__(self, load: Workload, ties: str) -> None:
        super().__init__(load, ties)
        self.promised: dict[int, float] = {}

    def fits(self, at: float, job: SlowJob, promised: dict[int, float], now: float) -> bool:
        walltime, width, number = job.walltime, job.processors, job.number
        spans = [(now, j.start + j.walltime, j.processors) for j in self.running if j.start + j.walltime > now]
        spans += [
            (promised[j.number], promised[j.number] + j.walltime, j.processors)
            for j in self.queue
            if j.number != number and j.number in promised
        ]
        moments = [at, *(begin for begin, _, _ in spans if at < begin < at + walltime)]
        return all(sum(p for b, e, p in spans if b <= t < e) + width <= self.total for t in moments)

    def schedule(self, now: float) -> None:
        promised = self.promised
        for job in self.queue:
            before = promised.get(job.number)
            if before is not None and before <= now:
                continue
            times = {now, *(j.start + j.walltime for j in self.running)}
            times |= {promised[j.number] + j.walltime for j in self.queue if j.number in promised and j is not job}
            promised[job.number] = min(t for t in times if t >= now and self.fits(t, job, promised, now))
            assert before is None or promised[job.number] <= before, "a promise is never broken"
        for job in [j for j in self.queue if promised[j.number] <= now]:
            self.begin(job, now)


@settings(max_examples=100, deadline=None)
@given(ROWS, st.sampled_from([Ties.PAPER, Ties.PYSS]))
def test_conservative_is_the_slow_conservative(rows: list[tuple[int, int, int, int]], ties: Ties) -> None:
    load = made(rows)
    outcome = run(load, Policy.CONSERVATIVE, ties=ties, checking=True, plain=True)
    assert outcome.start.tolist() == [job.start for job in SlowConservative(load, ties.name.lower()).run()]


def test_the_example_of_utrera_et_al() -> None:
    """Figure 2 of Utrera, Tabik, Corbalan & Labarta (Euro-Par 2012): mean response 4.66 with FCFS, 4.33 with EASY.

    The figure's text gives the run times, J1's and J5's widths and who runs beside whom; the other widths follow. J6's,
    for which these two figures leave more than one, is the whole cluster.
    """
    shapes = [(8, 2), (4, 1), (2, 1), (8, 2), (4, 2), (10, 1)]
    load = workload([(0.0, width, float(run), float(run)) for width, run in shapes], 10)
    fcfs, easy = run(load, Policy.FCFS, plain=True), run(load, Policy.EASY, plain=True)
    assert fcfs.end.tolist() == [2, 3, 3, 5, 7, 8]
    assert easy.end.tolist() == [2, 3, 1, 5, 7, 8]
    assert means(load.jobs, fcfs, slice(None)).mean_turnaround_s == pytest.approx(14 / 3)
    assert means(load.jobs, easy, slice(None)).mean_turnaround_s == pytest.approx(13 / 3)


def test_figures_by_hand() -> None:
    """8 processors: a job of 6 for 100 s, one of 4 that waits for it, one of 1 that does not."""
    load = workload([(0, 6, 100, 100), (10, 4, 50, 5), (20, 1, 30, 30)], 8)
    outcome = run(load, Policy.EASY, plain=True)
    assert outcome.start.tolist() == [0, 100, 20]
    assert makespan(load.jobs, outcome) == 105
    assert utilization(load.jobs, outcome, 8) == (600 + 20 + 30) / (8 * 105)
    assert idle_while_queued(outcome) == (2 * 90 - 30) / 90  # while the second waits: 2 idle, 1 for 30 s
    assert means(load.jobs, outcome, slice(None)).mean_bounded_slowdown == (1 + 95 / 10 + 1) / 3
    assert paper_trim(load.jobs, outcome).tolist() == [False, False, False]  # nobody ends by the last arrival


def test_the_paper_trim_drops_one_job_in_a_hundred_and_late_ends() -> None:
    rows: list[Row] = [(10.0 * i, 1, 5, 5) for i in range(150)]
    load = workload(rows, 4)
    flags = paper_trim(load.jobs, run(load, Policy.EASY, plain=True))
    assert flags.tolist() == [False, False] + [True] * 147 + [False]
