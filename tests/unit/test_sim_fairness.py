"""Who is later and who is earlier than without EJB, on worlds whose answer is known by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ejbd.sim.comparing import play_all
from ejbd.sim.fairness import beside, max_bounded_slowdown, priority_inversions, shares, shift
from ejbd.sim.run import Policy, run
from ejbd.sim.settings import Source, parse_setting, play_beside_easy
from ejbd.sim.workload import Workload
from tests.fakes.ejb_sim import ejb_sim
from tests.fakes.sim_worlds import workload

# On 10 processors; submit, processors, walltime, run. EASY: A at once, C on the 4 idle processors at once, B (which
# wants 8) when A ends at 1000, D when B ends at 2000. With EJB B takes the 4 idle processors at 10: two until A ends,
# two for longer. C comes 10 s later and finds nothing. At 880 B begins to leave what ends at 1000, 435 s of its work
# done; at 1000 J0 starts, and B moves to it (another 120 s) and is done at 1120 + 565 = 1685, where C and D start.
A, B, C, D = (0.0, 6, 1000.0, 1000.0), (10.0, 8, 1000.0, 1000.0), (20.0, 4, 500.0, 500.0), (1500.0, 4, 100.0, 100.0)
ALL = np.full(4, True)


@pytest.fixture
def world() -> Workload:
    return workload([A, B, C, D], 10)


def test_a_job_that_comes_later_misses_the_processors_that_would_have_been_idle(world: Workload) -> None:
    easy, ejb = run(world, Policy.EASY), run(world, Policy.EJB, checking=True)
    assert easy.start.tolist() == [0, 1000, 20, 2000]
    assert ejb.start.tolist() == [0, 10, 1685, 1685]
    found = beside(world.jobs, easy, ejb, ALL)
    assert found.others_start.to_json() == {
        "jobs": 3,
        "later": {"jobs": 1, "percent": pytest.approx(100 / 3), "mean_s": 1665, "p95_s": 1665, "max_s": 1665},
        "earlier": {"jobs": 1, "percent": pytest.approx(100 / 3), "mean_s": 315, "p95_s": 315, "max_s": 315},
    }
    assert found.elastic_end.to_json() == {
        "jobs": 1,
        "later": {"jobs": 0, "percent": 0, "mean_s": None, "p95_s": None, "max_s": None},
        "earlier": {"jobs": 1, "percent": 100, "mean_s": 315, "p95_s": 315, "max_s": 315},
    }
    assert found.inversions_percent == -100  # B and C, and none with EJB


def test_the_start_that_is_planned_is_kept_for_who_waits_already(world: Workload) -> None:
    """The promise as it stands: C is in the queue when B asks, so that B may not take what C will have."""
    early = workload([A, (5.0, *C[1:]), B, D], 10)
    assert run(early, Policy.EJB, checking=True).start[1] == run(early, Policy.EASY).start[1] == 5


def test_jobs_that_do_not_count_are_left_out(world: Workload) -> None:
    easy, ejb = run(world, Policy.EASY), run(world, Policy.EJB)
    found = beside(world.jobs, easy, ejb, np.array([True, False, False, True]))
    assert (found.others_start.jobs, found.others_start.later.jobs, found.others_start.earlier.jobs) == (2, 0, 1)
    assert found.elastic_end.jobs == 0
    assert found.elastic_end.to_json()["later"]["percent"] is None
    assert found.to_json()["priority_inversions_change_percent"] is None  # of none there is no per cent


def test_means_and_percentiles() -> None:
    before = np.zeros(204)
    after = np.concatenate([np.arange(1.0, 102.0), [-4.0, -2.0], np.full(101, 1e-9)])
    found = shift(before, after)
    assert (found.jobs, found.later.jobs, found.earlier.jobs) == (204, 101, 2)
    assert (found.later.mean_s, found.later.p95_s, found.later.max_s) == (51, 96, 101)
    assert (found.earlier.mean_s, found.earlier.max_s) == (3, 4)
    assert found.later_percent == pytest.approx(100 * 101 / 204)


def test_priority_inversions_of_a_few() -> None:
    def count(*jobs: tuple[float, float]) -> int:
        submit, start = np.array(jobs, dtype=float).reshape(len(jobs), 2).T
        return priority_inversions(submit, start)

    assert count() == 0
    assert count((0, 5)) == 0
    assert count((0, 5), (1, 4)) == 1
    assert count((0, 5), (1, 5)) == 0  # at one time
    assert count((0, 5), (0, 4)) == 0  # submitted at one time, in either order
    assert count((0, 4), (0, 5)) == 0
    assert count((0, 9), (1, 8), (2, 7), (3, 6), (4, 5)) == 10


@pytest.mark.parametrize("seed", range(12))
def test_priority_inversions_are_those_that_a_look_at_every_pair_finds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    jobs = int(dice.integers(1, 70))
    submit, start = dice.integers(0, 20, jobs).astype(float), dice.integers(0, 25, jobs).astype(float)
    pairs = sum(submit[i] < submit[j] and start[i] > start[j] for i in range(jobs) for j in range(jobs))
    assert priority_inversions(submit, start) == pairs


def test_the_highest_slowdown_and_the_shares(world: Workload) -> None:
    easy, ejb = run(world, Policy.EASY), run(world, Policy.EJB)
    assert max_bounded_slowdown(world.jobs, easy, ALL) == pytest.approx((2100 - 1500) / 100)
    assert max_bounded_slowdown(world.jobs, ejb, ALL) == pytest.approx((2185 - 20) / 500)
    assert math.isnan(max_bounded_slowdown(world.jobs, easy, ~ALL))
    assert shares(ejb, ejb.elastic != 0) == (1, 1)
    assert shares(ejb, ALL) == (0.25, 0.25)
    assert all(math.isnan(share) for share in shares(ejb, ~ALL))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The same world as a workload log."""
    path = tmp_path / "four.swf"
    lines = ["; MaxProcs: 10"]
    for number, (submit, processors, walltime, run_s) in enumerate((A, B, C, D), 1):
        fields = [number, submit, -1, run_s, processors, -1, -1, processors, walltime, -1, 1, 1, 1, -1, -1, -1, -1, -1]
        lines.append(" ".join(f"{value:g}" for value in fields))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_compare_tells_who_is_later(log: Path) -> None:
    words = ("compare", str(log), "easy", "ejb", "ejb:arrivals=2")
    easy, ejb, faster = json.loads(ejb_sim(*words, "--json").stdout)
    assert "beside_first" not in easy
    assert ejb["beside_first"]["others_start"]["later"]["jobs"] == 1
    assert ejb["beside_first"]["others_start"]["earlier"]["mean_s"] == 315
    assert (easy["priority_inversions"], ejb["priority_inversions"]) == (1, 0)
    assert easy["max_bounded_slowdown"] == 6
    assert (ejb["elastic"]["several_subjobs_share"], ejb["elastic"]["moved_share"]) == (1, 1)
    assert faster["beside_first"] is None  # they arrive at other times
    cells = ejb["beside_first"]["grid"]
    assert sum(cell["jobs"] for cell in cells) == easy["jobs"]
    for report, key in ((easy, "mean_turnaround_before_s"), (ejb, "mean_turnaround_s")):
        whole = sum(cell["jobs"] * cell[key] for cell in cells) / report["jobs"]
        assert whole == pytest.approx(report["mean_turnaround_s"]), "width by length"
    text = ejb_sim(*words).stdout
    rows = {" ".join(line.split()[1:4]): line.split()[4:] for line in text.splitlines() if line.startswith("ejb ")}
    assert rows["start of others"] == ["3", "1", "(33.3", "%)", "1665", "1665", "1", "(33.3", "%)", "315", "315"]
    assert "Turnaround by width and length (jobs), ejb beside easy" in text
    assert rows["end of elastic"] == ["1", "0", "(0.0", "%)", "1", "(100.0", "%)", "315", "315"]


def test_a_sweep_keeps_it_for_every_point(log: Path) -> None:
    found = play_beside_easy(Source(log), parse_setting("ejb"))
    assert found["beside_easy"]["others_start"]["later"]["max_s"] == 1665


def test_with_the_paper_s_trim_a_job_counts_if_it_does_in_both(log: Path) -> None:
    settings = [(text, parse_setting(text)) for text in ("easy:trim=paper", "ejb:trim=paper")]
    _, (_, ejb) = play_all(Source(log), settings)
    assert ejb["beside_first"]["others_start"]["jobs"] == 0  # A is the first 1 %, the others end behind D's arrival
    _, (_, ejb) = play_all(Source(log), [("easy", parse_setting("easy")), settings[1]])
    assert ejb["beside_first"]["others_start"]["jobs"] == 0
