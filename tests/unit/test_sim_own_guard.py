"""Policies by their names give back in the simulator, too, by their own answers; what is no answer is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ejbd.core import policy as policies
from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import Decision
from ejbd.core.lending import Borrower
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.state import ElasticState
from ejbd.errors import EjbError
from ejbd.sim.own import run_own, run_policy
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import Workload
from tests.fakes.sim_worlds import workload
from tests.unit.test_sim_elastic import busy

LIVE = BundlingParameters(suspend=True, order=Order.LEAST_WORK, guard=Guard.ON)


@pytest.mark.parametrize("seed", [3, 7])
@pytest.mark.parametrize("lambda_s", [10.0, 120.0])
def test_bundling_asked_by_its_name_gives_back_what_the_compiled_one_does(seed: int, lambda_s: float) -> None:
    load: Workload = busy(seed)
    given, wide = replace(LIVE, lambda_s=lambda_s), load.jobs.processors >= 4
    kernel = run(load, Policy.EJB, parameters=given, candidates=wide, plain=True)
    asked = run_policy(load, "bundling", candidates=wide, parameters=given, checking=True)
    off = run(load, Policy.EJB, parameters=replace(given, guard=Guard.OFF), candidates=wide, plain=True)
    assert asked.end.tolist() == kernel.end.tolist() != off.end.tolist()
    assert asked.moves.tolist() == kernel.moves.tolist()


class Keeps(Bundling):
    """A site's own: it lends until what it borrowed has been worth half an hour."""

    name = "keeps"

    def borrows(self, state: ElasticState, now: float) -> Borrower | None:
        return super().borrows(state, now) if state.work_s > 1800.0 else None

    def answer(self, question: Question) -> Decision:
        if question.situation is Situation.ASKED_BACK:
            ASKED.append(question.state.work_s)
        return super().answer(question)


ASKED: list[float] = []


def test_a_policy_of_a_site_gives_back_by_its_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies._POLICIES, "keeps", Keeps)
    load = busy(3)
    given, wide = replace(LIVE, lambda_s=10.0), load.jobs.processors >= 4
    own = run_policy(load, "keeps", candidates=wide, parameters=given, checking=True)
    bundling = run_policy(load, "bundling", candidates=wide, parameters=given)
    assert ASKED and min(ASKED) > 1800.0, "it is asked about what it lends alone"
    assert own.end.tolist() != bundling.end.tolist()


def test_a_function_that_returns_nothing_is_told_so() -> None:
    def nothing(question: Any) -> Any:
        return None

    load = workload([(0, 6, 1000, 1000), (1, 8, 600, 600)], 10)
    with pytest.raises(EjbError, match="None is no decision"):
        run_own(load, nothing, candidates=load.jobs.processors >= 8)
