"""What the queues offer at one poll: windows, less what others are about to take of them, and what was taken so far."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.room.claims import less_what_is_coming, less_what_starts_next
from ejbd.core.room.slots import Margins, margins_of
from ejbd.core.room.windows import Windows, windows
from ejbd.manager.context import Context
from ejbd.manager.subjobs import TAG_PREFIX
from ejbd.store.models import Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole


class Room:
    """The windows of each queue, found when they are first asked for. `ctx` is the transaction that is under way.

    `remembers`: a look counts for how long a job has fitted. Whoever only wants to know leaves no trace.
    """

    def __init__(self, ctx: Context, *, remembers: bool = False) -> None:
        self.ctx = ctx
        self._remembers = remembers
        self._windows: dict[str, Windows] = {}

    def windows(self, queue: str) -> Windows:
        """What can be used now, less what others are about to take and what jobs before this one have asked for."""
        found = self._windows.get(queue)
        if found is None:
            found = self._windows[queue] = self._unclaimed(queue)
        return found

    def keep(self, queue: str, left: Windows) -> None:
        """A job has taken room of a queue: so much is left."""
        self._windows[queue] = left

    def _unclaimed(self, queue: str) -> Windows:
        ctx = self.ctx
        if ctx.view is None:
            return Windows(ctx.now, ())
        found = windows(ctx.view, queue, ctx.now)
        others = (job for job in ctx.view.jobs if not job.mark.startswith(TAG_PREFIX))
        known = {id: since for (name, id), since in ctx.fitting.items() if name == queue}
        found, fitting = less_what_starts_next(found, others, queue, known, margins_of(ctx.settings.poll_s, 0.0))
        if self._remembers:
            for id in known.keys() - fitting.keys():
                del ctx.fitting[queue, id]
            ctx.fitting.update({(queue, id): since for id, since in fitting.items()})
        return less_what_is_coming(found, _coming(ctx, queue))


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
    )
    return [(processors, usable_s) for processors, usable_s in ctx.session.execute(coming)]
