"""The simulator against the workload logs: pyss's figures to the last digit printed, the EJB paper's tables.

The logs are looked for in EJB_TRACES, or else beside the repository in `shared/traces`; without them all of this is
skipped. What takes long, the whole of the three longer logs, is for EJB_TRACES only (five minutes of a core). With it,
and in the nightly run, means are over eleven lambdas in place of three.

A change is in per cent of EASY's mean. "Golden" is what an independent implementation of the same reading of the paper
gave on the same logs; the paper's own figures are named where they are meant.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.sim.fairness import beside
from ejbd.sim.metrics import Outcome, change, idle_while_queued, makespan, means, paper_trim, utilization
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.settings import Source, load, parse_setting, play
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import RowRule, Workload
from tests.nightly import everything

TRACES = Path(os.environ.get("EJB_TRACES") or Path(__file__).parents[2].parent / "shared" / "traces")
LOGS = {
    "KTH": ("KTH-SP2-1996-2.swf.xz", 100),
    "CTC": ("CTC-SP2-1996-3.1-cln.rebuilt.swf.xz", 338),
    "SDSC": ("SDSC-SP2-1998.rebuilt.swf.xz", 128),
    "BLUE": ("SDSC-BLUE-2000-4.1-cln.swf.xz", 1152),
}
FEW = 5000
# Many elastic jobs are chaotic: the mean over runs around the paper's lambda, of which three are for every day.
LAMBDAS = range(110, 131, 2 if everything() or os.environ.get("EJB_TRACES") else 10)

pytestmark = [
    pytest.mark.xdist_group("sim_traces"),  # one process, so that the kernels are compiled once
    pytest.mark.skipif(not TRACES.is_dir(), reason=f"there are no workload logs in {TRACES}"),
]


def workload(name: str, limit: int | None = None) -> Workload:
    file, processors = LOGS[name]
    if limit is None and name != "KTH" and not os.environ.get("EJB_TRACES"):
        pytest.skip("the whole of the longer logs is played where EJB_TRACES names their folder")
    if not (TRACES / file).is_file():
        pytest.skip(f"{TRACES} has no {file}")
    if limit is None:
        return load(Source(TRACES / file, processors, RowRule.PYSS))
    return load(Source(TRACES / file, processors, RowRule.PYSS, limit))


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
    ("CTC", None): ("14272.5945", "25526.8022", "49.5713", "29306682", "0.835822"),
    ("SDSC", FEW): ("4044.2842", "12370.1720", "17.9116", "5223949", "0.662577"),
    ("SDSC", None): ("20497.7610", "27850.8617", "87.8703", "63192188", "0.822930"),
    ("BLUE", FEW): ("2857.1092", "4929.9610", "12.9104", "1888566", "0.562908"),
    ("BLUE", None): ("7127.5375", "11143.3752", "41.5093", "84720170", "0.761277"),
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


@pytest.mark.parametrize(
    ("name", "wait"), [("KTH", "6894.20"), ("CTC", "13943.01"), ("SDSC", "20570.88"), ("BLUE", "7191.34")]
)
def test_one_pass_for_all_that_happens_at_one_time(name: str, wait: str) -> None:
    jobs = workload(name)
    batch = run(jobs, Policy.EASY, ties=Ties.BATCH, checking=True)
    assert f"{means(jobs.jobs, batch, everybody(jobs)).mean_wait_s:.2f}" == wait


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("limit", "wait"), [(FEW, "199184.16"), (None, "353995.47")])
def test_first_come_first_served(limit: int | None, wait: str) -> None:
    jobs = workload("KTH", limit)
    fcfs = run(jobs, Policy.FCFS, ties=Ties.PYSS, checking=True)
    assert f"{means(jobs.jobs, fcfs, everybody(jobs)).mean_wait_s:.2f}" == wait


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("limit", "wait"), [(FEW, 9164.14), (None, 7293.86)])
def test_conservative_backfilling_is_near_pyss(limit: int | None, wait: float) -> None:
    """Not the same: reservations are compressed at every event here, in the order of the queue."""
    jobs = workload("KTH", limit)
    outcome = run(jobs, Policy.CONSERVATIVE, ties=Ties.PYSS, checking=True)
    assert means(jobs.jobs, outcome, everybody(jobs)).mean_wait_s == pytest.approx(wait, rel=0.01)


# Table 5's "before" and Table 6's, to the last digit printed: terminations first, and the paper's trim
BEFORE = {
    "KTH": (28_203, 6_929, 8_907, 15_836, "16.0"),
    "BLUE": (240_862, 7_235, 4_033, 11_268, "129.5"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_the_papers_figures_of_easy(name: str) -> None:
    jobs = workload(name)
    easy = run(jobs, Policy.EASY, ties=Ties.PAPER)
    m = means(jobs.jobs, easy, paper_trim(jobs.jobs, easy))
    assert (m.jobs, round(m.mean_wait_s), round(m.mean_run_s), round(m.mean_turnaround_s)) == BEFORE[name][:4]
    assert f"{idle_while_queued(easy):.1f}" == BEFORE[name][4]


@functools.cache
def easy_of(name: str) -> Outcome:
    return run(workload(name), Policy.EASY)


def single(name: str, *, keep_placeholder: bool = True, **changes: Any) -> dict[str, Any]:
    """One elastic job a simulation, over all targets of the log, every event checked."""
    parameters = BundlingParameters(**changes)
    jobs = workload(name)
    return run_targets(
        jobs, parameters=parameters, baseline=easy_of(name), keep_placeholder=keep_placeholder, checking=True
    ).summary()


# The paper's: wait, run, turnaround (Table 3), subjobs, migrations, migration duration (Table 4). Two of the logs are
# rebuilt ones, and their counts are not the paper's; the run time on SDSC's is 2.1 points off, all else within 2.
TABLES_3_AND_4 = {
    "KTH": (4_399, 1.0, (-66.5, 34.9, -37.8, 6.4), (2.7, 1.6), 21.2),
    "BLUE": (64_090, 1.0, (-59.8, 26.9, -36.1, 8.6), (2.7, 1.5), 16.5),
    "CTC": (16_261, 2.0, (-50.4, 29.3, -33.9, 8.5), (3.3, 2.1), 17.4),
    "SDSC": (14_264, 2.2, (-68.9, 57.6, -48.4, 5.6), (2.8, 1.7), 13.4),
}


@pytest.mark.parametrize("name", TABLES_3_AND_4)
def test_tables_3_and_4(name: str) -> None:
    targets, band, printed, counts, overhead = TABLES_3_AND_4[name]
    s = single(name)
    assert s["targets"] == pytest.approx(targets, abs=1)
    keys = ("wait_change_percent", "run_change_percent", "turnaround_change_percent", "migration_duration_percent")
    for key, value in zip(keys, printed, strict=True):
        assert s[key] == pytest.approx(value, abs=band), key
    assert s["mean_subjobs"] == pytest.approx(counts[0], abs=0.3)
    assert s["mean_migrations"] == pytest.approx(counts[1], abs=0.15)
    assert s["overhead_percent"] == pytest.approx(overhead, abs=0.5)  # golden: docs/simulator.md


# Of an independent implementation: shares of the targets that ran on more than one subjob, and that moved; the change
# of the number of priority inversions where all jobs of 8 processors and more are elastic (the paper: "about 20 %").
SHARES = {"CTC": (0.684, 0.622), "SDSC": (0.631, 0.579), "BLUE": (0.660, 0.610), "KTH": (0.624, 0.565)}
INVERSIONS = {"CTC": -17.8, "SDSC": -37.2, "BLUE": -23.1, "KTH": -30.6}


@pytest.mark.nightly("the tables of the paper go by the same rules")
@pytest.mark.parametrize("name", SHARES)
def test_shares_of_targets_on_several_subjobs_and_moved(name: str) -> None:
    s = single(name)
    assert (s["several_subjobs_share"], s["moved_share"]) == pytest.approx(SHARES[name], abs=0.003)


@pytest.mark.nightly("tables 3 to 6 go by the same rules, to the digit")
@pytest.mark.parametrize("name", INVERSIONS)
def test_priority_inversions_and_who_is_later(name: str) -> None:
    """More of the others start later than earlier on SDSC and KTH, fewer on BLUE: docs/simulator.md."""
    jobs, easy = workload(name), easy_of(name)
    found = []
    for lambda_s in (110, 120, 130):
        ejb = run(jobs, Policy.EJB, parameters=BundlingParameters(lambda_s=float(lambda_s)))
        kept = paper_trim(jobs.jobs, easy) & paper_trim(jobs.jobs, ejb)
        found.append(beside(jobs.jobs, easy, ejb, kept))
    # Runs scatter by 0.8 to 1.2 points; over eleven lambdas they are -19.8, -36.7, -22.6 and -30.7 (docs/sc15).
    assert np.mean([one.inversions_percent for one in found]) == pytest.approx(INVERSIONS[name], abs=4)
    later = float(np.mean([one.others_start.later_percent for one in found]))
    assert later == pytest.approx({"CTC": 34.9, "SDSC": 32.0, "BLUE": 5.5, "KTH": 30.1}[name], abs=1.5)
    earlier = float(np.mean([one.others_start.earlier_percent for one in found]))
    assert earlier == pytest.approx({"CTC": 34.7, "SDSC": 26.8, "BLUE": 15.6, "KTH": 20.4}[name], abs=1.5)


SENSITIVITY: dict[str, tuple[dict[str, Any], tuple[float, float, float, float]]] = {  # golden, in the order of NAMES
    "O_max 2": ({"omax": 2}, (-11.7, -18.5, -15.9, -17.8)),
    "O_max 16": ({"omax": 16}, (-39.6, -54.3, -40.1, -42.9)),
    "O_max 64": ({"omax": 64}, (-42.7, -56.3, -42.3, -45.9)),
    "lambda 600": ({"lambda_s": 600.0}, (-31.4, -47.3, -34.1, -36.1)),
    "Delta 2": ({"delta": 2.0}, (-28.5, -40.5, -30.6, -29.8)),
    "J0 cancelled at the first subjob": ({"keep_placeholder": False}, (-31.6, -47.0, -34.3, -35.3)),
    "no migration": ({"lambda_s": float("inf")}, (-19.6, -32.4, -23.2, -25.2)),
}
NAMES = ("CTC", "SDSC", "BLUE", "KTH")


@pytest.mark.nightly("tables 3 to 6 stand at one of its rows")
@pytest.mark.sampled(3, by=("name",))
@pytest.mark.parametrize("row", SENSITIVITY)
@pytest.mark.parametrize("name", NAMES)
def test_sensitivity(name: str, row: str) -> None:
    changes, golden = SENSITIVITY[row]
    turnaround = single(name, **changes)["turnaround_change_percent"]
    assert turnaround == pytest.approx(golden[NAMES.index(name)], abs=1.5)


# What the improvements must reach: turnaround of one elastic job a simulation
SUSPEND = dict(zip(NAMES, (-46.5, -55.6, -42.9, -42.8), strict=True))
SUSPEND_AND_ALL = dict(zip(NAMES, (-51.0, -60.2, -47.1, -48.5), strict=True))


@pytest.mark.nightly("the next one suspends, too")
@pytest.mark.parametrize("name", NAMES)
def test_single_targets_that_are_suspended(name: str) -> None:
    assert single(name, suspend=True)["turnaround_change_percent"] < SUSPEND[name]


@pytest.mark.nightly("tables 3 to 6 have single targets, to the digit")
@pytest.mark.parametrize("name", NAMES)
def test_single_targets_beyond_the_paper(name: str) -> None:
    wide = single(name, suspend=True, omax=64, whole_slots=True, act_in_move=True)
    assert wide["turnaround_change_percent"] < SUSPEND_AND_ALL[name]


def many(name: str, *, narrowest: int = 8, **changes: Any) -> list[float]:
    """Change of the mean turnaround of elastic, other and all jobs, and of the idle processors, over the lambdas."""
    jobs, easy = workload(name), easy_of(name)
    rows = []
    for lambda_s in LAMBDAS:
        of_run = BundlingParameters(lambda_s=float(lambda_s), **changes)
        ejb = run(jobs, Policy.EJB, parameters=of_run, min_processors=narrowest, checking=lambda_s == 120)
        kept = paper_trim(jobs.jobs, easy) & (ejb.end <= jobs.jobs.submit.max())
        elastic = ejb.elastic != 0
        row = []
        for chosen in (kept & elastic, kept & ~elastic, kept):
            before, after = means(jobs.jobs, easy, chosen), means(jobs.jobs, ejb, chosen)
            row.append(change(before.mean_turnaround_s, after.mean_turnaround_s))
        rows.append([*row, change(idle_while_queued(easy), idle_while_queued(ejb))])
    return [float(value) for value in np.mean(rows, axis=0)]


# The paper's Tables 5 and 6: elastic, non-elastic, all jobs, idle processors
TABLES_5_AND_6 = {
    "KTH": (-21.0, 0.4, -8.7, -58.8),
    "BLUE": (-11.8, -22.2, -13.4, -58.0),
    "CTC": (-11.8, -7.2, -9.3, -34.0),
    "SDSC": (-29.8, -18.1, -26.5, -57.4),
}


@pytest.mark.nightly("tables 3 and 4 go by the same rules, to the digit")
@pytest.mark.parametrize("name", TABLES_5_AND_6)
def test_tables_5_and_6(name: str) -> None:
    # 3 points for SDSC: its rebuilt log lacks a tenth of the jobs, and golden is 2.8 off among the non-elastic ones
    band = 3.0 if name == "SDSC" else 2.0
    for ours, printed in zip(many(name), TABLES_5_AND_6[name], strict=True):
        assert ours == pytest.approx(printed, abs=band)


MANY: dict[str, tuple[dict[str, Any], tuple[float, float, float, float]]] = {
    "all": ({"order": Order.LEAST_WORK, "suspend": True, "omax": 64, "narrowest": 1}, (-29.9, -42.4, -28.6, -18.2)),
    "order": ({"order": Order.LEAST_WORK}, (-14.6, -36.3, -22.0, -12.0)),
    "order, suspend": ({"order": Order.LEAST_WORK, "suspend": True}, (-23.9, -39.4, -28.6, -14.6)),
}


@pytest.mark.nightly("tables 3 to 6 go by the same rules; unit/test_sim_elastic.py has many elastic jobs")
@pytest.mark.sampled(3, by=("name",))
@pytest.mark.parametrize("row", MANY)
@pytest.mark.parametrize("name", NAMES)
def test_many_elastic_jobs_beyond_the_paper(name: str, row: str) -> None:
    """Reached or passed, or less than what such runs scatter (a standard deviation is 0.2 to 1.2 points) behind."""
    changes, golden = MANY[row]
    assert many(name, **changes)[2] < golden[NAMES.index(name)] + 0.7


@pytest.mark.nightly("the tables of the paper check every event, too; unit/test_sim_elastic.py has many elastic jobs")
@pytest.mark.sampled(2, by=("name",))
@pytest.mark.parametrize("words", ["ejb", "ejb:order=least-work,suspend,min-procs=1,omax=64,whole-slots,act-in-move"])
@pytest.mark.parametrize("name", LOGS)
def test_invariants_hold_at_every_event(name: str, words: str) -> None:
    file, processors = LOGS[name]
    workload(name)
    jobs, outcome, _ = play(Source(TRACES / file, processors, RowRule.PYSS), parse_setting(words), checking=True)
    assert (outcome.end > outcome.start).all()
    assert outcome.elastic.sum() > 100
    assert (outcome.start >= jobs.jobs.submit).all()
