"""Times as sbatch's --begin takes them."""

from __future__ import annotations

from datetime import datetime

import pytest

from ejbd.errors import Code, EjbError
from ejbd.options.moments import parse_moment

NOW = datetime(2026, 11, 22, 9, 30, 15).timestamp()  # noqa: DTZ001 (local time, as people write it)


def local(*parts: int) -> float:
    return datetime(*parts).timestamp()  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("now+30", NOW + 30),
        ("now+30minutes", NOW + 1800),
        ("NOW+1hour", NOW + 3600),
        ("now+2days", NOW + 2 * 86400),
        ("now+1w", NOW + 7 * 86400),
        ("now+10min", NOW + 600),
        ("18:00", local(2026, 11, 22, 18, 0)),
        (" 09:30:16 ", local(2026, 11, 22, 9, 30, 16)),
        ("09:30", local(2026, 11, 23, 9, 30)),
        ("2026-12-01", local(2026, 12, 1)),
        ("2026-12-01T06:00", local(2026, 12, 1, 6)),
        ("2026-12-01T06:00:30", local(2026, 12, 1, 6, 0, 30)),
    ],
)
def test_a_moment(text: str, at: float) -> None:
    assert parse_moment(text, NOW) == at


@pytest.mark.parametrize(
    "text",
    ["", "soon", "30", "now-5", "now+", "now+5x", "now+999999999weeks", "25:00", "9:5", "2026-13-01", "12:00:61"],
)
def test_no_moment(text: str) -> None:
    try:
        assert parse_moment(text, NOW) >= NOW  # a date far away is one, and no crash
    except EjbError as error:
        assert error.code is Code.INVALID and error.hint
    else:
        assert text.startswith("now+9")
