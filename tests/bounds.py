"""What holds for every test: its children get the default signals, and whatever it waits for has a bound that kills.

The bound is far above what any test needs (EJB_TEST_BOUND_S, 1200 s a test's setup, call and teardown): it is there so
that a test which waits for something that never comes fails, with the place where it waited, instead of the whole run
standing still.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from typing import Any

import psutil
import pytest

BOUND_S = float(os.environ.get("EJB_TEST_BOUND_S", "1200"))
_OVER = signal.SIGRTMIN + 7
_BEFORE: pytest.StashKey[set[int]] = pytest.StashKey()


class WaitedTooLong(Exception):
    """Raised where the test waits."""


def give_children_default_signals() -> None:
    """Under `nohup`, or behind `&` of a script, SIGINT and others are ignored, and children inherit that.

    A signal that is caught is not inherited: a handler that does nothing ignores as well, and leaves children alone.
    """
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(signum) == signal.SIG_IGN:
            signal.signal(signum, lambda _signum, _frame: None)


def _children() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _bounded(item: pytest.Item) -> Generator[None, Any, Any]:
    before = item.stash.setdefault(_BEFORE, {child.pid for child in _children()})
    main = threading.main_thread()
    over = threading.Event()

    def kill() -> None:
        over.set()
        for child in _children():
            if child.pid not in before:
                try:
                    child.kill()
                except psutil.Error:
                    pass
        signal.pthread_kill(main.ident or 0, _OVER)

    def fail(_signum: int, _frame: object) -> None:
        if over.is_set():
            raise WaitedTooLong(f"not through after {BOUND_S:g} s (EJB_TEST_BOUND_S); its processes were killed")

    if threading.current_thread() is not main:
        return (yield)
    previous = signal.signal(_OVER, fail)
    timer = threading.Timer(BOUND_S, kill)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()
        timer.join()
        over.clear()
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
