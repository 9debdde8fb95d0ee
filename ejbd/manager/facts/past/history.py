"""What is remembered of an application beyond one job.

- What its moves cost: :class:`ejbd.store.models.Move`.
- How fast it got on: :class:`ejbd.store.models.Speed`.
- How long its runs took: :class:`ejbd.store.models.Run`.
- What its starts and ends took beside: :class:`ejbd.store.models.Overhead`, and these of its queue, too.

An *application* is what its next job is expected to behave like. It has the same user, as many processes, the same
checkpoint engine, and the same program. The program of a command is its file's name (behind wrappers such as `env`,
and behind an interpreter that of the script that it runs). That of a batch script is the job's name, since the script
itself changes with every parameter.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from ejbd._workers.ejb_worker.profiles.wrapping import NotSeen, without_container
from ejbd._workers.ejb_worker.programs import program_name
from ejbd.core import penalty
from ejbd.core.cost import RECENT, Measurement, spool_speed
from ejbd.core.lasting import lasting_s
from ejbd.core.overhead import Hop, Took, WholeRun
from ejbd.manager.facts.past.told import ToldMove, ToldSpeed, ToldWholeRun
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import Move, Obstacle, Overhead, PastRun, Run, Speed
from ejbd.store.transitions import wake

KEPT = 32  # moves and runs of one application; speeds of it at one degree
HOPS_OF_A_SIZE = 2 * RECENT  # by powers of two; the rule rounds by the job's own size
HOPS_LOOKED_AT = 256
MOST_SPEEDS = 256  # that are looked at
NARROWED = 0  # the degree of a speed on fewer ranks than the job asked for, or on more
MOST_RUNS = 128  # the same of runs
MOST_APPLICATIONS = 4096  # that are remembered at a time
SPOOL_MOVES = 50  # the newest moves of a user that tell how fast the spool is
LASTING_RUNS = 500  # of the latest that were told, of all users: the hundredth counts a third of the first
LASTING_S = 300.0  # after which they are looked at again
LONGEST_NAME = 400
LEARNT_TOPIC = "learnt"  # of commits that change what is known

HELD_S = 86400.0  # after which it is forgotten that an application could not be moved: it may have been mended

_Row = TypeVar("_Row", Move, Speed)
_One = TypeVar("_One")


@dataclass
class Remembered:
    """What was read of the history. After a change a new one takes its place, and the old one is never changed.

    A transaction that began before fills the one that it was given, and that one is not read any more. Several threads
    do so at once: single keys are set and got. What was got is kept, since another may clear all of it meanwhile.
    """

    moves: dict[str, list[Measurement]] = field(default_factory=dict)
    ratios: dict[str, list[penalty.Ratio]] = field(default_factory=dict)
    widths: dict[str, list[tuple[str, int, float]]] = field(default_factory=dict)
    calibrations: dict[str, list[penalty.Calibration]] = field(default_factory=dict)
    obstacles: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    whole_runs: dict[str, list[WholeRun]] = field(default_factory=dict)
    deltas: dict[str, tuple[penalty.AtDegree, ...]] = field(default_factory=dict)
    hops: dict[tuple[Hop, str, bool], list[Took]] = field(default_factory=dict)
    speeds: dict[str, float | None] = field(default_factory=dict)  # of the spool, by user
    lasting: tuple[float, float] | None = None  # when it was read, and how long runs last


class History:
    """What the history says of applications, read where no transaction before this one (at time `now`) has read it.

    `spool_speed`: bytes a second that the daemon itself wrote, for as long as no checkpoint has told better.
    """

    def __init__(self, session: Session, now: float, remembered: Remembered, spool_speed: float | None) -> None:
        self._session = session
        self._now = now
        self._remembered = remembered
        self._spool_speed = spool_speed

    def moves(self, application: str) -> list[Measurement]:
        """What the moves of an application cost, newest first."""
        return self._read(self._remembered.moves, measurements, application)

    def ratios(self, application: str) -> list[penalty.Ratio]:
        """What over-subscription made of an application's speed, newest first."""
        return self._read(self._remembered.ratios, ratios, application)

    def widths(self, application: str, work: str) -> dict[int, float]:
        """Speed by width, in the application's own units, of runs of that work: of each width the newest."""
        found = self._read(self._remembered.widths, widths, application)
        return {width: per_s for of, width, per_s in reversed(found) if of == work}

    def calibrations(self, application: str) -> list[penalty.Calibration]:
        """What over-subscription made of an application's whole runs, newest first."""
        return self._read(self._remembered.calibrations, calibrations, application)

    def deltas(self, application: str) -> tuple[penalty.AtDegree, ...]:
        """Delta of an application at each degree that was measured, the lowest first."""
        found = self._remembered.deltas.get(application)
        if found is None:
            found = penalty.by_degree(self.ratios(application), self.calibrations(application))
            if len(self._remembered.deltas) >= MOST_APPLICATIONS:
                self._remembered.deltas.clear()
            self._remembered.deltas[application] = found
        return found

    def obstacle(self, application: str) -> str:
        """What keeps an application from being moved, by its earlier jobs, or ""."""
        found = self._read(self._remembered.obstacles, obstacles, application)
        return next((why for why, until_s in found if self._now < until_s), "")

    def whole_runs(self, application: str) -> list[WholeRun]:
        """Runs at full width throughout of an application and of its commands without EJB, newest first."""
        return self._read(self._remembered.whole_runs, whole_runs, application)

    def hops(self, hop: Hop, queue: str, application: str = "") -> list[Took]:
        """What starts or ends took, newest first: an application's where it has any, else those of its queue."""
        own = self._hops(hop, application, True) if application else []
        return own or self._hops(hop, queue, False)

    def _hops(self, hop: Hop, of: str, by_application: bool) -> list[Took]:
        remembered, key = self._remembered.hops, (hop, of, by_application)
        found = remembered.get(key)
        if found is None:
            if len(remembered) >= MOST_APPLICATIONS:
                remembered.clear()
            found = remembered[key] = hops(self._session, hop, of, by_application=by_application)
        return found

    def _read(
        self, remembered: dict[str, list[_One]], read: Callable[[Session, str], list[_One]], application: str
    ) -> list[_One]:
        found = remembered.get(application)
        if found is None:
            if len(remembered) >= MOST_APPLICATIONS:
                remembered.clear()
            found = remembered[application] = read(self._session, application) if application else []
        return found

    def forget(self) -> None:
        """There is a new measurement: this transaction reads again what it needs, and so do others after its commit."""
        self._remembered = Remembered()
        wake(self._session, LEARNT_TOPIC)

    def bytes_per_s(self, user: str) -> float | None:
        """How fast the spool is written by the user's own checkpoints; None where it was not tried."""
        if user not in self._remembered.speeds:
            self._remembered.speeds[user] = measured_speed(self._session, user)
        return self._remembered.speeds[user] or self._spool_speed

    def lasting_s(self) -> float:
        """How long the work of this cluster lasts (:mod:`ejbd.core.lasting`); 0: too few runs are known."""
        known = self._remembered.lasting
        if known is None or not 0.0 <= self._now - known[0] < LASTING_S:
            known = self._remembered.lasting = self._now, lasting(self._session)
        return known[1]


def application_of(user: str, spec: JobSpec, engine: str) -> str:
    """The name under which measurements are kept: `user:processes:engine:program`."""
    return measured_as(user, spec.processes, engine, program_of(spec))


def measured_as(user: str, processes: int, engine: str, program: str) -> str:
    """The same of a program at any width."""
    return f"{user}:{processes}:{engine}:{program[:LONGEST_NAME]}"[:512]


def program_of(spec: JobSpec) -> str:
    """What a job runs, in a word or two."""
    if spec.kind is JobKind.SCRIPT or not spec.argv:
        return spec.name
    try:
        words: Sequence[str] = without_container(spec.argv, spec.cwd).program
    except NotSeen:
        words = spec.argv
    return program_name(words) or spec.name


def work_of(user: str, spec: JobSpec) -> str:
    """The same for jobs that do the same work: a user's very same command, in the same folder, as wide.

    The engine is left out, and so is whether the job is elastic: neither changes what there is to do.
    """
    wide = (spec.threads,) if spec.threads > 1 else ()
    what = [user, spec.kind.value, spec.processes, *wide, spec.cwd, *spec.argv, spec.script or ""]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def measurements(session: Session, application: str) -> list[Measurement]:
    """The application's moves, newest first."""
    columns = (Move.processors, Move.bytes, Move.checkpoint_s, Move.write_s, Move.wait_s, Move.restart_s)
    query = (
        select(*columns, Move.to_processors).where(Move.application == application).order_by(Move.id.desc()).limit(KEPT)
    )
    return [Measurement(*row) for row in session.execute(query)]


def latest(session: Session, table: type[_Row], application: str, limit: int = 10) -> list[_Row]:
    """The application's latest moves or speeds, newest first."""
    query = select(table).where(table.application == application).order_by(table.id.desc()).limit(limit)
    return list(session.scalars(query))


def obstacles(session: Session, application: str) -> list[tuple[str, float]]:
    """What keeps the application from being moved, and until when that holds; empty where nothing is known.

    A move since then that was brought to its end is stronger.
    """
    # An earlier EJB also kept what was only seen, and may have passed since.
    query = select(Obstacle).where(Obstacle.application == application, Obstacle.how == "failed")
    last = session.scalars(query.order_by(Obstacle.id.desc()).limit(1)).first()
    if last is None:
        return []
    since = select(Move.id).where(Move.application == application, Move.restart_s.is_not(None), Move.at_s >= last.at_s)
    if session.scalars(since.limit(1)).first() is not None:
        return []
    return [(f"{last.why} (job {last.job_id})", last.at_s + HELD_S)]


def move_json(move: Move) -> ToldMove:
    """A move for people and programs to read."""
    return {
        "job_id": move.job_id,
        "epoch": move.epoch,
        "at_s": move.at_s,
        "processors": move.processors,
        "nodes": move.nodes,
        "to_processors": move.to_processors,
        "to_nodes": move.to_nodes,
        "bytes": move.bytes,
        "checkpoint_s": move.checkpoint_s,
        "write_s": move.write_s,
        "wait_s": move.wait_s,
        "restart_s": move.restart_s,
        "by_node": move.by_node,
    }


def ratios(session: Session, application: str) -> list[penalty.Ratio]:
    """What over-subscription made of the application's speed, newest first."""
    found = [
        penalty.Speed(row.job_id, row.launch, row.work, row.total, row.degree, row.units, row.seconds)
        for row in latest(session, Speed, application, MOST_SPEEDS)
    ]
    return penalty.ratios(found)


def widths(session: Session, application: str) -> list[tuple[str, int, float]]:
    """(work, processors, units a second) of what was not over-subscribed, newest first."""
    return [
        (row.work, row.processors, row.units / row.seconds)
        for row in latest(session, Speed, application, MOST_SPEEDS)
        if row.degree in (NARROWED, 1) and row.seconds > 0 and row.units > 0
    ]


def speed_json(speed: Speed) -> ToldSpeed:
    """A speed for people and programs to read."""
    return {
        "job_id": speed.job_id,
        "launch": speed.launch,
        "epoch": speed.epoch,
        "at_s": speed.at_s,
        "processors": speed.processors,
        "degree": speed.degree,
        "units": speed.units,
        "seconds": speed.seconds,
        "total": speed.total,
    }


def calibrations(session: Session, application: str) -> list[penalty.Calibration]:
    """What over-subscription made of the application's runs, newest first."""
    return penalty.calibrations(
        [
            penalty.Run(row.work, row.full_s, {int(degree): seconds for degree, seconds in row.over.items()})
            for row in runs_of(session, application, MOST_RUNS)
            if not row.over or row.application == application
        ]
    )


def runs_of(session: Session, application: str, limit: int = 10) -> list[Run]:
    """The application's latest runs, and those of others with the same commands, newest first.

    The others are those of another engine, or that were passed through.
    """
    same = select(Run.work).where(Run.application == application)
    query = select(Run).where(or_(Run.application == application, Run.work.in_(same)))
    return list(session.scalars(query.order_by(Run.id.desc()).limit(limit)))


def whole_runs(session: Session, application: str) -> list[WholeRun]:
    """Runs at full width throughout, newest first, where it is known whether EJB ran them.

    They are the application's own, and those of its commands that were passed through.
    """
    return [
        WholeRun(row.work, row.full_s, row.elastic)
        for row in runs_of(session, application, MOST_RUNS)
        if row.elastic is not None and not row.over and (row.application == application or not row.elastic)
    ]


def hops(session: Session, hop: Hop, of: str, *, by_application: bool) -> list[Took]:
    """What starts or ends took of late, of an application or in a queue, newest first: some of each size.

    Else many narrow starts would stand for what a wide one takes.
    """
    column = Overhead.application if by_application else Overhead.queue
    query = select(Overhead.processors, Overhead.seconds).where(column == of, Overhead.hop == hop.value)
    found, of_size = [], Counter[int]()
    for row in session.execute(query.order_by(Overhead.id.desc()).limit(HOPS_LOOKED_AT)):
        size = max(1, row.processors).bit_length()
        of_size[size] += 1
        if of_size[size] <= HOPS_OF_A_SIZE:
            found.append(Took(*row))
    return found


def run_json(run: Run) -> ToldWholeRun:
    """A run for people and programs to read."""
    return {
        "job_id": run.job_id,
        "at_s": run.at_s,
        "full_s": run.full_s,
        "over": run.over,
        "elastic": run.elastic,
    }


def lasting(session: Session) -> float:
    """How long the work of the cluster lasts, by the latest runs of all users, in the order of their ends."""
    query = select(PastRun.end_s, PastRun.processors, PastRun.run_s).order_by(PastRun.id.desc()).limit(LASTING_RUNS)
    rows = sorted((end_s, processors, run_s) for end_s, processors, run_s in session.execute(query))
    return lasting_s((processors, run_s) for _, processors, run_s in rows)


def measured_speed(session: Session, user: str) -> float | None:
    """Bytes a second that the spool took from a user's checkpoints of late; None where none tells."""
    query = select(Move.bytes, Move.write_s).where(Move.application.startswith(f"{user}:", autoescape=True))
    query = query.order_by(Move.id.desc()).limit(SPOOL_MOVES)
    return spool_speed([(row.bytes, row.write_s) for row in session.execute(query)])
