"""One round of the live world: look at the batch system, and store what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchEnd
from ejbd.core.room.suspended import kept_for_suspended
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError, Code, EjbError
from ejbd.files.userfiles import each_apart
from ejbd.manager.acts.carrying import run
from ejbd.manager.crashpoints import CrashPoint, reach
from ejbd.manager.facts import drains as known_drains
from ejbd.manager.facts.listing.roster import SubjobRow
from ejbd.manager.poll.others import Noting
from ejbd.manager.poll.tick import Tick
from ejbd.manager.rules.learning import gaps, raising
from ejbd.manager.rules.linked import dependencies
from ejbd.manager.rules.requests import reports as workers
from ejbd.manager.world import World
from ejbd.store.shifting import shift
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind

log = structlog.get_logger(__name__)

ASK_AGAIN_S = 60.0


class Observing(World):
    """Polls, one at a time. A batch system or a database that does not answer changes nothing."""

    async def poll(self) -> None:
        """One round. A batch system that does not answer changes nothing."""
        async with self._polling:
            self._looks.begun(asyncio.get_running_loop().time())
            try:
                await self._mind_the_clock()
                with self.telemetry.poll("observe"):
                    view = await self._with_owners(kept_for_suspended(await self.batch.observe()))
                drained = await self.store.read(known_drains.reservations)
                if drained:
                    view = replace(view, site_reservations=known_drains.with_drains(view, drained))
                if self.clock.drift():  # set in between: the view's times are of another clock than ours
                    return
                roster = await self._open.now()
                view = roster.known_in(view, by_user=self.hands.by_user)
                unlisted = roster.unlisted(view)
                lost = {
                    id: subjob
                    for id, subjob in unlisted.items()
                    if (subjob.submit_s or 0) < view.time_s - 1.0 and self._asks(subjob)
                }
                outcomes = await self.batch.outcomes(await self._exit_files(lost)) if lost else {}
                ends = await self._ends_of_others(view)
                left = await self._left_behind({*unlisted, *(job.id for job in view.jobs if job.state.ended)})
            except BatchError as error:
                await self._no_answer(error)
                return
            except EjbError as error:
                self._not_stored(error)
                return
            self._hearing.database_answers()
            looked_s, self.view = self.clock(), view
            self.polls += 1
            if self.batch_error:
                self.batch_error = ""
                await self._tell(EventKind.BATCH_ANSWERS)
            reach(CrashPoint.TICK_BEFORE_COMMIT)
            try:
                with self.telemetry.poll("store"):
                    tick = Tick(view, roster, outcomes, left, self._specs)
                    while await self.store.write(lambda s: tick.step(self._context(s))):
                        pass
                    await self._note_others(view, ends)
                await self._fill_gaps()
                if await self.store.read(lambda s: raising.is_wanted(self._context(s))):
                    await self.store.write(lambda s: run(self._context(s), raising.plan))
            except EjbError as error:
                self._not_stored(error)
                return
            if await self.store.read(dependencies.any_wait):  # for time, or for jobs that are not EJB's
                self._work.set()
            self._looked_s = looked_s
            reach(CrashPoint.TICK_AFTER_COMMIT)
            self._health.looked()
            self.telemetry.last_poll.set(self.clock())

    async def _ends_of_others(self, view: ClusterView) -> Mapping[str, BatchEnd]:
        """What is still known of jobs that are not EJB's, and that ended while no poll looked."""
        gone = await self._others.unlisted(view) if self._others is not None else []
        if not gone:
            return {}
        try:
            return await self.batch.outcomes(dict.fromkeys(gone, self.settings.spool_dir / "no-exit-file"))
        except BatchError as error:
            log.warning("others-unknown", jobs=len(gone), error=error.sentence())
            return {}

    async def _note_others(self, view: ClusterView, ends: Mapping[str, BatchEnd]) -> None:
        if self._others is None:
            return
        try:
            noting = Noting(self._others, view, ends)
            while await self.store.write(noting.step):
                pass
        except BaseException:
            self._others.forget()
            raise

    def _not_stored(self, error: EjbError) -> None:
        log.error("poll-not-stored", error=error.sentence())
        self._hearing.database_away(self._looked_s)

    async def _fill_gaps(self) -> None:
        """Jobs go into windows shorter than their request: chosen beside the writer, and looked at again on it."""
        stands, found = await self.store.read(lambda s: (gaps.any_stands(s), gaps.look(self._context(s))))
        if stands:
            await self.store.write(lambda s: run(self._context(s), gaps.mind))
        chosen, self._memory.gap_verdicts = await asyncio.to_thread(gaps.choose_all, found) if found else ([], {})
        for one in chosen:
            await self.store.write(lambda s, one=one: run(self._context(s), gaps.send, one))  # type: ignore[misc]

    async def _mind_the_clock(self) -> None:
        """Where the machine's clock was set: tell it, and let intervals that are under way last as they would.

        Raises EjbError where the database does not take it. Until it does, time goes on as if no clock were set.
        """
        by_s = self.clock.drift()
        if not by_s:
            return
        log.warning("clock-was-set", by_s=round(by_s, 1))
        stepped = False

        def step(session: Session) -> None:
            nonlocal stepped
            shift(session, by_s)
            add_event(session, EventKind.CLOCK_SET, self.clock() + by_s, by_s=by_s)
            self.clock.step(by_s)  # with the rows, for the next transaction
            self._memory.shift(by_s)
            self._hearing.shift(by_s)
            stepped = True

        try:
            await self.store.write(step)
        except BaseException:
            if stepped:
                self.clock.step(-by_s)
                self._memory.shift(-by_s)
                self._hearing.shift(-by_s)
            raise
        self.started_s += by_s
        self._ahead_s += max(0.0, by_s)
        if self._looked_s is not None:
            self._looked_s += by_s
        self._work.set()

    async def _with_owners(self, view: ClusterView) -> ClusterView:
        """The view without the marks that one user has put on a batch job in another's name."""
        if self._owners is None:
            return view
        if unknown := self._owners.unknown(view):
            await self.store.read(partial(self._owners.read, jobs=unknown))
        return self._owners.verified(view)

    async def _exit_files(self, subjobs: Mapping[str, SubjobRow]) -> dict[str, Path]:
        """Where these batch jobs write how they ended."""
        users = await self.store.read(lambda s: self.hands.users_of(s, {row.job_id for row in subjobs.values()}))
        spools = {job: self.hands.spool_of(user) for job, user in users.items()}
        return {id: spools.get(row.job_id, self.spool).exit_file(row.job_id, row.id) for id, row in subjobs.items()}

    def _asks(self, subjob: SubjobRow) -> bool:
        """Whether to ask now how a job ended: of one that was not known for long, once a minute is enough."""
        since = subjob.missing_since_s
        if since is None or self.clock() - since <= 2 * self.settings.limits.missing_grace_s:
            return True
        return self.polls % max(1, round(ASK_AGAIN_S / self.settings.poll_s)) == 0

    async def _no_answer(self, error: BatchError) -> None:
        self.failed_polls += 1
        self._health.looked()
        self.telemetry.failed_polls.inc()
        log.warning("batch-unavailable", error=error.sentence(), stderr=error.stderr)
        if self.batch_error:
            return
        self.batch_error = error.sentence()
        await self._tell(EventKind.BATCH_SILENT, error=self.batch_error)

    async def _tell(self, kind: EventKind, **data: Any) -> None:
        """An event of the daemon itself. A database that fails costs nothing else."""
        try:
            await self.store.write(lambda s: add_event(s, kind, self.clock(), **data))
        except EjbError as error:
            log.error("event-not-stored", kind=kind, error=error.sentence(), **data)

    async def _left_behind(self, gone: set[str]) -> dict[str, list[dict[str, Any]]]:
        """What workers of batch jobs that have ended could not tell, read before the writer needs it."""
        if not gone:
            return {}
        files = await self.store.read(lambda s: workers.report_files(self._context(s), gone))
        if not files:
            return {}
        # By their folders' users: where the files of one do not come, those of others do.
        of_users: dict[str, list[str]] = {}
        for file in files:
            of_users.setdefault(self.hands.user_at(Path(file)), []).append(file)
        read = [partial(workers.read_left_behind, of_one, self.hands.read) for of_one in of_users.values()]
        found: dict[str, list[dict[str, Any]]] = {file: [] for file in files}
        for of_one, reports in zip(of_users.values(), await each_apart(read), strict=True):
            if reports is None:
                log.warning("reports-unreadable", files=len(of_one), error="the file system does not answer")
            found |= reports or {}
        return found

    async def _see(self) -> None:
        """The first requests may come before the first poll."""
        if self.view is None and not self.batch_error:
            await self.poll()

    async def _view(self) -> ClusterView:
        await self._see()
        if self.view is None:
            raise EjbError(
                Code.BATCH_UNAVAILABLE, f"the batch system does not answer: {self.batch_error}", transient=True
            )
        return self.view
