"""`ejb sim run --poll`: the margins of a live manager."""

from __future__ import annotations

import pytest

from ejbd.core.cost import TELLING_S
from ejbd.core.room.slots import START_UP_POLLS, Margins
from ejbd.errors import EjbError
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Source, load, parse_setting, play, play_targets
from ejbd.sim.swf import write_swf
from ejbd.sim.world import FREE_OF_COSTS, Costs


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("margins") / "busy.swf"
    write_swf(path, generate(Model.LUBLIN, jobs=200, processors=32, seed=3, load=0.9, overestimate=3.0))
    return Source(path, 32)


def test_they_are_what_a_manager_keeps_that_has_measured_nothing() -> None:
    costs = parse_setting("ejb:lambda=60,poll=10").costs
    assert costs.margins == (10.0, START_UP_POLLS * 10.0, 10.0 + TELLING_S)
    assert costs.slack_s == 60.0 + 10.0 + TELLING_S + START_UP_POLLS * 10.0
    assert parse_setting("ejb").costs == FREE_OF_COSTS


def test_a_simulation_keeps_them(source: Source) -> None:
    _, without, report = play(source, parse_setting("ejb:suspend,order=least-work"), checking=True)
    _, with_poll, told = play(source, parse_setting("ejb:suspend,order=least-work,poll=300"), checking=True)
    assert told["parameters"]["poll_s"] == 300.0 and "poll_s" not in report["parameters"]
    assert (with_poll.end != without.end).any()
    costs = Costs(slack_s=120.0 + 302.0 + 900.0, margins=Margins(300.0, 900.0, 302.0))
    workload, parameters = load(source), parse_setting("ejb:suspend,order=least-work").parameters
    by_hand = run(workload, Policy.EJB, parameters=parameters, costs=costs)
    assert (with_poll.end == by_hand.end).all()
    _, easy, _ = play(source, parse_setting("easy"))
    _, same, _ = play(source, parse_setting("easy:poll=300"))
    assert (easy.end == same.end).all(), "it is EJB's alone"


def test_where_they_are_not_simulated_is_said(source: Source) -> None:
    with pytest.raises(EjbError, match="without the margins"):
        play_targets(source, parse_setting("ejb:poll=5"))
    with pytest.raises(EjbError, match="poll=-1 is no setting"):
        parse_setting("ejb:poll=-1")
