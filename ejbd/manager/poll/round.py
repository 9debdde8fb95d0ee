"""One poll's decisions about all jobs, by some milliseconds at a time.

Slots that a job takes are gone for those behind it, so that they are visited in their queue's order. Most jobs only go
on waiting, and are not loaded: the roster's few columns say all that the policies ask about a waiting job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from sqlalchemy import bindparam, select, update

from ejbd.core.decision import no_room
from ejbd.manager.acts.carrying import carry_out, in_savepoint
from ejbd.manager.acts.guard import guarded
from ejbd.manager.acts.rehearsing import changes_nothing
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.keptworlds import KeptWorld
from ejbd.manager.facts.listing.roster import Roster, Specs, WaitingJob, waiting_world
from ejbd.manager.facts.listing.rows import JobRow, SubjobRow
from ejbd.manager.facts.room.verdicts import verdict
from ejbd.manager.rules.planning import giving, inway
from ejbd.manager.rules.planning.decide import Decider
from ejbd.manager.rules.planning.decisions import record
from ejbd.manager.rules.planning.fairly import fairly
from ejbd.store.models import Job, Subjob
from ejbd.store.states import LIVING_JOB, STARTED_SUBJOB, JobState
from ejbd.store.transitions import add_events
from ejbd.wire.kinds import JobKind, SubjobRole

JOBS_AT_ONCE = 8  # that are loaded together at most, and decided one after the other; as many as a step has time for
ASKED_AT_ONCE = 16  # of those that are not loaded, between two chances for others to write
ROWS_AT_ONCE = 200
NO_ROOM = verdict(no_room("", 0.0))
"""What every waiting job is told while nothing is free."""
_KEY = (
    update(Job.__table__)  # type: ignore[arg-type]
    .where(Job.seq == bindparam("job"))
    .values(decision_key=bindparam("key"), expected_completion_s=bindparam("completion"))
)


class Round:
    """`ctx` is the transaction that is under way; `pieces` goes on, each time for some milliseconds.

    The jobs that are `changed` since the roster was read are loaded whatever it says of them.
    """

    def __init__(self, ctx: Context, roster: Roster, changed: Collection[str], specs: Specs) -> None:
        self._decider = Decider(ctx, remembers=True)
        self._roster = roster
        self._changed = changed
        self._specs = specs
        self._told: list[WaitingJob] = []
        self._loaded: dict[str, JobWorld] = {}
        self._decided = self._at_once = JOBS_AT_ONCE

    @property
    def ctx(self) -> Context:
        return self._decider.ctx

    @ctx.setter
    def ctx(self, ctx: Context) -> None:
        if ctx is not self._decider.ctx:
            self._loaded = {}  # rows of a session that has ended
            self._at_once, self._decided = max(1, min(self._decided, JOBS_AT_ONCE)), 0
        self._decider.ctx = ctx

    def pieces(self) -> Iterator[None]:
        """Every job that is not over. One job's fault is its own."""
        ctx = self.ctx
        if ctx.view is not None:
            ctx.promises.look(ctx.session, ctx.view, ctx.now, ctx.settings.poll_s)
        yield from self._give_back()  # first: what would do for a waiting job with what others give is not offered
        some: list[JobRow] = []
        roster, resting = self._roster, self._roster.resting
        room: dict[str, bool] = {"": False}
        for at, (id, row) in enumerate(roster.jobs.items(), 1):
            if id not in resting:
                resting[id] = self._rests(row, roster.subjobs.get(id, ()))
            queue = resting[id]
            if queue is not None and queue not in room:
                room[queue] = bool(self._decider.room.windows(queue).available(0.0))
            if row.kind != JobKind.ARRAY and (queue is None or room[queue] or id in self._changed):
                some.append(row)
            if at % ROWS_AT_ONCE == 0:
                yield
        yield
        in_turn = sorted(some, key=self._decider.turn)  # of equals the first to come is the first
        in_turn = fairly(self.ctx, roster, in_turn)
        yield
        asked = [row.id for row in in_turn if self._may_be_asked(row)]
        for at in range(0, len(asked), ROWS_AT_ONCE):
            self._specs.read(self.ctx.session, asked[at : at + ROWS_AT_ONCE])
            yield
        asked_of = {id for id in asked if id in self._specs}
        running = roster.running
        whole = [row.id for row in in_turn if row.id not in asked_of and row.id not in running]
        done = 0
        for at, row in enumerate(in_turn, 1):
            if row.id in asked_of:
                self._ask(row)
                if at % ASKED_AT_ONCE:
                    continue
            elif row.id in running:
                kept = running.get(self.ctx, row.id)
                if kept is None or row.id in self._changed or not self._goes_on_running(kept):
                    self._decide(row.id, [row.id])
                if at % ASKED_AT_ONCE:
                    continue
            else:
                self._decide(row.id, whole[done : done + JOBS_AT_ONCE])
                done += 1
            self._store()
            yield
        self._store()
        self._specs.keep(self._roster.jobs)

    def _give_back(self) -> Iterator[None]:
        """Over-subscribed jobs are suspended, and give their room back, where a waiting job would fit into it.

        Before them come those that are in the way of a batch job by a limit.
        """
        ids = [row.id for row in self._roster.jobs.values() if row.elastic and row.state == JobState.RUNNING]
        stands = inway.anybody_stands(self.ctx)
        if not ids or not (stands or giving.anybody_waits(self.ctx)):
            return
        holders: list[giving.Holder] = []
        ways: list[inway.Way] = []
        for at in range(0, len(ids), JOBS_AT_ONCE):
            for kept in self._running(ids[at : at + JOBS_AT_ONCE]):
                self._read(kept, partial(giving.look, found=holders))
                if stands:
                    self._read(kept, partial(inway.look, found=ways))
            yield
        for id, standing in inway.asked_to_make_way(self.ctx, ways):
            holders = [one for one in holders if one.job != id]
            for world in self._load([id]).values():
                in_savepoint(world, partial(inway.make_way, stands=standing))
            yield
        for id, what in giving.asked_back(self.ctx, holders):
            for world in self._load([id]).values():
                in_savepoint(world, partial(giving.give_back, what=what))
            yield

    def _rests(self, row: JobRow, subjobs: Sequence[SubjobRow]) -> str | None:
        """A look at a job would change nothing, by its rows alone, while this queue has no room ("": whatever it has).

        None: it has to be looked at.
        """
        if row.kind == JobKind.ARRAY or row.state == JobState.RECEIVED:
            return ""  # it goes to the batch system first, for which no poll is waited
        if not row.elastic:
            return ""  # whether it waits or runs
        if row.state != JobState.WAITING:
            return None
        if row.decision_key != NO_ROOM or row.members_text != "[]" or len(subjobs) != 1:
            return None
        j0 = subjobs[0]
        if j0.role != SubjobRole.PLACEHOLDER or j0.releasing or j0.state in STARTED_SUBJOB:
            return None
        return str(row.queue)

    def _may_be_asked(self, row: JobRow) -> bool:
        """Whether the policy may be asked about a job as the roster shows it."""
        waits = row.state == JobState.WAITING and row.elastic and row.members_text == "[]"
        return waits and row.id not in self._changed

    def _goes_on_waiting(self, world: JobWorld) -> bool:
        waits, news = self._decider.goes_on_waiting(world)
        if news is not None:
            carry_out(world, record(world, *news))
        return waits

    def _ask(self, row: JobRow) -> None:
        job = WaitingJob(row, self._specs.of(row.id))
        world = waiting_world(self.ctx, job, self._roster.subjobs.get(row.id, []))
        if not self._goes_on_waiting(world):
            self._decide(row.id, [row.id])
        elif job.told is not None:
            self._told.append(job)

    def _store(self) -> None:
        """What was decided about jobs that are not loaded, but for those that wait no longer."""
        session, told, self._told = self.ctx.session, self._told, []
        if not told:
            return
        waits = select(Job.seq).where(Job.seq.in_([job.seq for job in told]), Job.state == JobState.WAITING)
        still = set(session.scalars(waits))
        rows = [(job, *job.told) for job in told if job.told is not None and job.seq in still]
        if rows:
            keys = [{"job": j.seq, "key": j.decision_key, "completion": j.expected_completion_s} for j, *_ in rows]
            session.connection().execute(_KEY, keys)
            events = [{"kind": kind, "at_s": self.ctx.now, "job_id": job.id, "data": data} for job, kind, data in rows]
            add_events(session, events)

    def _decide(self, id: str, with_it: Sequence[str]) -> None:
        """One job as it is by now, loaded along with the next in turn."""
        if id not in self._loaded:
            self._loaded |= self._load(with_it[: self._at_once])
        self._decided += 1
        world = self._loaded.get(id)
        if world is None or self._goes_on_waiting(world):
            return
        if world.job.elastic and world.job.state == JobState.RUNNING:
            kept = KeptWorld(self.ctx, world.job, _subjobs=world.subjobs)
            if self._goes_on_running(kept):
                self._roster.running.keep(kept)
                return
        in_savepoint(world, self._decider.decide)

    def _goes_on_running(self, world: KeptWorld) -> bool:
        """Whether a job that runs goes on as it is, as most do: a savepoint and its rows would be most of a poll."""
        return changes_nothing(world, self._decider.decide)

    def _read(self, kept: KeptWorld, look: Callable[[JobWorld], None]) -> None:
        """Have a job looked at. A fault is met again, and told, with its rows loaded."""
        try:
            look(kept)
        except Exception:
            for world in self._load([kept.job.id]).values():
                guarded(world, look)

    def _running(self, ids: Sequence[str]) -> list[KeptWorld]:
        """These jobs for reading, but for those that have ended."""
        found = {id: self._roster.running.get(self.ctx, id) for id in ids}
        loaded = self._load([id for id, kept in found.items() if kept is None])
        worlds = {id: KeptWorld(self.ctx, world.job, _subjobs=world.subjobs) for id, world in loaded.items()}
        return [world for id in ids if (world := found[id] or worlds.get(id)) is not None]

    def _load(self, ids: Sequence[str]) -> dict[str, JobWorld]:
        """These jobs with their subjobs; not those that have ended."""
        session = self.ctx.session
        if not ids:
            return {}
        jobs = session.scalars(select(Job).where(Job.id.in_(ids), Job.state.in_(LIVING_JOB)))
        worlds = {job.id: JobWorld(self.ctx, job, _subjobs=[]) for job in jobs}
        for subjob in session.scalars(select(Subjob).where(Subjob.job_id.in_(worlds)).order_by(Subjob.ordinal)):
            worlds[subjob.job_id].subjobs.append(subjob)
        return worlds
