"""Workflows of stages on a simulated cluster: what is asked for when, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.sim.stages import Flow, Rules, Staged, Step, Way
from ejbd.sim.stages_elastic import play_elastic_flows
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs
from ejbd.studies.staged.flows import WORKFLOWS, compare, steps_of, summary
from ejbd.workflow.accounts import Held, one_allocation_core_s, staged_core_s

FLOW = Flow(10.0, (Step(32, 600.0), Step(128, 300.0)))


def cluster(*jobs: tuple[float, float, float, int], processors: int = 128) -> Workload:
    """Jobs as (submit, run, walltime, processors)."""
    columns = list(zip(*jobs, strict=True)) or [(), (), (), ()]
    submit, run, walltime = (np.array(column, dtype=float) for column in columns[:3])
    widths = np.array(columns[3], dtype=np.int64)
    return Workload("made", processors, Jobs(submit, run, walltime, widths, np.arange(len(widths))))


def test_on_an_idle_cluster_it_costs_what_the_equations_say() -> None:
    stages = [Held(32, 600.0), Held(128, 300.0)]
    (one,) = Staged(cluster(), [FLOW], Rules(Way.ONE)).play().fates
    assert one.held == one_allocation_core_s(stages) and one.turnaround_s == 900.0
    (chained,) = Staged(cluster(), [FLOW], Rules(Way.CHAINED)).play().fates
    assert chained.held == staged_core_s(stages) and chained.wait_s == 0.0
    (default,) = Staged(cluster(), [FLOW], Rules(Way.DEFAULT)).play().fates
    assert default.held == staged_core_s([stages[0], Held(128, 300.0, 6.0)]) and default.turnaround_s == 906.0


def test_what_is_queued_ahead_lingers_no_longer_than_it_may() -> None:
    """Its processors are free at once: it holds them for a minute, gives them back, and is asked for at the end."""
    rules = Rules(Way.FAST, over=1.0, ahead_s=300.0)
    (fate,) = Staged(cluster(processors=256), [FLOW], rules).play().fates
    assert fate.idle == 60.0 * 128
    assert fate.held == fate.idle + 32 * 600.0 + 128 * 306.0
    assert fate.waits_s == [0.0, 0.0]
    soon = Rules(Way.FAST, over=1.0, ahead_s=30.0)
    (fate,) = Staged(cluster(processors=256), [FLOW], soon).play().fates
    assert fate.idle == 30.0 * 128 and fate.turnaround_s == 906.0


def test_what_is_queued_ahead_stands_before_what_comes_later() -> None:
    """Another wide job comes while the first stage runs: queued ahead, the second stage has its place before it."""
    rival = (400.0, 5000.0, 5000.0, 128)
    waits = {}
    for way in (Way.DEFAULT, Way.FAST):
        (fate,) = Staged(cluster(rival), [FLOW], Rules(way, over=1.0, ahead_s=600.0)).play().fates
        waits[way] = fate.wait_s
    assert waits == {Way.DEFAULT: 5000.0, Way.FAST: 0.0}


def test_the_papers_workflows_are_as_long_as_they_say() -> None:
    for name in WORKFLOWS:
        assert sum(step.run_s for step in steps_of(name, 32, True)) == pytest.approx(3600.0)
    assert [len(steps_of("montage", 64, bundled)) for bundled in (True, False)] == [4, 9]
    serial = [step.run_s for step in steps_of("montage", 256, True) if step.width == 32]
    assert sum(serial) == pytest.approx(0.72 * 3600)


def test_rows_have_every_mode() -> None:
    busy = cluster(*((60.0 * at, 900.0, 1800.0, 64) for at in range(100)))
    rows = compare(busy, [32, 128, 256], 10, Rules(Way.ONE))
    assert len(rows) == 2 * 10 * 3, "256 processors do not fit"
    assert all(row["eq7"] == 0.0 for row in rows if row["mode"] == "one" and not row["elastic"])
    modes = ["one", *(way for way in ("chained", "default", "fast") for _ in "12"), "one", "chained", "default"]
    assert [row["mode"] for row in summary(rows)] == modes
    chosen = [row for row in rows if row["workflow"] == "synthetic" and row["bundled"] and not row["elastic"]]
    found = {(row["width"], row["mode"]): row["core_h"] for row in chosen}
    assert found[128, "one"] / found[128, "chained"] == pytest.approx(2.5), "Fig. 9b"


def test_where_nothing_has_to_wait_elastic_stages_are_as_the_others() -> None:
    for way in (Way.ONE, Way.CHAINED, Way.DEFAULT):
        fates = [
            Staged(cluster(processors=256), [FLOW], Rules(way)).play().fates,
            play_elastic_flows(cluster(processors=256), [FLOW], Rules(way), BundlingParameters()).fates,
        ]
        rigid, elastic = (fate for (fate,) in fates)
        assert (rigid.held, rigid.waits_s, rigid.end_s) == (elastic.held, elastic.waits_s, elastic.end_s)


def test_an_elastic_stage_begins_on_what_is_free() -> None:
    """Half of the cluster is held for long: the wide stage, for which the rigid one waits, begins on the other half."""
    held = (0.0, 4000.0, 4000.0, 64)
    (rigid,) = Staged(cluster(held), [FLOW], Rules(Way.CHAINED, over=1.0)).play().fates
    parameters = BundlingParameters(lambda_s=6.0)
    (elastic,) = play_elastic_flows(cluster(held), [FLOW], Rules(Way.CHAINED, over=1.0), parameters).fates
    assert rigid.end_s == 4300.0
    assert elastic.end_s < rigid.end_s and elastic.waits_s == [0.0, 0.0]


def test_what_the_others_wait_is_counted() -> None:
    rival = (100.0, 50.0, 50.0, 128)
    for played in (
        Staged(cluster(rival), [FLOW], Rules(Way.ONE, over=1.0)).play(),
        play_elastic_flows(cluster(rival), [FLOW], Rules(Way.ONE, over=1.0), BundlingParameters()),
    ):
        assert played.others_s == 860.0, "from 100 to 960: the wide job has the cluster from 10 to 910"
