"""What is seen of ranks while they run: memory, progress, what keeps them from being moved, and stillness."""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, Optional

from . import stillness
from .engines.base import Engine, EngineError, EpochContext
from .loop import Loop
from .watching import Samples, progress_file, resident

LOOKS_BEFORE_CHECKPOINT = 6
LOOK_AGAIN_S = 0.05
"""Before a checkpoint: a temporary file that is open for a moment is no reason not to move."""


class Observer:
    """Looks again and again, by the loop.

    `ends`: no rank runs, or all are being stopped. `rests`: a checkpoint is being made. `looked`: called after a look.
    """

    def __init__(
        self,
        context: EpochContext,
        engine: Engine,
        *,
        loop: Loop,
        report: Callable[..., object],
        ends: Callable[[], bool],
        rests: Callable[[], bool],
        looked: Callable[[], None],
    ) -> None:
        self._context = context
        self._engine = engine
        self._loop = loop
        self._report = report
        self._ends = ends
        self._rests = rests
        self._looked = looked
        self._progress = progress_file(str(context.payload["launch_file"]))
        self._samples: Optional[Samples] = None
        self._stillness: Optional[stillness.Stillness] = None

    def begin(self, *, may_hang: bool) -> None:
        """The ranks are up. `may_hang`: they are looked at for stillness."""
        self._samples = Samples(self._context.epoch, self._progress if self._context.home else None)
        self._sample(self._samples)
        if may_hang:
            before = self._context.restart_dir
            self._stillness = stillness.Stillness(stillness.kept(before) if before is not None else {})
            self._look_for_stillness(self._stillness)

    def before_checkpoint(self) -> str:
        """What is in the way of a checkpoint, after a few readings, and as it was reported; "": nothing is."""
        self.last_sample()
        for _ in range(LOOKS_BEFORE_CHECKPOINT - 1):
            if not self._obstacle():
                return ""
            time.sleep(LOOK_AGAIN_S)
        obstacle = self._obstacle()
        if obstacle and self._samples is not None:
            self._report("sample", **self._samples.with_obstacle(obstacle))
        return obstacle

    def last_sample(self) -> None:
        self._read_progress()
        found = self._samples.last() if self._samples is not None else None
        if found is not None:
            self._report("sample", **found)

    def look_at_stillness(self) -> None:
        """Also of ranks that did not run for as long as from one look to the next."""
        if self._stillness is not None:
            self._stillness.look(time.monotonic(), self._signs())

    def keep_stillness(self) -> None:
        if self._stillness is not None:
            name = "%s-%d" % (self._context.node.replace("/", "_"), os.getpid())
            try:
                stillness.keep(self._context.checkpoint_dir, name, self._stillness.longest)
            except OSError:
                pass  # then nothing is known of it after the restart

    def _running(self) -> Dict[int, int]:
        return {rank: child.pid for rank, child in self._context.ranks.items() if child.code is None}

    def _sample(self, samples: Samples) -> None:
        """Tell what is new about the ranks, again and again while they run."""

        def take() -> None:
            if self._ends():
                return
            if not self._rests():
                pids = list(self._running().values())
                self._read_progress()
                found = samples.take(resident(pids), self._obstacle())
                if found is not None:
                    self._report("sample", **found)
                self._looked()
            self._sample(samples)

        self._loop.call_later(samples.pause_s, take)

    def _read_progress(self) -> None:
        if self._context.home:
            try:
                self._engine.tell_progress(self._context, self._progress)
            except (EngineError, OSError, ValueError):
                pass  # a log that cannot be read: nothing is known of it

    def _look_for_stillness(self, watched: stillness.Stillness) -> None:
        """Tell once of a rank that hangs since its restart."""
        if self._ends():
            return
        if not self._rests():
            hangs = watched.look(time.monotonic(), self._signs())
            if hangs is not None:
                self._report("stuck", epoch=self._context.epoch, rank=hangs[0], seconds=round(hangs[1], 1))
                return
        self._loop.call_later(stillness.LOOK_S, lambda: self._look_for_stillness(watched))

    def _signs(self) -> Dict[int, stillness.Signs]:
        output = os.path.join(self._context.folder, "output")
        return stillness.signs_of(
            {
                rank: (pid, [os.path.join(output, "%d.%s" % (rank, end)) for end in ("out", "err")])
                for rank, pid in self._running().items()
            }
        )

    def _obstacle(self) -> str:
        try:
            return self._engine.obstacle(self._context)
        except (EngineError, OSError, ValueError, IndexError):
            return ""  # a process has ended while it was read
