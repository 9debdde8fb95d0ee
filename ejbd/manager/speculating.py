"""Walltimes that are learned: the first is asked for at submission, the next after a time-out.

What was worked out is kept with the job, as plain values (`Job.walltimes`): the law, the sequence, which of it is asked
for now, or why the user's own request stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Any

from ejbd.core.progress import round_up
from ejbd.core.view import BatchState
from ejbd.manager.admission import Admission
from ejbd.manager.context import Context
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobworld import JobWorld
from ejbd.manager.outcomes import Again, End, Final, Outcome, PassedThroughEnded
from ejbd.manager.pastruns import Application, application_of_job, learned, newest
from ejbd.store.models import PastRun
from ejbd.wire.states import JobState

STANDS = "so the user's request stands"
_OWN_ENDS = {  # options that leave the walltime, or the end, to the batch system
    "--array": "an array's tasks time out one by one",
    "--time-min": "--time-min lets the batch system choose the walltime",
    "--deadline": "a time-out may be that of its --deadline",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that is to have a learned walltime, with what is known of its application. `by`: `job` or `queue`.

    `own_s`: what its user asked for (infinite: nothing); `limit_s`: never more than this; `why_not`: what keeps it from
    having one.
    """

    application: Application
    runs: tuple[PastRun, ...]
    by: str
    own_s: float
    limit_s: float
    quantum_s: float
    why_not: str = ""


def wanted(ctx: Context, taken: Admission, user: str) -> Wanted | None:
    """What a learned walltime of this job would be made of; None where its own is asked for."""
    spec = taken.spec
    first = taken.queue.partition(",")[0]
    if spec.learned is False or (spec.learned is None and ctx.queue_settings(first).walltime != "auto"):
        return None
    by = "queue" if spec.learned is None else "job"
    own_s = spec.walltime_s or inf
    application = application_of_job(user, spec)
    if why_not := _why_not(taken):
        return Wanted(application, (), by, own_s, own_s, 1.0, why_not)
    return Wanted(
        application,
        tuple(newest(ctx.session, application)),
        by,
        own_s,
        min(own_s, _longest(ctx, taken.queue)),
        ctx.view.walltime_quantum_s if ctx.view is not None else 60.0,
    )


def _why_not(taken: Admission) -> str:
    spec = taken.spec
    if taken.elastic:
        return "it is elastic, and plans by its own walltime"
    words = (*spec.rigid_options, *spec.options)
    for option, why in _OWN_ENDS.items():
        if any(word.partition("=")[0] == option for word in words):
            return why
    if not spec.rerunnable:
        return "after a time-out it may not be run again (`#EJB rerunnable` or --rerunnable says that it may)"
    return ""


def _longest(ctx: Context, queue: str) -> float:
    """The longest walltime that the queue allows, or one of several (seconds)."""
    if ctx.view is None:
        return inf
    found = [ctx.view.queue(name) for name in queue.split(",")]
    return max((one.max_walltime_s or inf for one in found if one is not None), default=inf)


def walltimes_of(question: Wanted) -> dict[str, Any]:
    """What is kept of it with the job. It takes some milliseconds, and longer the first time: not on the writer."""
    of = question.application
    kept: dict[str, Any] = {
        "why": f"{question.why_not}, {STANDS}" if question.why_not else "",
        "by": question.by,
        "application": of.name,
        "input_class": of.input_class,
        "processors": of.processors,
        "own_s": _finite(question.own_s),
        "limit_s": _finite(question.limit_s),
    }
    if question.why_not:
        return kept
    found = learned(of, question.runs)
    if found.fitted is None:
        return kept | {"why": found.why}
    from ejbd.core.speculation.sequence import expected_request, finishing, plan_of

    law = found.fitted.law
    sequence = _allowed(plan_of(law, limit_s=question.limit_s).sequence_s, question)
    costs = [expected_request(law, sequence[at:]) for at in range(len(sequence))]
    return kept | {
        "why": found.why,
        "law": law.words(),
        "form": found.fitted.form,
        "mean_s": law.mean,
        "sequence_s": list(sequence),
        "at": 0,
        "finishes": list(finishing(law, sequence)),
        "costs_s": costs,
        "expected_cost_s": costs[0],
        "own_cost_s": _finite(question.own_s),
    }


def _allowed(sequence_s: Sequence[float], question: Wanted) -> tuple[float, ...]:
    """The sequence in whole quanta, none above the limit, which comes last: nobody has less time than he asked for."""
    limit_s = question.limit_s
    found: list[float] = []
    for walltime in sequence_s:
        rounded = min(round_up(walltime, question.quantum_s), limit_s)
        if not found or rounded > found[-1]:
            found.append(rounded)
    if isfinite(limit_s) and found[-1] < limit_s:
        found.append(limit_s)
    return tuple(found)


def _finite(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


def asked_first_s(walltimes: dict[str, Any] | None) -> float | None:
    """The walltime that a submission asks for; None: its user's own."""
    return walltimes["sequence_s"][0] if walltimes and walltimes.get("sequence_s") else None


def note_for(walltimes: dict[str, Any] | None) -> str:
    """The same for its user; "" where there is nothing to tell."""
    first_s = asked_first_s(walltimes)
    if walltimes is None:
        return ""
    if first_s is None:
        return f"its walltime is not a learned one: {walltimes['why']}"
    return f"it asks for {first_s:g} s, learned {walltimes['why']}; `ejb explain` shows the whole sequence"


def take_next(world: JobWorld, end: End, outcome: Outcome) -> Outcome | None:
    """A run that timed out is done again with the next walltime that was learned: asked about ends.

    A time-out and nothing else: what the batch system says of memory, nodes, preemption and cancellation is final.
    """
    if not isinstance(outcome, Final) or outcome.state is not JobState.TIMEOUT:
        return None
    if not isinstance(end, PassedThroughEnded) or end.state is not BatchState.TIMEOUT:
        return None
    following = next_of(world.job.walltimes)
    if following is None or not world.spec.rerunnable or world.subjobs[-1].releasing:  # somebody has cancelled it
        return None
    kept, before_s, next_s = following
    world.job.walltimes = kept
    why = f"{end.said}: {before_s:g} s were not enough, {next_s:g} s are asked for next"
    return Again(reason=why, whole=True, walltime_s=next_s)


def next_of(walltimes: dict[str, Any] | None) -> tuple[dict[str, Any], float, float] | None:
    """What is kept once the next walltime is asked for, the one before and that one; None where none is left."""
    sequence = (walltimes or {}).get("sequence_s") or []
    at = (walltimes or {}).get("at", 0)
    if walltimes is None or at + 1 >= len(sequence):
        return None
    return {**walltimes, "at": at + 1}, sequence[at], sequence[at + 1]


def for_another_attempt(spec: JobSpec) -> JobSpec:
    """The job as its later attempts are submitted: what earlier ones wrote stays, unless its user says otherwise."""
    asked = spec.asked
    if asked is None or "SLURM_OPEN_MODE" in asked.told:
        return spec
    return replace(spec, asked=replace(asked, options=(*asked.options, "--open-mode=append")))
