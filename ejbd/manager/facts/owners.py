"""Which user a tag belongs to, where many users are served: any of them can write another's tag into a comment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.view import BatchJobView, ClusterView
from ejbd.manager.facts.tags import job_id_in
from ejbd.store.models import Job

AT_ONCE = 500


class Owners:
    """Remembers the users of jobs, which never change."""

    def __init__(self) -> None:
        self._users: dict[str, str] = {}

    def unknown(self, view: ClusterView) -> set[str]:
        """Jobs that the tags of a view name, and that have to be looked up first."""
        return {id for job in view.jobs if (id := job_id_in(job.mark)) and id not in self._users}

    def read(self, session: Session, jobs: Collection[str]) -> None:
        ordered = sorted(jobs)
        for at in range(0, len(ordered), AT_ONCE):
            found = session.execute(select(Job.id, Job.user).where(Job.id.in_(ordered[at : at + AT_ONCE])))
            self._users.update({row.id: row.user for row in found})

    def verified(self, view: ClusterView) -> ClusterView:
        """The view, in which a batch job with the tag of another user's job is a stranger's, without a mark."""
        marked = {id for job in view.jobs if (id := job_id_in(job.mark))}
        self._users = {id: user for id, user in self._users.items() if id in marked}
        return replace(view, jobs=tuple(self._verified(job) for job in view.jobs))

    def _verified(self, job: BatchJobView) -> BatchJobView:
        id = job_id_in(job.mark)
        return job if not id or self._users.get(id) == job.user else replace(job, tag="", foreign=True)
