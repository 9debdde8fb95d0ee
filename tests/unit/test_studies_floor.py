"""`ejb sim reproduce guard --floor`: what plain EASY does to a log to which something is given that is only good."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import write_swf
from ejbd.sim.workload import workload_of
from ejbd.studies.paper import madeup
from ejbd.studies.paper.floor import GIFTS, Floor
from tests.fakes.ejb_sim import ejb_sim


def test_each_gift_is_played_under_plain_easy_against_plain_easy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(madeup, "Trial", partial(madeup.Trial, jobs=60))
    for name, values in (("QUICK_DELTAS", (1.0, 1.5)), ("QUICK_LAMBDAS_S", (0.0,))):
        monkeypatch.setattr(madeup, name, values)
    words = ["reproduce", "guard", "--floor", "--quick", "--seeds", "950"]
    ejb_sim(*words, "--out", str(tmp_path))
    cells = [Floor(**cell) for cell in json.loads((tmp_path / "floor.json").read_text())["cells"]]
    assert len(cells) == len(Model) * 2 * (len(GIFTS) + 2), "so often is chance drawn as the guard is played"
    one = next(cell for cell in cells if cell.model == "uniform" and cell.share == 1 and "10 %" in cell.gift)
    log = generate(
        Model.UNIFORM, jobs=60, processors=one.processors, seed=950, load=one.load,
        overestimate=next(shape[2] for shape in madeup.SHAPES if shape[:2] == (one.processors, one.load)),
    )  # fmt: skip
    load = workload_of(log, "made", processors=one.processors)
    wide = load.jobs.processors >= madeup.NARROWEST
    jobs = load.jobs._replace(run=np.where(wide, np.ceil(0.9 * load.jobs.run), load.jobs.run))
    before, after = (
        run(each, Policy.EASY, plain=True).end - load.jobs.submit for each in (load, replace(load, jobs=jobs))
    )
    assert one.all_jobs == pytest.approx(100 * (after.sum() / before.sum() - 1))
    assert one.others == pytest.approx(100 * (after[~wide].sum() / before[~wide].sum() - 1))
    page = (tmp_path / "floor.md").read_text()
    assert f"| {one.gift} | {len(Model) * 2} |" in page


def test_users_of_a_log_of_the_paper_are_counted_for_each_gift(tmp_path: Path) -> None:
    write_swf(tmp_path / "KTH-SP2-1996-made.swf", generate(Model.UNIFORM, jobs=80, processors=100, seed=3, load=0.9))
    ejb_sim("reproduce", "guard", "--floor", "--traces", str(tmp_path), "--out", str(tmp_path / "out"))
    lines = json.loads((tmp_path / "out" / "floor-logs.json").read_text())["lines"]
    assert [(line["log"], line["gift"]) for line in lines] == [("KTH", gift) for gift in GIFTS]
    assert len({line["all_jobs"] for line in lines}) > 1
