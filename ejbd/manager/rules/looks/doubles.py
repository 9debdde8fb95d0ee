"""Live batch jobs under a tag of ours that are not the one we know.

A submission of unknown outcome may have been made twice: its double is cancelled. What a job of ours has started by
itself is its user's, whatever its name. A script that submits the next one may hand on its own name or comment.
The two are told apart by their times, since nothing is handed on before a job begins.

A controller that is killed right after a job's end may know nothing of it when it is up again. Then it runs the job
once more. Of a passed-through job that is left alone, as it would be under sbatch.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from ejbd.core.view import BatchJobView, ClusterView
from ejbd.manager.effects import Act, Effects, tell
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.store.models import Event, Intent, Subjob
from ejbd.store.states import IntentState
from ejbd.wire.kinds import EventKind, IntentKind, SubjobRole

ARRIVES_S = 600.0  # so long after it went without an answer a submission may still arrive


def look(ctx: Context, view: ClusterView, open_tags: Mapping[str, str | None]) -> Effects[None]:
    """Cancel doubled submissions, and those of subjobs that were given up; anything else is told once, and left alone.

    `open_tags`: of open subjobs, with their batch jobs (None: not known yet).
    """
    suspects = {}
    for job in view.jobs:
        mark = job.mark  # another user's job has none
        known_id = open_tags.get(mark, "")
        if known_id is None or known_id == job.id:
            continue  # as nearly all of ours are
        if mark.startswith(TAG_PREFIX) and not job.state.ended and known_id != job.base_id:
            suspects[job.base_id] = job
    if not suspects:
        return
    marks = {job.mark for job in suspects.values()}
    known = {s.tag: s for s in ctx.session.scalars(select(Subjob).where(Subjob.tag.in_(marks)))}
    began = {job.base_id: job.start_s for job in view.jobs if job.start_s is not None}
    for id, stranger in suspects.items():
        subjob = known.get(stranger.mark)
        if subjob is None:
            continue  # not from this database: another daemon's, or a user's joke
        if id == subjob.batch_id and subjob.role == SubjobRole.RIGID:
            yield from _tell(
                ctx, subjob, id, EventKind.SUBJOB_RERUN
            )  # cancelled, it would leave half an output in a whole one's place
        elif _is_double(ctx, stranger, subjob, began.get(subjob.batch_id or "", subjob.start_s)):
            yield from _cancel(ctx, subjob, id)
        else:
            yield from _tell(ctx, subjob, id, EventKind.SUBJOB_LOOKALIKE)


def _is_double(ctx: Context, stranger: BatchJobView, subjob: Subjob, began_s: float | None) -> bool:
    """Whether a submission of ours has made it.

    Then it was there before anything could take its mark from the batch job that we know. Or a submission of its subjob
    went without an answer shortly before it came.
    """
    if began_s is None or (stranger.submit_s is not None and stranger.submit_s < began_s):
        return True
    unanswered = select(Event).where(Event.job_id == subjob.job_id, Event.kind == EventKind.INTENT_UNKNOWN)
    of_it = ctx.session.scalars(unanswered.where(Event.subjob_id == subjob.id))
    came_s = stranger.submit_s
    return any(
        one.data["intent"] == IntentKind.SUBMIT and (came_s is None or came_s <= one.at_s + ARRIVES_S) for one in of_it
    )


def _cancel(ctx: Context, subjob: Subjob, id: str) -> Effects[None]:
    own = Intent.job_id == subjob.job_id
    cancels = select(Intent).where(own, Intent.batch_id == id, Intent.kind == IntentKind.CANCEL)
    under_way = cancels.where(Intent.state.in_((IntentState.PENDING, IntentState.EXECUTING)))
    # One done in a time to come is from before the clock was set.
    recent = cancels.where(Intent.done_s.between(ctx.now - 30, ctx.now))
    if ctx.session.scalars(under_way).first() or ctx.session.scalars(recent).first():
        return
    yield tell(EventKind.SUBJOB_STRAY, job_id=subjob.job_id, subjob_id=subjob.id, batch_id=id)
    yield Act(IntentKind.CANCEL, subjob.job_id, batch_id=id)


def _tell(ctx: Context, subjob: Subjob, id: str, kind: EventKind) -> Effects[None]:
    told = select(Event.data).where(Event.job_id == subjob.job_id, Event.kind == kind)
    if all(data["batch_id"] != id for data in ctx.session.scalars(told)):
        yield tell(kind, job_id=subjob.job_id, subjob_id=subjob.id, batch_id=id)
