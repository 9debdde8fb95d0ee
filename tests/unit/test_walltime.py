from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.walltime import format_walltime, parse_listed_walltime, parse_walltime


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("1:30", 90),
        ("0:05", 5),
        ("2:00:00", 7200),
        ("90:00", 5400),
        ("1-0", 86400),
        ("1-", 86400),
        ("1-2", 93600),
        ("1-2:30", 95400),
        ("1-02:30:15", 95415),
        ("0-0:1", 60),
        (" 10:00 ", 600),
        ("120:00:00", 432000),
    ],
)
def test_every_slurm_spelling(text: str, seconds: float) -> None:
    assert parse_walltime(text) == seconds


@pytest.mark.parametrize("text", ["UNLIMITED", "infinite", "Infinite", "0", "0:00", "00:00:00", "-5", "-0"])
def test_unlimited_is_none(text: str) -> None:
    assert parse_walltime(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "N/A",
            "NOT_SET",
            "1.5",
            "10m",
            "1h",
            "1:2:3:4",
            "-",
            "-1-",
            "-1:00",
            "1-2-3",
            "::",
            "1:",
            ":1",
        ),
        *("١٠", "10\n;rm", "$(reboot)", "9" * 5000, "999999999", "1-1:2:3:4"),
    ],
)
def test_what_is_no_walltime_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="walltime") as caught:
        parse_walltime(text)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["N/A", "NOT_SET", "UNLIMITED", "", "INVALID"])
def test_listings_may_leave_it_out(text: str) -> None:
    assert parse_listed_walltime(text) is None


def test_listings_with_garbage_are_still_refused() -> None:
    with pytest.raises(ValueError, match="not a walltime"):
        parse_listed_walltime("tomorrow")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "00:01:00"),
        (60, "00:01:00"),
        (60.0000000001, "00:01:00"),
        (61, "00:02:00"),
        (3600, "01:00:00"),
        (86400, "1-00:00:00"),
        (95415, "1-02:31:00"),
        (None, "UNLIMITED"),
        (math.inf, "UNLIMITED"),
    ],
)
def test_format_rounds_up_to_minutes(seconds: float | None, text: str) -> None:
    assert format_walltime(seconds) == text


@pytest.mark.parametrize("seconds", [0, -1, math.nan, 1e12])
def test_format_refuses_what_slurm_would_misread(seconds: float) -> None:
    with pytest.raises(ValueError, match="walltime"):
        format_walltime(seconds)


@given(st.integers(min_value=1, max_value=10**9))
def test_format_and_parse_agree(seconds: int) -> None:
    back = parse_walltime(format_walltime(seconds))
    assert back is not None
    assert seconds <= back < seconds + 60


@given(st.text(max_size=30))
def test_parse_never_raises_anything_else(text: str) -> None:
    try:
        parsed = parse_walltime(text)
    except ValueError:
        return
    assert parsed is None or parsed > 0
