"""One sim-to-real comparison from its settings: read, scale, measure, play, simulate, compare."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Order
from ejbd.core.cost import move_cost
from ejbd.core.room.slots import margins_of
from ejbd.core.room.walltimes import slack
from ejbd.errors import Code, EjbError
from ejbd.sim.accounts import read_log
from ejbd.sim.live import JobTimes, Overheads, comparison, live_times, play, rows_of, scaled, simulated_times
from ejbd.sim.live_ejb import Daemon, ElasticRuns
from ejbd.sim.live_slurm import QUANTUM_S, SlurmSleeps
from ejbd.sim.run import Policy
from ejbd.sim.workload import Workload, workload_of

# The real system looks once a second, at times that nobody knows: simulations that differ in that, and their mean.
SIMULATIONS, GRAIN_S, SEED = 21, 1.0, 1


@dataclass(frozen=True, slots=True)
class LiveSetting:
    """What is played, and how. `min_processors` None: nobody is elastic. `lambda_s` is what decisions count with."""

    trace: Path
    scale: float
    skip: int = 0
    limit: int | None = None
    processors: int | None = None
    min_processors: int | None = None
    lambda_s: float = 5.0
    omax: int = 8
    suspend: bool = True
    pace_s: float = 0.05
    poll_s: float = 1.0
    patience_s: float = 1800.0


def live_comparison(
    setting: LiveSetting,
    folder: Path,
    conf: Path | None,
    daemon: Daemon | None,
    program: Path,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """The document that `ejb sim live --json` prints. Whatever still runs when this fails is cancelled."""
    original = _original(setting)
    sleeps = SlurmSleeps(folder, conf)
    workload = scaled(original, setting.scale, sleeps.processors(), QUANTUM_S)
    overheads, unit = sleeps.measure(workload.processors), sleeps.node_processors()
    tell(f"starts after {overheads.arrival_s:.2f} s, hands over in {overheads.handover_s:.2f} s")
    elastic = None
    if setting.min_processors is not None:
        if daemon is None:
            raise EjbError(Code.INVALID, "elastic jobs need a daemon")
        elastic = ElasticRuns(daemon, program, folder, setting.pace_s)
    least = setting.min_processors or workload.processors + 1
    loads: list[float] = []

    def pause(seconds: float) -> None:
        loads.append(os.getloadavg()[0])
        time.sleep(seconds)

    try:
        played = play(workload, sleeps, elastic, least, limit_s=setting.patience_s, tell=tell, pause=pause)
    finally:
        sleeps.close()
        if elastic is not None:
            elastic.close()
    if elastic is not None:
        overheads = elastic.measured(overheads)
    document = _compared(setting, workload, overheads, unit, live_times(played))
    load = {"mean": round(sum(loads) / len(loads), 2), "highest": max(loads)}
    given = {"scale": setting.scale, "skip": setting.skip, "original_procs": original.processors}
    return {**document, "parameters": given | document["parameters"], "load_average": load}


def simulated_again(told: Mapping[str, Any], trace: Path) -> dict[str, Any]:
    """What an earlier play told, beside the simulation as it is now; nothing is played."""
    given, elastic = told["parameters"], told["policy"] == "ejb"
    setting = LiveSetting(
        trace, given["scale"], given["skip"], told["jobs"], given["original_procs"],
        given["min_procs"] if elastic else None,
    )  # fmt: skip
    if elastic:
        setting = replace(
            setting, lambda_s=given["decision_lambda_s"], omax=given["omax"], suspend=given["suspend"],
            pace_s=given["pace_s"], poll_s=given["poll_s"],
        )  # fmt: skip
    workload = scaled(_original(setting), setting.scale, told["procs"], QUANTUM_S)
    jobs = told["each"]
    submit = np.array([job["submit_s"] for job in jobs])
    start, end = (np.array([job["live"][which] for job in jobs]) for which in (0, 1))
    live = JobTimes(submit, start, end, told["moves"]["live"])
    document = _compared(setting, workload, Overheads(**told["overheads"]), given["node_procs"], live)
    return {**document, "parameters": given | document["parameters"], "load_average": told["load_average"]}


def _original(setting: LiveSetting) -> Workload:
    log = read_log(setting.trace)
    name = setting.trace.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".swf")
    return rows_of(workload_of(log, name, processors=setting.processors), setting.skip, setting.limit)


def _compared(
    setting: LiveSetting, workload: Workload, overheads: Overheads, unit: int, live: JobTimes
) -> dict[str, Any]:
    """The simulation of what was played, of the very submissions, beside it."""
    policy = Policy.EASY if setting.min_processors is None else Policy.EJB
    least = setting.min_processors or workload.processors + 1
    parameters = BundlingParameters(
        omax=setting.omax,
        lambda_s=setting.lambda_s if overheads.move_s is None else overheads.move_s,
        walltime_quantum_s=QUANTUM_S,
        suspend=setting.suspend,
        order=Order.LEAST_WORK,
    )
    cost = move_cost(
        (), None, None, configured_s=setting.lambda_s, look_s=setting.poll_s
    )  # what the manager counts with
    margins = margins_of(setting.poll_s, cost.tail_s)
    grain = np.random.default_rng(SEED)
    simulations = []
    for number in range(SIMULATIONS):
        late = grain.uniform(0.0, GRAIN_S, len(workload)) if number else 0.0
        submitted = replace(workload, jobs=workload.jobs._replace(submit=live.submit + late))
        times = simulated_times(
            submitted, policy, parameters, least, overheads,
            slack_s=slack(cost.kept_s, margins), margins=margins, unit=unit, plain=True,
        )  # fmt: skip
        simulations.append(times)
    document = comparison(workload, policy, least, overheads, live, simulations)
    given: dict[str, Any] = {"node_procs": unit}
    if policy is Policy.EJB:
        given |= {key: value for key, value in asdict(parameters).items() if value != float("inf")}
        given |= {"decision_lambda_s": setting.lambda_s, "min_procs": least}
        given |= {"pace_s": setting.pace_s, "poll_s": setting.poll_s}
    return {**document, "parameters": given}
