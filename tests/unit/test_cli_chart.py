"""The timeline in characters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.cli.output import Output, printable
from ejbd.cli.show.chart import chart, plan_chart, plan_lines
from ejbd.cli.show.words import duration
from ejbd.wire.visible import visible


def subjob(ordinal: int, processors: int, start_s: float | None, end_s: float | None, state: str) -> dict[str, Any]:
    role = "subjob" if ordinal else "placeholder"
    return {
        "ordinal": ordinal,
        "role": role,
        "state": state,
        "processors": processors,
        "start_s": start_s,
        "end_s": end_s,
    }


def interval(kind: str, start_s: float, end_s: float | None, processors: int) -> dict[str, Any]:
    return {"kind": kind, "start_s": start_s, "end_s": end_s, "processors": processors, "subjobs": []}


def timeline(**values: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "job": "ab12",
        "name": "heat",
        "state": "running",
        "now_s": 200.0,
        "submit_s": 100.0,
        "start_s": 110.0,
        "end_s": None,
        "processes": 16,
        "progress": 0.25,
        "rigid_start_s": 400.0,
        "expected_completion_s": 300.0,
        "expected_end_s": 300.0,
        "intervals": [
            interval("wait", 100, 120, 0),
            interval("run", 120, 160, 4),
            interval("move", 160, 160.5, 4),
            interval("run", 160.5, None, 16),
        ],
        "subjobs": [
            subjob(0, 16, None, None, "pending"),
            subjob(1, 4, 120, 160, "completed"),
            subjob(2, 16, 150, 900, "running"),
        ],
    }
    return {**found, **values}


def test_a_life_in_characters() -> None:
    lines = chart(timeline(), 113)
    assert lines[0].startswith("job ab12  heat  running  25% done  16 processors for 16 processes  1:40 since")
    phase, processors, j0, j1, j2 = (line[13:] for line in lines[2:7])
    assert phase == "W" * 20 + "R" * 40 + "M" + "R" * 39  # a move of half a second is seen
    assert processors == " " * 20 + "▂" * 40 + "█" * 40
    assert j0 == "·" * 100
    assert j1 == " " * 20 + "█" * 41
    assert j2 == " " * 50 + "█" * 50
    assert lines[-2:] == [
        "a rigid start was promised for 5:00 after submission",
        "expected to be done 3:20 after submission",
    ]


def planned(kind: str, start_s: float, end_s: float | None, processors: int, degree: int = 0) -> dict[str, Any]:
    on_placeholder = processors == 16
    return {
        "kind": kind,
        "start_s": start_s,
        "end_s": end_s,
        "processors": processors,
        "degree": degree,
        "on_placeholder": on_placeholder,
    }


def with_a_plan(**values: Any) -> dict[str, Any]:
    """At 200 s, on 4 of 16 processors until 300, then suspended until J0 starts at 400, done at 600."""
    plan = [
        planned("run", 200, 300, 4, 4), planned("suspended", 300, 400, 0),
        planned("move", 400, 401, 16), planned("run", 401, 600, 16, 1),
    ]  # fmt: skip
    j0 = {**subjob(0, 16, None, None, "pending"), "planned_start_s": 400.0, "walltime_s": 900.0}
    held = subjob(1, 4, 120, 305, "running")
    intervals = [interval("wait", 100, 120, 0), interval("run", 120, None, 4)]
    return timeline(intervals=intervals, planned=plan, expected_end_s=600.0, subjobs=[j0, held], **values)


def test_what_is_planned_is_told_from_what_has_been_without_colours() -> None:
    lines = chart(with_a_plan(), 113)  # 5 s a column
    phase, processors, j0, j1 = (line[13:] for line in lines[2:6])
    assert phase == "W" * 4 + "R" * 16 + "│" + "r" * 19 + "s" * 20 + "m" + "r" * 39
    assert processors == " " * 4 + "▂" * 16 + "│" + "▂" * 19 + " " * 20 + "█" * 40
    assert j0 == "·" * 20 + "│" + " " * 39 + "░" * 40
    assert j1 == " " * 4 + "█" * 16 + "│" + "░" * 21
    assert lines[-5:] == [
        "W waits, R runs, M starts or moves, s is suspended",
        "capitals: what has been; small letters and light bars: what is planned",
        "a rigid start was promised for 5:00 after submission",
        "J0 is expected to start 5:00 after submission",
        "expected to be done 8:20 after submission",
    ]
    plain = chart(with_a_plan(), 113, plain=True)
    assert all(line.isascii() for line in plain)
    assert plain[2][13:] == phase.replace("│", "|")
    assert plain[5][13:] == " " * 4 + "#" * 16 + "|" + "-" * 21
    assert any("\033[2;32m" in line for line in chart(with_a_plan(), 113, colour=True))


def test_a_plan_without_an_end_has_room_at_the_right() -> None:
    waits = timeline(
        state="waiting",
        intervals=[interval("wait", 100, None, 0)],
        planned=[planned("wait", 200, None, 0)],
        expected_end_s=None,
    )
    phase = chart({**waits, "subjobs": []}, 113)[2][13:]
    assert phase == "W" * 92 + "│" + "w" * 7


def test_a_little_past_before_a_long_plan_is_seen() -> None:
    past = [interval("wait", 100, 110, 0), interval("run", 110, None, 4)]
    held = subjob(1, 4, 110, 9000, "running")
    to_come = [planned("run", 120, 8120, 4, 4)]
    lines = chart(timeline(now_s=120.0, intervals=past, planned=to_come, subjobs=[held]), 113)
    assert lines[2][13:] == "W" * 10 + "R" * 10 + "│" + "r" * 79
    assert lines[4][13:] == " " * 10 + "█" * 10 + "│" + "░" * 79
    assert lines[5].split() == ["0:00", "0:20", "33:40", "1:07:00", "1:40:20"]
    assert "capitals: what has been (drawn wider); small letters and light bars: what is planned" in lines


def test_a_plan_line_by_line() -> None:
    plan = with_a_plan()["planned"]
    assert plan_lines(plan) == [
        "    0:00  runs on 4 processors (degree 4) for 1:40",
        "    1:40  is suspended, its work kept, for 1:40",
        "    3:20  starts on 16 processors of J0 for 0:01",
        "    3:21  runs on 16 processors of J0 for 3:19",
        "    6:40  done, if it takes no longer than planned",
    ]
    assert plan_lines([planned("wait", 5, None, 0)]) == ["    0:00  waits until the batch system starts it"]
    assert plan_lines([]) == plan_chart([], 16, 80) == plan_chart([planned("wait", 5, None, 0)], 16, 80) == []
    phase, processors, axis = plan_chart(plan, 16, 53)  # 10 s a column, nothing behind it
    assert phase[13:] == "r" * 10 + "s" * 10 + "m" + "r" * 19
    assert processors[13:] == "▂" * 10 + " " * 10 + "█" * 20
    assert axis.split()[0] == "0:00"


def test_what_a_profile_is_fitted_into_is_drawn_below_it() -> None:
    plan = [planned("wait", 0, 100, 0), planned("run", 100, 200, 4), planned("run", 200, 400, 16)]
    phase, processors, free, scale, _ = plan_chart(plan, 16, 53, [(-30, 4), (100, 8), (200, 32)])  # 10 s a column
    assert phase[13:] == "w" * 10 + "r" * 30
    assert processors[13:] == " " * 10 + "▁" * 10 + "▄" * 20
    assert free == "free         " + "▁" * 10 + "▂" * 10 + "█" * 20
    assert scale.strip() == "one scale for both, to 32 processors"


def test_plain_is_ascii_and_colours_take_no_room() -> None:
    plain = chart(timeline(), 100, plain=True)
    assert all(line.isascii() for line in plain)
    coloured = chart(timeline(), 100, plain=True, colour=True)
    assert any("\033[32m" in line for line in coloured)
    assert [_without_escapes(line) for line in coloured] == plain


def _without_escapes(text: str) -> str:
    return re.sub(r"\033\[[0-9]*m", "", text)


_TIMES = st.floats(min_value=0, max_value=10_000)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["wait", "run", "move"]), _TIMES, st.none() | _TIMES, st.integers(0, 99))),
    st.lists(st.tuples(st.integers(0, 9), st.none() | _TIMES, st.none() | _TIMES)),
    st.lists(st.tuples(st.sampled_from(["wait", "run", "move", "suspended"]), _TIMES, _TIMES, st.integers(0, 99))),
    st.booleans(),
    _TIMES,
    st.integers(0, 500),
)
def test_any_life_fits(
    intervals: list[Any], subjobs: list[Any], plan: list[Any], endless: bool, now_s: float, width: int
) -> None:
    to_come = [planned(*one) for one in plan]
    if endless and to_come:
        to_come[-1]["end_s"] = None
    found = timeline(
        submit_s=0.0,
        now_s=now_s,
        rigid_start_s=None,
        expected_completion_s=None,
        expected_end_s=to_come[-1]["end_s"] if to_come else None,
        intervals=[interval(*one) for one in intervals],
        planned=to_come,
        subjobs=[subjob(n, 4, start, end, "running") for n, start, end in subjobs],
    )
    room = max(33, min(width, 200))
    drawn = [line for line in chart(found, width)[1:] if not line.startswith(("W waits", "capitals", "expected"))]
    assert all(len(line) <= room for line in drawn)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90061, "1-01:01:01"), (-5, "0:00")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@settings(deadline=None)
@given(st.text())
def test_nothing_steers_the_terminal(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in printable(text))
    assert visible(text).isprintable()


def test_a_cell_with_a_new_line_or_a_turned_name_stays_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(["ID", "NAME"], [["1", "a\n2  \u202eb\u200b"], ["2", "c"]])
    assert capsys.readouterr().out.splitlines()[1:] == [r"1   a\n2  \u202eb\u200b", "2   c"]
