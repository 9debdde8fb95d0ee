"""`ejb sim reproduce guard` on a made-up log: every cell against EASY, the worst told first, nothing done twice."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.sim.metrics import paper_trim
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import workload_of
from ejbd.studies.paper import guard, madeup
from ejbd.studies.paper.guard import Cell, verdict
from tests.fakes.ejb_sim import ejb_sim

MADE: dict[str, Any] = {"jobs": 80, "processors": 100, "seed": 3, "load": 0.9}


@pytest.mark.slow
def test_the_sweep_tells_each_cell_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "QUICK", {"delta": ("1", "2"), "lambda": ("0", "120"), "startup": ("60",)})
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.UNIFORM, jobs=80, processors=100, seed=3, load=0.9))
    words = ["reproduce", "guard", "--quick", "--traces", str(tmp_path), "--out", str(tmp_path / "out")]
    paths = [Path(line) for line in ejb_sim(*words).stdout.split()]
    assert [path.name for path in paths] == [f"guard.{end}" for end in ("md", "json", "csv", "png", "svg", "pdf")]
    assert all(path.stat().st_size for path in paths)
    found = json.loads(paths[1].read_text())
    cells = found["cells"]
    assert [(c["log"], c["delta"], c["lambda_s"], c["start_up_s"]) for c in cells] == [
        ("KTH", 1, 0, 60), ("KTH", 1, 120, 60), ("KTH", 2, 0, 60), ("KTH", 2, 120, 60),
    ]  # fmt: skip
    load = workload_of(generate(Model.UNIFORM, **MADE), "made", processors=100)
    costs = BundlingParameters(
        delta=2, lambda_s=120, start_up_s=60, suspend=True, order=Order.LEAST_WORK, guard=Guard.ON
    )
    easy, ejb = run(load, Policy.EASY, plain=True), run(load, Policy.EJB, parameters=costs, plain=True)
    kept_in = paper_trim(load.jobs, easy) & paper_trim(load.jobs, ejb)
    for name, chosen in (("all", kept_in), ("elastic", kept_in & (ejb.elastic != 0)), ("others", ejb.elastic == 0)):
        before, after = ((outcome.end - load.jobs.submit)[kept_in & chosen].mean() for outcome in (easy, ejb))
        assert cells[3][f"{name}_percent"] == pytest.approx(100 * (after / before - 1))
    assert len({c["all_percent"] for c in cells}) > 1, "each cell is a simulation of its own"
    assert paths[0].read_text().startswith(f"# The guard against EASY\n\n{found['verdict']}")

    kept = {path: path.read_bytes() for path in (tmp_path / "out" / "cells").glob("*.jsonl")}
    assert sum(text.count(b"\n") for text in kept.values()) == 4
    ejb_sim(*words)
    assert {path: path.read_bytes() for path in kept} == kept, "nothing was simulated again"


def test_the_worst_cell_is_the_one_that_harms_anybody_most() -> None:
    fine, harms = Cell("KTH", 1, 0, 0, -20.0, -30.0, -1.0), Cell("SDSC", 3, 7200, 600, -5.0, -9.0, 1.5)
    assert verdict([fine, harms]) == snapshot(
        "Worst cell: SDSC, Delta 3, lambda 7200 s, start-up 600 s: mean turnaround of all -5.0 %, elastic -9.0 %, "
        "others +1.5 %. In 1 of the 2 cells it is more than 1 % above EASY's."
    )
    assert verdict([fine]).endswith("In none of the 1 cells is it more than 1 % above EASY's.")


def test_a_folder_without_logs_is_said_so(tmp_path: Path) -> None:
    said = ejb_sim("reproduce", "guard", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), code=2).stderr
    assert "has none of the logs CTC-SP2-1996" in said
    for what in ("guard", "sc15", "learned", "overhead", "reshape"):
        none_given = ejb_sim("reproduce", what, "--out", str(tmp_path), code=2).stderr
        assert "--traces" in none_given and "Parallel Workloads Archive" in none_given
        assert "CTC-SP2-1996*.swf, SDSC-SP2-1998*.swf, SDSC-BLUE-2000*.swf, KTH-SP2-1996*.swf" in none_given
    (tmp_path / "SDSC-SP2-1998-4.2-cln.swf.gz").write_bytes(b"")
    said = ejb_sim("reproduce", "sc15", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), code=2).stderr
    assert "none of the logs CTC-SP2-1996*.swf, SDSC-BLUE-2000*.swf, KTH-SP2-1996*.swf" in said, "all of them at once"


def test_made_up_logs_are_played_in_every_cell_once_and_the_worst_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, values in (("DELTAS", (1.0, 1.5)), ("LAMBDAS_S", (0.0, 120.0)), ("SHARES", (1.0,))):
        monkeypatch.setattr(madeup, name, values)
    trial = madeup.Trial(madeup.seeds_from(madeup.JUDGED_SEED, 1), jobs=40)
    paths = madeup.reproduce_made(tmp_path, trial)
    assert [path.name for path in paths] == ["made.md", "made.json", "made.csv"]
    found = json.loads(paths[1].read_text())
    assert len(found["cells"]) == len(Model) * 4 and {cell["seed"] for cell in found["cells"]} == {madeup.JUDGED_SEED}
    one = madeup.Cell(**found["cells"][0])
    log = generate(Model(one.model), jobs=40, processors=64, seed=one.seed, load=0.95, overestimate=10.0)
    load = workload_of(log, "made", processors=64)
    given = BundlingParameters(
        delta=one.delta, lambda_s=one.lambda_s, suspend=True, order=Order.LEAST_WORK, guard=Guard.ON
    )
    easy, ejb = run(load, Policy.EASY, plain=True), run(load, Policy.EJB, parameters=given, plain=True)
    assert one.all_jobs == pytest.approx(
        100 * ((ejb.end - load.jobs.submit).sum() / (easy.end - load.jobs.submit).sum() - 1)
    )
    rows = [line.split(",") for line in paths[2].read_text().splitlines()[1:]]
    harm = [max(float(row[7].split()[0]), float(row[9].split()[0])) for row in rows]
    assert harm == sorted(harm, reverse=True)
    page = paths[0].read_text()
    assert page.startswith(f"# The guard against EASY on made-up logs\n\n{found['verdict']}") and "seeds 900" in page
    worse = sum(madeup.Cell(**cell).all_jobs > madeup.PROMISED for cell in found["cells"])
    assert f"| all of them | {len(found['cells'])} | {worse} (" in page
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "made").iterdir()}
    madeup.reproduce_made(tmp_path, trial)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "nothing was simulated again"


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "share"), [(909, 0.2), (924, 1.0)])
def test_with_moves_that_are_too_long_a_queue_of_short_jobs_is_plain_easys(seed: int, share: float) -> None:
    """Logs on which jobs were up to 10 % worse off, since J0s ended ahead of others in the same second."""
    load, _ = madeup.made_up(Model.SHORT_HEAVY, seed, madeup.Trial((seed,)))
    given = BundlingParameters(lambda_s=7200.0, suspend=True, order=Order.LEAST_WORK, guard=Guard.ON)
    flags = madeup.candidates_of(load, seed, share)
    easy, ejb = run(load, Policy.EASY), run(load, Policy.EJB, parameters=given, candidates=flags, plain=True)
    assert ejb.elastic.sum() > 20 and ejb.moves.sum() == 0
    assert ejb.start.tolist() == easy.start.tolist() and ejb.end.tolist() == easy.end.tolist()


def test_logs_are_chosen_by_their_seeds_and_few_cells_are_of_busy_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, values in (("QUICK_DELTAS", (1.5,)), ("QUICK_LAMBDAS_S", (600.0,)), ("JOBS", 40)):
        monkeypatch.setattr(madeup, name, values)
    monkeypatch.setattr(madeup, "Trial", partial(madeup.Trial, jobs=40))
    shown = ejb_sim("reproduce", "guard", "--seeds", "40,43", "--quick", "--out", str(tmp_path)).stdout
    assert "| all of them | 24 |" in shown and "seeds 40, 43" in shown
    cells = json.loads((tmp_path / "made.json").read_text())["cells"]
    assert {cell["seed"] for cell in cells} == {40, 43} and min(cell["load"] for cell in cells) >= madeup.BUSY
    assert "no list of seeds" in ejb_sim("reproduce", "guard", "--seeds", "a", "--out", str(tmp_path), code=2).stderr
