"""Compiling beforehand: a set-up step, so that the first long simulation need not do it."""

from __future__ import annotations

import math

import numpy as np

from ejbd.errors import Code, EjbError
from ejbd.sim import progress
from ejbd.sim.compiled import can_compile
from ejbd.sim.run import Policy, run
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import Workload
from ejbd.sim.world import Jobs


def compile_all() -> float:
    """Compile, or load, all that simulations need; seconds that it took. Raises EjbError where there is no compiler."""
    if not can_compile():
        raise EjbError(Code.UNSUPPORTED, "there is no compiler for the kernels", hint="pip install 'ejb[sim]'")
    ones = np.ones(2)
    jobs = Jobs(np.arange(2.0), ones, ones, np.ones(2, dtype=np.int64), np.arange(2))
    tiny = Workload("two jobs", 1, jobs)
    with progress.part("EASY, conservative backfilling, FCFS", 0.0, 0.2):
        easy = run(tiny, Policy.EASY, again=math.inf)
    with progress.part("EJB", 0.2, 0.9):
        ejb = run(tiny, Policy.EJB, min_processors=1, again=math.inf)
    with progress.part("one elastic job a simulation", 0.9, 1.0):
        targets = run_targets(tiny, min_processors=1, trim=False, again=math.inf, baseline=easy)
    return easy.kernels_s + ejb.kernels_s + targets.kernels_s
