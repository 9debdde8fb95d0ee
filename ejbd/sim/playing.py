"""A simulation played to its end: interpreted, and from where it is worth it compiled, on the same world."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ejbd.sim import progress
from ejbd.sim.compiled import at_hand, can_compile, compiled

LOAD_S = 1.0  # what numba and code that is at hand take to load, about
_A_WHILE_S = 0.2  # between two looks at the clock, about
_FIRST_STEPS = 500


class Way(StrEnum):
    """AUTO: compiled where the time that is left is more than compiling takes."""

    AUTO = "auto"
    PLAIN = "plain"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class Game:
    """What is to be played. `part` is a kernel that takes what `make` returns, which is lists or (True) arrays, and the
    most steps to take; it returns whether there is more to come. `done` says which share is.

    `guess_s`: what interpreting takes, about. `compile_s`: what compiling takes, about. `look` is called with the state
    after so many steps each time (`every`), and may change it.
    """

    what: str
    part: Callable[..., Any]
    make: Callable[[bool], tuple[Any, ...]]
    done: Callable[[tuple[Any, ...]], float]
    guess_s: float
    compile_s: float
    look: Callable[[tuple[Any, ...]], None] | None = None
    every: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """The state at the end, the seconds that it took, and those for compiling or loading of kernels, which are not
    among them."""

    state: tuple[Any, ...]
    elapsed_s: float
    kernels_s: float
    compiled: bool


_loaded: set[Callable[..., Any]] = set()
_interpreted_s: dict[Callable[..., Any], float] = {}  # CPU of earlier plays in this process


def play(game: Game, way: Way = Way.AUTO, again: float = 1) -> Played:
    """Play to the end.

    `again`: simulations like this one that the caller is going to have, this one among them; infinitely many are worth
    compiling in any case. A caller's loop need not say it: what interpreting has taken in this process is thought to
    come once more, so that it costs no more than twice the best.
    """
    begin, kernels_s = time.perf_counter(), 0.0
    may = way is not Way.PLAIN and can_compile()
    at_once = may and (way is Way.COMPILED or game.part in _loaded or math.isinf(again))
    at_once = at_once or (may and game.guess_s * again > LOAD_S and at_hand(game.part))
    at_once = at_once or (may and _interpreted_s.get(game.part, 0.0) > _compiling_s(game))
    if at_once:
        state = game.make(True)
        part, kernels_s = _compiled(game, state)
    else:
        state, part = game.make(False), game.part
    fast, steps = at_once, game.every or _FIRST_STEPS
    cpu = time.process_time()  # by which is decided: others may be busy here, and would be while it compiles
    while True:
        batch = time.perf_counter()
        more = part(*state, steps)
        now = time.perf_counter()
        if game.look is not None:
            game.look(state)
        if not more:
            if may and not fast:
                _interpreted_s[game.part] = _interpreted_s.get(game.part, 0.0) + time.process_time() - cpu
            return Played(state, now - begin - kernels_s, kernels_s, fast)
        if game.look is None and now - batch < _A_WHILE_S / 2:
            steps = min(10_000_000, 2 * steps)
        share = game.done(state)
        progress.tell(game.what, share)
        spent_s = time.process_time() - cpu
        if may and not fast and spent_s > _A_WHILE_S and share > 0:
            left_s = spent_s * (again / share - 1)
            if left_s > _compiling_s(game):
                state = _moved(state, game.make(True))
                part, kernels_s = _compiled(game, state)
                fast = True


def _compiling_s(game: Game) -> float:
    return LOAD_S if at_hand(game.part) else game.compile_s


def _compiled(game: Game, state: tuple[Any, ...]) -> tuple[Callable[..., Any], float]:
    begin = time.perf_counter()
    part = compiled(game.part, (*state, 1))
    _loaded.add(game.part)
    return part, time.perf_counter() - begin


def _moved(source: Any, target: Any) -> Any:
    """`target`, the same of arrays, made what `source` is."""
    if isinstance(target, np.ndarray):
        if len(source):
            target[:] = source
        return target
    if isinstance(target, tuple):
        parts = [_moved(one, other) for one, other in zip(source, target, strict=True)]
        return type(target)(*parts) if hasattr(target, "_fields") else tuple(parts)
    return source
