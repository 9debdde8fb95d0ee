"""The simulator against the workload logs: pyss's figures to the last digit printed, the EJB paper's tables.

The logs are looked for in EJB_TRACES, or else beside the repository in `shared/traces`; without them all of this is
skipped. The logs' first 5,000 rows and the whole of KTH are used here; `ejb sim reproduce` and `benchmarks/sim_*.py`
go through all of the others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.core.plan import BundlingParameters
from ejbd.sim.metrics import change, idle_while_queued, makespan, means, paper_trim, utilization
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.settings import Source, load, parse_setting, play
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import Workload

TRACES = Path(os.environ.get("EJB_TRACES") or Path(__file__).parents[2].parent / "shared" / "traces")
LOGS = {
    "KTH": ("KTH-SP2-1996-2.swf.xz", 100),
    "CTC": ("CTC-SP2-1996-3.1-cln.rebuilt.swf.xz", 338),
    "SDSC": ("SDSC-SP2-1998.rebuilt.swf.xz", 128),
    "BLUE": ("SDSC-BLUE-2000-4.1-cln.swf.xz", 1152),
}
FEW = 5000
LAMBDAS = range(110, 131, 2)  # many elastic jobs are chaotic: the mean over runs around the paper's lambda

pytestmark = [
    pytest.mark.xdist_group("sim_traces"),  # one process, so that the kernels are compiled once
    pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no workload logs in {TRACES}"),
]


def workload(name: str, limit: int | None = None) -> Workload:
    file, processors = LOGS[name]
    if not (TRACES / file).is_file():
        pytest.skip(f"{TRACES} has no {file}")
    if limit is None:
        return load(Source(TRACES / file, processors))
    return load(Source(TRACES / file, processors, limit=limit))


@pytest.fixture(scope="module")
def kth() -> Workload:
    return workload("KTH")


def everybody(jobs: Workload) -> Any:
    return np.full(len(jobs), True)


# mean wait, mean turnaround, bounded slowdown, makespan, utilisation: pyss's, whose ties these are
PYSS = {
    ("KTH", FEW): ("9445.1142", "16513.4882", "136.8948", "6857955", "0.619644"),
    ("KTH", None): ("6896.4610", "15753.8994", "92.8346", "29363626", "0.687425"),
    ("CTC", FEW): ("6402.6092", "16658.8468", "20.6318", "2240195", "0.638838"),
    ("SDSC", FEW): ("4044.2842", "12370.1720", "17.9116", "5223949", "0.662577"),
    ("BLUE", FEW): ("2857.1092", "4929.9610", "12.9104", "1888566", "0.562908"),
}


@pytest.mark.parametrize(("name", "limit"), PYSS, ids=lambda value: str(value))
def test_easy_is_pyss_to_the_last_digit(name: str, limit: int | None) -> None:
    jobs = workload(name, limit)
    easy = run(jobs, Policy.EASY, ties=Ties.PYSS, checking=True)
    m = means(jobs.jobs, easy, everybody(jobs))
    figures = (
        f"{m.mean_wait_s:.4f}",
        f"{m.mean_turnaround_s:.4f}",
        f"{m.mean_bounded_slowdown:.4f}",
        f"{makespan(jobs.jobs, easy):.0f}",
        f"{utilization(jobs.jobs, easy, jobs.processors):.6f}",
    )
    assert figures == PYSS[name, limit]


def test_one_pass_for_all_that_happens_at_one_time(kth: Workload) -> None:
    batch = run(kth, Policy.EASY, ties=Ties.BATCH, checking=True)
    assert f"{means(kth.jobs, batch, everybody(kth)).mean_wait_s:.2f}" == "6894.20"


@pytest.mark.parametrize(("limit", "wait"), [(FEW, "199184.16"), (None, "353995.47")])
def test_first_come_first_served(limit: int | None, wait: str) -> None:
    jobs = workload("KTH", limit)
    fcfs = run(jobs, Policy.FCFS, ties=Ties.PYSS, checking=True)
    assert f"{means(jobs.jobs, fcfs, everybody(jobs)).mean_wait_s:.2f}" == wait


@pytest.mark.parametrize(("limit", "wait"), [(FEW, 9164.14), (None, 7293.86)])
def test_conservative_backfilling_is_near_pyss(limit: int | None, wait: float) -> None:
    """Not the same: reservations are compressed at every event here, in the order of the queue."""
    jobs = workload("KTH", limit)
    outcome = run(jobs, Policy.CONSERVATIVE, ties=Ties.PYSS, checking=True)
    assert means(jobs.jobs, outcome, everybody(jobs)).mean_wait_s == pytest.approx(wait, rel=0.01)


def test_the_papers_figures_of_easy_on_kth(kth: Workload) -> None:
    """Table 5's "before" and Table 6's, to the last digit printed: terminations first, and the paper's trim."""
    easy = run(kth, Policy.EASY, ties=Ties.PAPER)
    m = means(kth.jobs, easy, paper_trim(kth.jobs, easy))
    assert (m.jobs, round(m.mean_wait_s), round(m.mean_run_s), round(m.mean_turnaround_s)) == (
        28_203, 6_929, 8_907, 15_836,
    )  # fmt: skip
    assert f"{idle_while_queued(easy):.1f}" == "16.0"


SINGLE: dict[str, tuple[dict[str, Any], float]] = {  # what is changed, and the change of the turnaround, %
    "O_max 2": ({"omax": 2}, -17.8),
    "O_max 16": ({"omax": 16}, -42.9),
    "O_max 64": ({"omax": 64}, -45.9),
    "lambda 600": ({"lambda_s": 600.0}, -36.1),
    "Delta 2": ({"delta": 2.0}, -29.8),
    "no migration": ({"lambda_s": float("inf")}, -25.2),
}


def test_tables_3_and_4_on_kth(kth: Workload) -> None:
    s = run_targets(kth, checking=True).summary()
    assert s["targets"] == pytest.approx(4_399, abs=1)
    printed = {
        "wait_change_percent": -66.5,
        "run_change_percent": 34.9,
        "turnaround_change_percent": -37.8,
        "migration_duration_percent": 6.4,
    }
    for key, value in printed.items():
        assert s[key] == pytest.approx(value, abs=1.0), key
    assert s["mean_subjobs"] == pytest.approx(2.7, abs=0.15)
    assert s["mean_migrations"] == pytest.approx(1.6, abs=0.1)
    assert s["overhead_percent"] == pytest.approx(21.2, abs=0.5)  # the paper prints 24.1, see docs/simulator.md


@pytest.mark.parametrize("name", SINGLE)
def test_sensitivity_on_kth(kth: Workload, name: str) -> None:
    changes, turnaround = SINGLE[name]
    s = run_targets(kth, parameters=BundlingParameters(**changes), checking=True).summary()
    assert s["turnaround_change_percent"] == pytest.approx(turnaround, abs=0.5)


def test_without_j0_beside_the_subjobs(kth: Workload) -> None:
    s = run_targets(kth, keep_placeholder=False, checking=True).summary()
    assert s["turnaround_change_percent"] == pytest.approx(-35.3, abs=1.0)


def test_single_targets_beyond_the_paper(kth: Workload) -> None:
    suspend = run_targets(kth, parameters=BundlingParameters(suspend=True), checking=True).summary()
    assert suspend["turnaround_change_percent"] <= -42.7
    wide = BundlingParameters(suspend=True, omax=64, whole_slots=True, act_in_migration=True)
    assert run_targets(kth, parameters=wide, checking=True).summary()["turnaround_change_percent"] <= -48.4


def changes_of(kth: Workload, parameters: BundlingParameters, narrowest: int) -> list[float]:
    """Change of the mean turnaround of elastic, other and all jobs, and of the idle processors, over the lambdas."""
    easy = run(kth, Policy.EASY)
    rows = []
    for lambda_s in LAMBDAS:
        of_run = BundlingParameters(
            lambda_s=float(lambda_s),
            least_work_first=parameters.least_work_first,
            suspend=parameters.suspend,
            omax=parameters.omax,
        )
        ejb = run(kth, Policy.EJB, parameters=of_run, min_processors=narrowest, checking=lambda_s == 120)
        kept = paper_trim(kth.jobs, easy) & (ejb.end <= kth.jobs.submit.max())
        elastic = ejb.elastic != 0
        row = []
        for chosen in (kept & elastic, kept & ~elastic, kept):
            before, after = means(kth.jobs, easy, chosen), means(kth.jobs, ejb, chosen)
            row.append(change(before.mean_turnaround_s, after.mean_turnaround_s))
        rows.append([*row, change(idle_while_queued(easy), idle_while_queued(ejb))])
    return [float(value) for value in np.mean(rows, axis=0)]


def test_tables_5_and_6_on_kth(kth: Workload) -> None:
    elastic, others, all_jobs, idle = changes_of(kth, BundlingParameters(), 8)
    assert elastic == pytest.approx(-21.0, abs=1.0)
    assert others == pytest.approx(0.4, abs=1.0)
    assert all_jobs == pytest.approx(-8.7, abs=0.5)
    assert idle == pytest.approx(-58.8, abs=1.0)


def test_many_elastic_jobs_beyond_the_paper(kth: Workload) -> None:
    everything = BundlingParameters(least_work_first=True, suspend=True, omax=64)
    assert changes_of(kth, everything, 1)[2] < -18.2


@pytest.mark.parametrize(
    "words", ["ejb", "ejb:order=least-work,suspend,min-procs=1,omax=64,whole-slots,act-in-migration"]
)
@pytest.mark.parametrize("name", LOGS)
def test_invariants_hold_at_every_event(name: str, words: str) -> None:
    file, processors = LOGS[name]
    workload(name, FEW)
    jobs, outcome, _ = play(Source(TRACES / file, processors, limit=FEW), parse_setting(words), checking=True)
    assert (outcome.end > outcome.start).all()
    assert outcome.elastic.sum() > 100
    assert (outcome.start >= jobs.jobs.submit).all()
