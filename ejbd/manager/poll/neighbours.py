"""Jobs that are not EJB's: a poll asks how some ended, and notes what it saw of all."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from ejbd.batch.base import BatchEnd
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError
from ejbd.manager.poll.others import Noting, Others
from ejbd.manager.world import World

log = structlog.get_logger(__name__)


class Neighbours:
    """`others`: what is kept of them; None where nothing is (`others_retention_days` is 0)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.others = Others(world.store) if world.settings.limits.others_retention_days > 0 else None

    async def ends(self, view: ClusterView) -> Mapping[str, BatchEnd]:
        """What is still known of those that ended while no poll looked."""
        gone = await self.others.unlisted(view) if self.others is not None else {}
        if not gone:
            return {}
        world = self._world
        try:
            return await world.batch.outcomes(dict.fromkeys(gone, world.settings.spool_dir / "no-exit-file"), gone)
        except BatchError as error:
            log.warning("others-unknown", jobs=len(gone), error=error.sentence())
            return {}

    async def note(self, view: ClusterView, ends: Mapping[str, BatchEnd]) -> None:
        """Store what has changed about them."""
        if self.others is None:
            return
        try:
            noting = Noting(self.others, view, ends)
            while await self._world.store.write(noting.step):
                pass
        except BaseException:
            self.others.forget()
            raise
