"""Whether runs like a job's are short beside what an elastic job's start and end cost here; the rule is core's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.core.cost import Source
from ejbd.core.overhead import Hop, expected
from ejbd.core.shortruns import FEWEST_RUNS, NEWEST_RUNS, is_short, taken_for_short
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.history import measured_as, program_of
from ejbd.manager.facts.past.pastruns import application_of_job
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Job, PastRun, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole

MOST_RUNS = 1000  # that are looked at for those that completed


class Kind(NamedTuple):
    """Jobs that are judged by the same runs: of one application of a user, in one queue, at any width."""

    user: str
    application: str
    input_class: str
    queue: str
    engine: str
    program: str


def kind_of(user: str, spec: JobSpec, queue: str, engine: str) -> Kind:
    """The kind of a job; of several queues the first counts."""
    of = application_of_job(user, spec)
    return Kind(user, of.name, of.input_class, queue.partition(",")[0], engine, program_of(spec))


def measured_cost_s(ctx: Context, kind: Kind, processes: int) -> float:
    """What starts and ends on about so many processors took here; of these what was never measured counts nothing."""
    history, queue = ctx.history, kind.queue
    application = measured_as(kind.user, processes, kind.engine, kind.program)
    hops = (history.hops(Hop.READY, queue), history.hops(Hop.LAUNCH, queue, application), history.hops(Hop.BACK, queue))
    found = (expected(hop, processes, 0.0, "") for hop in hops)
    return sum(one.value for one in found if one.source is Source.MEASURED)


class _Judged(NamedTuple):
    """So many of these runs were short; `cost_s` is what a start and an end take at the job's width."""

    short: bool
    of: str
    cost_s: float


def _judged(ctx: Context, kind: Kind, processes: int, times: float) -> _Judged:
    """By the newest runs that came to an end by themselves: at this width, and where these are too few at any."""
    cost_s = measured_cost_s(ctx, kind, processes) if times > 0.0 else 0.0
    if cost_s <= 0.0:
        return _Judged(False, "", 0.0)
    own = [run_s for run_s, _ in _load_completed(ctx, kind, processes)]
    short = sum(is_short(run_s, cost_s, times) for run_s in own)
    if len(own) >= FEWEST_RUNS:
        return _Judged(taken_for_short(len(own), short, 0, 0), f"{short} of the last {len(own)} runs", cost_s)
    every = _load_completed(ctx, kind, None)
    cost_at = {width: measured_cost_s(ctx, kind, width) for _, width in every}
    all_short = sum(is_short(run_s, cost_at[width], times) for run_s, width in every)
    of = f"{all_short} of the last {len(every)} runs, at any width,"
    return _Judged(taken_for_short(len(own), short, len(every), all_short), of, cost_s)


def _load_completed(ctx: Context, kind: Kind, processes: int | None) -> list[tuple[float, int]]:
    """Run time and width of the newest NEWEST_RUNS that came to an end by themselves, among the newest MOST_RUNS."""
    of = (PastRun.user, PastRun.application, PastRun.input_class)
    newest = select(PastRun.run_s, PastRun.processors, PastRun.outcome)
    newest = newest.where(*(column == is_of for column, is_of in zip(of, kind[:3], strict=True)))
    if processes is not None:
        newest = newest.where(PastRun.processors == processes)
    runs = newest.order_by(PastRun.end_s.desc(), PastRun.id.desc()).limit(MOST_RUNS)
    found = [(run_s, width) for run_s, width, outcome in ctx.session.execute(runs) if outcome == "completed"]
    return found[:NEWEST_RUNS]


def why_short(ctx: Context, user: str, spec: JobSpec, queue: str, engine: str) -> str:
    """In words, that a job is worth no worker while its processors are free; "" where it is, or too little is known."""
    times, kind = ctx.queue_settings(queue).short_runs, kind_of(user, spec, queue, engine)
    judged = _judged(ctx, kind, spec.processes, times)
    if not judged.short:
        return ""
    return (
        f"{judged.of} of {kind.application} took less than {times:g} times the {judged.cost_s:.2g} s that an "
        "elastic start and end cost here, and it could start at once"
    )


def times_of(ctx: Context, queue: str) -> float:
    """Below so many times what starts and ends cost J0 runs a job without workers, as the queue is now; 0: never."""
    settings = ctx.queue_settings(queue)
    return settings.plain_below if settings.has_plain_j0s else 0.0


def needs_no_workers(ctx: Context, kind: Kind, processes: int) -> tuple[bool, float]:
    """Whether J0s of so many processes begin a job of this kind without workers, as far as its runs tell.

    And :func:`times_of` its queue, by which that was judged.
    """
    times = times_of(ctx, kind.queue)
    return _judged(ctx, kind, processes, times).short, times


def waiting_kinds(ctx: Context, most: int) -> list[tuple[Kind, int]]:
    """The kinds and widths of jobs that can be moved and wait for their J0; of at most so many jobs, the newest."""
    query = select(Job).join(Subjob, Subjob.job_id == Job.id).where(Job.elastic, Job.engine != "none")
    query = query.where(Subjob.role == SubjobRole.PLACEHOLDER, Subjob.state == SubjobState.PENDING)
    found: dict[tuple[Kind, int], None] = {}
    for job in ctx.session.scalars(query.order_by(Job.seq.desc()).limit(most)):
        spec = JobSpec.from_json(job.spec)
        found[kind_of(job.user, spec, job.queue, job.engine), spec.processes] = None
    return list(found)


def newest_run(session: Session) -> int:
    """The number of the run that was kept last; 0: none was."""
    return session.scalar(select(func.max(PastRun.id))) or 0


def with_news(
    ctx: Context, kinds: Sequence[Kind], after: int, times: Mapping[str, float]
) -> tuple[list[Kind], int, dict[str, float]]:
    """Those that have to be judged again, the number of the newest run, and :func:`times_of` each queue.

    There is a run after the one with the number `after`, or their queue had other `times` before.
    """
    now = {queue: times_of(ctx, queue) for queue in times}
    changed = {queue for queue, before in times.items() if now[queue] != before}
    ran, newest = _that_ran(ctx, after)
    if not (changed or ran):
        return [], newest, now
    return [kind for kind in kinds if kind.queue in changed or kind[:3] in ran], newest, now


def _that_ran(ctx: Context, after: int) -> tuple[set[tuple[str, ...]], int]:
    """Applications with runs after this one, and the newest run."""
    of = (PastRun.user, PastRun.application, PastRun.input_class)
    newest = newest_run(ctx.session)
    if newest <= after:
        return set(), after
    return {tuple(row) for row in ctx.session.execute(select(*of).where(PastRun.id > after))}, newest
