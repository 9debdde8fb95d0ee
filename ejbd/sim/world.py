"""Everything that a simulation knows, as vectors that kernels can take; times are seconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ejbd.core.bundling.candidates import Options, Scratch
from ejbd.core.bundling.guard import LOOKED_AT
from ejbd.core.bundling.parameters import Rules, rules_of
from ejbd.core.kernel import Floats, Ints
from ejbd.core.parameters import Parameters
from ejbd.core.room.slots import NO_MARGINS, Margins
from ejbd.core.shadow import Shadows, new_shadows

# What a job is (`mode`). A candidate becomes elastic when it cannot start at once.
# RELEASING: it is done, but its processors are not given back yet.
RIGID, WAITING, RUNNING, ON_PLACE_HOLDER, DONE, RELEASING = 0, 1, 2, 3, 4, 5

# What a job may become (`candidate`). WITHOUT_J0: J0 is cancelled once a subjob carries the job to its end.
STAYS_RIGID, ELASTIC, WITHOUT_J0 = 0, 1, 2

UNBOUNDED = 2**31  # ranks a processor: more than any job has

# Entries of `count`. UNIT: reservations are of whole units. RUNS: that have ended. FOLDS: 1 where jobs are folded in
# place before one is checkpointed for a waiting job (:mod:`ejbd.sim.folding`).
TOTAL, FREE, QUEUED, DUE, HEAPED, NEXT, SEQUENCE, VISITS, SPARE, EVENTS, FAULT, FRESH, HEAD, UNIT, RUNS = range(15)
FOLDS = 15
# Of :mod:`ejbd.core.lateness`: 1 where the rule is on; the newest ends of elastic jobs; for how often it has stopped.
WATCHES, LATE_BITS, LATE_ENDS, LATE, STOPS = range(16, 21)
# Of :mod:`ejbd.sim.turns`: 1 where it is on; jobs that its shadow has seen; J0s that stay in the queue.
TURNS, SEEN, KEPT = range(21, 24)
PLAIN_J0S = 24  # 1 where a J0 runs what is taken for short without workers
COUNTS = 25
# Entries of `clock`. WEIGHED: see :class:`Learned`. Then come the costs of candidates, :class:`Costs`, and its
# margins, and what is learned of how long runs last (:mod:`ejbd.core.lasting`).
NOW, IDLE_S, QUEUED_S, SHADOW, WEIGHED, LAUNCH_S, RELEASE_S, SLACK_S, KEEP_S, POLL_S, START_UP_S, TAIL_S = range(12)
RUNS_S, RUN_WORK, RUN_SQUARES = range(12, 15)
SHORT_S = 15  # runs below it are short (:mod:`ejbd.core.shortruns`); 0: none is
STOPPED_S = 16  # until then no job becomes elastic
USED, ASKED = 17, 18  # processor-seconds of the latest runs
PLAIN_LAUNCH_S, PLAIN_RELEASE_S = 19, 20  # of a J0 without workers
CLOCKS = 21
# Faults. The first two are not the simulation's: the world was made too small, and is to be made again.
TOO_MANY_SUBJOBS, TOO_MANY_ELASTIC, OVERCOMMITTED, HEAD_DELAYED, TOO_WIDE, BROKEN_PROGRESS, KILLED, LATER, BAD_FREE = (
    range(1, 10)
)
OUT_OF_MEMORY = 10
FAULTS = {
    OVERCOMMITTED: "more processors are given out than there are",
    HEAD_DELAYED: "the head of the queue was delayed by a backfill",
    TOO_WIDE: "an elastic job holds more processors than it has processes",
    BROKEN_PROGRESS: "an application's progress is not complete at its end",
    KILLED: "an application was killed by the walltime of its own subjob",
    LATER: "a decision made an expected completion later",
    BAD_FREE: "processors were given back that no job held",
    OUT_OF_MEMORY: "more ranks share a processor than its memory holds",
}


class Costs(NamedTuple):
    """What a live manager costs its jobs and its decisions do not count, in seconds.

    `launch_s`: from the start of the first subjob until its ranks compute. `release_s`: from the application's end
    until its processors are free. `slack_s`: what a subjob asks for beyond its plan, as far as its slot lasts.
    `keep_s`: from the start of a J0 that is moved to until the old subjobs are given back. `margins`: what decisions
    are not shown of slots that end. `plain_launch_s`, `plain_release_s`: the first two, of a J0 without workers.
    """

    launch_s: float = 0.0
    release_s: float = 0.0
    slack_s: float = 0.0
    keep_s: float = 0.0
    margins: Margins = NO_MARGINS
    plain_launch_s: float = 0.0
    plain_release_s: float = 0.0


FREE_OF_COSTS = Costs()


class Rows(NamedTuple):
    """One row of vectors for each elastic job that runs: what it holds, in the order of its subjobs' ends.

    `ends`: until when ranks may be planned there; `walltime_ends`: until when the processors are given out. `folded`:
    processors that were given back by folding the ranks in place.
    """

    ends: Any
    walltime_ends: Any
    processors: Any
    folded: Any


class Giving(NamedTuple):
    """Room for the jobs that may be made to give back what they hold, and for flags of those that wait."""

    job: Ints
    held: Ints
    room_s: Floats
    move_s: Floats
    gives: Ints
    served: Ints


class World(NamedTuple):
    """The state of one simulation.

    Jobs are numbered in the order of their submission. `submit`, `run` (true), `walltime`, `processors`, `most_ranks`
    (that may share a processor, by their memory), `candidate`, `points`, `likes` and `kin` describe them and are not
    written to (but `candidate`, where a queue has stopped); `without_workers` flags jobs that their J0 runs so;
    `promised` is when J0 was to start; `planned` becomes the request once it is outlived. `start`, `end`, `used`
    (processor-seconds), `subjobs` and `moves` are what becomes of them. The first QUEUED entries of `queue` wait, in
    order; the first DUE of `ends` and `freed` are the planned releases; the `heap` has the next event of everything
    that runs. `gives_back` flags the jobs that are being suspended for a waiting one. Until `meanwhile_until` the ranks
    of a job that grows do `meanwhile` work a second where they are, and are counted as stalled. `held` is a row for
    each elastic job that runs, the first `leaving` subjobs of which are being left until `leave_at`.
    """

    submit: Floats
    run: Floats
    walltime: Floats
    processors: Ints
    most_ranks: Ints
    candidate: Ints
    planned: Floats
    points: Any
    likes: Ints
    kin: Ints
    without_workers: Ints
    like_bits: Ints
    like_runs: Ints
    like_short: Ints
    promised: Floats
    shadows: Shadows

    start: Floats
    end: Floats
    used: Floats
    moved: Floats
    subjobs: Ints
    moves: Ints

    count: Ints  # type: ignore[assignment]  # shadows tuple.count, which a world does not need
    clock: Floats
    queue: Ints
    queue_processors: Ints
    queue_walltime: Floats
    queue_reserved: Floats
    ends: Floats
    freed: Ints
    profile_times: Floats
    profile_levels: Ints
    heap_time: Floats
    heap_order: Ints
    heap_job: Ints
    heap_at: Ints

    mode: Ints
    work: Floats
    meanwhile: Floats
    gives_back: Ints
    meanwhile_until: Floats
    as_of: Floats
    stalled: Floats
    expected: Floats
    leave_at: Floats
    leaving: Ints
    row: Ints
    held_count: Ints
    held: Rows
    spare: Ints
    visits: Ints

    started: Ints
    slot_processors: Ints
    slot_durations: Floats
    shown_durations: Floats
    anchors: Ints
    scratch: Scratch
    options: Options
    giving: Giving


def kernel_rules(parameters: Parameters, *, arrays: bool) -> Rules:
    """What a policy goes by, for interpreted kernels or (`arrays`) for compiled ones."""
    rules = rules_of(parameters)
    if not arrays:
        return rules
    vectors = {name: np.array(getattr(rules, name), dtype=np.float64) for name in ("delta", "stretches", "moves_s")}
    widths = np.array(rules.widths, dtype=np.int64)
    return rules._replace(widths=widths, **vectors)  # type: ignore[attr-defined,no-any-return]


FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


class Learned(NamedTuple):
    """What decisions go by in the place of the request, which is asked for all the same.

    `planned`: how long each job is planned to run (seconds). A job that outlives it is planned with its request from
    then on; one that is planned with the truth does not. `points`: a row for each job, run times that grow and are all
    as probable, and `share` of the runs that a decision is weighed by
    (:func:`ejbd.core.bundling.weighing.weighed_left`).
    """

    planned: FloatArray
    points: FloatArray
    share: float


class Jobs(NamedTuple):
    """A workload as the engine takes it: arrays in the order of submission. Times in seconds; `run` is the truth.

    `most_ranks`: how many ranks of each may share a processor, by their memory (None: memory bounds no job). `learned`
    None: decisions know the request alone.
    """

    submit: FloatArray
    run: FloatArray
    walltime: FloatArray
    processors: IntArray
    id: IntArray
    most_ranks: IntArray | None = None
    learned: Learned | None = None


def new_world(
    jobs: Jobs,
    total: int,
    candidates: Any,
    *,
    elastic_rows: int,
    width: int = 64,
    plain: bool = False,
    costs: Costs = FREE_OF_COSTS,
    unit: int = 1,
    folds: bool = False,
    likes: Any = None,
    short_s: float = 0.0,
    plain_j0s: bool = False,
    stops: bool = False,
    turns: bool = False,
) -> World:
    """An empty cluster of `total` processors before the first submission; `plain`: of lists, for interpreted kernels.

    `unit`: processors of a node, whole ones of which are reserved for the head of the queue (EASY and EJB). `folds`:
    jobs are folded in place before one is checkpointed for a waiting job. `likes`: two rows, with a number for each
    job of those that are like it, and one of those at any width, from 0 (-1: it is like none). Runs below `short_s` are
    short ones. `plain_j0s`: such jobs pay the plain costs on a J0 that begins them. `stops`: no job becomes elastic for
    a while where they have been late (:mod:`ejbd.core.lateness`). `turns`: J0s may have to stay in the queue
    (:mod:`ejbd.core.bundling.turns`).
    """
    n = jobs.submit.shape[0]
    active = total + 2

    def floats(size: int, value: float = 0.0) -> Any:
        return [value] * size if plain else np.full(size, value, dtype=np.float64)

    def ints(size: int, value: int = 0) -> Any:
        return [value] * size if plain else np.full(size, value, dtype=np.int64)

    def given(array: Any) -> Any:
        return array.tolist() if plain else np.array(array)

    rows = max(1, elastic_rows)
    wide = width + 4
    room = 2 * wide * (wide + 1) if elastic_rows else 8
    options = Options(
        ints(room), ints(room), ints(room), ints(room), floats(room), ints(room), ints(room), floats(room),
        ints(room), ints(room), floats(room), floats(room),
    )  # fmt: skip
    if plain:
        held = Rows(*([make(wide) for _ in range(rows)] for make in (floats, floats, ints, ints)))
    else:
        shape = (rows, wide)
        held = Rows(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))
    counts = ints(COUNTS)
    counts[TOTAL] = counts[FREE] = total
    counts[SPARE] = rows
    counts[HEAD] = -1
    counts[UNIT] = unit
    counts[FOLDS] = int(folds)
    counts[WATCHES] = int(stops)
    counts[TURNS] = int(turns)
    clock = floats(CLOCKS)
    clock[LAUNCH_S], clock[RELEASE_S], clock[SLACK_S], clock[KEEP_S] = costs[:4]
    clock[POLL_S], clock[START_UP_S], clock[TAIL_S] = costs.margins
    clock[PLAIN_LAUNCH_S], clock[PLAIN_RELEASE_S] = costs.plain_launch_s, costs.plain_release_s
    known = jobs.learned
    clock[WEIGHED] = 0.0 if known is None else known.share
    clock[SHORT_S] = 0.0 if likes is None else short_s
    counts[PLAIN_J0S] = int(plain_j0s)
    alike, kin = (ints(n, -1), ints(n, -1)) if likes is None else (given(likes[0]), given(likes[1]))
    kinds = 1 + max(0, max(alike, default=0), max(kin, default=0))
    spare = ints(rows)
    for index in range(rows):
        spare[index] = rows - 1 - index
    return World(
        given(jobs.submit), given(jobs.run), given(jobs.walltime), given(jobs.processors),
        ints(n, UNBOUNDED) if jobs.most_ranks is None else given(jobs.most_ranks), given(candidates),
        given(jobs.walltime if known is None else known.planned),
        given(np.zeros((n, 0)) if known is None else known.points),
        alike, kin, ints(n), ints(kinds), ints(kinds), ints(kinds), floats(n, np.inf),
        new_shadows(n + 1 if turns else 1, total, unit, ints, floats),
        floats(n, -1.0), floats(n, -1.0), floats(n), floats(n), ints(n), ints(n),
        counts, clock, ints(n + 1), ints(n + 1), floats(n + 1), floats(n + 1),
        floats(active), ints(active), floats(active + 2 * n + 4), ints(active + 2 * n + 4),
        floats(n + 1), ints(n + 1), ints(n + 1), ints(n, -1),
        ints(n), floats(n), floats(n), ints(n), floats(n),
        floats(n), floats(n), floats(n), floats(n), ints(n), ints(n, -1), ints(n), held, spare,
        ints(n + 1), ints(n + 1), ints(2), floats(2), floats(2), ints(wide),
        Scratch(ints(wide), floats(wide), ints(wide), ints(wide), floats(0)), options,
        Giving(ints(rows), ints(rows), floats(rows), floats(rows), ints(rows), ints(LOOKED_AT)),
    )  # fmt: skip
