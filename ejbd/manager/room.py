"""What the queues offer at one poll: windows, less what others are about to take of them, and what was taken so far."""

from __future__ import annotations

from sqlalchemy import select

from ejbd.core.shapes import BackfillSlot
from ejbd.core.view import BatchState
from ejbd.core.windows import Windows, windows
from ejbd.manager.context import Context
from ejbd.manager.subjobs import TAG_PREFIX
from ejbd.store.models import Job, Subjob
from ejbd.store.states import SubjobState
from ejbd.wire.kinds import SubjobRole

START_UP_POLLS = 3.0  # polls that pass until a subjob's ranks run: it is seen, its workers come, siblings are awaited


class Room:
    """The windows of each queue, found when they are first asked for. `ctx` is the transaction that is under way."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._windows: dict[str, Windows] = {}

    def windows(self, queue: str) -> Windows:
        """What can be used now, less what jobs before this one have just asked for."""
        found = self._windows.get(queue)
        if found is None:
            found = windows(self.ctx.view, queue, self.ctx.now) if self.ctx.view else Windows(self.ctx.now, ())
            found = self._less_what_starts_next(queue, found)
            found = self._less_what_is_coming(queue, found)
            self._windows[queue] = found
        return found

    def _less_what_starts_next(self, queue: str, found: Windows) -> Windows:
        """Processors that came free a moment ago go to the waiting jobs that fit, at the batch system's next pass.

        One that fits and does not start waits for something else than room, and holds nobody up for long.
        """
        fitting: dict[str, float] = {}
        if self.ctx.view is not None and found.available(0.0):  # else nobody fits, however many wait
            for job in self.ctx.view.jobs:
                waits = job.queue == queue and job.state is BatchState.PENDING and not job.blocked
                if not waits or job.mark.startswith(TAG_PREFIX) or job.walltime_s is None:
                    continue
                if job.processors <= found.available(job.walltime_s):
                    since = fitting[job.id] = self.ctx.fitting.get((queue, job.id), self.ctx.now)
                    if self.ctx.now - since <= START_UP_POLLS * self.ctx.settings.poll_s:
                        found = found.take(job.processors, job.walltime_s)
        for known in [known for known in self.ctx.fitting if known[0] == queue]:
            del self.ctx.fitting[known]
        self.ctx.fitting.update({(queue, id): since for id, since in fitting.items()})
        return found

    def _less_what_is_coming(self, queue: str, found: Windows) -> Windows:
        """Subjobs that were asked for and have not started will take what the view still shows as free."""
        query = select(Subjob).join(Job, Subjob.job_id == Job.id)
        coming = query.where(
            Job.queue == queue,
            Subjob.role == SubjobRole.SUBJOB,
            Subjob.state.in_((SubjobState.PLANNED, SubjobState.PENDING)),
            Subjob.releasing.is_(False),
        )
        for subjob in self.ctx.session.scalars(coming):
            available = min(found.available(subjob.usable_s), subjob.processors)
            if available:
                found = found.take(available, subjob.usable_s)
        return found

    def keep(self, queue: str, left: Windows) -> None:
        """A job has taken room of a queue: so much is left."""
        self._windows[queue] = left


def shortened(slots: tuple[BackfillSlot, ...], tail_s: float, max_walltime_s: float) -> tuple[BackfillSlot, ...]:
    """Slots without their last `tail_s`, which the last checkpoint may need beyond lambda; those that have an end."""
    if tail_s <= 0:
        return slots
    cut = (s if s.duration_s >= max_walltime_s else BackfillSlot(s.processors, s.duration_s - tail_s) for s in slots)
    return tuple(slot for slot in cut if slot.duration_s > 0)
