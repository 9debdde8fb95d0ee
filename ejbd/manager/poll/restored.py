"""A database that was restored from an older copy is brought up to what the spool and the batch system know."""

from __future__ import annotations

import asyncio

import structlog
from sqlalchemy import select

from ejbd.core.view import ClusterView
from ejbd.manager.acts import records
from ejbd.manager.facts.tags import job_id_in
from ejbd.manager.service.ends import read_ends
from ejbd.manager.world import World
from ejbd.store.models import Job
from ejbd.store.states import TERMINAL_JOB

log = structlog.get_logger(__name__)

IDS_AT_ONCE = 500


async def adopt_known(world: World, view: ClusterView, later: int) -> None:
    """Adopt what they know, in one transaction; told in the log. `later`: the number of the spool's sign.

    Raises EjbError (STORE). What cannot be read stays where it is.
    """
    store, hands = world.store, world.hands
    users = await store.read(lambda s: list(s.scalars(select(Job.user).distinct())))
    folders = await asyncio.to_thread(hands.job_folders, users)
    there = sorted(id for _, ids in folders for id in ids)
    over: set[str] = set()
    for at in range(0, len(there), IDS_AT_ONCE):
        ended = select(Job.id).where(Job.id.in_(there[at : at + IDS_AT_ONCE]), Job.state.in_(TERMINAL_JOB))
        over |= await store.read(lambda s, ended=ended: set(s.scalars(ended)))  # type: ignore[misc]
    kept: list[records.KeptJob] = []
    for spool, ids in folders:
        user = hands.user_at(spool.root / "jobs")
        kept += [await asyncio.to_thread(records.read_kept, spool, id, user) for id in sorted(ids - over)]
    owners = {one.id: one.user for one in kept}
    tagged = [job for job in view.jobs if not job.foreign and job_id_in(job.mark) in owners]
    listed = {job.mark: job for job in tagged if owners[job_id_in(job.mark)] in ("", job.user)}
    ends = await asyncio.to_thread(read_ends, world.spool)
    found, unknown = await store.write(lambda s: records.adopt(world.context(s), kept, listed, ends, later))
    log.warning("database-is-older", adopted=found, unknown=unknown, hint="`ejb jobs --state unknown` lists those")
