"""By which mark a batch job is known as a subjob of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ejbd.batch.base import Mark
from ejbd.core.view import BatchJobView, base_id
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.store.models import Subjob

TAG_PREFIX = "ejb-"
_K = TypeVar("_K")


def job_id_in(mark: str) -> str:
    """The id of EJB's job that a tag names (`ejb-3f.2` -> `3f`); "" where it is no tag."""
    return mark.removeprefix(TAG_PREFIX).rpartition(".")[0] if mark.startswith(TAG_PREFIX) else ""


def mark_of(subjob: Subjob | SubjobRow) -> Mark:
    return Mark(subjob.tag, subjob.told_submit_s)


def is_ours(seen: BatchJobView, subjob: Subjob | SubjobRow) -> bool:
    """Whether the batch job that bears a subjob's number is the subjob: a controller may give numbers again."""
    return not seen.foreign and mark_of(subjob).is_on(seen.mark, seen.submit_s)


def still_theirs(
    batch_ids: Mapping[_K, str], marks: Mapping[_K, Sequence[Mark]], rows: Iterable[BatchJobView], user: str
) -> dict[_K, str]:
    """Those of `batch_ids` that a listing shows with one of their marks, as jobs of this user."""
    shown = [row for row in rows if not row.foreign and row.user == user]
    return {
        about: id
        for about, id in batch_ids.items()
        if any(
            row.base_id == base_id(id) and any(mark.is_on(row.mark, row.submit_s) for mark in marks.get(about, ()))
            for row in shown
        )
    }
