"""How much of the daemon one user may take: requests, streams, waiting jobs, bytes of a script.

Administrators are not held to it: with one user that is the daemon's own, nothing is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from sqlalchemy.orm import Session
from starlette.types import Receive, Scope, Send

from ejbd.api.auth import Principal
from ejbd.api.models import JobSubmission
from ejbd.api.port import ManagerPort
from ejbd.api.shares import mark_as_stream
from ejbd.config import Limits
from ejbd.errors import Code, EjbError
from ejbd.store.models import Job, Workflow
from ejbd.store.turns import UserTurns
from ejbd.wire.rights import Role
from ejbd.wire.states import JobState, WorkflowState

SUBMISSIONS_BURST_S = 4.0  # so many seconds' worth of submissions do not wait for their turn
TURN_S = 30.0  # for which a submission waits
BURST_S = 10.0  # so many seconds' worth of requests may come at once
COUNTED_S = 2.0  # for how long a count of waiting jobs is gone by, with what has been added since
WAIT_S = 60.0  # after which a user with too many waiting jobs, or streams, may try again
MOST_KNOWN = 10_000
SMALL_BYTES = 64 * 1024  # of each body are read as they come
LARGE_AT_ONCE = 2  # longer bodies of one user, or of the workers of one subjob, that are read and dealt with at a time
_NOT_STARTED = (JobState.RECEIVED, JobState.WAITING)


class Rates:
    """Requests by user: a bucket each, which fills by `per_s` a second up to `at_once` (ten seconds' worth)."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic, at_once: float | None = None) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * BURST_S if at_once is None else at_once)
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, user: str) -> float:
        """Take one request off; the seconds until there is one, 0 where it was there."""
        now = self._clock()
        if len(self._left) >= MOST_KNOWN and user not in self._left:
            self._forget(now)
        left, at = self._left.get(user, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_s)
        if left < 1:
            self._left[user] = (left, now)
            return (1 - left) / self._per_s
        self._left[user] = (left - 1, now)
        return 0.0

    def take_turn(self, user: str, most_s: float) -> float:
        """Take one off, also before it is there: the seconds until then. Beyond `most_s` none is taken."""
        left_s = self.take(user)
        if 0 < left_s <= most_s:
            left, at = self._left[user]
            self._left[user] = (left - 1, at)
        return left_s

    def _forget(self, now: float) -> None:
        """Full buckets: of their users nothing is known that a new one would not have."""
        full = self._most / self._per_s
        self._left = {user: one for user, one in self._left.items() if now - one[1] < full}


@dataclass(slots=True)
class _Waiting:
    count: int
    at_s: float


class Allowances:
    """What the users have taken."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rates = Rates(limits.user_requests_per_s)
        per_s = limits.user_submissions_per_s
        self._submissions = Rates(per_s, at_once=per_s * SUBMISSIONS_BURST_S)
        self._streams: Counter[str] = Counter()
        self.large = UserTurns(LARGE_AT_ONCE)  # for requests with more than `SMALL_BYTES`
        self._waiting: dict[str, _Waiting] = {}

    def request(self, caller: Principal) -> None:
        """One more request. Raises EjbError (TOO_MANY)."""
        if caller.role is Role.ADMIN:
            return
        wait_s = self._rates.take(caller.user)
        if wait_s > 0:
            most = f"{caller.user} sends more than {self._limits.user_requests_per_s:g} requests a second"
            raise too_many(most, wait_s, "ask for lists or events, not for each job again and again")

    def new_stream(self, caller: Principal) -> None:
        """There may be one more. Raises EjbError (TOO_MANY)."""
        most = self._limits.user_streams
        if caller.role is not Role.ADMIN and self._streams[caller.user] >= most:
            hint = "one stream, GET /v1/events/stream, has the events of all your jobs"
            raise too_many(f"{caller.user} has {most} streams open already", WAIT_S, hint)

    @contextlib.contextmanager
    def stream(self, user: str) -> Iterator[None]:
        """While it lasts it counts."""
        self._streams[user] += 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]

    async def submission(self, caller: Principal, manager: ManagerPort, body: JobSubmission) -> None:
        """One more job. Raises EjbError: TOO_LARGE for its script, TOO_MANY where too many wait already.

        Beyond the rate of one user it waits here for its turn, and no other user for it.
        Of submissions that come at the same moment a few may get past the bound.
        """
        self.refuse_long_script(caller, body)
        if caller.role is not Role.ADMIN:
            await self._one_more(caller, manager)

    def refuse_long_script(self, caller: Principal, body: JobSubmission) -> None:
        """Raises EjbError (TOO_LARGE) for a script that no job may have."""
        if caller.role is Role.ADMIN:
            return
        most = self._limits.user_script_bytes
        if body.script is not None and len(body.script) > most // 4 and len(body.script.encode()) > most:
            hint = "a script starts programs; leave data in files of their own"
            raise EjbError(Code.TOO_LARGE, f"a script may have {most} bytes at most", where="body.script", hint=hint)

    async def workflow(self, caller: Principal, manager: ManagerPort) -> None:
        """One more workflow, which counts as a waiting job until it is over. Raises EjbError (TOO_MANY)."""
        if caller.role is not Role.ADMIN:
            await self._one_more(caller, manager)

    async def _one_more(self, caller: Principal, manager: ManagerPort) -> None:
        known = self._waiting.get(caller.user)
        now = time.monotonic()
        if known is None or now - known.at_s > COUNTED_S or known.count >= self._limits.user_waiting_jobs:
            if len(self._waiting) >= MOST_KNOWN:
                self._waiting.clear()
            count = await manager.store.read(lambda session: waiting_jobs(session, caller.user))
            known = self._waiting[caller.user] = _Waiting(count, now)
        if known.count >= self._limits.user_waiting_jobs:
            hint = "submit again when some have started; an array is one job until its elements start"
            raise too_many(f"{known.count} jobs of {caller.user} wait already", WAIT_S, hint)
        wait_s = self._submissions.take_turn(caller.user, TURN_S)
        if wait_s > TURN_S:
            most = f"{caller.user} submits more than {self._limits.user_submissions_per_s:g} jobs a second"
            raise too_many(most, wait_s, "many like jobs are an array")
        known.count += 1
        await asyncio.sleep(wait_s)


def waiting_jobs(session: Session, user: str) -> int:
    """Jobs of a user that have not started, and workflows that are not over: a next stage may have no job yet."""
    jobs = select(func.count()).select_from(Job).where(Job.user == user, Job.state.in_(_NOT_STARTED))
    running = Workflow.user == user, Workflow.state == WorkflowState.RUNNING
    flows = select(func.count()).select_from(Workflow).where(*running)
    return (session.scalar(jobs) or 0) + (session.scalar(flows) or 0)


def too_many(what: str, wait_s: float, hint: str) -> EjbError:
    """The error that says so, and when to try again (`Retry-After`)."""
    again_s = max(1, math.ceil(wait_s))
    return EjbError(Code.TOO_MANY, what, hint=hint, transient=True, details={"retry_after_s": again_s})


class CountedStream(StreamingResponse):
    """A stream that counts for its user from its first byte until it ends, however it ends."""

    def __init__(self, request: Request, caller: Principal, *content: object, **more: object) -> None:
        self._allowances: Allowances = request.app.state.allowances
        self._allowances.new_stream(caller)
        self._user = caller.user
        mark_as_stream(request)
        super().__init__(*content, **more)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._allowances.stream(self._user):
            await super().__call__(scope, receive, send)
