"""What limits of accounts leave for a subjob beside J0: for every kind of limit, by what waits and what runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ejbd.core.room.limits import Allowed, Charged, left_of, within_limits
from ejbd.core.room.windows import Windows
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.view import (
    AccountLimit,
    BatchJobView,
    BatchState,
    ClusterView,
    Counted,
    NodeView,
    QueueView,
    Reservations,
)

NOW = 1000.0
SUBJOB = Charged("ours", "normal", "batch")
J0 = BatchJobView("1", "ejb-a.0", "ada", "batch", BatchState.PENDING, 32, 600.0, account="ours", qos="normal")
OTHER = replace(J0, id="2", name="other", processors=8)
FREE = Windows(NOW, (BackfillSlot(4, UNLIMITED), BackfillSlot(12, 300.0)))


def limit(counted: Counted, most: float, used: float = 0.0, **more: object) -> AccountLimit:
    return AccountLimit(f"{counted} limit", counted, most, used, **({"accounts": ("ours",)} | more))  # type: ignore[arg-type]


def allowed(
    *limits: AccountLimit,
    jobs: tuple[BatchJobView, ...] = (J0,),
    charged: Charged = SUBJOB,
    coming: tuple[Charged, ...] = (),
    found: Windows = FREE,
) -> Allowed:
    nodes = tuple(NodeView(f"n{n}", 4, 0, True, ("batch",)) for n in range(8))
    queues = (QueueView("batch", True, None, 1, 32),)
    view = ClusterView(NOW, nodes, jobs, queues, Reservations.NODES, limits=limits)
    j0 = next((job for job in jobs if job.id == J0.id), None)
    return within_limits(found, [left_of(view, one, 4) for one in limits], charged, j0, coming, 4)


def shape(found: Allowed) -> list[tuple[int, float]]:
    return [(step.processors, step.duration_s) for step in found.windows.steps]


WHOLE = [(4, UNLIMITED), (12, 300.0)]


def test_the_last_job_that_may_run_is_j0() -> None:
    found = allowed(limit(Counted.JOBS, 1))
    assert (shape(found), found.by) == ([], ("jobs that run limit",))
    assert shape(allowed(limit(Counted.JOBS, 2))) == WHOLE
    assert allowed(limit(Counted.JOBS, 2)).jobs == 1, "one subjob beside J0, and not two"
    assert allowed(limit(Counted.JOBS, 4, 1)).jobs == 2
    assert allowed(limit(Counted.JOBS, 2), coming=(SUBJOB,)).windows.steps == (), "one that was asked for is coming"


def test_what_is_charged_elsewhere_is_not_bound() -> None:
    one = limit(Counted.JOBS, 1)
    assert shape(allowed(one, charged=replace(SUBJOB, account="others"))) == WHOLE
    of_qos = limit(Counted.JOBS, 1, qos="normal", accounts=())
    assert shape(allowed(of_qos)) == [] and shape(allowed(of_qos, charged=replace(SUBJOB, qos="ejb"))) == WHOLE
    of_partition = limit(Counted.JOBS, 1, queues=("batch",), accounts=())
    assert shape(allowed(of_partition)) == []
    instead = limit(Counted.JOBS, 1, other_rules=("normal",))
    assert shape(allowed(instead)) == WHOLE, "the QOS has a limit of this kind of its own"


def test_a_subjob_in_another_account_of_the_same_limit_leaves_j0_its_slot() -> None:
    both = limit(Counted.JOBS, 1, accounts=("ours", "more"))
    assert shape(allowed(both, charged=replace(SUBJOB, account="more"))) == []
    elsewhere = limit(Counted.JOBS, 1, accounts=("more",))
    assert shape(allowed(elsewhere, charged=replace(SUBJOB, account="more"))) == WHOLE, "J0 does not count there"


def test_processors_that_j0_needs_are_kept_free() -> None:
    assert shape(allowed(limit(Counted.PROCESSORS, 32))) == []
    assert shape(allowed(limit(Counted.PROCESSORS, 40))) == [(4, UNLIMITED), (8, 300.0)]
    assert shape(allowed(limit(Counted.PROCESSORS, 40, 6))) == [(2, UNLIMITED)]
    assert shape(allowed(limit(Counted.PROCESSORS, 60))) == WHOLE
    assert shape(allowed(limit(Counted.PROCESSORS, 40), coming=(replace(SUBJOB, processors=7),))) == [(1, UNLIMITED)]


def test_a_j0_that_could_never_start_keeps_nothing_from_anybody() -> None:
    assert shape(allowed(limit(Counted.PROCESSORS, 16))) == WHOLE
    assert shape(allowed(limit(Counted.PROCESSORS, 8))) == [(4, UNLIMITED), (8, 300.0)]


def test_nodes_are_counted_whole() -> None:
    assert shape(allowed(limit(Counted.NODES, 8))) == []
    assert shape(allowed(limit(Counted.NODES, 9))) == [(4, UNLIMITED)]


def test_processor_seconds_bound_how_long_a_subjob_may_be() -> None:
    j0 = 32 * 600.0
    assert shape(allowed(limit(Counted.PROCESSOR_SECONDS, j0 + 1200.0))) == [(4, 300.0), (12, 100.0)]
    assert shape(allowed(limit(Counted.PROCESSOR_SECONDS, j0))) == []


def test_what_one_job_may_have_bounds_each_subjob() -> None:
    assert shape(allowed(limit(Counted.OF_A_JOB, 8))) == [(4, UNLIMITED), (8, 300.0)]
    assert shape(allowed(limit(Counted.WALLTIME_S, 200.0))) == [(12, 200.0)]


def test_jobs_that_wait_are_counted_as_submitted_already() -> None:
    assert shape(allowed(limit(Counted.SUBMITTED, 1, 1))) == []
    assert allowed(limit(Counted.SUBMITTED, 2, 1)).jobs == 1


@pytest.mark.parametrize(("reason", "left"), [("planned", [(12, 100.0)]), ("limited", [])])
def test_others_of_the_same_limit_are_not_kept_from_starting(reason: str, left: list[tuple[int, float]]) -> None:
    """A job that has a planned start, or stands on a limit, keeps what it needs; one that nobody has looked at does
    not, lest a long queue forbid everything."""
    planned = replace(OTHER, planned_start_s=NOW + 100.0) if reason == "planned" else replace(OTHER, limited=True)
    one = limit(Counted.JOBS, 3)
    assert allowed(one, jobs=(J0, OTHER)).jobs == 2
    found = allowed(one, jobs=(J0, planned))
    assert (shape(found), found.jobs) == (WHOLE, 1)
    assert shape(allowed(limit(Counted.JOBS, 2), jobs=(J0, planned))) == left


def test_what_ends_before_a_planned_start_leaves_its_slot() -> None:
    runs = replace(OTHER, state=BatchState.RUNNING, end_s=NOW + 50.0)
    starts = replace(OTHER, id="3", planned_start_s=NOW + 100.0)
    j0 = replace(J0, planned_start_s=NOW + 200.0)
    found = allowed(limit(Counted.JOBS, 3, 1), jobs=(j0, runs, starts))
    assert (shape(found), found.jobs) == (WHOLE, 1)
    tight = allowed(limit(Counted.JOBS, 3, 2), jobs=(j0, runs, replace(runs, id="9", end_s=NOW + 9e6), starts))
    assert shape(tight) == [], "of the one slot that is left J0 has to have it, lest its plan be dropped"


def test_a_limit_of_the_users_own_does_not_count_others_jobs() -> None:
    foreign = replace(OTHER, foreign=True, limited=True)
    own, shared = limit(Counted.JOBS, 2, own=True), limit(Counted.JOBS, 2)
    assert allowed(own, jobs=(J0, foreign)).jobs == 1
    assert shape(allowed(shared, jobs=(J0, foreign))) == []


def test_without_limits_nothing_is_cut() -> None:
    found = allowed()
    assert (shape(found), found.jobs, found.by) == (WHOLE, math.inf, ())
