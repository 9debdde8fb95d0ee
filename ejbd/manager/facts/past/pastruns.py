"""Runs of the past: kept of every job that ends, taken in from accounting, and the law that they show."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from ejbd.manager.facts.past.history import program_of
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import PastRun

if TYPE_CHECKING:
    from ejbd.core.speculation.empirical import Run
    from ejbd.core.speculation.fitting import Fitted

NEWEST = 200  # runs that a law is made of
CURVE = 120  # points of a law that is drawn
HALF = 100  # so many runs later one counts half


class Application(NamedTuple):
    """Runs that have one law of run times."""

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


def key_of(*what: Any) -> int:
    """A number for what tells a run from all others."""
    digest = hashlib.blake2b("\0".join(map(str, what)).encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def groups(session: Session, user: str | None, application: str | None, limit: int) -> list[dict[str, Any]]:
    """Applications with runs, the most often run first. `user` None: of all users."""
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


UNFITTED = ", as they were seen: no law is fitted without scipy (pip install 'ejb[learned]')"


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
    from ejbd.core.speculation.laws import has_scipy

    samples = tuple(Run(row.run_s, row.outcome != "completed", 0.5 ** (at / HALF)) for at, row in enumerate(rows))
    ended = sum(not sample.censored for sample in samples)
    if ended < FEWEST_RUNS:
        of = f"{ended} of its {len(rows)} runs" if rows else "none"
        why = f"{of} came to an end by itself; a law needs {FEWEST_RUNS}, so the user's request stands"
        return Learned(application, tuple(rows), samples, None, why)
    found = fit(samples)
    cut = f" and {found.censored} that were cut short" if found.censored else ""
    return Learned(
        application, tuple(rows), samples, found, f"by {found.runs} runs{cut}{'' if has_scipy() else UNFITTED}"
    )


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
