"""When the batch system is polled: by the timer, and sooner where a worker has reported what only a poll makes use of.

A worker that leaves reports that processors are about to be free. A start needs a look only where the workers' word is
not enough (:mod:`ejbd.manager.rules.looks.heard`). Early looks are few whatever happens: some in a row, and in the long
run one for every two of the timer's. So a poll with what comes in between is three commands at most. After any look the
timer begins anew. A batch system that tells its changes by itself is looked at for each, since that costs it no
command. All times are the event loop's: its clock is never set.
"""

from __future__ import annotations

import asyncio
import math

GAP_S = 0.25  # between the beginnings of two looks: what is reported meanwhile is seen by one
TOLD_GAP_S = 0.04  # the same where the batch system itself has told a change
PART = 4.0  # and so many times as long as the last look took, so that looks are a quarter of the time at most
TIMERS_A_LOOK = 2.0  # the timer's looks in which another early one is earned
KEPT_FOR_STARTS = 2  # early looks that are not spent on what merely ends
PUT_OFF_S = 2.0  # at most, for what ends after something else: one look is to see both


class Looks:
    """`period_s`: between two looks of the timer. `early`: early looks that may be made in a row; 0: none ever."""

    def __init__(self, period_s: float, early: int) -> None:
        self._period_s = period_s
        self._most = float(early)
        self._saved = self._most
        self._saved_as_of_s = 0.0
        self._last_s = -math.inf
        self._asked_s = math.inf  # when an early look is wanted
        self._latest_s = -math.inf  # up to when that may be put off, where it is for what ends alone
        self._took_s = 0.0
        self._told_s = math.inf  # when the batch system has told a change that no look has seen
        self._asked = asyncio.Event()

    def ask(self, now_s: float, after_s: float = 0.0, *, ends: bool = False) -> None:
        """Have a look made soon, but not before `after_s` seconds. `ends`: for something that ends."""
        wanted_s = now_s + after_s
        if ends and now_s < self._asked_s <= self._latest_s:  # the look that is to come would be too early for this one
            self._asked_s = max(self._asked_s, min(wanted_s, self._latest_s))
            return
        self._refill(now_s)
        if self._saved >= (1 + KEPT_FOR_STARTS if ends else 1) and wanted_s < self._asked_s:
            self._asked_s, self._latest_s = wanted_s, wanted_s + PUT_OFF_S if ends else -math.inf
            self._asked.set()

    def told(self, now_s: float) -> None:
        """The batch system has changed, and says so itself."""
        self._told_s = min(self._told_s, now_s)
        self._asked.set()

    def begun(self, now_s: float) -> None:
        """A look begins, for whatever reason: it sees all that was reported until now."""
        self._last_s = now_s
        if self._told_s <= now_s:
            self._told_s = math.inf
        if self._asked_s <= now_s:
            self._asked_s = math.inf

    def ended(self, now_s: float) -> None:
        """The look that has begun is over."""
        self._took_s = now_s - self._last_s

    def due_s(self) -> float:
        """When the next look is to be made."""
        by_others_s = max(min(self._last_s + self._period_s, self._asked_s), self._last_s + GAP_S)
        return min(by_others_s, max(self._told_s, self._last_s + max(TOLD_GAP_S, PART * self._took_s)))

    def pay(self, now_s: float) -> None:
        """A look is about to be made; an early one is one less of those that may be made."""
        if self._last_s + self._period_s > now_s and self._told_s > now_s:
            self._refill(now_s)
            self._saved -= 1.0

    async def wait(self) -> None:
        """Until the next look is due, and paid for."""
        loop = asyncio.get_running_loop()
        while (left_s := self.due_s() - loop.time()) > 0:
            self._asked.clear()
            try:
                await asyncio.wait_for(self._asked.wait(), left_s)
            except TimeoutError:
                pass
        self.pay(loop.time())

    def _refill(self, now_s: float) -> None:
        gained = (now_s - self._saved_as_of_s) / (TIMERS_A_LOOK * self._period_s)
        self._saved, self._saved_as_of_s = min(self._most, self._saved + gained), now_s
