"""What the queues offer at one poll: windows, less what others are about to take of them, and what was taken so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from sqlalchemy import select

from ejbd.core.needs import PLAIN, Needs, seen_by
from ejbd.core.room.claims import less_what_is_coming, less_what_starts_next
from ejbd.core.room.limits import Allowed
from ejbd.core.room.place import Place, place_of
from ejbd.core.room.slots import Margins, margins_of
from ejbd.core.room.windows import Windows, windows
from ejbd.core.shapes import BackfillSlot
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.room.limits import LimitRoom
from ejbd.manager.facts.tags import TAG_PREFIX
from ejbd.store.models import Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole


class Room:
    """The windows of each queue, found when they are first asked for. `ctx` is the transaction that is under way.

    Room that is given back to a waiting job, and what is free beside it, is kept for that job: there are none then.

    `remembers`: a look counts for how long a job has fitted. A mere question leaves no trace.
    """

    def __init__(self, ctx: Context, *, remembers: bool = False) -> None:
        self.ctx = ctx
        self._remembers = remembers
        self._windows: dict[tuple[str, Needs], Windows] = {}
        self._taken: dict[str, list[tuple[int, float]]] = {}
        self._limits: LimitRoom | None = None

    def windows(self, queue: str, needs: Needs = PLAIN) -> Windows:
        """What can be used now, less what others are about to take and what jobs before this one have asked for.

        In places of a job with these needs (:mod:`ejbd.core.needs`).
        """
        needs = replace(needs, omax=None)
        found = self._windows.get((queue, needs))
        if found is None:
            found = self._unclaimed(queue, needs)
            found = less_what_is_coming(found, _in_places(self._taken.get(queue, ()), needs))
            self._windows[queue, needs] = found
        return found

    def allowed(self, world: JobWorld) -> Allowed:
        """The windows of a job's queue as far as the limits of its account let it use them."""
        found = self.windows(world.job.queue, world.needs)
        return self._of_accounts().allowed(world, self._with_memory(world, found) if world.needs.whole_mb else found)

    def _with_memory(self, world: JobWorld, found: Windows) -> Windows:
        """What of the windows has the memory of a job that needs as much in all on fewer ranks."""
        view, kept = self.ctx.view, list[BackfillSlot]()
        nodes = list(view.usable_nodes(world.job.queue)) if view is not None else []
        width_on = cache(world.width_alone)
        for step in found.steps:
            places = world.needs.room_of_whole(nodes, step.processors, width_on, found.processor_quantum)
            if places > (kept[-1].processors if kept else 0):
                kept.append(replace(step, processors=places))
        return replace(found, steps=tuple(kept))

    def place(self, world: JobWorld) -> Place | None:
        """The place of a job's J0, where what its subjobs use may cost that by fair share."""
        view, settings = self.ctx.view, self.ctx.queue_settings(world.job.queue)
        j0 = self._of_accounts().j0(world)
        if view is None or j0 is None or settings.subjob_qos or settings.subjob_account:
            return None
        return place_of(view, j0, world.needs.processors)

    def _of_accounts(self) -> LimitRoom:
        if self._limits is None:
            self._limits = LimitRoom(self.ctx)
        self._limits.ctx = self.ctx
        return self._limits

    def take(self, world: JobWorld, taken: Sequence[tuple[int, float]]) -> None:
        """A job has asked for these subjobs (processors, seconds): the others have so much less."""
        queue = world.job.queue
        if self._limits is not None:
            self._limits.take(world, taken)
        self._taken.setdefault(queue, []).extend(taken)
        for (name, needs), found in self._windows.items():
            if name == queue:
                self._windows[name, needs] = less_what_is_coming(found, _in_places(taken, needs))

    def _unclaimed(self, queue: str, needs: Needs) -> Windows:
        ctx = self.ctx
        if ctx.view is None:
            return Windows(ctx.now, ())
        view = seen_by(ctx.view, needs)
        found = windows(view, queue, ctx.now)
        others = (job for job in view.jobs if not job.mark.startswith(TAG_PREFIX))
        known = {id: since for (name, id), since in ctx.fitting.items() if name == queue}
        margins = margins_of(ctx.settings.poll_s, 0.0)
        found, fitting = less_what_starts_next(found, others, view.names_of(queue), known, margins)
        if self._remembers and needs.plain:
            for id in known.keys() - fitting.keys():
                del ctx.fitting[queue, id]
            ctx.fitting.update({(queue, id): since for id, since in fitting.items()})
        if ctx.promises.kept_for(ctx.view, queue) is not None:
            return replace(found, steps=())
        return less_what_is_coming(found, _in_places(_coming(ctx, queue), needs))


TOO_EARLY = "BeginTime"  # as Slurm says it


def _in_places(taken: Iterable[tuple[int, float]], needs: Needs) -> list[tuple[int, float]]:
    """Processors and seconds as places and seconds."""
    return [(-(-processors // needs.processors), seconds) for processors, seconds in taken]


def margins(ctx: Context, tail_s: float) -> Margins:
    """What this daemon keeps free for an application with this tail."""
    return margins_of(ctx.settings.poll_s, tail_s)


def _coming(ctx: Context, queue: str) -> list[tuple[int, float]]:
    """Subjobs of this queue that were asked for and have not started."""
    query = select(Subjob.processors, Subjob.usable_s).join(Job, Subjob.job_id == Job.id)
    coming = query.where(
        Job.queue == queue,
        Subjob.role == SubjobRole.SUBJOB,
        Subjob.state.in_((SubjobState.PLANNED, SubjobState.PENDING)),
        Subjob.releasing.is_(False),
        Subjob.reason != TOO_EARLY,  # what begins later is a planned start of the view
    )
    return [(processors, usable_s) for processors, usable_s in ctx.session.execute(coming)]
