"""One poll's look at everything, in transactions so short that submissions and reports of workers have their turn.

Each step is a transaction whole in itself: the first ones bring subjobs up to what the batch system says, the later
ones decide. A daemon that ends between two of them has merely not come to the rest, which the next poll does. A step
that fails ends the tick: what it had reckoned with in memory (room that was taken) is forgotten with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ejbd.batch.base import BatchEnd
from ejbd.core.view import ClusterView
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.listing.roster import Roster, Specs
from ejbd.manager.poll import turns
from ejbd.manager.poll.reconciling import Reconciler
from ejbd.manager.poll.round import Round
from ejbd.manager.rules.looks import drains
from ejbd.manager.rules.queues import calendars, losing

STEP_S = 0.01  # after which a step ends with the piece that it is at; a piece takes some milliseconds


class Tick:
    """`step` is called with a transaction each until it returns False."""

    def __init__(
        self,
        view: ClusterView,
        roster: Roster,
        outcomes: Mapping[str, Mapping[str, BatchEnd]],
        left_behind: Mapping[str, list[dict[str, Any]]],
        specs: Specs,
    ) -> None:
        self._view = view
        self._roster = roster
        self._outcomes = outcomes
        self._left_behind = left_behind
        self._specs = specs
        self._ctx: Context | None = None
        self._pieces = self._all()
        self.longest_s = 0.0  # of the steps so far, without their commits

    def step(self, ctx: Context) -> bool:
        """Go on for a while. True: there is more to do."""
        begun = time.monotonic()
        if self._ctx is not None:
            ctx.plugin = self._ctx.plugin  # a file's contents, read once a poll
        ctx.left_behind = self._left_behind
        self._ctx = ctx
        try:
            return any(time.monotonic() - begun > STEP_S for _ in self._pieces)
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - begun)

    def _all(self) -> Iterator[None]:
        ctx = self._context()
        carry_out(ctx, calendars.turn(ctx))
        carry_out(ctx, losing.turn(ctx))
        reconciler = Reconciler(self._context, self._view, self._roster, self._outcomes)
        yield from reconciler.pieces()
        ctx = self._context()
        carry_out(ctx, drains.mark(ctx))
        yield
        yield from turns.pieces(self._context, self._view, self._roster)
        if self._context().hands.own.trouble:
            return  # nothing that is decided now could be begun
        decisions = Round(self._context(), self._roster, reconciler.looked_at, self._specs)
        for _ in decisions.pieces():
            yield
            decisions.ctx = self._context()

    def _context(self) -> Context:
        """That of the step which is under way."""
        assert self._ctx is not None
        return self._ctx
