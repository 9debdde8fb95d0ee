"""One daemon for many users, in the fake world: `ejb-as` in this process, and a batch system that tells users apart.

All files are this process's own, so that a test needs no root. What is looked at is as which user each thing is done.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.errors import BatchError, Code, EjbError
from ejbd.identity.sessions import Helper
from ejbd.manager.hands.spool import Spool
from ejbd.manager.manager import Manager
from ejbd.manager.world import World
from ejbd.store.models import Job
from tests.fakes.batch import MemoryBatch
from tests.fakes.live import LiveWorld
from tests.fakes.unrun import Unrun

_OF_A_JOB = re.compile(r"(?:^|/)jobs/([^/]+)")


class InProcess(Helper):
    """The helper's own code, for users with a folder each. `done`: user and job of everything done to a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(), [], f"{folder}/users/%u/.ejb")
        self.done: list[tuple[str, str]] = []
        self._users = folder / "users"
        self._of: dict[str, Unrun] = {}
        self._users.mkdir(exist_ok=True)
        for path in (folder, self._users):
            path.chmod(0o755)

    def ask(self, user: str, verb: str, *, answer_s: float = 0, **fields: Any) -> dict[str, Any]:
        if user not in self._of:
            (self._users / user).mkdir(exist_ok=True)
            self._of[user] = Unrun(self.spools.of(user))
        for path in (fields.get("path", ""), *fields.get("folders", ())):
            self.done += [(user, job) for job in _OF_A_JOB.findall(str(path))]
        answer = self._of[user].ask(verb=verb, **fields)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"])
        if not answer["ok"]:
            raise EjbError(Code.FORBIDDEN, answer["error"])
        return answer


class UsersBatch(MemoryBatch):
    """Each batch job is its user's own: another one's act on it is refused, and kept in `strange`."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.strange: list[str] = []
        self.trouble: dict[str, BatchError] = {}  # what a submission of this user's comes to

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        found = await super().find(identity, tags)
        return {tag: id for tag, id in found.items() if self.jobs[id].user == identity.user}

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        if request.output is not None and f"/users/{identity.user}/" not in f"{request.output}{request.script}":
            self.strange.append(f"{request.tag} for {identity.user}: {request.output}")
        if identity.user in self.trouble:
            self._call(f"submit {request.tag}", identity)
            raise self.trouble[identity.user]
        return await super().submit(identity, request)

    def _call(self, what: str, identity: Identity | None = None) -> None:
        words = what.split()
        if identity is not None and words[0] in ("cancel", "update", "reduce", "set-aside", "limit", "begin", "stay"):
            others = [id for id in words[1:] if id in self.jobs and self.jobs[id].user != identity.user]
            if others:
                self.strange.append(f"{what} for {identity.user}")
                raise BatchError("Access/permission denied", transient=False)
        self.calls.append(what)
        if self.silent:
            raise BatchError("the batch system does not answer", transient=True)


class ManyWorld(LiveWorld):
    """Jobs of any user, each acted for as that user."""

    batch: UsersBatch

    def _new_batch(self) -> MemoryBatch:
        self.helper = InProcess(self.folder)
        return UsersBatch(self.clock)

    def _new_manager(self) -> Manager:
        manager = Manager(World(self.settings, self.store, self.batch, clock=self.daemon_clock, helper=self.helper))
        manager.world.spool.worker = self.folder / "w.pyz"
        return manager

    def spool_of(self, job: str) -> Spool:
        return self.manager.world.hands.spool_of(self.user_of(job))

    def user_of(self, job: str) -> str:
        return self.store.read_sync(lambda s: s.scalars(select(Job.user).where(Job.id == job)).one())

    def acted_as_others(self) -> list[str]:
        """What was done to a job, a batch job or a file as any user but its own."""
        users = self.store.read_sync(lambda s: {row.id: row.user for row in s.execute(select(Job.id, Job.user))})
        strange = list(self.batch.strange)
        strange += [f"files of {job} as {user}" for user, job in self.helper.done if users.get(job, user) != user]
        for one in self.batch.jobs.values():
            job = one.name.removeprefix("ejb-").partition(".")[0]
            strange += [f"{one.name} as {one.user}"] if users[job] != one.user else []
        return strange
