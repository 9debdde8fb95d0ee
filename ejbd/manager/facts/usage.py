"""What each user has used lately in each queue that tells users apart, in memory.

A daemon that has just started reads it from the batch jobs of the last half-lives, so that a restart forgives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.core.fairshare import Account
from ejbd.manager.facts.listing.rows import JobRow, SubjobRow
from ejbd.store.models import Job, Subjob
from ejbd.store.queries import open_or_ended
from ejbd.store.states import STARTED_SUBJOB

HALF_LIVES = 7.0  # that are looked back at: of what is older less than one in a hundred is not forgotten

Held = tuple[str, float, float, float]


@dataclass
class Usage:
    """Accounts by queue."""

    accounts: dict[str, Account[str]] = field(default_factory=dict)

    def look(
        self,
        session: Session,
        jobs: Mapping[str, JobRow],
        subjobs: Mapping[str, Sequence[SubjobRow]],
        now: float,
        half_lives_s: Mapping[str, float],
    ) -> None:
        """A poll: charge what was held since the last one. `half_lives_s`: of the queues that tell users apart.

        `jobs` and `subjobs`: the roster's.
        """
        for queue in set(self.accounts) - set(half_lives_s):
            del self.accounts[queue]
        held: dict[str, list[Held]] = {queue: [] for queue in half_lives_s}
        for id, row in jobs.items():
            if row.queue in held:
                for subjob in subjobs.get(id, ()):
                    if subjob.state in STARTED_SUBJOB:
                        account = self.accounts.get(row.queue)
                        since_s = max(subjob.start_s or now, account.as_of_s if account else now)
                        held[row.queue].append((row.user, subjob.processors, since_s, now))
        for queue, half_life_s in half_lives_s.items():
            account = self.accounts.get(queue)
            if account is None or account.half_life_s != half_life_s:
                account = self.accounts[queue] = Account(half_life_s, now)
                held[queue] = _held_before(session, queue, now, half_life_s)
            account.charge(held[queue], now)

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        for account in self.accounts.values():
            account.as_of_s += by_s


def _held_before(session: Session, queue: str, now: float, half_life_s: float) -> list[Held]:
    since_s = now - HALF_LIVES * half_life_s
    wanted = (
        select(Job.user, Subjob.processors, Subjob.start_s, Subjob.end_s, Subjob.state)
        .join(Job, Job.id == Subjob.job_id)
        .where(Job.queue == queue, Subjob.start_s.is_not(None), open_or_ended(Subjob, since_s))
    )
    held: list[Held] = []
    for user, processors, start_s, end_s, state in session.execute(wanted):
        end = now if state in STARTED_SUBJOB or end_s is None else min(end_s, now)  # while it runs that is planned
        held.append((user, processors, max(start_s or since_s, since_s), end))
    return held
