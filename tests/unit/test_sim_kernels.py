"""Kernels compiled: named tuples of vectors go by reference, and find and write what plain Python does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ejbd.core.shadow import Shadow, new_shadows, shadow_joins, soonest_turn
from ejbd.sim.compiled import can_compile, compiled


def ints(size: int) -> Any:
    return np.zeros(size, dtype=np.int64)


def floats(size: int, value: float = 0.0) -> Any:
    return np.full(size, value)


@pytest.mark.skipif(not can_compile(), reason="numba is not installed, or switched off")
def test_a_tuple_of_vectors_is_one_argument_of_a_compiled_kernel() -> None:
    both = new_shadows(4, 8, 2, ints, floats)
    both.strict.start[2] = 7.0
    soonest: Any = compiled(soonest_turn, (both, 1))
    assert [soonest(both, job) for job in range(4)] == [soonest_turn(both, job) for job in range(4)]
    joins = compiled(shadow_joins, (both.loose, 1, 2, 60.0, 0))
    vectors: tuple[Any, ...] = both.loose
    plain = Shadow(*(vector.tolist() for vector in vectors))
    for number, place in enumerate((0, 0, 1)):
        joins(both.loose, number, 1 + number, 10.0 * number, place)
        shadow_joins(plain, number, 1 + number, 10.0 * number, place)
    assert [vector.tolist() for vector in vectors] == list(plain)
    # By value each array would be seven arguments more.
    assert [str(kind) for kind in soonest.signatures[0]] == [soonest.signatures[0][0].name, "int64"]
    assert set(soonest.signatures[0][0].members) == {"loose", "strict"}
