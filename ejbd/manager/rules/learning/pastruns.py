"""A job that is over is a run of the past: a subscriber to ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ejbd.manager.effects import Effects, ForgetCutShort, KeepRun
from ejbd.manager.effects.ends import Again, End, Final, Outcome, PassedThroughEnded
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.pastruns import application_of_job, key_of
from ejbd.manager.facts.times import work_now
from ejbd.wire.states import JobState
from ejbd.wire.toldruns import ToldRun

if TYPE_CHECKING:
    pass


_OUTCOMES = {
    JobState.COMPLETED: "completed",
    JobState.TIMEOUT: "timeout",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
}


def note_end(world: JobWorld, end: End, outcome: Outcome) -> Effects[None]:
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
        yield ForgetCutShort(told)
    yield KeepRun(told)
