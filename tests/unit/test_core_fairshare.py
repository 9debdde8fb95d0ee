"""A fair order between users: the rule, its account, and that the simulator plays it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.core.fairshare import Account, in_fair_order, remembered
from ejbd.errors import EjbError
from ejbd.sim.door import play
from ejbd.sim.settings import parse_setting
from tests.fakes.sim_worlds import workload

Job = tuple[str, int, float]  # user, number, work
JOBS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e6)), max_size=30)
SPENT = st.dictionaries(st.sampled_from("abc"), st.floats(0, 1e7))


def ordered(jobs: list[Job], spent: dict[str, float]) -> list[Job]:
    return in_fair_order(jobs, lambda job: job[0], lambda job: job[2], lambda user: spent.get(user, 0.0))


def test_five_hundred_of_one_user_do_not_stand_before_one_of_another() -> None:
    many: list[Job] = [("alice", number, 100.0) for number in range(500)]
    one = ("bob", 500, 1e6)
    assert ordered([*many, one], {}).index(one) == 1
    assert ordered([*many, one], {"alice": 1.0}).index(one) == 0
    assert ordered([*many, one], {"bob": 1000.0}).index(one) == 11, "once alice's would have used more"


@given(jobs=JOBS, spent=SPENT)
def test_no_job_is_lost_a_users_own_order_is_kept_and_the_least_account_has_each_turn(
    jobs: list[tuple[str, float]], spent: dict[str, float]
) -> None:
    given: list[Job] = [(user, number, work) for number, (user, work) in enumerate(jobs)]
    found = ordered(given, spent)
    assert sorted(found, key=lambda job: job[1]) == given
    for user in "abc":
        assert [job for job in found if job[0] == user] == [job for job in given if job[0] == user]
    account = {user: spent.get(user, 0.0) for user in "abc"}
    for place, (user, _, work) in enumerate(found):
        assert account[user] == min(account[other] for other, _, _ in found[place:])
        account[user] += work


def test_half_is_forgotten_in_a_half_life() -> None:
    account = Account[str](100.0, 0.0)
    account.charge([("alice", 4.0, 0.0, 10.0)], 10.0)
    whole = account.of("alice")
    assert whole == pytest.approx(40.0, rel=0.04) and whole < 40.0
    account.charge([], 110.0)
    assert account.of("alice") == pytest.approx(whole / 2)
    account.charge([("bob", 1.0, 100.0, 90.0)], 5000.0)
    assert account.of("alice") == account.of("bob") == 0.0
    assert remembered(1.0, -1e9, 0.0, 0.0, 100.0) == pytest.approx(100.0 / math.log(2.0)), "no account grows for ever"


@given(times=st.lists(st.floats(0, 1e5), min_size=2, max_size=6))
def test_what_is_charged_in_parts_is_what_is_charged_at_once(times: list[float]) -> None:
    times = sorted(times)
    account = Account[str](3600.0, times[0])
    for begin, end in itertools.pairwise(times):
        account.charge([("alice", 8.0, begin, end)], end)
    whole = remembered(8.0, times[0], times[-1], times[-1], 3600.0)
    assert account.of("alice") == pytest.approx(whole, rel=1e-6, abs=len(times) * 1.0)


# A rigid job holds all but 8 of 16 processors. Then alice has twelve jobs waiting that are shorter than bob's one.
ROWS = [(0.0, 8, 2000.0, 2000.0), *[(1.0 + i, 16, 200.0, 200.0) for i in range(12)], (20.0, 16, 400.0, 400.0)]
FAIR = BundlingParameters(order=Order.LEAST_WORK, fair_half_life_s=86400.0, lambda_s=1.0)


def test_the_simulator_plays_it_and_it_is_bobs_turn_before_alices_next() -> None:
    load = replace(workload(ROWS, 16), users=np.array([3, *[1] * 12, 2]))
    without = play(load, "ejb", parameters=replace(FAIR, fair_half_life_s=0.0), checking=True).outcome
    fair = play(load, "ejb", parameters=FAIR, checking=True).outcome
    assert fair.end[13] < without.end[13], (fair.end.tolist(), without.end.tolist())
    assert fair.end[13] < np.sort(fair.end[1:13])[2], "at most two of alice's twelve are done before it"
    assert fair.end[1] == without.end[1], "the first of hers is where it was"


def test_without_users_it_is_the_policys_own_order() -> None:
    load = workload(ROWS, 16)
    plain = play(load, "ejb", parameters=replace(FAIR, fair_half_life_s=0.0)).outcome
    for users in (None, np.zeros(14, dtype=np.int64)):
        assert play(replace(load, users=users), "ejb", parameters=FAIR).outcome.end.tolist() == plain.end.tolist()


def test_it_is_a_setting_of_a_simulation() -> None:
    setting = parse_setting("ejb:order=least-work,fair-half-life=3600")
    assert not setting.is_kernel and setting.name == "ejb:order=least-work,fair-half-life=3600"
    assert parse_setting("ejb:fair-half-life=0").is_kernel
    with pytest.raises(EjbError, match="no setting"):
        parse_setting("ejb:fair-half-life=-1")
