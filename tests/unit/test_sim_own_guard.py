"""Policies by their names give back in the simulator, too, by their own answers; what is no answer is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
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


def test_a_function_that_returns_nothing_is_told_so() -> None:
    def nothing(question: Any) -> Any:
        return None

    load = workload([(0, 6, 1000, 1000), (1, 8, 600, 600)], 10)
    with pytest.raises(EjbError, match="None is no decision"):
        run_own(load, nothing, candidates=load.jobs.processors >= 8)
