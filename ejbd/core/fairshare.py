"""A fair order between users: in which order jobs look for room, so that no user's many keep another's few from it.

Each user has an account of processor-seconds, half of which is forgotten in every half-life. Turn by turn the user with
the least on the account has the next job, which is charged with what it has left to do. So a user that has used nothing
lately is second at worst, however many jobs of others wait. Within a user the order is the policy's own.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U", bound=Hashable)


def in_fair_order(
    jobs: Sequence[T], user: Callable[[T], U], work: Callable[[T], float], spent: Callable[[U], float]
) -> list[T]:
    """The jobs, which come in the order of the policy. `work`, `spent`: processor-seconds, 0 or more.

    Of users with equal accounts the one name next job comes first has its turn. O(n log n).
    """
    waiting: dict[U, list[tuple[int, T]]] = {}
    for place, job in enumerate(jobs):
        waiting.setdefault(user(job), []).append((place, job))
    if len(waiting) < 2:
        return list(jobs)
    taken = dict.fromkeys(waiting, 0)
    turns = [(spent(name), of_user[0][0], name) for name, of_user in waiting.items()]  # no two places are equal
    heapq.heapify(turns)
    ordered: list[T] = []
    while turns:
        account, _, name = heapq.heappop(turns)
        job = waiting[name][taken[name]][1]
        ordered.append(job)
        taken[name] += 1
        if taken[name] < len(waiting[name]):
            heapq.heappush(turns, (account + work(job), waiting[name][taken[name]][0], name))
    return ordered


def remembered(processors: float, begin_s: float, end_s: float, now_s: float, half_life_s: float) -> float:
    """Of processors that were held from `begin_s` to `end_s`, the processor-seconds that are not forgotten at `now_s`.

    `half_life_s` is above 0. The integral of processors * 2^(-(now - t) / half-life) over that time.
    """
    if end_s <= begin_s:
        return 0.0
    rate = math.log(2.0) / half_life_s
    return processors / rate * -math.expm1(-rate * (end_s - begin_s)) * math.exp(-rate * max(0.0, now_s - end_s))


class Account(Generic[U]):
    """What each user has used lately, as of `as_of_s`; before anything is charged that is nothing."""

    def __init__(self, half_life_s: float, as_of_s: float) -> None:
        self.half_life_s = half_life_s
        self.as_of_s = as_of_s
        self._spent: dict[U, float] = {}

    def charge(self, held: Iterable[tuple[U, float, float, float]], now_s: float) -> None:
        """Go on to `now_s`: users have held processors from one time to another (user, processors, begin, end)."""
        passed_s = max(0.0, now_s - self.as_of_s)
        kept = 0.5 ** (passed_s / self.half_life_s)
        self._spent = {user: left for user, of in self._spent.items() if (left := of * kept) >= 1.0}
        self.as_of_s = now_s
        for user, processors, begin_s, end_s in held:
            used = remembered(processors, begin_s, end_s, now_s, self.half_life_s)
            self._spent[user] = self._spent.get(user, 0.0) + used

    def of(self, user: U) -> float:
        """Processor-seconds."""
        return self._spent.get(user, 0.0)
