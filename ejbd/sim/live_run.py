"""One sim-to-real comparison from its settings: read, scale, measure, play, simulate, compare."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ejbd.core.plan import BundlingParameters
from ejbd.errors import Code, EjbError
from ejbd.sim.live import comparison, live_fate, play, rows_of, scaled, simulated_fate
from ejbd.sim.live_ejb import Daemon, ElasticRuns
from ejbd.sim.live_slurm import QUANTUM_S, SlurmSleeps
from ejbd.sim.run import Policy
from ejbd.sim.swf import read_swf
from ejbd.sim.workload import workload_of

START_UP_POLLS = 3.0  # what the manager adds to the length of a subjob, beside one lambda


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
    log = read_swf(setting.trace)
    name = setting.trace.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".swf")
    original = rows_of(workload_of(log, name, processors=setting.processors), setting.skip, setting.limit)
    sleeps = SlurmSleeps(folder, conf)
    workload = scaled(original, setting.scale, sleeps.processors(), QUANTUM_S)
    overheads = sleeps.measure(workload.processors)
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
        lived = play(workload, sleeps, elastic, least, limit_s=setting.patience_s, tell=tell, pause=pause)
    finally:
        sleeps.close()
        if elastic is not None:
            elastic.close()
    policy = Policy.EASY
    if elastic is not None:
        policy = Policy.EJB
        overheads = elastic.measured(overheads)
    parameters = BundlingParameters(
        omax=setting.omax,
        lambda_s=setting.lambda_s if overheads.move_s is None else overheads.move_s,
        walltime_quantum_s=QUANTUM_S,
        suspend=setting.suspend,
        least_work_first=True,
    )
    live = live_fate(lived)
    as_submitted = replace(workload, jobs=workload.jobs._replace(submit=live.submit))
    slack_s = setting.lambda_s + START_UP_POLLS * setting.poll_s
    simulated = simulated_fate(as_submitted, policy, parameters, least, overheads, slack_s=slack_s, plain=True)
    document = comparison(workload, policy, least, overheads, live, simulated)
    given: dict[str, Any] = {"scale": setting.scale, "skip": setting.skip, "original_procs": original.processors}
    if policy is Policy.EJB:
        given |= {key: value for key, value in asdict(parameters).items() if value != float("inf")}
        given |= {
            "decision_lambda_s": setting.lambda_s,
            "min_procs": least,
            "pace_s": setting.pace_s,
            "poll_s": setting.poll_s,
        }
    load = {"mean": round(sum(loads) / len(loads), 2), "highest": max(loads)}
    return {**document, "parameters": given, "load_average": load}
