"""For how long a worker holds the end of a rank: the batch system may be ending the whole job."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from workers.ejb_worker import agent, linux


class Steps:
    """A loop in which time does not pass."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.due: list[Callable[[], None]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.waits.append(seconds)
        self.due.append(call)


def held(monkeypatch: pytest.MonkeyPatch, quiet: list[bool], **state: bool) -> tuple[list[float], int]:
    """The holds of an end, and how often it was told, where a look at the machine finds each of these in turn."""
    answers = iter(quiet)
    monkeypatch.setattr(linux, "quiet", lambda: next(answers))
    monkeypatch.setattr(agent, "time", SimpleNamespace(monotonic=lambda: 0.0))
    loop, told = Steps(), []
    of = SimpleNamespace(_loop=loop, _leaving=False, _warned_s=None, _warning_told=False)
    agent.Agent._sure(of, lambda: told.append(1))  # type: ignore[arg-type]
    vars(of).update(state)
    while loop.due:
        loop.due.pop(0)()
    return loop.waits, len(told)


def test_a_quiet_machine_signals_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, [True, True]) == ([agent.QUIET_SURE_S], 1)


def test_a_busy_one_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, [False]) == ([agent.SURE_S], 1)


def test_one_that_has_become_busy_is_given_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, [True, False]) == ([agent.QUIET_SURE_S, agent.SURE_S], 1)


def test_the_end_of_a_worker_that_leaves_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, [True, True], _leaving=True) == ([agent.QUIET_SURE_S], 0)


@pytest.mark.parametrize(("processors", "quiet"), [(100_000, True), (-1, False)])
def test_quiet_is_no_more_that_runs_than_processors(
    monkeypatch: pytest.MonkeyPatch, processors: int, quiet: bool
) -> None:
    monkeypatch.setattr(linux.os, "cpu_count", lambda: processors)  # type: ignore[attr-defined]
    assert linux.quiet() is quiet
