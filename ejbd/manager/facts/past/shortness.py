"""Whether runs like a job's are short beside what an elastic job's start and end cost here; the rule is core's."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.cost import Source
from ejbd.core.overhead import Hop, expected
from ejbd.core.shortruns import FEWEST_RUNS, NEWEST_RUNS, is_short, runs_are_short
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.history import application_of
from ejbd.manager.facts.past.pastruns import application_of_job
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import PastRun


def measured_cost_s(ctx: Context, queue: str, application: str, processes: int) -> float:
    """What starts and ends on about so many processors took here; of these what was never measured counts nothing."""
    history = ctx.history
    hops = (history.hops(Hop.READY, queue), history.hops(Hop.LAUNCH, queue, application), history.hops(Hop.BACK, queue))
    found = (expected(hop, processes, 0.0, "") for hop in hops)
    return sum(one.value for one in found if one.source is Source.MEASURED)


def why_short(ctx: Context, user: str, spec: JobSpec, queue: str, engine: str) -> str:
    """In words, that a job is worth no worker while its processors are free; "" where it is, or too little is known.

    Of its application's runs those count that came to an end by themselves.
    """
    times = ctx.queue_settings(queue).short_runs
    if times <= 0.0:
        return ""
    cost_s = measured_cost_s(ctx, queue, application_of(user, spec, engine), spec.processes)
    if cost_s <= 0.0:
        return ""
    of = application_of_job(user, spec)
    query = select(PastRun.run_s).where(
        PastRun.user == of.user, PastRun.application == of.name, PastRun.processors == of.processors,
        PastRun.input_class == of.input_class, PastRun.outcome == "completed",
    )  # fmt: skip
    runs = list(ctx.session.scalars(query.order_by(PastRun.end_s.desc(), PastRun.id.desc()).limit(NEWEST_RUNS)))
    short = sum(is_short(run_s, cost_s, times) for run_s in runs)
    if len(runs) < FEWEST_RUNS or not runs_are_short(len(runs), short):
        return ""
    return (
        f"{short} of the last {len(runs)} runs of {of.name} took less than {times:g} times the {cost_s:.2g} s that an "
        "elastic start and end cost here, and it could start at once"
    )
