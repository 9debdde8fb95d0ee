"""What a move costs, and how often to checkpoint, as pure functions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.checkpoint_interval import CheckpointInterval, checkpoint_interval, daly, mtbf_of, young
from ejbd.core.cost import RECENT, Guess, Measurement, Source, in_words, move_cost, moves_to, nearest, spool_speed

seconds = st.floats(0.0, 1e5)
sizes = st.integers(1, 4096)
moves = st.lists(
    st.builds(Measurement, sizes, st.integers(0, 2**50), seconds, seconds, seconds, seconds | st.none()), max_size=12
)
guesses = st.none() | st.builds(Guess, st.integers(0, 2**50), st.floats(1.0, 1e12))

ONE = Measurement(processors=8, bytes=800_000_000, checkpoint_s=2.0, write_s=1.5, wait_s=0.5, restart_s=1.0)


@given(moves, sizes | st.none(), guesses, seconds, seconds, st.none() | seconds, seconds)
def test_whatever_is_known_the_figures_hold_together(
    measured: list[Measurement],
    size: int | None,
    guess: Guess | None,
    configured: float,
    floor: float,
    told: float | None,
    look: float,
) -> None:
    cost = move_cost(measured, size, guess, configured_s=configured, floor_s=floor, job_s=told, look_s=look)
    assert math.isfinite(cost.lambda_s) and cost.lambda_s >= 0 and cost.tail_s >= 0
    assert cost.kept_s >= cost.lambda_s and cost.kept_s >= cost.reserve_s
    if told is not None:
        assert cost.lambda_s == told and cost.source is Source.JOB
    elif measured:
        assert cost.source is Source.MEASURED and cost.lambda_s >= floor
        whole = [m.checkpoint_s + m.wait_s + (m.checkpoint_s if m.restart_s is None else m.restart_s) for m in measured]
        parts = [m.checkpoint_s for m in measured] + [m.restart_s or 0.0 for m in measured]
        assert cost.lambda_s <= max(floor, 3 * max([*parts, *whole])) + 1e-6
    elif guess is not None:
        assert cost.source is Source.GUESSED and cost.lambda_s >= configured and cost.reserve_s >= configured + look
    else:
        assert (cost.source, cost.lambda_s, cost.reserve_s) == (Source.CONFIGURED, configured, configured + look + 2.0)
    if measured:  # no checkpoint that took no longer than the longest of the recent ones meets its subjob's end
        longest = max(m.checkpoint_s for m in nearest(measured, size))
        assert cost.reserve_s >= longest + look


@given(moves.filter(bool), sizes)
def test_the_size_counts_before_the_age(measured: list[Measurement], size: int) -> None:
    near = nearest(measured, size)
    assert 1 <= len(near) <= RECENT

    def octaves(one: Measurement) -> int:
        return round(abs(math.log2(one.processors / size)))

    assert {octaves(one) for one in near} == {min(map(octaves, measured))}
    assert near == [one for one in measured if octaves(one) == octaves(near[0])][:RECENT], "the newest of them"


@given(moves.filter(bool), sizes, st.floats(1.0, 1e4))
def test_a_longer_checkpoint_never_makes_a_move_cheaper(measured: list[Measurement], size: int, more: float) -> None:
    slower = [replace(one, checkpoint_s=one.checkpoint_s + more) for one in measured]
    before, after = (move_cost(m, size, None, configured_s=1.0) for m in (measured, slower))
    assert after.lambda_s >= before.lambda_s and after.reserve_s >= before.reserve_s + more


def test_measured_beats_guessed_beats_configured() -> None:
    guess = Guess(1_000_000_000, 100e6)  # 10 s to write
    cost = move_cost([], 8, None, configured_s=120.0)
    assert (cost.lambda_s, cost.why) == (120.0, "configured: 120 s, nothing was measured yet")
    cost = move_cost([], 8, guess, configured_s=120.0)
    assert (cost.lambda_s, cost.source) == (120.0, Source.GUESSED), "a guess makes planning only more careful"
    assert cost.why == "guessed: 1 GB of memory at 100 MB/s, which the configured 120 s cover"
    cost = move_cost([], 8, guess, configured_s=5.0)
    assert (cost.lambda_s, cost.reserve_s) == (22.0, 22.0), "written, read, told; twice the writing, and telling"
    cost = move_cost([ONE], 8, guess, configured_s=120.0)
    assert (cost.lambda_s, cost.reserve_s, cost.samples, cost.bytes) == (3.5, 5.0, 1, 800_000_000)
    assert cost.why == "measured once on 8 processors: 800 MB, checkpoint 2 s, restart 1 s, wait 0.5 s"
    assert move_cost([ONE], 8, guess, configured_s=120.0, floor_s=10.0).lambda_s == 10.0
    assert move_cost([replace(ONE, restart_s=None)], 8, None, configured_s=120.0).lambda_s == 4.5, "read as written"


def test_what_the_job_says_holds_for_the_plan_and_not_for_the_reserve() -> None:
    cost = move_cost([replace(ONE, checkpoint_s=60.0)], 8, None, configured_s=120.0, job_s=10.0, look_s=5.0)
    assert (cost.lambda_s, cost.reserve_s, cost.tail_s) == (10.0, 97.0, 87.0)
    assert cost.why == "the job says 10 s"
    assert move_cost([], 8, None, configured_s=120.0, job_s=10.0, look_s=5.0).reserve_s == 17.0, "and the telling"


def test_the_nearest_size() -> None:
    small, wide = replace(ONE, processors=4, checkpoint_s=9.0), replace(ONE, processors=64)
    assert nearest([wide, small, ONE], 5) == [small]
    assert nearest([wide, small, ONE], 100) == [wide]
    assert nearest([wide, small, ONE], None) == [wide, small, ONE]
    assert nearest([], 5) == []


def test_the_speed_of_the_spool() -> None:
    assert spool_speed([]) is None
    assert spool_speed([(1000, 0.001), (1 << 20, 0.0)]) is None, "nothing that tells"
    assert spool_speed([(200_000_000, 1.0), (100_000_000, 2.0), (300_000_000, 1.0)]) == 200e6


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2 MB"), (4 * 10**15, "4e+03 TB")]
)
def test_bytes_in_words(size: int, words: str) -> None:
    assert in_words(size) == words


# C, M, sqrt(2 C M), and Daly's Eq. 37, worked out apart from the code.
GOLDEN = [
    (60.0, 86400.0, 3219.9379, 3180.0621),  # sqrt(C/2M) = 0.018634: 3219.938 * 1.0062499 - 60
    (300.0, 3600.0, 1469.6938, 1276.4979),  # sqrt(C/2M) = 0.204124: 1469.694 * 1.0726710 - 300
    (7200.0, 3600.0, 7200.0, 3600.0),  # C = 2M: the time between failures itself
]


@pytest.mark.parametrize(("cost", "mtbf", "first", "higher"), GOLDEN)
def test_golden_intervals(cost: float, mtbf: float, first: float, higher: float) -> None:
    assert young(cost, mtbf) == pytest.approx(first, abs=1e-3)
    assert daly(cost, mtbf) == pytest.approx(higher, abs=1e-3)


@given(st.floats(0.1, 1e4), st.floats(1.0, 1e9))
def test_daly_is_an_optimum(cost: float, mtbf: float) -> None:
    """Against his own model of the expected run time (Eq. 20), with R = 0, for intervals around it."""

    def slowdown(interval: float) -> float:
        return mtbf * math.expm1((interval + cost) / mtbf) / interval

    best = daly(cost, mtbf)
    assert best > 0
    if cost < mtbf / 2 and cost / mtbf > 1e-7:  # where his series is meant to hold, and floats tell
        assert slowdown(best) <= min(slowdown(best * 0.7), slowdown(best * 1.4)) * (1 + 1e-9)


def test_more_nodes_fail_more_often() -> None:
    assert mtbf_of(1, 1e8) == 1e8 and mtbf_of(100, 1e8) == 1e6 and mtbf_of(0, 1e8) == 1e8


def test_how_often_to_checkpoint() -> None:
    assert checkpoint_interval("off", "queue batch", 5.0, 4, 1e6) == CheckpointInterval(
        None, "no periodic checkpoints: queue batch says off"
    )
    assert checkpoint_interval("600", "the job", 5.0, 4, 1e6) == CheckpointInterval(
        600.0, "every 600 s: the job says so"
    )
    assert checkpoint_interval(90.5, "queue batch", 5.0, 4, 1e6).seconds == 90.5
    auto = checkpoint_interval("auto", "the job", 60.0, 16, 365 * 86400.0)
    assert auto.seconds == pytest.approx(daly(60.0, 365 * 86400.0 / 16))
    assert auto.why == (
        "every 1.53e+04 s (the job says auto): a checkpoint costs 60 s, and one of 16 nodes fails every 1.97e+06 s"
    )
    assert checkpoint_interval("auto", "the job", 7200.0, 1, 3600.0).seconds == 7200.0, "no more often than they cost"


def test_a_move_costs_by_the_width_at_which_it_ended() -> None:
    measured = [
        replace(ONE, to_processors=16, restart_s=60.0),
        replace(ONE, to_processors=4),
        replace(ONE, to_processors=16, restart_s=20.0),
        replace(ONE, to_processors=8, restart_s=None),
        ONE,
    ]
    assert moves_to(measured, 1.0) == {4: 3.5, 16: 42.5}
    assert moves_to(measured, 5.0)[4] == 5.0
    assert moves_to([], 1.0) == {}
