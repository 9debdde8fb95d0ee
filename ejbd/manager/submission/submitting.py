"""A submission on its way: looked at, admitted, shown to the batch system, stored."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem, Identity, SubmitRequest, mailing
from ejbd.config import Settings
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError, Code, EjbError
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts.admitted import Admission
from ejbd.manager.facts.batchjob import passing, subjobrequests
from ejbd.manager.facts.batchjob.output import Outputs, check_output
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.past.speculating import Wanted, note_for, walltimes_of, wanted
from ejbd.manager.jobspec import JobSpec, Reading
from ejbd.manager.submission import dryrun
from ejbd.manager.submission.admission import admit
from ejbd.manager.submission.filelooks import FileLooks, ReadsFileOf
from ejbd.manager.submission.intake import Accepted, Intake, Submission, answered
from ejbd.manager.submission.together import Together
from ejbd.manager.submission.told import ToldPlan
from ejbd.store.store import Store
from ejbd.store.turns import UserTurns

_Look = tuple[Accepted | None, Admission, Wanted | None]
GOOD_FOR_S = 30.0  # so long what the batch system has not refused is not shown again, whatever it said
OVER_S = 1.0  # that a check may take beyond its limit, until its batch command is ended


class Submissions:
    """What users submit, or ask about. `runs_as`: the one user that jobs are run as (None: each as its own)."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        batch: BatchSystem,
        runs_as: str | None,
        context: Callable[[Session], Context],
        view: Callable[[], ClusterView | None],
        read_file: ReadsFileOf | None = None,
    ) -> None:
        self._mail_program = settings.mail_program
        self._limits = settings.limits
        self._store = store
        self._batch = batch
        self._runs_as = runs_as
        self._context = context
        self._view = view
        self._python = settings.worker_python
        # When a shape of J0 was last shown to the batch system, which did not refuse it, and the notes for its user.
        self._answers: dict[tuple[object, ...], tuple[float, tuple[str, ...]]] = {}
        self._intake = Intake(store, context)
        self._looks: Together[Submission, _Look] = Together(self._look, "submissions")
        self._outputs = Outputs()
        self._files = FileLooks(runs_as is not None, read_file=read_file)
        self._checks = asyncio.Semaphore(settings.limits.submit_concurrency)
        self._checks_of = UserTurns(max(1, settings.limits.submit_concurrency - 1))  # a place is left to others
        self._under_way: dict[tuple[object, ...], asyncio.Future[tuple[str, ...]]] = {}

    async def submit(self, submission: Submission) -> Accepted:
        """Store a job; durable when this returns. Before, the batch system is shown J0, or what is passed through.

        It is not where its number is waited for: the batch system's own answer comes with that.
        """
        job = await self._files.at(submission.job, submission.user)
        submission = replace(submission, job=job)
        notes: tuple[str, ...] = ()
        if job.spec.asked is not None or job.spec.learned:
            before, taken, wanted = await self._admitted(submission)
            if before is not None:
                return before
            if wanted is not None:
                walltimes = await asyncio.to_thread(walltimes_of, wanted)
                submission = replace(submission, walltimes=walltimes, elastic=taken.elastic)
            if not taken.elastic and job.spec.asked is not None:
                read = submission.job
                notes = () if read.numbered else await self._check(taken.spec, submission.user)
                alone = Reading(taken.spec, behind_batch_jobs=read.behind_batch_jobs, numbered=read.numbered)
                submission = replace(submission, job=alone)
            elif taken.elastic and not job.numbered:
                try:
                    notes = await self._check_placeholder(taken, submission.user)
                except BatchError:
                    before = await self._store.read(lambda s: answered(s, submission))
                    if before is None:
                        raise
                    return before
        learned = note_for(submission.walltimes)
        notes = (*notes, *([learned] if learned else ()))
        of_elastic = (*job.notes, *await self._unsent(job.spec), *self._unseen())
        answer = await self._intake.store(replace(submission, notes=notes, elastic_notes=of_elastic))
        reach(CrashPoint.JOB_AFTER_COMMIT)
        return answer

    async def _admitted(self, submission: Submission) -> _Look:
        """How a job would be taken now, and what its walltime would be learned of.

        And what was answered before, where that needs to be known by now.
        """
        before, taken, learnt = await self._looks.ask(submission, submission.user)
        if before is None and taken.elastic:
            try:
                # Else the daemon does not see what its user may, or the folder may be there by the time, as for sbatch.
                if self._runs_as is not None and not submission.job.numbered:
                    await self._outputs.check(taken.spec, submission.user)
            except EjbError:
                before = await self._store.read(lambda s: answered(s, submission))
                if before is None:
                    raise
        return before, taken, learnt

    async def _look(self, submissions: list[Submission]) -> Sequence[_Look | Exception]:
        return await self._store.read(lambda s: [self._taken(s, one) for one in submissions])

    def _taken(self, session: Session, submission: Submission) -> _Look | Exception:
        try:
            taken, learnt = self._admit(session, submission.job, submission.user)
            return None if taken.elastic else answered(session, submission), taken, learnt
        except EjbError as refused:
            error: Exception = refused
        except DBAPIError:
            raise  # the transaction that all of them share is lost
        except Exception as fault:  # which is this job's alone
            return fault
        try:
            before = answered(session, submission)
        except EjbError as reused:
            return reused
        if before is None:
            return error
        return before, Admission(submission.job.spec, "", before.elastic, "", str(error)), None

    def _admit(self, session: Session, job: Reading, user: str) -> tuple[Admission, Wanted | None]:
        ctx = self._context(session)
        taken = admit(ctx, job, user)
        return taken, wanted(ctx, taken, user)

    async def _check(self, spec: JobSpec, user: str) -> tuple[str, ...]:
        """Ask the batch system about a job that would be passed through; notes for its user.

        Raises EjbError (BATCH_REFUSED) where it would not take it. Where it does not answer in time, that is noted.
        """
        runs_as = self._runs_as or user
        shown = await self._shown(runs_as, lambda: passing.trial(spec, runs_as, self._batch))
        return (*passing.lowered_limits(spec), *shown)

    async def _check_placeholder(self, taken: Admission, user: str) -> tuple[str, ...]:
        """The same about J0 of a job that would be elastic. Of many of one shape the first is shown."""
        request = subjobrequests.trial(taken.spec, taken.queue, self._view(), self._batch, self._python)
        runs_as = self._runs_as or user
        shape, now = (runs_as, *subjobrequests.shape_of(request)), time.monotonic()
        if (known := self._answers.get(shape)) is not None and now - known[0] < GOOD_FOR_S:
            return known[1]
        if (asked := self._under_way.get(shape)) is None:
            asked = self._under_way[shape] = asyncio.ensure_future(self._shown(runs_as, lambda: request))
            asked.add_done_callback(partial(self._keep, shape))
        return await asyncio.shield(asked)

    def _keep(self, shape: tuple[object, ...], asked: asyncio.Future[tuple[str, ...]]) -> None:
        del self._under_way[shape]
        if not asked.cancelled() and asked.exception() is None and asked.result() != self._no_turn():
            now = time.monotonic()
            fresh = {one: told for one, told in self._answers.items() if now - told[0] < GOOD_FOR_S}
            self._answers = fresh | {shape: (now, asked.result())}

    async def _shown(self, runs_as: str, make: Callable[[], SubmitRequest]) -> tuple[str, ...]:
        """What the batch system says of a request, or a note where it says nothing in time."""
        limit_s = self._limits.check_timeout_s
        async with contextlib.AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(self._limits.check_wait_s):
                    await turns.enter_async_context(self._checks_of.take("" if self._runs_as else runs_as))
                    await turns.enter_async_context(self._checks)
            except TimeoutError:
                return self._no_turn()
            try:
                async with asyncio.timeout(limit_s + OVER_S):
                    said = await self._batch.check(Identity(runs_as), await asyncio.to_thread(make), limit_s)
                    return tuple(said or ())
            except TimeoutError:
                return (f"not checked by the batch system: it did not answer within {limit_s:g} s",)
            except BatchError as error:
                if not error.transient:
                    raise
                return (f"not checked by the batch system: {error.sentence()}",)

    def _no_turn(self) -> tuple[str, ...]:
        wait_s = self._limits.check_wait_s
        return (f"not checked by the batch system: there was no turn for that within {wait_s:g} s",)

    async def _unsent(self, spec: JobSpec) -> tuple[str, ...]:
        """A note for the user of an elastic job with mails that will not be sent."""
        try:
            if spec.mail is None or (await mailing(self._mail_program, self._batch)).program:
                return ()
        except BatchError:
            return ()  # it may be known by the time
        return ("--mail-type: nothing here sends the mails of elastic jobs (an admin can set mail_program)",)

    def _unseen(self) -> tuple[str, ...]:
        """A note for the user of an elastic job to which no window can be given."""
        view = self._view()
        blind = view.blind if view is not None else ""
        return (f"the job is not started early, since no window is used: {blind}",) if blind else ()

    async def plan(self, job: Reading, user: str) -> ToldPlan:
        """What submitting would do now (dry run)."""
        job = await self._files.at(job, user)
        _, learnt = await self._store.read(lambda s: self._admit(s, job, user))
        walltimes = await asyncio.to_thread(walltimes_of, learnt) if learnt is not None else None
        taken, found = await self._store.read(lambda s: dryrun.plan(self._context(s), job, user, walltimes))
        if taken.elastic and self._runs_as is not None:
            await asyncio.to_thread(check_output, taken.spec, user)
        if taken.elastic:
            checked = await self._check_placeholder(taken, user)
            notes = (*checked, *job.notes, *await self._unsent(job.spec), *self._unseen())
        else:
            notes = await self._check(taken.spec, user)
        return {**found, "notes": list(notes)}

    def refuse_others(self, user: str) -> None:
        """What runs as the daemon's own user is nothing that another user may start. `ejb-as` refuses
        users that it does not act for."""
        if self._runs_as is not None and user != self._runs_as:
            raise EjbError(
                Code.FORBIDDEN,
                f"this daemon runs jobs as {self._runs_as!r} and you are {user!r}",
                hint="start an ejbd of your own",
            )
