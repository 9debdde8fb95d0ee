"""EJB's batch jobs that are listed no more, or have ended: how they ended, and what their workers could not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from ejbd.batch.base import BatchEnd
from ejbd.core.view import ClusterView, base_id
from ejbd.files.userfiles import each_apart
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.manager.facts.tags import mark_of
from ejbd.manager.rules.requests import reports as workers
from ejbd.manager.world import World

log = structlog.get_logger(__name__)

ASK_AGAIN_S = 60.0


class Gone:
    """Looked up before the writer needs it: the batch system and files may be slow."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def outcomes(
        self, view: ClusterView, unlisted: Iterable[SubjobRow], polls: int
    ) -> Mapping[str, Mapping[str, BatchEnd]]:
        """How batch jobs ended that are not in the view of the poll after `polls` others: tag -> number -> end.

        An array has several. Subjobs of one number are asked about one after the other, as there are that many.
        """
        lost = [row for row in unlisted if (row.submit_s or 0) < view.time_s - 1.0 and self._asks(row, polls)]
        found: dict[str, Mapping[str, BatchEnd]] = {}
        while lost:
            now = {row.batch_id: row for row in lost if row.batch_id is not None}
            marks = {id: mark_of(row) for id, row in now.items()}
            ends = await self._world.batch.outcomes(await self._exit_files(now), marks)
            for id, row in now.items():
                found[row.tag] = {of: end for of, end in ends.items() if id in (of, base_id(of))}
            lost = [row for row in lost if row.tag not in found]
        return found

    def _asks(self, subjob: SubjobRow, polls: int) -> bool:
        """Whether to ask now how a job ended: of one that was not known for long, once a minute is enough."""
        since, settings = subjob.missing_since_s, self._world.settings
        if since is None or self._world.clock() - since <= 2 * settings.limits.missing_grace_s:
            return True
        return polls % max(1, round(ASK_AGAIN_S / settings.poll_s)) == 0

    async def _exit_files(self, subjobs: Mapping[str, SubjobRow]) -> dict[str, Path]:
        """Where these batch jobs write how they ended."""
        hands, own = self._world.hands, self._world.spool
        users = await self._world.store.read(lambda s: hands.users_of(s, {row.job_id for row in subjobs.values()}))
        spools = {job: hands.spool_of(user) for job, user in users.items()}
        return {id: spools.get(row.job_id, own).exit_file(row.job_id, row.id) for id, row in subjobs.items()}

    async def left_behind(self, gone: set[str]) -> dict[str, list[dict[str, Any]]]:
        """What workers of batch jobs that have ended could not tell, by the file that they left it in."""
        if not gone:
            return {}
        world, hands = self._world, self._world.hands
        files = await world.store.read(lambda s: workers.report_files(world.context(s), gone))
        if not files:
            return {}
        # By their folders' users: where the files of one do not come, those of others do.
        of_users: dict[str, list[str]] = {}
        for file in files:
            of_users.setdefault(hands.user_at(Path(file)), []).append(file)
        read = [(user, partial(workers.read_left_behind, of_one, hands.read)) for user, of_one in of_users.items()]
        found: dict[str, list[dict[str, Any]]] = {file: [] for file in files}
        for of_one, reports in zip(of_users.values(), await each_apart(read), strict=True):
            if reports is None:
                log.warning("reports-unreadable", files=len(of_one), error="the file system does not answer")
            found |= reports or {}
        return found
