"""Figure 2, and Table 1 on made-up logs: what needs no log of a real machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ejbd.core.malleable.parameters import MalleableParameters
from ejbd.core.malleable.stretching import Model
from ejbd.core.parameters import simulated
from ejbd.sim.malleable import run_malleable
from ejbd.sim.metrics import Outcome, fragmentation
from ejbd.sim.models import Model as Made
from ejbd.sim.models import generate
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import Workload, workload_of
from ejbd.sim.world import Jobs
from ejbd.studies.malleable.printed import FIGURE_2_PROCESSORS, FIGURE_2_RUNS, FIGURE_2_WIDTHS, TABLE_1
from ejbd.studies.malleable.runs import Figures, figures_of, mean_of

MADE_JOBS, MADE_PROCESSORS, MADE_RUN_S = 150, 128, 52.0  # Table 1: its jobs have up to 128 processes, and run for 52 s
MADE_MODEL = Model.OVSHRUNK


def parameters(**changes: Any) -> MalleableParameters:
    """Those of the simulator, with some changes."""
    found = simulated(MalleableParameters)
    assert isinstance(found, MalleableParameters)
    return replace(found, **changes)


def figure_2_workload() -> Workload:
    """Six jobs that arrive at one time on a machine of 10 processors; a unit of time is a second."""
    run_s = np.array(FIGURE_2_RUNS, dtype=np.float64)
    widths = np.array(FIGURE_2_WIDTHS, dtype=np.int64)
    jobs = Jobs(np.zeros(len(run_s)), run_s, run_s.copy(), widths, np.arange(1, len(run_s) + 1))
    return Workload("Figure 2", FIGURE_2_PROCESSORS, jobs)


def figure_2() -> dict[str, Outcome]:
    """The six jobs under each of the three policies; two processes on a processor take twice as long."""
    workload = figure_2_workload()
    return {
        "fcfs": run(workload, Policy.FCFS, plain=True),
        "easy": run(workload, Policy.EASY, plain=True),
        "malleable": run_malleable(workload, parameters(model=Model.LINEAR), checking=True),
    }


def figure_2_json(found: dict[str, Outcome]) -> dict[str, Any]:
    """What malleable.json has of Figure 2."""
    workload = figure_2_workload()
    told = {}
    for name, outcome in found.items():
        of = figures_of(workload, outcome)
        told[name] = {
            "mean_response": round(of.response_s, 3),
            "mean_slowdown": round(of.slowdown, 3),
            "fragmentation_percent": round(100 * fragmentation(workload.jobs, outcome, workload.processors), 1),
            "ends": [int(end) for end in outcome.end],
            "starts": [int(start) for start in outcome.start],
        }
    return told


def table_1(seeds: int) -> dict[int, dict[str, Figures | list[Figures]]]:
    """For each load in per cent: EASY and FCFS-malleable, on so many logs of Lublin's model."""
    found: dict[int, dict[str, Figures | list[Figures]]] = {}
    for load in TABLE_1:
        easy, malleable = [], []
        for seed in range(1, seeds + 1):
            workload = made(load / 100, seed)
            easy.append(figures_of(workload, run(workload, Policy.EASY, plain=True)))
            of = parameters(model=MADE_MODEL, draw=seed)
            malleable.append(figures_of(workload, run_malleable(workload, of)))
        found[load] = {"easy": _mean(easy), "malleable": _mean(malleable), "each": easy + malleable}
    return found


def _mean(values: list[Figures]) -> Figures:
    return Figures(*(mean_of(values, name) for name in Figures.__slots__))


def made(load: float, seed: int) -> Workload:
    """150 jobs of Lublin's model at a load (0 to 1), all times scaled so that they run for 52 s on average."""
    log = generate(Made.LUBLIN, jobs=MADE_JOBS, processors=MADE_PROCESSORS, seed=seed, load=load)
    scale = MADE_RUN_S / float(log.column("run_s").mean())
    rows = log.rows.copy()
    rows[:, [1, 3, 8]] *= scale
    rows[:, 1] = np.floor(rows[:, 1])
    return workload_of(replace(log, rows=rows, lines=None), f"Lublin, seed {seed}, load {load:g}")
