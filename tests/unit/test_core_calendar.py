"""Windows of the week: what holds at an instant and until when, over changes to summer time, too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.calendar import DAYS, WeekWindow, in_force, parse

BERLIN = ZoneInfo("Europe/Berlin")
APIA = ZoneInfo("Pacific/Apia")  # left out a whole day
ON = {"elasticity": "on"}
MINUTES = st.integers(0, 24 * 60 - 1)
INSTANTS = st.datetimes(datetime(2011, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
WINDOWS = st.builds(
    WeekWindow, st.frozensets(st.integers(0, 6), min_size=1), MINUTES, MINUTES.map(lambda one: one + 1)
).filter(lambda one: one.begin_min != one.end_min)


def spans(text: str, first: str, zone: ZoneInfo = BERLIN, edges: int = 2) -> list[str]:
    """The next edges after an instant (UTC), as UTC."""
    at, found = datetime.fromisoformat(first).replace(tzinfo=UTC), []
    for _ in range(edges):
        until = in_force({}, [(parse(text), ON)], at.astimezone(zone)).until_s
        assert until is not None
        at = datetime.fromtimestamp(until, UTC)
        found.append(at.strftime("%d %H:%M"))
    return found


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    window = parse("mon-fri 20:00-08:00")

    def on(day: int, hour: int) -> bool:
        return window.holds(datetime(2026, 6, day, hour, tzinfo=BERLIN))  # 1 June 2026 is a Monday

    assert not on(1, 7) and not on(1, 19) and on(1, 20) and on(2, 7) and not on(2, 8)
    assert on(6, 7) and not on(6, 20) and not on(8, 7)


@pytest.mark.parametrize(
    ("text", "first", "edges"),
    [
        ("daily 20:00-08:00", "2026-03-28T12:00", ["28 19:00", "29 06:00"]),  # eleven hours
        ("daily 20:00-08:00", "2026-10-24T12:00", ["24 18:00", "25 07:00"]),  # thirteen
        ("daily 02:30-05:00", "2026-03-28T12:00", ["29 01:00", "29 03:00"]),  # begins in the hour left out
        ("daily 22:00-02:30", "2026-03-28T12:00", ["28 21:00", "29 01:00"]),  # ends in it
        ("daily 02:10-02:50", "2026-03-28T12:00", ["30 00:10", "30 00:50"]),  # is in it altogether: not that day
        ("daily 22:00-02:30", "2026-10-24T12:00", ["24 20:00", "25 00:30"]),  # ends as the clock shows it first
        ("daily 02:00-03:00", "2026-10-24T12:00", ["25 00:00", "25 02:00"]),  # the hour that comes twice, whole
    ],
)
def test_a_change_to_summer_time(text: str, first: str, edges: list[str]) -> None:
    assert spans(text, first) == edges


def test_where_windows_meet_the_last_one_is_on_top_and_an_edge_that_changes_nothing_is_none() -> None:
    windows = [(parse("daily 08:00-20:00"), {"omax": 4}), (parse("daily 12:00-14:00"), {"omax": 8})]
    windows += [(parse("daily 13:00-22:00"), {"omax": 8})]
    found = in_force({"omax": 2, "delta": 1.5}, windows, datetime(2026, 6, 1, 12, tzinfo=UTC))
    assert found.settings == {"omax": 8, "delta": 1.5} and found.windows == (0, 1)
    assert found.until_s == datetime(2026, 6, 1, 22, tzinfo=UTC).timestamp()
    assert in_force({}, [(parse("daily"), ON)], datetime(2026, 6, 1, tzinfo=UTC)).until_s is None


@given(st.lists(st.tuples(WINDOWS, st.sampled_from([{"omax": 4}, {"omax": 8}, ON])), max_size=4), INSTANTS)
def test_what_holds_holds_until_the_edge_and_no_longer(
    windows: list[tuple[WeekWindow, dict[str, object]]], at: datetime
) -> None:
    for zone in (BERLIN, APIA):
        found = in_force({"omax": 2}, windows, at.astimezone(zone))
        if found.until_s is None:
            continue
        edge = datetime.fromtimestamp(found.until_s, zone)
        assert edge > at
        before = max(at, edge - timedelta(seconds=1)).astimezone(zone)
        assert in_force({"omax": 2}, windows, before).settings == found.settings
        assert in_force({"omax": 2}, windows, edge).settings != found.settings


@given(MINUTES, MINUTES, INSTANTS)
def test_two_windows_that_share_the_day_leave_no_instant_out_and_none_twice(a: int, b: int, at: datetime) -> None:
    if a == b:
        return
    days = frozenset(range(7))
    one, other = WeekWindow(days, a, b), WeekWindow(days, b, a)
    assert one.holds(at.astimezone(BERLIN)) is not other.holds(at.astimezone(BERLIN))


@given(WINDOWS, INSTANTS)
def test_without_summer_time_it_is_the_clock_alone(window: WeekWindow, at: datetime) -> None:
    minute, day = at.hour * 60 + at.minute, at.weekday()
    if window.begin_min < window.end_min:
        holds = day in window.days and window.begin_min <= minute < window.end_min
    else:
        late = day in window.days and minute >= window.begin_min
        holds = late or ((day - 1) % 7 in window.days and minute < window.end_min)
    assert window.holds(at) is holds


@given(WINDOWS)
def test_a_window_is_read_as_it_is_written(window: WeekWindow) -> None:
    assert parse(str(window)) == window


def test_other_ways_to_write_one() -> None:
    assert str(parse("Fri-Mon 18:00-6:00")) == "mon,fri-sun 18:00-06:00"
    assert str(parse("20:00-08:00")) == "daily 20:00-08:00"
    assert str(parse("sat, sun")) == "sat-sun 00:00-24:00"
    assert len(DAYS) == 7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no window of the week"),
        ("mon tue 08:00-09:00", "no window of the week"),
        ("moon 08:00-09:00", "'moon' is no day"),
        ("mon- 08:00-09:00", "'' is no day"),
        ("mon 8-9:00", "HH:MM-HH:MM"),
        ("mon 08:00-24:01", "no clock shows"),
        ("mon 08:60-09:00", "no clock shows"),
        ("mon 08:00-08:00", "a whole day is 00:00-24:00"),
    ],
)
def test_what_is_no_window_is_refused_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)
