"""Profiles of evolving jobs, and where they fit: golden values by hand, and everything else against brute force."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.core.evolving.blocks import Block, blocks
from ejbd.core.evolving.course import Course, parse_tail
from ejbd.core.evolving.listing import Algorithm, measures, schedule
from ejbd.core.evolving.profiles import Profile, Step, parse_profile, parse_seconds_first, profile_of, time_words
from ejbd.core.evolving.space import Fitted, FreeSpace
from tests.nightly import examples

NODES = 10
FIRST = ("8:6,5:5,5:3", "2:4,3:2,3:6")
SECOND = ("6:4,1:9,8:3", "1:6,1:7,6:8")


def fit(occupation: str, request: str, limit: float, compact: bool = False) -> tuple[float, float, list[list[float]]]:
    space = FreeSpace.beside(parse_seconds_first(occupation, empty=True), NODES)
    fitted = space.fit(Profile(parse_seconds_first(request)), limit=limit, compact=compact)
    assert fitted is not None
    return fitted.start_s, fitted.completion_s, fitted.held.to_json()


@pytest.mark.parametrize(
    ("case", "limit", "start", "end", "profile"),
    [
        (FIRST, 1, 8, 16, [[2, 4], [3, 2], [3, 6]]),
        (FIRST, 2, 5, 16, [[2, 4], [6, 2], [3, 6]]),
        (FIRST, math.inf, 0, 16, [[2, 4], [11, 2], [3, 6]]),
        (SECOND, 1, 13, 21, [[1, 6], [1, 7], [6, 8]]),
        (SECOND, 2, 12, 21, [[1, 6], [2, 7], [6, 8]]),
        (SECOND, math.inf, 7, 21, [[1, 6], [7, 7], [6, 8]]),
    ],
)
def test_golden_values_by_hand(
    case: tuple[str, str], limit: float, start: float, end: float, profile: list[list[float]]
) -> None:
    assert fit(*case, limit) == (start, end, profile)
    compacted = (8, 16, [[2, 4], [3, 2], [3, 6]]) if case is FIRST else (13, 21, [[1, 6], [1, 7], [6, 8]])
    assert fit(*case, limit, compact=True) == compacted


STEPS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, NODES)), min_size=1, max_size=4)
OCCUPIED = st.lists(st.tuples(st.integers(1, 6), st.integers(0, NODES)), max_size=7)
LIMITS = st.sampled_from([1.0, 1.5, 2.0, math.inf])


def levels_of(occupied: list[tuple[int, int]], until: int) -> list[int]:
    """Free nodes in each second."""
    seconds = [NODES - nodes for duration, nodes in occupied for _ in range(duration)]
    return seconds + [NODES] * (until - len(seconds))


def brute_force(free: list[int], steps: list[tuple[int, int]], limit: float) -> int:
    """The earliest completion over all starts and holds of whole seconds."""

    def fits(begin: int, end: int, nodes: int) -> bool:
        return all(free[at] >= nodes for at in range(begin, end))

    duration, nodes = steps[0]
    starts = [at for at in range(len(free) - duration) if fits(at, at + duration, nodes)]
    for number in range(1, len(steps)):
        before, held = steps[number - 1]
        duration, nodes = steps[number]
        starts = [
            at
            for at in range(len(free) - duration)
            if fits(at, at + duration, nodes)
            and any(
                start + before <= at <= start + (before if number == 1 else limit * before)
                and fits(start + before, at, held)
                for start in starts
            )
        ]
    return min(starts) + steps[-1][0]


def check(fitted: Fitted, profile: Profile, free: list[int], limit: float) -> None:
    """Never over the nodes that there are; the first step is not held, the others within the limit."""
    ends = [*fitted.starts_s[1:], fitted.completion_s]
    for number, (start, end, step) in enumerate(zip(fitted.starts_s, ends, profile.steps, strict=True)):
        held = end - start
        assert step.duration_s <= held <= step.duration_s * (limit if 0 < number < len(ends) - 1 else 1)
        assert all(free[at] >= step.processors for at in range(int(start), int(end)))


@settings(max_examples=examples(150), deadline=None)
@given(OCCUPIED, STEPS, LIMITS)
def test_the_completion_is_that_of_brute_force_and_compacting_keeps_it(
    occupied: list[tuple[int, int]], steps: list[tuple[int, int]], limit: float
) -> None:
    until = sum(duration for duration, _ in occupied) + 2 * sum(duration for duration, _ in steps) + 2
    free = levels_of(occupied, until)
    space = FreeSpace.beside([Step(duration, nodes) for duration, nodes in occupied], NODES)
    profile = profile_of(steps)
    fitted = space.fit(profile, limit=limit)
    compacted = space.fit(profile, limit=limit, compact=True)
    assert fitted is not None
    assert compacted is not None
    check(fitted, profile, free, limit)
    check(compacted, profile, free, limit)
    assert fitted.completion_s == brute_force(free, steps, limit)
    assert compacted.completion_s == fitted.completion_s
    assert compacted.start_s >= fitted.start_s
    assert compacted.held.duration_s <= fitted.held.duration_s


@settings(max_examples=50, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8), st.sampled_from(list(Algorithm)))
def test_a_schedule_is_never_over_the_nodes_that_there_are(jobs: list[list[tuple[int, int]]], how: Algorithm) -> None:
    profiles = [profile_of(steps) for steps in jobs]
    found = schedule(profiles, NODES, how)
    used = [0] * (1 + int(max(one.completion_s for one in found)))
    for one in found:
        at = int(one.start_s)
        for step in one.held.steps:
            for second in range(at, at + int(step.duration_s)):
                used[second] += step.processors
            at += int(step.duration_s)
        assert at == one.completion_s
    assert max(used) <= NODES
    told = measures(profiles, found, NODES)
    assert told.allocated == sum(used)
    assert (told.waste == 0) or how is not Algorithm.NO_X


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(-3, 3).filter(bool)), min_size=1, max_size=12
    )
)
def test_what_is_taken_and_given_back_is_counted_second_by_second(taken: list[tuple[int, int, int]]) -> None:
    space, seconds = FreeSpace.empty(50), [50] * 60
    for begin, length, processors in taken:
        space.take(begin, begin + length, processors)
        for at in range(begin, begin + length):
            seconds[at] -= processors
    assert [space.free_at(at) for at in range(60)] == seconds
    levels = space.levels[: space.steps]
    assert all(one != other for one, other in itertools.pairwise(levels)), "neighbours are joined"


def test_measures_by_hand() -> None:
    """Two jobs on 4 nodes: (2 s, 1), (2 s, 4), and (2 s, 3). The second goes beside the first step of the first."""
    jobs = [profile_of([(2, 1), (2, 4)]), profile_of([(2, 3)])]
    evolving = measures(jobs, schedule(jobs, 4, Algorithm.NO_X), 4)
    rigid = measures(jobs, schedule(jobs, 4, Algorithm.RIGID), 4)
    assert (evolving.waste, evolving.makespan_s, evolving.effective, evolving.waiting_s) == (0, 4, 1, 0)
    assert (rigid.waste, rigid.makespan_s, rigid.effective) == (6 / 16, 6, 16 / 24)
    assert (rigid.completion_s, rigid.waiting_s) == (5, 2)
    assert rigid.wastes == pytest.approx((0.6, 0))


def test_an_expanded_job_is_counted_with_what_it_wastes() -> None:
    blocker, job = profile_of([(4, 1), (8, 4), (1, 1)]), profile_of([(1, 1), (2, 1), (2, 4)])
    found = schedule([blocker, job], 5, Algorithm.INF_X)
    told = measures([blocker, job], found, 5)
    assert found[1].held.to_json() == [[1, 1], [11, 1], [2, 4]]
    assert told.expanded == 0.5
    assert told.expansions == pytest.approx((0, 9 / 5))
    assert told.wastes == pytest.approx((0, 9 / 11))
    assert told.waste == pytest.approx(9 / (37 + 11))


def test_profiles_by_their_words() -> None:
    profile = parse_profile("16:10m, 64:1h30m,16:20s")
    assert profile.to_json() == [[600, 16], [5400, 64], [20, 16]]
    assert parse_profile(profile.words()) == profile
    assert parse_profile("600s:16,90m:64").steps == profile.steps[:2]  # as the paper has it
    assert profile_of([(5, 2), (6, 2), (7, 3)]).joined().to_json() == [[11, 2], [7, 3]]
    assert (profile.peak, profile.duration_s, profile.area) == (64, 6020, 600 * 16 + 5400 * 64 + 20 * 16)
    assert time_words(90061) == "1d1h1m1s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "step 1 of the profile is empty"),
        ("16:10m,,4:5m", "step 2 of the profile is empty"),
        ("16", "'16', is no width and duration"),
        ("16:10m:5", "is no width and duration"),
        ("16:600", "has no duration with a unit"),
        ("10m:5m", "has two durations and no width"),
        ("x:10m", "has no whole number of processors"),
        ("0:10m", "step 1 of the profile has no processors"),
        ("4:0m", "step 1 of the profile lasts 0 s"),
        ("4:4000d", "ten years at most"),
        ("4:0.5s", "whole seconds"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="profile") as refusal:
        parse_profile(text)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_never_fits_and_what_takes_too_much() -> None:
    assert FreeSpace.empty(NODES).fit(parse_profile("11:1s")) is None
    with pytest.raises(ValueError, match="step 2 of the occupation takes 11 of 10 nodes"):
        FreeSpace.beside(parse_seconds_first("1:1,2:11"), NODES)
    with pytest.raises(ValueError, match="held for 1 time its duration at least"):
        FreeSpace.empty(NODES).fit(parse_profile("1:1s"), limit=0.5)
    with pytest.raises(ValueError, match="job 2 needs 11 processors"):
        schedule([parse_profile("1:1s"), parse_profile("11:1s")], NODES, Algorithm.NO_X)


def test_the_space_of_a_cluster_at_work() -> None:
    """Releases and planned starts by the clock; what is not a whole second is waited for."""
    space = FreeSpace.of_releases(2, 100.5, [(110.2, 3), (105.0, 1), (120.0, -4), (90.0, 1)])
    assert (space.times, space.levels) == ([101, 105, 111, 120], [3, 4, 7, 3])
    fitted = space.fit(parse_profile("2:5s,5:6s"))
    assert fitted is not None
    assert (fitted.start_s, fitted.completion_s) == (106, 117)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_blocks_are_the_widths_and_as_few_as_there_are_increments(widths: list[int]) -> None:
    found = blocks(widths)
    assert [sum(b.processors for b in found if b.first <= at <= b.last) for at in range(len(widths))] == widths
    assert all(block.processors > 0 for block in found)
    assert (found[0].first, found[0].last, found[0].processors) == (0, len(widths) - 1, min(widths))
    begun = [sum(b.first == at for b in found) for at in range(len(widths))]
    assert all(count <= 1 for at, count in enumerate(begun) if at and widths[at] > widths[at - 1]) or max(begun) > 1


def test_blocks_by_hand() -> None:
    assert blocks([4, 12, 4]) == (Block(0, 2, 4), Block(1, 1, 8))
    assert blocks([16, 64, 16]) == (Block(0, 2, 16), Block(1, 1, 48))
    assert blocks([4, 8, 12, 8, 4]) == (Block(0, 4, 4), Block(1, 3, 4), Block(2, 2, 4))
    assert blocks([8, 2, 5, 5]) == (Block(0, 3, 2), Block(0, 0, 6), Block(2, 3, 3))


def test_a_course_is_put_off_resumed_and_replaced() -> None:
    course = Course.beginning(parse_profile("4:10s,12:20s,4:10s"), 100.0)
    assert (course.starts_s, course.end_s) == ((100, 110, 130), 140)
    assert [course.step_at(now) for now in (0, 100, 110, 129, 500)] == [0, 0, 1, 1, 2]
    late = course.put_off(1, 117.0)
    assert (late.starts_s, late.end_s) == ((100, 117, 137), 147)
    assert late.put_off(1, 110.0) == late
    assert (course.resumed(115.0, 125.0).starts_s, course.resumed(115.0, 125.0).end_s) == ((100, 110, 140), 150)
    other = course.replaced(((115.0, 6), (120.0, 5)), 150.0)
    assert other.profile.to_json() == [[10, 4], [5, 12], [5, 6], [30, 5]]
    assert Course.from_json(other.to_json()) == other
    assert [(i.start_s, i.end_s, i.processors) for i in other.timeline(112.0, 12)] == [
        (112, 115, 12), (115, 120, 6), (120, 150, 5),
    ]  # fmt: skip
    assert [i.degree for i in other.timeline(112.0, 12, 2)] == [1, 2, 3]
    assert [(i.kind, i.end_s, i.processors) for i in course.timeline(90.0, 12, 2)][:2] == [
        ("wait", 100, 0), ("run", 110, 8),
    ]  # fmt: skip
    wide = Course.beginning(parse_profile("12:10s,4:20s"), 0.0).replaced(((10.0, 8),), 30.0)
    assert wide.increments == (Block(0, 1, 4), Block(0, 0, 4)), "what is held throughout stays as it was"
    assert parse_tail("now:64, +30m:128", 7.0) == ((7.0, 64), (1807.0, 128))
    for text in ("64", "now", "now:x", "30m:64", "+30:64", ""):
        with pytest.raises(ValueError, match="is no time and width"):
            parse_tail(text, 0.0)
    with pytest.raises(ValueError, match="4 places are held throughout"):
        course.replaced(((115.0, 3),), 150.0)
    with pytest.raises(ValueError, match="have to grow"):
        course.replaced(((115.0, 6), (115.0, 5)), 150.0)
