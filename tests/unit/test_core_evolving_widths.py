"""One width from now on: more at once, less in whole blocks, and the same twice is one."""

from __future__ import annotations

import pytest

from ejbd.core.evolving.course import Course
from ejbd.core.evolving.profiles import Profile, Step
from ejbd.core.evolving.widths import tail_to


def course(*widths: int) -> Course:
    return Course.beginning(Profile(tuple(Step(100.0, width) for width in widths)), 0.0)


@pytest.mark.parametrize(
    ("widths", "now_s", "width", "expected"),
    [
        ((4,), 50.0, 16, ((50.0, 16),)),
        ((4, 16), 150.0, 16, ()),
        ((4, 16), 50.0, 16, ((50.0, 16),)),
        ((4, 16), 150.0, 4, ((150.0, 4),)),
        ((4, 8, 16), 250.0, 8, ((250.0, 8),)),
        ((4, 16), 150.0, 12, ((150.0, 4), (155.0, 12))),
        ((4, 8, 16), 250.0, 10, ((250.0, 8), (255.0, 10))),
    ],
)
def test_a_width_from_now_on(
    widths: tuple[int, ...], now_s: float, width: int, expected: tuple[tuple[float, int], ...]
) -> None:
    assert tail_to(course(*widths), width, now_s, 5.0) == expected


def test_asked_for_again_it_is_one() -> None:
    before = course(4, 8)
    after = before.replaced(tail_to(before, 16, 150.0, 5.0), 400.0)
    assert tail_to(after, 16, 160.0, 5.0) == ()


def test_never_below_what_is_held_throughout() -> None:
    with pytest.raises(ValueError, match="4 places are held throughout"):
        tail_to(course(4, 16), 3, 150.0, 5.0)
