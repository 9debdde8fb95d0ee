"""Runs of the past: kept of every job that ends, taken in from accounting, and the law that they show."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import case, delete, func, select
from sqlalchemy.orm import Session

from ejbd.manager.effects.ends import Again, End, Final, Outcome, PassedThroughEnded
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.history import program_of
from ejbd.manager.facts.times import work_now
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import PastRun
from ejbd.wire.states import JobState
from ejbd.wire.toldruns import ToldRun

if TYPE_CHECKING:
    from ejbd.core.speculation.empirical import Run
    from ejbd.core.speculation.fitting import Fitted

NEWEST = 200  # runs that a law is made of
CURVE = 120  # points of a law that is drawn
HALF = 100  # so many runs later one counts half
_OUTCOMES = {
    JobState.COMPLETED: "completed",
    JobState.TIMEOUT: "timeout",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}


class Application(NamedTuple):
    """Whose run times are one law."""

    user: str
    name: str
    processors: int
    input_class: str = ""


def application_of_job(user: str, spec: JobSpec) -> Application:
    """The application of a job, as its user says, or by its name or program."""
    from ejbd.wire.naming import application_name

    if spec.app is not None:
        name, _, kind = spec.app.partition(":")
        return Application(user, name, spec.processes, kind)
    word = spec.name if spec.kind is JobKind.SCRIPT else program_of(spec)
    return Application(user, application_name(word), spec.processes)


def note_end(world: JobWorld, end: End, outcome: Outcome) -> None:
    """Keep the run of a job that is over: how long it ran in its own shape. A subscriber to ends.

    One that was cut short, and is done again with another walltime, counts as it is until more is known of it.
    """
    job, ctx = world.job, world.ctx
    again = isinstance(outcome, Again) and outcome.whole and outcome.walltime_s is not None
    if not isinstance(outcome, Final) and not again:
        return
    if isinstance(end, PassedThroughEnded):
        if end.start_s is None or end.end_s is None or (world.spec.asked is not None and world.spec.asked.array):
            return
        run_s, end_s = end.end_s - end.start_s, end.end_s
    else:
        run_s, end_s = work_now(job, ctx.now), ctx.now
    if run_s <= 0.0:
        return
    of = application_of_job(job.user, world.spec)
    told = ToldRun(
        key_of("ejb", job.id, job.submit_s), *of[:2], of.input_class, of.processors, run_s, job.walltime_s or None,
        _OUTCOMES[outcome.state] if isinstance(outcome, Final) else "timeout", end_s,
    )  # fmt: skip
    if (job.walltimes or {}).get("at") or (job.walltimes or {}).get("gaps"):
        _forget_cut_short(ctx.session, told)
    take_in(ctx.session, [told])


def _forget_cut_short(session: Session, told: ToldRun) -> None:
    """What an earlier attempt told of the same run, where this one tells more: it would count twice."""
    session.execute(delete(PastRun).where(PastRun.key == told.key, PastRun.outcome == "timeout"))


def key_of(*what: Any) -> int:
    """A number for what tells a run from all others."""
    digest = hashlib.blake2b("\0".join(map(str, what)).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def take_in(session: Session, runs: Sequence[ToldRun]) -> int:
    """Keep those that are new; how many there were."""
    if not runs:
        return 0
    before = session.scalar(select(func.coalesce(func.max(PastRun.id), 0))) or 0
    connection = session.connection()
    # The driver's own words: a million rows are taken in at a time, and SQLAlchemy's would cost three times as much.
    sign = "?" if connection.dialect.name == "sqlite" else "%s"
    columns = ", ".join('"user"' if name == "user" else name for name in ToldRun._fields)
    values = ", ".join([sign] * len(ToldRun._fields))
    statement = f"INSERT INTO past_runs ({columns}) VALUES ({values}) ON CONFLICT (key) DO NOTHING"
    connection.exec_driver_sql(statement, list(runs))
    return session.scalar(select(func.count()).select_from(PastRun).where(PastRun.id > before)) or 0


def groups(session: Session, user: str | None, application: str | None, limit: int) -> list[dict[str, Any]]:
    """What is known of, the most often run first. `user` None: everybody's."""
    of = (PastRun.user, PastRun.application, PastRun.processors, PastRun.input_class)
    ended = func.sum(case((PastRun.outcome == "completed", 1), else_=0))
    query = select(*of, func.count(), ended, func.max(PastRun.end_s)).group_by(*of)
    if user is not None:
        query = query.where(PastRun.user == user)
    if application is not None:
        query = query.where(PastRun.application == application)
    names = ("user", "application", "processors", "input_class", "runs", "completed", "newest_s")
    rows = session.execute(query.order_by(func.count().desc(), *of).limit(limit))
    return [dict(zip(names, row, strict=True)) for row in rows]


@dataclass(frozen=True, slots=True)
class Learned:
    """What the runs of an application show. `fitted` None: too little, and `why`."""

    application: Application
    runs: tuple[PastRun, ...]
    samples: tuple[Run, ...]
    fitted: Fitted | None
    why: str


def learned(application: Application, rows: Sequence[PastRun]) -> Learned:
    """The law of these runs, the newest first. It takes some milliseconds, and longer the first time."""
    from ejbd.core.speculation.empirical import Run
    from ejbd.core.speculation.fitting import FEWEST_RUNS, fit

    samples = tuple(Run(row.run_s, row.outcome != "completed", 0.5 ** (at / HALF)) for at, row in enumerate(rows))
    ended = sum(not sample.censored for sample in samples)
    if ended < FEWEST_RUNS:
        of = f"{ended} of its {len(rows)} runs" if rows else "none"
        why = f"{of} came to an end by itself; a law needs {FEWEST_RUNS}, so the user's request stands"
        return Learned(application, tuple(rows), samples, None, why)
    found = fit(samples)
    cut = f" and {found.censored} that were cut short" if found.censored else ""
    return Learned(application, tuple(rows), samples, found, f"by {found.runs} runs{cut}")


def newest(session: Session, of: Application) -> list[PastRun]:
    """The newest runs of an application."""
    query = select(PastRun).where(
        PastRun.user == of.user, PastRun.application == of.name, PastRun.processors == of.processors,
        PastRun.input_class == of.input_class,
    )  # fmt: skip
    return list(session.scalars(query.order_by(PastRun.end_s.desc(), PastRun.id.desc()).limit(NEWEST)))


def told_of(found: Learned, limit_s: float | None) -> dict[str, Any]:
    """A law and the walltimes that follow, none longer than `limit_s`, for people and programs to read."""
    from ejbd.core.speculation.sequence import finishing, plan_of

    of, fitted = found.application, found.fitted
    seen = [{"run_s": r.run_s, "censored": r.outcome != "completed", "requested_s": r.requested_s} for r in found.runs]
    told: dict[str, Any] = {
        "user": of.user, "application": of.name, "processors": of.processors, "input_class": of.input_class,
        "why": found.why, "seen": seen, "law": None, "form": None, "mean_s": None, "distance": None, "criterion": {},
        "curve": [], "sequence_s": [], "expected_cost_s": None, "finishes": [],
    }  # fmt: skip
    if fitted is None:
        return told
    plan = plan_of(fitted.law, limit_s=limit_s or inf)
    end = plan.sequence_s[-1]
    curve = [(end * at / CURVE, fitted.law.survival(end * at / CURVE)) for at in range(CURVE + 1)]
    return told | {
        "law": fitted.law.words(),
        "form": fitted.form,
        "mean_s": fitted.law.mean,
        "distance": fitted.distance if fitted.distance < inf else None,
        "criterion": dict(fitted.criterion),
        "curve": curve,
        "sequence_s": list(plan.sequence_s),
        "expected_cost_s": plan.expected_cost_s,
        "finishes": list(finishing(fitted.law, plan.sequence_s)),
    }
