"""A rule is followed to the first effect that would change anything, and no further."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ejbd.manager.acts import doors
from ejbd.manager.acts.carrying import fields_of
from ejbd.manager.effects import Effect, Effects
from ejbd.manager.facts.jobworld import JobWorld


class _WouldWrite(Exception):
    pass


def changes_nothing(world: JobWorld, rule: Callable[[JobWorld], Effects[Any]]) -> bool:
    """Whether a rule about a job asks for no effect but doors, and the rules behind them for none.

    A fault counts as a change: it is met again, and told, where the rule is carried out.
    """
    try:
        _follow(world, rule(world))
    except Exception:
        return False
    return True


def _follow(world: JobWorld, asked: Effects[Any]) -> Any:
    try:
        effect = next(asked)
        while True:
            effect = asked.send(_behind(world, effect))
    except StopIteration as end:
        return end.value
    finally:
        asked.close()


def _behind(world: JobWorld, effect: Effect) -> Any:
    door = doors.OF_JOB.get(type(effect))
    if door is None:
        raise _WouldWrite
    return _follow(world, door(world, **fields_of(effect)))
