"""What the times in a row come to at a moment: the work that a job has done, the end of a subjob."""

from __future__ import annotations

from math import inf

from ejbd.core.bundling.weighing import SHARE, weighed_left
from ejbd.core.view import BatchJobView
from ejbd.store.models import Job, Subjob

CLOCKS_S = 2.0  # what ends so near to its limit was ended by it; clocks differ a little, and Slurm tells whole seconds


def usable_end(subjob: Subjob, now: float) -> float:
    """Until when ranks may use a subjob (absolute seconds): its walltime less what the last checkpoint needs."""
    start = subjob.start_s if subjob.start_s is not None else now
    return min(start + subjob.usable_s, walltime_end(subjob, now))


def walltime_end(subjob: Subjob, now: float) -> float:
    """When the batch system ends a subjob, or its ranks have to be gone for another reason (absolute seconds)."""
    start = subjob.start_s if subjob.start_s is not None else now
    # The batch system may have granted less, or the time was shortened.
    told = [end for end in (subjob.end_s, subjob.leave_by_s) if end is not None]
    return min([start + subjob.walltime_s, *told])


def planned_end(start_s: float | None, seen: BatchJobView) -> float | None:
    """When the batch system means to end a subjob, by our own clock: what it grants is told by its clock alone."""
    if seen.end_s is None or seen.start_s is None or start_s is None:
        return seen.end_s
    return start_s + (seen.end_s - seen.start_s)


def work_now(job: Job, now: float) -> float:
    """W: full-speed seconds done at `now` (Eq. 3)."""
    since = max(0.0, now - job.work_as_of_s) if job.work_as_of_s is not None else 0.0
    return job.work_s + job.work_rate * since


def planned_s(job: Job, work_s: float) -> float:
    """R: how long a job that has done `work_s` is planned to run altogether (seconds at full width).

    It is the walltime, or what was learned of its application (ejbd.manager.facts.past.speculating), until it is
    outlived.
    """
    walltimes = job.walltimes or {}
    learned: list[float] = walltimes.get("planned_s") or []
    now_s = learned[walltimes["at"]] if learned else job.walltime_s
    return now_s if work_s < now_s else job.walltime_s


def expected_left_s(job: Job, work_s: float) -> float | None:
    """What earlier runs say is left of a job that has done `work_s` (seconds at full width); None: they say nothing.

    By the points of their law that were kept with it (ejbd.manager.facts.past.speculating).
    """
    points = (job.walltimes or {}).get("points_s")
    return weighed_left(points, work_s, inf, SHARE) if points else None


AHEAD_POLLS = 2.0  # before the last checkpoint has to begin: the next look, and the way to the workers
