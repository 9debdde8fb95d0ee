"""The worker's one place to wait: signals, timers, sockets and calls from other threads, without polling."""

from __future__ import annotations

import heapq
import os
import select
import signal
import time
from collections import deque
from typing import Callable, Deque, Dict, List, Optional, Tuple

Call = Callable[[], None]


class Timer:
    """A call that is due at `due` (monotonic seconds) unless cancelled."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Call) -> None:
        self.due = due
        self.call: Optional[Call] = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Runs in the main thread; only `call_soon` may be used from other threads."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)
        self._readers: Dict[int, Call] = {}
        self._soon: Deque[Call] = deque()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._count = 0
        self._signals: Deque[int] = deque()
        self._signal_calls: Dict[int, Callable[[int], None]] = {}
        self._stopped = False
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def call_soon(self, call: Call) -> None:
        self._soon.append(call)
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups already

    def call_later(self, seconds: float, call: Call) -> Timer:
        timer = Timer(time.monotonic() + seconds, call)
        self._count += 1
        heapq.heappush(self._timers, (timer.due, self._count, timer))
        return timer

    def on_readable(self, descriptor: int, call: Call) -> None:
        self._readers[descriptor] = call
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, descriptor: int) -> None:
        if self._readers.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def on_signal(self, signum: int, call: Callable[[int], None]) -> None:
        self._signal_calls[signum] = call
        signal.signal(signum, lambda number, _frame: self._signals.append(number))

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        while not self._stopped:
            self._once()

    def _once(self) -> None:
        for descriptor, _events in self._poll.poll(self._timeout_ms()):
            if descriptor == self._read:
                self._empty_pipe()
            else:
                reader = self._readers.get(descriptor)
                if reader is not None:
                    reader()
        while self._signals:
            signum = self._signals.popleft()
            self._signal_calls[signum](signum)
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        now = time.monotonic()
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].call is None):
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()

    def _timeout_ms(self) -> Optional[float]:
        if self._soon or self._signals:
            return 0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        # Rounded up, so that a timer is never met a fraction of a millisecond early and polled for.
        return max(0.0, self._timers[0][0] - time.monotonic()) * 1000 + 1

    def _empty_pipe(self) -> None:
        try:
            while len(os.read(self._read, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass
