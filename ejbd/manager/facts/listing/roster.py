"""All that is open, in the few columns by which a poll finds the jobs that need more.

Most jobs only wait, and reading them whole (a specification holds a user's environment) was most of what a poll cost.
The roster says which jobs to leave alone, as a poll a moment earlier would have done. Whatever is changed is loaded
again by the transaction that changes it. :mod:`ejbd.manager.facts.listing.workingset` keeps the roster between polls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlalchemy import Text, select
from sqlalchemy import cast as sql_cast
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, ClusterView
from ejbd.manager.facts.arrays import families
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.listing.keptworlds import KeptWorlds
from ejbd.manager.facts.listing.rows import JobRow, SubjobRow
from ejbd.manager.facts.tags import TAG_PREFIX, is_ours
from ejbd.store.models import Job, Subjob
from ejbd.store.states import LIVING_JOB, OPEN_SUBJOB

SPECS_AT_ONCE = 500
JOBS_AT_ONCE = 500
_LONG = frozenset({"env", "script", "argv", "asked"})  # of a specification; no decision depends on them
_MEMBERS = sql_cast(Job.members, Text).label("members_text")
_JOB = select(*(_MEMBERS if name == "members_text" else getattr(Job, name) for name in JobRow._fields)).where(
    Job.state.in_(LIVING_JOB)
)
_SUBJOB = select(*(getattr(Subjob, name) for name in SubjobRow._fields)).where(Subjob.state.in_(OPEN_SUBJOB))


@dataclass(frozen=True, repr=False)
class Roster:
    """Open jobs by their id in order of arrival, and the open subjobs by their job's id, in order of their making.

    Beside them stands what was found out about a job from its rows alone. It holds until one of them changes.
    `resting` is of :mod:`ejbd.manager.poll.round`. `seen` is what the view showed of a job that was left alone for it
    (:mod:`ejbd.manager.rules.looks.observe`). `running` are those that run, with all their rows.
    """

    jobs: dict[str, JobRow]
    subjobs: dict[str, list[SubjobRow]]
    resting: dict[str, str | None] = field(default_factory=dict)
    seen: dict[str, BatchJobView] = field(default_factory=dict)
    running: KeptWorlds = field(default_factory=KeptWorlds)

    @classmethod
    def read(cls, session: Session) -> Roster:
        """All of it, as of now. Two statements."""
        return cls._sorted(map(JobRow._make, session.execute(_JOB)), map(SubjobRow._make, session.execute(_SUBJOB)))

    @classmethod
    def of(cls, session: Session, ids: Sequence[str]) -> Roster:
        """What is open of these jobs."""
        jobs: list[JobRow] = []
        subjobs: list[SubjobRow] = []
        for at in range(0, len(ids), JOBS_AT_ONCE):
            some = ids[at : at + JOBS_AT_ONCE]
            jobs += map(JobRow._make, session.execute(_JOB.where(Job.id.in_(some))))
            subjobs += map(SubjobRow._make, session.execute(_SUBJOB.where(Subjob.job_id.in_(some))))
        return cls._sorted(jobs, subjobs)

    @classmethod
    def _sorted(cls, jobs: Iterable[JobRow], subjobs: Iterable[SubjobRow]) -> Roster:
        found: dict[str, list[SubjobRow]] = {}
        for row in subjobs:
            found.setdefault(row.job_id, []).append(row)
        for rows in found.values():
            if len(rows) > 1:
                rows.sort(key=lambda row: row.ordinal)
        return cls({row.id: row for row in sorted(jobs, key=lambda row: row.seq)}, found)

    def replace(self, ids: Sequence[str], now: Roster) -> None:
        """Let go of these jobs, but for what is open of them `now`."""
        self.running.drop(ids)
        for id in ids:
            self.resting.pop(id, None)
            self.seen.pop(id, None)
            if id not in now.jobs:
                self.jobs.pop(id, None)
            if id not in now.subjobs:
                self.subjobs.pop(id, None)
        self.jobs.update(now.jobs)  # a job that was there stays in its place, and new ones came after all others
        self.subjobs.update(now.subjobs)

    def known_in(self, view: ClusterView, by_user: bool = False) -> ClusterView:
        """The view, with the tags of those batch jobs of ours that have lost them, as their comment was changed.

        A J0 that stays for its turn has no planned start: it is kept from beginning for a while at a time.
        `by_user`: a user's own `sbatch` says which number a subjob has, and that user can make it say any. So a batch
        job of another user than the subjob's is a stranger's.
        """
        claims: dict[str, list[SubjobRow]] = {}
        stay: set[str] = set()
        for row in (row for rows in self.subjobs.values() for row in rows):
            if row.batch_id:
                claims.setdefault(row.batch_id, []).append(row)
                if row.stays:
                    stay.add(row.tag)
        jobs = []
        for job in view.jobs:
            if not (job.foreign or job.mark.startswith(TAG_PREFIX)):
                rows = claims.get(job.id) or claims.get(job.base_id) or []
                own = [row for row in rows if not by_user or self._user_of(row) in ("", job.user)]
                theirs = next((row for row in reversed(own) if is_ours(job, row)), None)
                if theirs is not None:
                    job = replace(job, tag=theirs.tag)
                elif rows and not own:
                    job = replace(job, foreign=True)
            if stay and job.planned_start_s is not None and job.mark in stay:
                job = replace(job, planned_start_s=None, planned_nodes=())
            jobs.append(job)
        return replace(view, jobs=tuple(jobs))

    def _user_of(self, row: SubjobRow) -> str:
        """ "" where the job is over, and only its subjob is not."""
        job = self.jobs.get(row.job_id)
        return "" if job is None else job.user

    def unlisted(self, view: ClusterView) -> list[SubjobRow]:
        """Open subjobs that the view does not show; also where their numbers are other jobs' by now."""
        shown = {job.id: [job] for job in view.jobs}
        for id, elements in families(view).items():
            shown.setdefault(id, []).extend(job for job in elements if not job.state.ended)
        rows = (row for rows in self.subjobs.values() for row in rows if row.batch_id)
        return [row for row in rows if not any(is_ours(job, row) for job in shown.get(row.batch_id or "", ()))]

    def tags(self) -> dict[str, str | None]:
        """Tag -> batch id of every open subjob."""
        return {row.tag: row.batch_id for rows in self.subjobs.values() for row in rows}


class Specs:
    """What jobs' specifications say that decisions depend on. A specification never changes, so this may be kept."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def read(self, session: Session, ids: list[str]) -> None:
        """Have those of all these jobs ready."""
        unknown = [id for id in ids if id not in self._known]
        for at in range(0, len(unknown), SPECS_AT_ONCE):
            some = unknown[at : at + SPECS_AT_ONCE]
            for id, spec in session.execute(select(Job.id, Job.spec).where(Job.id.in_(some))):
                self._known[id] = {key: value for key, value in spec.items() if key not in _LONG}

    def of(self, id: str) -> dict[str, Any]:
        return self._known[id]

    def __contains__(self, id: str) -> bool:
        return id in self._known

    def keep(self, ids: dict[str, Any]) -> None:
        """Forget the jobs that are over."""
        if len(self._known) > len(ids):
            self._known = {id: spec for id, spec in self._known.items() if id in ids}


class WaitingJob:
    """A waiting job of the roster where a :class:`ejbd.store.models.Job` is asked for. What is set here is not stored;

    `told`, the kind and data of an event, waits for being stored with the others'.
    """

    def __init__(self, row: JobRow, spec: dict[str, Any]) -> None:
        self._row = row
        self.spec = spec
        self.members: list[str] = []
        self.told: tuple[str, dict[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._row, name)


def waiting_world(ctx: Context, job: WaitingJob, subjobs: list[SubjobRow]) -> JobWorld:
    """A job that waits, as the policies see it, without a row loaded. Of its subjobs only the open ones are there."""
    return JobWorld(ctx, cast(Job, job), _subjobs=cast(list[Subjob], subjobs))
