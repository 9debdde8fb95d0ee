"""Progress of `ejb sim` on stderr: a bar on a terminal, elsewhere a line now and then; nothing of what is soon over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_AFTER_S = 1.0
LINE_AFTER_S = 5.0
_SLOW = "compiling"  # reported at once when it begins
_SPARSER = 1.5  # each wait for the next line is so many times the one before


class Shown:
    """Hears of progress and shows it."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._next_line_s, self._wait_s = LINE_AFTER_S, LINE_AFTER_S
        self._what = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: float | None, /) -> None:
        elapsed_s = time.monotonic() - self._begin
        compiles = _SLOW in what and _SLOW not in self._what
        if sys.stderr.isatty():
            if self._bar is None and elapsed_s >= BAR_AFTER_S:
                self._open()
            if self._bar is not None and self._task is not None:
                total = None if done is None else 1.0
                self._bar.update(self._task, description=what, completed=done or 0.0, total=total)
        elif elapsed_s >= self._next_line_s or compiles:
            share = "" if done is None else f", {100 * done:.0f} %"
            print(f"ejb: {what}{share} after {elapsed_s:.0f} s", file=sys.stderr, flush=True)
            self._wait_s *= _SPARSER
            self._next_line_s = elapsed_s + self._wait_s
        self._what = what

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def shown() -> Iterator[Shown]:
    """Show what the simulator reports within."""
    from ejbd.sim.progress import heard_by

    with Shown() as listener, heard_by(listener):
        yield listener
