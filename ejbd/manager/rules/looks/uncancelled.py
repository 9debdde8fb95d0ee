"""Subjobs that were given back, and that the batch system shows as if they were not.

A controller that dies right after it has taken a cancellation may know nothing of it when it is up again. Then what
waited waits on, and takes processors when its turn comes. What ends (Slurm: COMPLETING) has been cancelled, however
long that takes.
"""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.manager.effects import Act, Effects, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.listing.roster import Roster
from ejbd.manager.facts.tags import is_ours
from ejbd.store.models import Event, Intent, Subjob
from ejbd.store.states import OPEN_SUBJOB, IntentState
from ejbd.wire.kinds import EventKind, IntentKind

AGAIN_S = 60.0  # after a cancellation that was carried out; twice as long after each further one,
MOST_S = 3600.0  # and no longer than that
_SHOWN = "the batch system shows it as before, though it has taken its cancellation"


def look(ctx: Context, view: ClusterView, roster: Roster) -> Effects[None]:
    """Ask again for what was asked for some time ago and has not begun to happen."""
    given_back = {row.batch_id: row for rows in roster.subjobs.values() for row in rows if row.releasing}
    given_back.pop(None, None)
    if not given_back:
        return
    shown = {
        given_back[job.base_id].id
        for job in view.jobs
        if job.base_id in given_back and _goes_on(job) and is_ours(job, given_back[job.base_id])
    }
    query = select(Subjob).where(Subjob.id.in_(shown), Subjob.state.in_(OPEN_SUBJOB), Subjob.releasing)
    for subjob in list(ctx.session.scalars(query)) if shown else ():
        kind = _to_repeat(ctx, subjob)
        if kind is not None:
            yield tell(EventKind.SUBJOB_RELEASED, job_id=subjob.job_id, subjob_id=subjob.id, reason=_SHOWN)
            yield Act(kind, subjob.job_id, subjob=subjob)


def _goes_on(job: BatchJobView) -> bool:
    return not (job.state.ended or job.state in (BatchState.ENDING, BatchState.UNKNOWN))


def _to_repeat(ctx: Context, subjob: Subjob) -> IntentKind | None:
    """What was done last to end it, where it is time to do that again. Not where J0 waits to end as its job did."""
    ends = (IntentKind.CANCEL, IntentKind.END)
    query = select(Intent).where(Intent.subjob_id == subjob.id, Intent.kind.in_(ends)).order_by(Intent.id.desc())
    asked = list(ctx.session.scalars(query))
    if not asked or asked[0].state != IntentState.DONE or asked[0].done_s is None:
        return None
    pause_s = min(MOST_S, AGAIN_S * 2.0 ** min(len(asked) - 1, 16))
    if 0 <= ctx.now - asked[0].done_s < pause_s:  # one done in a time to come is from before the clock was set
        return None
    kind = IntentKind(asked[0].kind)
    if kind is IntentKind.END:
        as_job = select(Event.id).where(Event.job_id == subjob.job_id, Event.kind == EventKind.SUBJOB_ENDS_AS_JOB)
        as_job = as_job.where(Event.subjob_id == subjob.id)
        if ctx.session.scalars(as_job.limit(1)).first() is not None:
            return None
    return kind
