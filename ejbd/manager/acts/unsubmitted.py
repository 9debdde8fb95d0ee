"""A submission that ends without a batch job: what else was to be done to that job has nothing to act on."""

from __future__ import annotations

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from ejbd.store.models import Intent, Subjob
from ejbd.store.states import IntentState, SubjobState
from ejbd.store.transitions import move_intent
from ejbd.wire.kinds import IntentKind


def never_submitted(session: Session, submission: Intent, state: IntentState, now: float, reason: str = "") -> None:
    """End a submission as `state`, and drop what waits for the batch job that it would have made."""
    move_intent(session, submission, state, now, reason=reason)
    _drop(session, select(Intent).where(Intent.subjob_id == submission.subjob_id), now)


def drop_stranded(session: Session, now: float) -> None:
    """Drop what an older daemon left behind of the kind, which was pending for ever."""
    ended = [state for state in SubjobState if state.terminal]
    _drop(session, select(Intent).join(Subjob, Intent.subjob_id == Subjob.id).where(Subjob.state.in_(ended)), now)


def _drop(session: Session, query: Select[Intent], now: float) -> None:
    waiting = (Intent.kind != IntentKind.SUBMIT, Intent.state == IntentState.PENDING, Intent.batch_id.is_(None))
    for intent in session.scalars(query.where(*waiting)):
        move_intent(session, intent, IntentState.DROPPED, now)
