"""J0s that stay in the queue until their turn, and go (:mod:`ejbd.core.bundling.turns`)."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.bundling.parameters import keeps_turns
from ejbd.core.bundling.turns import TOLD
from ejbd.core.view import ClusterView
from ejbd.manager.effects import Act, Effects, note, tell
from ejbd.manager.facts.context import Context
from ejbd.store.models import Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import EventKind, IntentKind, JobKind, SubjobRole

CODE = "j0_waits_for_turn"
STAYS_S = 3600.0  # for so long the batch system keeps a J0 from beginning where no daemon says more
SAID_AGAIN_S = STAYS_S / 2  # it is told so again
_SEVERAL = ("chain", "evolving")  # jobs of several batch jobs, which have begins of their own


def queues(ctx: Context, view: ClusterView) -> list[str]:
    """Those in which the rule is on. Where the batch system keeps no job from beginning it is nowhere."""
    if not ctx.settings.traits.withholds:
        return []
    return [one.name for one in view.queues if one.up and keeps_turns(ctx.queue_settings(one.name).parameters)]


def stays(ctx: Context, subjob_id: str) -> Effects[None]:
    """A J0 is not to begin before its turn. Nothing where it cannot wait for that, or has gone on meanwhile."""
    subjob, job = _of(ctx, subjob_id)
    if subjob is None or job is None or subjob.stays:
        return
    if job.kind == JobKind.ARRAY or any(job.spec.get(one) for one in _SEVERAL):
        ctx.memory.turns.refused.add(subjob_id)
        return
    yield note(subjob, stays=True)
    yield tell(EventKind.SUBJOB_STAYS, job_id=job.id, subjob_id=subjob.id, code=CODE, reason=TOLD)
    yield Act(IntentKind.STAY, job.id, subjob=subjob)


def stays_on(ctx: Context, subjob_id: str) -> Effects[None]:
    """The batch system is told again that it is not to begin: by itself it would soon."""
    subjob, job = _of(ctx, subjob_id)
    if subjob is not None and job is not None and subjob.stays:
        yield Act(IntentKind.STAY, job.id, subjob=subjob)


def goes(ctx: Context, subjob_id: str) -> Effects[None]:
    """It may begin again: its turn has come, or no other job waits beyond its own."""
    subjob, job = _of(ctx, subjob_id)
    if subjob is None or job is None or not subjob.stays:
        return
    yield note(subjob, stays=False)
    yield tell(EventKind.SUBJOB_MAY_BEGIN, job_id=job.id, subjob_id=subjob.id)
    yield Act(IntentKind.BEGIN, job.id, subjob=subjob)


def cannot_stay(ctx: Context, subjob: Subjob) -> Effects[None]:
    """The batch system did not keep it from beginning, and is not asked again."""
    ctx.memory.turns.refused.add(subjob.id)
    yield note(subjob, stays=False)


def told(ctx: Context, job: Job) -> str:
    """In words that the job's J0 stays; "" where it does not."""
    query = select(Subjob.id).where(Subjob.job_id == job.id, Subjob.role == SubjobRole.PLACEHOLDER)
    query = query.where(Subjob.stays.is_(True), Subjob.state == SubjobState.PENDING)
    return f"{TOLD} ({CODE})" if ctx.session.scalars(query).first() is not None else ""


def _of(ctx: Context, subjob_id: str) -> tuple[Subjob | None, Job | None]:
    subjob = ctx.session.get(Subjob, subjob_id)
    if subjob is None or subjob.state != SubjobState.PENDING or subjob.releasing:
        return None, None
    return subjob, ctx.session.scalars(select(Job).where(Job.id == subjob.job_id)).first()
