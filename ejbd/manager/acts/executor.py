"""Carries intents out: the only place that acts on the batch system.

An intent is marked as executing before the call and gets its result after it, each in a commit of its own. Whatever
was executing when the daemon died is unknown. An unknown submission is looked up by its tag before it is ever repeated.
Found, it is adopted. Not found twice, with a pause in between, it never happened.

A number alone names no batch job: a controller that lost its state gives it again. So each act has a look before it,
and none goes to a batch job that does not bear the tag which the intent is about.

The database may fail between a call and its record, too. What is known is kept in memory and recorded as soon as the
database takes it. An intent that is marked as executing, and on which no call is under way, is unknown, as after a
crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypedDict, Unpack

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem, Identity
from ejbd.config import Settings
from ejbd.core.view import base_id
from ejbd.errors import BatchError, EjbError, SubmitOutcomeUnknown
from ejbd.manager.acts import intents, lastwords, limiting, submitted
from ejbd.manager.acts.asking import Asking
from ejbd.manager.acts.unsubmitted import drop_stranded
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts.batchjob import begins
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.tags import still_theirs
from ejbd.manager.hands.hands import Hands
from ejbd.manager.rules.planning import turns
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState
from ejbd.store.store import Store
from ejbd.store.transitions import move_intent
from ejbd.wire.kinds import IntentKind, SubjobRole

log = structlog.get_logger(__name__)

LETTING_BEGIN = 10  # attempts: while a batch job waits nothing speaks against it that would not pass
SUBMISSIONS_A_PASS = 8  # times the concurrency: cancellations and urgent ones do not wait for a long queue of others
OTHERS_AT_ONCE = 8  # users for which something else than a submission goes on
SPOOL_S = 1.0  # between two looks whether the spool is back
PATIENCE_S = 3.0  # that a pass waits for sessions and commands of a user that do not answer

_UPDATES = (IntentKind.HOLD, IntentKind.RELEASE, IntentKind.STAY, IntentKind.BEGIN, *limiting.KINDS)

_EXECUTING = select(Intent.id).where(Intent.state == IntentState.EXECUTING)


class _Change(TypedDict, total=False):
    """Of :meth:`ejbd.batch.base.BatchSystem.update`."""

    walltime_s: float
    hold: bool
    begins: bool
    begin_in_s: float


class _Turns:
    """Of one pass, how much goes on side by side. `of_one`: of all submissions those that one user may take."""

    def __init__(self, submissions: int, of_one: int) -> None:
        self.submissions = asyncio.Semaphore(submissions)
        self.others = asyncio.Semaphore(OTHERS_AT_ONCE)
        self.of_one = of_one


@dataclass
class Executor:
    """One pass of :meth:`run_due` carries out what is due; the manager calls it when it is woken or a pause is over."""

    store: Store
    batch: BatchSystem
    settings: Settings
    hands: Hands
    context: Callable[[Session], Context]
    clock: Callable[[], float]
    wake: Callable[[], None] = lambda: None  # called where more can be done than at the end of the last pass
    patience_s: float = PATIENCE_S
    _left: dict[str, asyncio.Task[None]] = field(default_factory=dict)  # by user: what has not ended
    _allowance: float = 1.0  # submissions that may be made at once
    _allowed_s: float = 0.0
    _at_it: set[int] = field(default_factory=set)  # intents with a call under way, or an outcome that waits here:
    _unrecorded: dict[tuple[int, ...], Callable[[Session], None]] = field(default_factory=dict)
    asking: Asking = field(init=False)

    def __post_init__(self) -> None:
        self.asking = Asking(self.store, self.batch, self.settings, self.hands, self.context, self.clock)

    def recover(self, session: Session, why: str = "the daemon ended in the middle of it") -> None:
        """What is executing without a call under way may or may not have happened. At start-up no call is."""
        now = self.clock()
        drop_stranded(session, now)
        for intent in session.scalars(select(Intent).where(Intent.state == IntentState.EXECUTING)):
            if intent.id in self._at_it:
                continue
            if intent.kind == IntentKind.SUBMIT:
                move_intent(session, intent, IntentState.UNKNOWN, now, reason=why)
                intent.not_before_s = now
                intent.absences = 0
            else:  # all others may be repeated
                move_intent(session, intent, IntentState.PENDING, now, setback=True)

    async def run_due(self) -> float | None:
        """Carry out every intent that is due. Returns when the next one will be (epoch seconds), or None.

        Raises EjbError where the database failed: then there may be more to do than was done.
        """
        self._heard()
        await self._take_up()
        await self.asking.marks.refresh()
        now = self.clock()
        most = self._refill(now)
        left, by_user = self._left.keys(), self.hands.by_user
        due, next_s = await self.store.read(lambda session: intents.due(session, now, most, left, in_turn=by_user))
        self._allowance -= sum(_is_new(intent) for intent in due)
        if self.hands.own.trouble and next_s is not None:
            next_s = max(next_s, now + SPOOL_S)
        elif next_s is not None and next_s <= now and self._allowance < 1.0:  # there are more than may be made now
            next_s = now + (1.0 - self._allowance) / self.settings.limits.submits_per_s
        if not by_user:
            at_once = self.settings.limits.submit_concurrency
            await self._carry_out(due, _Turns(at_once, at_once))
        elif due:
            await self._of_each(await self.store.read(lambda session: intents.by_user(session, due)))
        return next_s

    async def stop(self) -> None:
        """Let go of what has not ended. It is unknown when a daemon comes back."""
        for task in self._left.values():
            task.cancel()
        await asyncio.gather(*self._left.values(), return_exceptions=True)
        await self.asking.marks.stop()

    async def _of_each(self, due: Mapping[str, Sequence[Intent]]) -> None:
        """What is due, by its users, side by side.

        All are waited for, but not for long: where the sessions or commands of one do not answer, the pass ends, and
        no further pass begins anything for that user before they have.
        """
        at_once = self.settings.limits.submit_concurrency
        turns = _Turns(at_once, max(1, at_once - 1))
        for user, of_user in due.items():
            self._at_it.update(intent.id for intent in of_user)
            self._left[user] = asyncio.create_task(self._of_one(of_user, turns), name=f"acts-of-{user}")
        await asyncio.wait([self._left[user] for user in due], timeout=self.patience_s)
        for user, task in list(self._left.items()):
            if not task.done():
                log.warning("user-is-slow", user=user)
                task.add_done_callback(lambda _: self.wake())
        self._heard()

    def _heard(self) -> None:
        """Forget those that have ended; raises what one of them has met."""
        ended = [self._left.pop(user) for user, task in list(self._left.items()) if task.done()]
        for error in [task.exception() for task in ended]:
            if error is not None:
                raise error

    async def _of_one(self, of_user: Sequence[Intent], turns: _Turns) -> None:
        try:
            await self._carry_out(of_user, turns)
        finally:
            self._let_go([intent.id for intent in of_user])

    async def _carry_out(self, due: Sequence[Intent], turns: _Turns) -> None:
        """Room is given back before more is asked for."""
        cancels = [i for i in due if i.kind == IntentKind.CANCEL and i.state == IntentState.PENDING]
        unknown = [i for i in due if i.state == IntentState.UNKNOWN]
        submits = [i for i in due if _is_new(i)]
        updates = [i for i in due if i.kind in _UPDATES and i.state == IntentState.PENDING]
        ends = [i for i in due if i.kind == IntentKind.END and i.state == IntentState.PENDING]
        async with turns.others:
            if cancels:
                await self._cancel(cancels)
            if ends:
                await lastwords.end(self, ends)
            if unknown:
                await self._look_up(unknown)
        of_one = asyncio.Semaphore(turns.of_one)

        async def one(intent: Intent) -> None:
            async with of_one, turns.submissions:
                self._at_it.add(intent.id)
                try:
                    await self._submit(intent)
                finally:
                    self._let_go([intent.id])

        # All are waited for, whatever becomes of one: none is still under way when the next pass begins.
        # One job's subjobs go one after the other, the longest first. A shorter one that came before it would take
        # the place that was meant for the longer.
        async def in_turn(of_one_job: Sequence[Intent]) -> None:
            for intent in of_one_job:
                await one(intent)

        groups = await self.store.read(lambda session: intents.by_job(session, submits)) if submits else []
        await _all_of(in_turn(group) for group in groups)
        async with turns.others:
            for intent in updates:
                await (limiting.change(self, intent) if intent.kind in limiting.KINDS else self._update(intent))
            for intent in due:
                if intent.kind == IntentKind.ASIDE and intent.state == IntentState.PENDING:
                    await lastwords.set_aside(self, intent)

    # -- outcomes, and a database that fails --------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Record what a failing database did not take, then find what is marked as executing and forgotten."""
        for ids, outcome in list(self._unrecorded.items()):
            try:
                await self.store.write(outcome)
            except EjbError:
                raise  # it still fails: nothing else is begun
            except Exception as error:  # it cannot be recorded as it is: find out anew what became of it
                log.error("outcome-lost", intents=list(ids), error=repr(error), exc_info=error)
            del self._unrecorded[ids]
            self._let_go(ids)
        if await self.store.read(self._forgotten):
            await self.store.write(lambda s: self.recover(s, "its outcome could not be recorded"))

    def _forgotten(self, session: Session) -> bool:
        return any(id not in self._at_it for id in session.scalars(_EXECUTING))

    async def record(self, ids: Sequence[int], outcome: Callable[[Session], None], *, patient: bool = False) -> None:
        """Store what came of a call. Where the database fails it is kept, and stored before anything else is done."""
        try:
            await self.store.write(outcome, patient=patient)
        except EjbError as error:
            self._at_it.update(ids)
            self._unrecorded[tuple(ids)] = lambda session: self._if_open(session, ids, outcome)
            log.error("outcome-not-recorded", intents=list(ids), error=error.sentence())
            raise

    def _if_open(self, session: Session, ids: Sequence[int], outcome: Callable[[Session], None]) -> None:
        """A commit that was reported as failed may have been made (Store.write)."""
        states = session.scalars(select(Intent.state).where(Intent.id.in_(ids)))
        if any(state == IntentState.EXECUTING for state in states):
            outcome(session)

    def _let_go(self, ids: Iterable[int]) -> None:
        kept = {id for unrecorded in self._unrecorded for id in unrecorded}
        self._at_it.difference_update(set(ids) - kept)

    def _refill(self, now: float) -> int:
        """How many submissions this pass may make: a token bucket that holds one second's worth. None where the spool
        is away, or takes nothing: what would begin would fail."""
        if self.hands.own.trouble:
            return 0
        limits = self.settings.limits
        gained = max(0.0, now - self._allowed_s) * limits.submits_per_s  # the clock may have been set back
        self._allowance = min(max(1.0, limits.submits_per_s), self._allowance + gained)
        self._allowed_s = now
        return max(0, min(limits.submit_concurrency * SUBMISSIONS_A_PASS, int(self._allowance)))

    # -- submit -------------------------------------------------------------------------------------------------------

    async def _submit(self, intent: Intent) -> None:
        reach(CrashPoint.SUBMIT_BEFORE_BEGIN)
        try:
            # Files first, and not on the store's writer: all else waits for it while a disk is slow.
            files = await asyncio.to_thread(self.asking.make_files, intent.id)
            begun = await self.store.write(lambda s: self.asking.begin(s, intent.id, files), patient=True)
        except EjbError as error:
            trouble = error
            await self.store.write(lambda s: submitted.postpone(self.context(s), intent.id, trouble))
            return
        if begun is None:
            return
        identity, request, order = begun
        if order is not None:
            await asyncio.to_thread(self.asking.give_order, identity.user, intent, files.secret, order)
        reach(CrashPoint.SUBMIT_AFTER_BEGIN)
        try:
            batch_id = await self.batch.submit(identity, request)
        except SubmitOutcomeUnknown as error:
            message = error.sentence()
            await self.record([intent.id], lambda s: submitted.unknown(self.context(s), intent.id, message))
            return
        except BatchError as error:
            failure = error
            await self.record([intent.id], lambda s: submitted.refused(self.context(s), intent.id, failure))
            return
        reach(CrashPoint.SUBMIT_AFTER_CALL)
        await self.record(
            [intent.id], lambda s: submitted.submitted(self.context(s), intent.id, batch_id, "submitted"), patient=True
        )
        reach(CrashPoint.SUBMIT_AFTER_RECORD)

    async def _look_up(self, unknown: Sequence[Intent]) -> None:
        """Adopt what is found under its tag; count an absence for the others."""
        ids = [intent.subjob_id for intent in unknown if intent.subjob_id is not None]
        asked = await self.store.read(lambda s: intents.tags_by_user(s, ids))
        for identity, subjobs in asked.items():
            await self._look_up_of(identity, {i.id: subjobs[i.subjob_id] for i in unknown if i.subjob_id in subjobs})

    async def _look_up_of(self, identity: Identity, tags: Mapping[int, str]) -> None:
        """One user's submissions: intent -> tag."""
        try:
            found = await self.batch.find(identity, list(tags.values()))
        except BatchError as error:
            log.warning("look-up-failed", error=error.sentence())
            pause = self.clock() + self.settings.limits.settle_s
            await self.store.write(lambda s: intents.delay(s, list(tags), pause))
            return
        for id, tag in tags.items():
            batch_id = found.get(tag)
            await self.store.write(partial(self._found, id, batch_id))

    def _found(self, id: int, batch_id: str | None, session: Session) -> None:
        if batch_id is not None:
            submitted.submitted(self.context(session), id, batch_id, "adopted")
        else:
            submitted.absent(self.context(session), id)

    # -- cancel, hold, release ----------------------------------------------------------------------------------------

    async def _cancel(self, cancellations: Sequence[Intent]) -> None:
        targets = await self.begin_to_cancel(cancellations)
        # Side by side: where the command of one user does not end, no other user waits for it.
        await _all_of(self.cancel_of(*one) for one in targets.items())

    async def begin_to_cancel(self, cancellations: Sequence[Intent]) -> dict[Identity, dict[int, str]]:
        """Mark them as executing; user -> intent -> batch job, of those that are still to be carried out."""
        ids = [intent.id for intent in cancellations]
        reach(CrashPoint.CANCEL_BEFORE_BEGIN)
        targets = await self.store.write(lambda s: intents.begin_actions(self.context(s), ids))
        if targets:
            reach(CrashPoint.CANCEL_AFTER_BEGIN)
        return targets

    async def cancel_of(self, identity: Identity, batch_ids: Mapping[int, str]) -> None:
        """One user's cancellations: intent -> batch job."""
        begun = list(batch_ids)
        try:
            if theirs := await self.look_at(identity, batch_ids):
                await self.batch.cancel(identity, sorted(set(theirs.values())))
        except BatchError as error:
            message = error.sentence()
            await self.record(begun, lambda s: intents.repeat_later(s, begun, message, self.clock()))
            return
        reach(CrashPoint.CANCEL_AFTER_CALL)
        await self.record(begun, lambda s: intents.cancelled(s, begun, self.clock()))
        reach(CrashPoint.CANCEL_AFTER_RECORD)

    async def look_at(self, identity: Identity, batch_ids: Mapping[int, str]) -> dict[int, str]:
        """Those of these batch jobs, by intent, that are still there, and not another one that has got their number.

        What acts on a job does so right behind this. Raises BatchError where the batch system does not answer.
        """
        marks = await self.store.read(lambda s: intents.marks_of(s, list(batch_ids)))
        rows = await self.batch.list_jobs(sorted(set(batch_ids.values())))
        theirs = still_theirs(batch_ids, marks, rows, identity.user)
        shown = {row.base_id for row in rows}
        again = sorted(id for intent, id in batch_ids.items() if intent not in theirs and base_id(id) in shown)
        if again:
            log.warning("number-given-again", batch_ids=again)
        return theirs

    async def look_at_one(self, identity: Identity, intent: int, batch_id: str) -> None:
        """Raises BatchError, too, where the batch job is not there any more."""
        if not await self.look_at(identity, {intent: batch_id}):
            raise BatchError(f"the batch system has no job {batch_id} of that tag any more", transient=False)

    async def change(self, identity: Identity, intent: Intent, batch_id: str, **change: Unpack[_Change]) -> None:
        """Have a batch job changed. Raises BatchError."""
        await self.look_at_one(identity, intent.id, batch_id)
        await self.batch.update(identity, batch_id, **change)

    async def _update(self, intent: Intent) -> None:
        targets = await self.store.write(lambda s: intents.begin_actions(self.context(s), [intent.id]))
        if not targets:
            return
        identity, batch_ids = next(iter(targets.items()))
        lets, stays = intent.kind == IntentKind.BEGIN, intent.kind == IntentKind.STAY
        if lets:
            reach(CrashPoint.BEGIN_BEFORE_CALL)
        try:
            shorter_s, change = await self.store.read(lambda s: self._change_of(s, intent))
            if shorter_s is not None:
                await self._shorten(identity, intent, batch_ids[intent.id], shorter_s)
            await self.change(identity, intent, batch_ids[intent.id], **change)
        except BatchError as error:
            message, again = error.sentence(), error.transient or (lets and intent.attempts < LETTING_BEGIN)
            if again:
                await self.record([intent.id], lambda s: intents.repeat_later(s, [intent.id], message, self.clock()))
            elif stays:
                await self.record([intent.id], lambda s: submitted.did_not_stay(self.context(s), intent.id, message))
            else:
                await self.record([intent.id], lambda s: intents.failed(s, intent.id, message, self.clock()))
            return
        if stays:
            reach(CrashPoint.STAY_AFTER_CALL)
            await self.record([intent.id], lambda s: submitted.stays(self.context(s), intent.id))
            return
        if lets:
            reach(CrashPoint.BEGIN_AFTER_CALL)
        await self.record([intent.id], lambda s: intents.done(s, [intent.id], self.clock()))

    async def _shorten(self, identity: Identity, intent: Intent, id: str, walltime_s: float) -> None:
        """Where the batch system does not let it, it begins as long as it is."""
        try:
            await self.change(identity, intent, id, walltime_s=walltime_s)
        except BatchError as error:
            if error.transient:
                raise
            log.warning("not-shortened", batch_id=id, error=error.sentence())

    def _change_of(self, session: Session, intent: Intent) -> tuple[float | None, _Change]:
        """What is changed about a batch job: its walltime (None: not that), and what `update` is told.

        The walltime is of a chain's next place holder that was queued for more. An evolving job's may begin some
        seconds later. A J0 is kept from beginning for a while at a time: were no daemon there, it would begin then.
        """
        if intent.kind not in (IntentKind.BEGIN, IntentKind.STAY):
            return None, {"hold": intent.kind == IntentKind.HOLD}
        subjob = session.get_one(Subjob, intent.subjob_id)
        if intent.kind == IntentKind.STAY:
            j0 = subjob.role == SubjobRole.PLACEHOLDER
            return None, {"begins": False, "begin_in_s": turns.STAYS_S} if j0 else {"begins": False}
        spec = session.scalars(select(Job.spec).where(Job.id == intent.job_id)).one()
        walltime_s = subjob.walltime_s if (spec.get("chain") or {}).get("shorter") == subjob.id else None
        if subjob.id in begins.begins_of(spec):
            return walltime_s, {"begin_in_s": begins.begin_in_s(spec, subjob, self.clock())}
        return walltime_s, {"begins": True}


def _is_new(intent: Intent) -> bool:
    return intent.kind == IntentKind.SUBMIT and intent.state == IntentState.PENDING


async def _all_of(calls: Iterable[Awaitable[None]]) -> None:
    """All are waited for, whatever becomes of one; then the first failure is raised."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
