"""What holds for every test: its children get the default signals, and whatever it waits for has a bound that kills.

The bound is far above what any test needs (EJB_TEST_BOUND_S, 1200 s a test's setup, call and teardown): it is there so
that a test which waits for something that never comes fails, with the place where it waited, instead of the whole run
standing still.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

BOUND_S = float(os.environ.get("EJB_TEST_BOUND_S", "1200"))
_OVER = signal.SIGRTMIN + 7
_BEGAN: pytest.StashKey[float] = pytest.StashKey()
_LOOK_S = 0.25
_TICK_S = 0.02  # in which the kernel tells when a process was made


class WaitedTooLong(Exception):
    """Raised where the test waits."""


def give_children_default_signals() -> None:
    """Under `nohup`, or behind `&` of a script, SIGINT and others are ignored, and children inherit that.

    A signal that is caught is not inherited: a handler that does nothing ignores as well, and leaves children alone.
    """
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(signum) == signal.SIG_IGN:
            signal.signal(signum, lambda _signum, _frame: None)


def _made_s(pid: int) -> float:
    """When a process was made, in seconds since the boot. Raises OSError where it is gone."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


class _Watch:
    """One thread for all tests of this process: it ends what is not through in time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until_s: float | None = None  # monotonic
        self._began_s = 0.0  # the test's setup, by the clock of /proc
        self.over = False
        self._thread: threading.Thread | None = None

    def start(self, began_s: float) -> None:
        with self._lock:
            self._began_s, self._until_s, self.over = began_s, time.monotonic() + BOUND_S, False
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="bounds", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._until_s, self.over = None, False

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            with self._lock:
                if self._until_s is None or time.monotonic() < self._until_s:
                    continue
                self._until_s, self.over = None, True
                self._kill_children()
                signal.pthread_kill(threading.main_thread().ident or 0, _OVER)

    def _kill_children(self) -> None:
        """Those that were made since the test's setup began: others belong to all tests of this process."""
        try:
            children = psutil.Process().children(recursive=True)
        except psutil.Error:
            return
        for child in children:
            try:
                if _made_s(child.pid) > self._began_s - _TICK_S:
                    child.kill()
            except (OSError, psutil.Error):
                pass


_WATCH = _Watch()


def _bounded(item: pytest.Item) -> Generator[None, Any, Any]:
    began_s = item.stash.setdefault(_BEGAN, time.clock_gettime(time.CLOCK_BOOTTIME))

    def fail(_signum: int, _frame: object) -> None:
        if _WATCH.over:
            raise WaitedTooLong(f"not through after {BOUND_S:g} s (EJB_TEST_BOUND_S); its processes were killed")

    if threading.current_thread() is not threading.main_thread():
        return (yield)
    previous = signal.signal(_OVER, fail)
    _WATCH.start(began_s)
    try:
        return (yield)
    finally:
        _WATCH.stop()
        signal.signal(_OVER, previous)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _bounded(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _bounded(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _bounded(item))


give_children_default_signals()
