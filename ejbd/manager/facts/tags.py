"""By which mark a batch job is known as a subjob of ours."""

from __future__ import annotations

from ejbd.core.view import BatchJobView
from ejbd.manager.facts.listing.rows import SubjobRow
from ejbd.store.models import Subjob

TAG_PREFIX = "ejb-"


CLOCKS_APART_S = 5.0  # that the batch system's clock and ours may be


def is_ours(seen: BatchJobView, subjob: Subjob | SubjobRow) -> bool:
    """Whether the batch job that bears a subjob's id is the subjob: a controller that lost its state gives ids again.

    Its tag says so, whatever its name is by now. Where its comment was changed, it is known by its age: what got the id
    later was submitted later.
    """
    if seen.foreign:
        return False
    if seen.mark.startswith(TAG_PREFIX):
        return seen.mark == subjob.tag
    if seen.submit_s is None or subjob.submit_s is None:
        return False
    return seen.submit_s <= subjob.submit_s + CLOCKS_APART_S
