"""A past stretch of time played twice by EASY: what other jobs gained and lost, by hand and by properties."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.hindsight import Bounds, Compared, Kept, Submitted, compare, ranks, replay
from ejbd.core.sitelimits import Take

SHAPES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 50), st.integers(0, 100), st.integers(1, 50)), max_size=25
)


def job(id: str, processors: int, submit_s: float, walltime_s: float, run_s: float = -1.0) -> Submitted:
    return Submitted(id, processors, walltime_s, submit_s, walltime_s if run_s < 0 else run_s)


def jobs_of(shapes: list[tuple[int, int, int, int]], letter: str = "j") -> list[Submitted]:
    return [job(f"{letter}{at:02d}", p, float(s), float(w), float(r)) for at, (p, w, s, r) in enumerate(shapes)]


def test_a_job_that_starts_beside_the_narrow_elastic_one_has_gained() -> None:
    # Rigid, the elastic job would have had all four processors from 100 to 150, with the other one behind it.
    first, other = job("x", 4, 0, 100), job("y", 2, 2, 60)
    narrow, rigid = job("e.1", 2, 1, 100), job("e", 4, 1, 50)
    found = compare([(first, 0), (other, 103)], [narrow], [rigid], 4, 0)
    assert found == [Compared("x", 0, 0, 0), Compared("y", 103, 100, 150)]
    assert (found[1].gained_s, found[1].error_s, found[1].before_real_s) == (50, 3, 47)


def test_a_job_that_a_long_subjob_kept_waiting_has_lost() -> None:
    # The rigid job of two processors waits for 100 as well, and ends at 120 beside the other: all is free from then on.
    first, wide = job("x", 3, 0, 100), job("z", 4, 11, 10)
    subjob, rigid = job("e.1", 1, 5, 145), job("e", 2, 5, 20)
    found = compare([(first, 0), (wide, 150)], [subjob], [rigid], 4, 0)
    assert [(one.as_came_s, one.all_rigid_s, one.gained_s) for one in found] == [(0, 0, 0), (150, 120, -30)]


def test_a_placeholder_keeps_its_place_until_it_is_taken_back() -> None:
    running = Submitted("x", 3, 100, 0, 100, began_s=0)
    placeholder = Submitted("e.0", 4, 50, 1, 0, leaves_s=40)
    # One processor is free, and lies idle until 40: the job is too long to be done before the placeholder's start.
    assert replay([running, placeholder, job("y", 1, 2, 200)], 4, 0) == {"x": 0, "y": 40}


def test_what_ends_before_its_walltime_is_planned_by_it_and_leaves_early() -> None:
    first, head, short = job("x", 3, 0, 100, 30), job("h", 4, 1, 10), job("s", 1, 2, 90)
    assert replay([first, head, short], 4, 0) == {"x": 0, "s": 2, "h": 92}


def test_a_job_that_ran_already_is_compared_with_nothing_and_one_too_wide_blocks_none() -> None:
    ran, wide, other = Submitted("x", 2, 50, -10, 50, began_s=-5), job("w", 9, 0, 1), job("y", 4, 1, 5)
    assert compare([(ran, -5), (wide, 3), (other, 45)], [], [], 4, 0) == [Compared("y", 45, 45, 45)]


def ranked(one: Submitted, priority: int) -> Submitted:
    return replace(one, priority=priority)


def test_what_waits_stands_by_priority_where_it_is_known_of_all_that_waited() -> None:
    # `x` runs until 100. `late` came behind `y`, and stood before it; `beside` started at once, and is not known.
    x, y, late, beside = (job("x", 3, 0, 100), job("y", 4, 1, 50), job("z", 4, 2, 50), job("b", 1, 3, 10))
    assert replay([x, y, late, beside], 4, 0) == {"x": 0, "b": 3, "y": 100, "z": 150}
    known = [ranked(y, 10), ranked(late, 20)]
    assert replay([x, *known, beside], 4, 0, ranked=True) == {"x": 0, "b": 3, "z": 100, "y": 150}
    real = [(x, 0.0), (known[0], 150.0), (known[1], 100.0), (beside, 3.0)]
    assert ranks(real, []) and ranks(real, [ranked(y, 1)])
    assert {one.id: one.error_s for one in compare(real, [], [], 4, 0)} == {"x": 0, "y": 0, "z": 0, "b": 0}
    # One that waited, or the rigid one that is to wait, is not known: all by arrival, as before.
    assert not ranks([*real, (job("u", 1, 5, 5), 100.0)], []) and not ranks(real, [y])
    assert {one.id: one.error_s for one in compare(real, [], [y], 4, 0)}["z"] > 0


@given(SHAPES)
def test_without_elastic_jobs_nothing_is_gained_and_nothing_lost(shapes: list[tuple[int, int, int, int]]) -> None:
    real = [(one, one.submit_s + 7) for one in jobs_of(shapes)]
    found = compare(real, [], [], 4, 0)
    assert [one.gained_s for one in found] == [0] * len(found)
    assert {one.id for one in found} == {one.id for one, _ in real if one.processors <= 4}


@given(SHAPES)
def test_an_elastic_job_that_ran_just_as_its_rigid_one_changes_nothing(shapes: list[tuple[int, int, int, int]]) -> None:
    jobs = jobs_of(shapes)
    real, elastic = [(one, one.submit_s) for one in jobs[::2]], jobs[1::2]
    assert all(one.gained_s == 0 for one in compare(real, elastic, elastic, 6, 0))


@given(SHAPES)
def test_no_more_runs_than_there_is_and_all_that_fits_starts_once_it_is_there(
    shapes: list[tuple[int, int, int, int]],
) -> None:
    jobs = {one.id: one for one in jobs_of(shapes)}
    starts = replay(jobs.values(), 5, 0)
    assert starts.keys() == {id for id, one in jobs.items() if one.processors <= 5}
    for id, start_s in starts.items():
        assert start_s >= jobs[id].submit_s
        held = [jobs[i].processors for i, begun in starts.items() if begun <= start_s < begun + jobs[i].run_s]
        assert sum(held) <= 5


def test_a_job_that_a_limit_holds_is_passed_by_and_starts_once_there_is_enough_of_it() -> None:
    # Two processors of limit 0 for `x`, `y` and `z`: `y` stands first, and `z`, which a pass would start with it, too.
    def limited(id: str, submit_s: float, walltime_s: float, amount: float = 1.0) -> Submitted:
        return replace(job(id, 1, submit_s, walltime_s), takes=(Take(0, amount),))

    x, y, z, free = limited("x", 0, 100), limited("y", 1, 50), limited("z", 1, 50), job("f", 2, 2, 500)
    found = replay([x, y, z, free], 4, 0, bounds=Bounds((2.0,)))
    assert found == {"x": 0, "y": 1, "f": 2, "z": 51}
    # What is counted and not held starts; what exceeds the limit alone did start, so that it was another one then.
    counted = replace(z, takes=(Take(0, 1.0, held=False),))
    assert replay([x, y, counted], 4, 0, bounds=Bounds((2.0,)))["z"] == 1
    assert replay([x, limited("w", 1, 50, 3.0)], 4, 0, bounds=Bounds((2.0,)))["w"] == 1


def test_what_a_subjob_takes_of_a_limit_is_lost_to_another_job_of_it() -> None:
    # Narrow, the elastic job runs until 400; rigid, it would have been over at 200. The other one has room all along.
    take = (Take(0, 1.0),)
    narrow, rigid = (replace(one, takes=take) for one in (job("e.1", 1, 0, 400), job("e", 2, 0, 200)))
    other = replace(job("y", 1, 5, 10), takes=take)
    found = compare([(other, 400)], [narrow], [rigid], 4, 0, Bounds((1.0,)))
    assert found == [Compared("y", 400, 400, 200)]


def test_nothing_runs_into_a_time_that_the_site_keeps() -> None:
    kept = Bounds(kept=(Kept(100, 200, 3),))
    first, short, long, narrow = job("x", 2, 0, 90), job("s", 2, 1, 80), job("l", 2, 2, 120), job("n", 1, 3, 120)
    assert replay([first, short, long, narrow], 4, 0, bounds=kept) == {"x": 0, "s": 1, "n": 81, "l": 200}


@given(SHAPES, st.integers(1, 4))
def test_no_more_runs_of_a_limit_than_it_has(shapes: list[tuple[int, int, int, int]], most: int) -> None:
    jobs = [replace(one, takes=(Take(at % 2, 1.0),)) for at, one in enumerate(jobs_of(shapes))]
    starts = replay(jobs, 6, 0, bounds=Bounds((float(most), float(most))))
    assert len(starts) == len(jobs)
    for which in (0, 1):
        of = [(starts[one.id], one.run_s) for one in jobs if one.takes[0].limit == which]
        for at, _ in of:
            assert sum(begun <= at < begun + run_s for begun, run_s in of) <= most
