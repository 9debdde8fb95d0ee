"""Whether workers can be heard. Their silence counts only while they can: the daemon runs, and its database answers.

A call is heard once the database has said which worker it is from. The daemon may have stood still (SIGSTOP, a
suspended machine), or its database may have been away. Then it has heard nothing meanwhile, and finds workers that have
called all along.
"""

from __future__ import annotations

from collections.abc import Callable

LISTEN_S = 1.0  # how often the daemon notes that it runs
STOOD_STILL_S = 10.0  # without such a note: it did not run


class Hearing:
    """`seen` has when each worker was last heard of (epoch seconds, by `clock`)."""

    def __init__(self, clock: Callable[[], float], seen: dict[str, float]) -> None:
        self._clock = clock
        self._seen = seen
        self._heard_s = clock()
        self._away = False

    async def listen(self) -> None:
        """The daemon runs: to be called every LISTEN_S."""
        if self._away:
            return
        if self._clock() - self._heard_s > STOOD_STILL_S:
            self._make_up()
        self._heard_s = self._clock()

    def database_away(self, last_s: float | None) -> None:
        """It does not answer; at `last_s` (None: unknown) it still did. Repeatable."""
        if not self._away and last_s is not None:
            self._heard_s = min(self._heard_s, last_s)
        self._away = True

    def database_answers(self) -> None:
        """It answers, as it mostly does: to be called before anything is made of a worker's silence."""
        if self._away:
            self._away = False
            self._make_up()

    def shift(self, by_s: float) -> None:
        """The clock was set."""
        self._heard_s += by_s

    def _make_up(self) -> None:
        now = self._clock()
        for id in list(self._seen):
            self._seen[id] = min(now, self._seen[id] + now - self._heard_s)
        self._heard_s = now
