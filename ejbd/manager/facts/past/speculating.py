"""Walltimes that are learned: the first is asked for at submission, the next after a time-out.

What was worked out is kept with the job, as plain values (`Job.walltimes`). These are the law, the sequence, which of
it is asked for now, or why the user's own request stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import structlog

from ejbd.config import QueueSettings
from ejbd.core.bundling.weighing import points_of
from ejbd.core.progress import round_up
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.history import application_of
from ejbd.manager.facts.past.pastruns import Application, application_of_job, learned, newest
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.plugins.engines import moving_engines
from ejbd.store.models import Job, PastRun
from ejbd.wire.states import JobState

if TYPE_CHECKING:
    from ejbd.core.speculation.laws import Law
    from ejbd.manager.facts.admitted import Admission

log = structlog.get_logger(__name__)

AHEAD_POLLS = 2.0  # before the last checkpoint has to begin: the next look, and the way to the workers
ANOTHER_WAIT = 0.1  # of the mean run time: what each further wait in the queue counts, where runs are resumed
STANDS = "so the user's request stands"
PLANNED = 0.95  # of the runs are to be over by the run time that an elastic job is planned with
_OWN_ENDS = {  # options that leave the walltime, or the end, to the batch system
    "--array": "an array's tasks time out one by one",
    "--time-min": "--time-min lets the batch system choose the walltime",
    "--deadline": "a time-out may be that of its --deadline",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job that is to have a learned walltime, with what is known of its application. `by`: `job` or `queue`.

    `own_s`: what its user asked for (infinite: nothing). `limit_s`: never more than this. `resumed`: what a checkpoint
    and a restart take (seconds), where an engine resumes it. `why_not`: what keeps it from having one. `request`: its
    own stands in any case. `planned`: the run time is wanted to plan with. `weighed`: its law is, to weigh moves by.
    """

    application: Application
    runs: tuple[PastRun, ...]
    by: str
    own_s: float
    limit_s: float
    quantum_s: float
    resumed: tuple[float, float] | None = None
    why_not: str = ""
    request: bool = False
    planned: bool = False
    weighed: bool = False


def wanted(ctx: Context, taken: Admission, user: str) -> Wanted | None:
    """What a learned walltime of this job, or the run time that it is planned with, would be made of.

    None where its own counts for both.
    """
    spec = taken.spec
    settings = ctx.queue_settings(taken.queue.partition(",")[0])
    if spec.learned is False or spec.chain is not None:
        return None
    if spec.learned is None and settings.walltime != "auto":
        return _own(ctx, taken, user, settings)
    by = "queue" if spec.learned is None else "job"
    own_s = spec.walltime_s or inf
    application = application_of_job(user, spec)
    if why_not := _why_not(taken):
        return Wanted(application, (), by, own_s, own_s, 1.0, why_not=why_not)
    return Wanted(
        application,
        tuple(newest(ctx.session, application)),
        by,
        own_s,
        min(own_s, _longest(ctx, taken.queue)),
        ctx.view.walltime_quantum_s if ctx.view is not None else 60.0,
        _resumed(ctx, taken, user) if taken.elastic and taken.engine in moving_engines() else None,
        weighed=taken.elastic and settings.weigh_by == "learned",
    )


def _own(ctx: Context, taken: Admission, user: str, settings: QueueSettings) -> Wanted | None:
    """The same where its own walltime is asked for, of an elastic job.

    What was learned plans only a job that is saved where it outlives its plan. Moves may be weighed by it in any job.
    """
    spec, own_s = taken.spec, taken.spec.walltime_s or inf
    begun_again = taken.engine in moving_engines() and (spec.kind is not JobKind.SCRIPT or spec.restartable)
    planned = taken.elastic and settings.plan_by == "learned" and begun_again
    weighed = taken.elastic and settings.weigh_by == "learned"
    if not (planned or weighed):
        return None
    application = application_of_job(user, spec)
    runs = tuple(newest(ctx.session, application))
    return Wanted(application, runs, "queue", own_s, own_s, 1.0, request=True, planned=planned, weighed=weighed)


def _resumed(ctx: Context, taken: Admission, user: str) -> tuple[float, float]:
    """What is kept free for a checkpoint and the looks before it, and what a restart takes, as far as is known."""
    unstored = Job(
        state=JobState.WAITING, queue=taken.queue, processes=taken.spec.processes,
        application=application_of(user, taken.spec, taken.engine), spec={"lambda_s": taken.spec.lambda_s},
    )  # fmt: skip
    cost = JobWorld(ctx, unstored).cost
    return cost.reserve_s + AHEAD_POLLS * ctx.settings.poll_s, cost.restart_s or cost.lambda_s


def _why_not(taken: Admission) -> str:
    spec = taken.spec
    if taken.elastic:
        if spec.kind is JobKind.SCRIPT and not spec.restartable:
            return "its script cannot be started again (`#EJB restartable` says that it may)"
        if taken.engine in moving_engines():
            return ""
    return not_again(spec)


def not_again(spec: JobSpec) -> str:
    """Why a passed-through job is not run again after a time-out; "" where it is."""
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
    """What is kept of it with the job. It takes some milliseconds, and longer the first time: not on the writer.

    A law that nothing can be made of leaves the user's request as it is.
    """
    try:
        return _walltimes_of(question)
    except (ValueError, ArithmeticError) as error:
        log.error("walltimes-fault", application=question.application.name, error=repr(error), exc_info=error)
        return _walltimes_of(replace(question, why_not=f"nothing could be made of its history ({error})"))


def _walltimes_of(question: Wanted) -> dict[str, Any]:
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
    if question.request:
        kept["planned_s"] = []
    if question.why_not:
        return kept
    found = learned(of, question.runs)
    if found.fitted is None:
        return kept | {"why": found.why}
    from ejbd.core.speculation.sequence import expected_request, finishing, plan_of

    law = found.fitted.law
    if question.weighed:
        kept["points_s"] = [min(point, question.own_s) for point in points_of(law.quantile)]
    if question.request and not question.planned:
        told = {"law": law.words(), "form": found.fitted.form, "mean_s": law.mean}
        return kept | told | {"why": found.why}
    if question.planned:
        planned_s = round_up(law.quantile(PLANNED), question.quantum_s)
        if planned_s >= question.own_s or not isfinite(question.own_s):
            return kept | {"why": f"{PLANNED:.0%} of its runs are over by {planned_s:g} s, {STANDS}"}
        told = {"law": law.words(), "form": found.fitted.form, "mean_s": law.mean, "at": 0}
        return kept | told | {"why": found.why, "planned_s": [planned_s, question.own_s]}
    if question.resumed is not None:
        told = _resuming(law, question, question.resumed)
        return kept | {"why": found.why, "law": law.words(), "form": found.fitted.form, "mean_s": law.mean} | told
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


def _resuming(law: Law, question: Wanted, resumed: tuple[float, float]) -> dict[str, Any]:
    """The walltimes where each run but the last ends with a checkpoint, from which the next goes on."""
    from ejbd.core.speculation.checkpointed import POINTS, Prices, checkpointed
    from ejbd.core.speculation.discrete import discretise
    from ejbd.core.speculation.sequence import finishing

    (checkpoint_s, restart_s), limit_s = resumed, question.limit_s
    until = [limit_s]
    if law.low + checkpoint_s < limit_s:
        table = discretise(law, POINTS, law.upper(limit_s))
        prices = Prices(gamma=ANOTHER_WAIT * law.mean)
        plan = checkpointed(table, checkpoint_s, restart_s, prices, limit_s=limit_s * (1.0 + 1e-9))
        until = [one.until_s for one in plan.reservations if one.until_s + checkpoint_s <= limit_s]
        until += [limit_s] if isfinite(limit_s) else []
    starts = [0.0, *until[:-1]]
    ends = [checkpoint_s] * (len(until) - 1) + [0.0]
    asked = [
        min(round_up(to_s - from_s + (restart_s if from_s else 0.0) + end_s, question.quantum_s), limit_s)
        for from_s, to_s, end_s in zip(starts, until, ends, strict=True)
    ]
    left = [law.survival(from_s) for from_s in starts]
    costs = [
        min(round_up(until[at] + ends[at], question.quantum_s), limit_s)
        + sum(share * walltime for share, walltime in zip(left[at + 1 :], asked[at + 1 :], strict=True))
        for at in range(len(until))
    ]
    return {
        "sequence_s": asked,
        "progress_s": until,
        "at": 0,
        "finishes": list(finishing(law, until)),
        "costs_s": costs,
        "expected_cost_s": costs[0],
        "own_cost_s": _finite(question.own_s),
        "checkpoint_s": checkpoint_s,
        "restart_s": restart_s,
    }


def _allowed(sequence_s: Sequence[float], question: Wanted) -> tuple[float, ...]:
    """The sequence in whole quanta, up to the limit, which comes last: no job has less time than it asked for."""
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


def run_times(walltimes: dict[str, Any] | None) -> list[float]:
    """How long the job may run altogether, by the end of each of its walltimes (seconds at full width)."""
    return (walltimes or {}).get("progress_s") or (walltimes or {}).get("sequence_s") or []


def placeholder_s(job: Job, work_s: float) -> tuple[float, float]:
    """What J0 has to last for ranks, and what it is asked for beyond, of a job that has done `work_s` (seconds)."""
    walltimes = job.walltimes or {}
    if "progress_s" not in walltimes:
        return job.walltime_s, 0.0
    last = walltimes["at"] + 1 == len(walltimes["progress_s"])
    left_s = max(0.0, job.walltime_s - work_s) + (walltimes["restart_s"] if work_s > 0.0 else 0.0)
    return left_s, 0.0 if last else walltimes["checkpoint_s"]


def note_for(walltimes: dict[str, Any] | None) -> str:
    """The same for its user; "" where there is nothing to tell."""
    first_s = asked_first_s(walltimes)
    if walltimes is None:
        return ""
    if "planned_s" in walltimes:
        weighed = f"its moves are weighed by run times that were learned {walltimes['why']}"
        if not walltimes["planned_s"]:
            return weighed if walltimes.get("points_s") else ""
        first, own_s = walltimes["planned_s"]
        return f"it is planned with {first:g} s, learned {walltimes['why']}, and asks for {own_s:g} s"
    if first_s is None:
        return f"its walltime is not a learned one: {walltimes['why']}"
    return f"it asks for {first_s:g} s, learned {walltimes['why']}; `ejb explain` shows the whole sequence"


def next_of(walltimes: dict[str, Any] | None) -> tuple[dict[str, Any], float, float] | None:
    """What is kept once the next walltime is asked for; how long the job could run by the one before; and can by it.

    None where none is left.
    """
    sequence = (walltimes or {}).get("planned_s") or run_times(walltimes)
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
