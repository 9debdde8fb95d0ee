"""From a submission's body to the job that the manager takes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ejbd.api.access.allowance import Allowances
from ejbd.api.access.groups import refuse_another_group
from ejbd.api.auth import Principal
from ejbd.api.models import JobCreated, JobSubmission, OverridesBody
from ejbd.api.port import ManagerPort
from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read
from ejbd.manager.jobspec.spec import WITH_FIELDS
from ejbd.store.turns import UserTurns

_LONG_TEXT = 16_384  # characters, below a millisecond or two


class LongTexts:
    """Threads of their own for texts that take longer to read than a thread costs: `THREADS`, and one of each user.

    However many texts come, they keep neither the event loop nor the threads of others busy. Texts of one user are read
    one after the other: a text of another user waits for one of each user that came before, at most.
    """

    THREADS = 2

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.THREADS, thread_name_prefix="submission-reader")
        self._turns = UserTurns(1)

    async def read(self, user: str, body: JobSubmission, hashed: bool = True) -> tuple[Reading, str]:
        """As :func:`read_submission`."""
        async with self._turns.take(user):
            return await asyncio.get_running_loop().run_in_executor(self._threads, _read, body, hashed)


_LONG_TEXTS = LongTexts()


def request_of(body: JobSubmission) -> JobRequest:
    """The body as the reader of job specifications takes it."""
    return JobRequest(
        cwd=body.cwd,
        script=body.script,
        script_name=body.script_name,
        args=tuple(body.args),
        command=None if body.command is None else tuple(body.command),
        env=body.env,
        overrides=_overrides(body.overrides),
        script_path=body.script_path,
        umask=body.umask,
        limits={str(name): limit for name, limit in body.limits.items()},
        numbered=body.numbered,
        profiles=body.profiles,
    )


def _overrides(body: OverridesBody) -> Overrides:
    values: dict[str, Any] = body.model_dump()
    for key in ("ntasks", "nodes", "ntasks_per_node", "ntasks_max", *WITH_FIELDS):
        if values[key] is not None:
            values[key] = str(values[key])
    values["settings"] = {word: _text(value) for word, value in body.settings.items()}
    values["options"] = tuple(values["options"])
    return Overrides(**values)


def _text(value: str | float) -> str:
    """A setting's value as a script would have it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


async def read_submission(body: JobSubmission, user: str, hashed: bool = True) -> tuple[Reading, str]:
    """The user's job as it is understood, and the body's :func:`request_hash` where it is wanted. What is long is read
    off the event loop.

    Raises EjbError (INVALID) for what could not be run in any way.
    """
    short = _characters(body) <= _LONG_TEXT
    return _read(body, hashed) if short else await _LONG_TEXTS.read(user, body, hashed)


def _read(body: JobSubmission, hashed: bool = True) -> tuple[Reading, str]:
    return read(request_of(body)), request_hash(body) if hashed else ""


def _characters(body: JobSubmission) -> int:
    words = (body.script or "", *body.args, *(body.command or ()), *body.overrides.options, body.overrides.export or "")
    return sum(map(len, words)) + sum(map(len, body.env.values())) + sum(map(len, body.env))


async def submitted(
    manager: ManagerPort,
    allowances: Allowances,
    caller: Principal,
    body: JobSubmission,
    key: str | None,
    asked: str | None = None,
) -> JobCreated:
    """Store a job; durable when this returns. Raises EjbError where it is refused.

    `asked`: the digest of what has to be the same where `key` is; None: of the body.
    """
    refuse_another_group(caller, manager.settings)
    await allowances.submission(caller, manager, body)
    reading, digest = await read_submission(body, caller.user)
    taken = await manager.submit(reading, caller.user, key, asked or digest)
    return JobCreated(
        id=taken.id,
        name=reading.spec.name,
        created=taken.created,
        elastic=taken.elastic,
        why=taken.why,
        notes=list(taken.notes),
    )


def request_hash(body: JobSubmission) -> str:
    """The same for bodies that mean the same, whatever the order of their fields."""
    text = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
