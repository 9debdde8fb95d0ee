"""Work on whole files, which would keep the worker's loop from its other duties: in a thread."""

from __future__ import annotations

import threading
from typing import Callable, Generic, List, Optional, TypeVar

Value = TypeVar("Value")


class Background(Generic[Value]):
    """Calls `work` once, in a thread of its own that dies with the process."""

    def __init__(self, work: Callable[[], Value]) -> None:
        self._values: List[Value] = []
        self._error: Optional[BaseException] = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._values.append(self._work())
        except Exception as error:
            self._error = error

    @property
    def done(self) -> bool:
        return bool(self._values) or self._error is not None

    def result(self) -> Value:
        """What `work` returned, once it is done. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._values[0]
