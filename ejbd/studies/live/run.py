"""One sim-to-real comparison from its settings: read, scale, measure, play, simulate, compare."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.core.cost import move_cost
from ejbd.core.room.slots import margins_of
from ejbd.core.room.walltimes import slack
from ejbd.core.shortruns import PLAIN_BELOW
from ejbd.errors import Code, EjbError
from ejbd.sim.accounts import read_log
from ejbd.sim.run import Policy
from ejbd.sim.workload import Workload, workload_of
from ejbd.studies.live.batch import BatchRuns
from ejbd.studies.live.comparison import (
    JobTimes,
    Overheads,
    comparison,
    live_times,
    play,
    rows_of,
    scaled,
    simulated_times,
)
from ejbd.studies.live.ejb import Daemon, ElasticRuns
from ejbd.studies.live.program import Program
from ejbd.studies.live.slurm import SlurmRuns
from ejbd.studies.live.windows import HOUR_S, Rule, on_cluster, opened, pick

# The real system looks once a second, at times that are not known: simulations that differ in that, and their mean.
SIMULATIONS, GRAIN_S, SEED = 21, 1.0, 1


@dataclass(frozen=True, slots=True)
class LiveSetting:
    """What is played, and how.

    With a `window` (1 to 4, of :func:`ejbd.studies.live.windows.pick`) it is those jobs, on the cluster as it stood
    then, which have all ended `within_h` hours of the log later; else those after the first `skip`. Jobs of
    `min_processors` or more are elastic where there is EJB (`elastic`). `lambda_s` is what decisions count with.
    """

    trace: Path
    scale: float
    skip: int = 0
    limit: int | None = None
    processors: int | None = None
    window: int | None = None
    elastic: bool = False
    min_processors: int = 8
    lambda_s: float = 5.0
    omax: int = 8
    suspend: bool = True
    poll_s: float = 1.0
    patience_s: float = 1800.0
    within_h: float = 24.0
    j0_in_turn: bool = True
    plain_below: float = PLAIN_BELOW


def live_comparison(
    setting: LiveSetting,
    folder: Path,
    batch: Callable[[Program | None], BatchRuns],
    daemon: Daemon | None,
    program: Program,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """The document that `ejb sim live --json` prints. Whatever still runs when this fails is cancelled.

    `batch` makes jobs of the batch system, which run a program or sleep; they and EJB's keep their notes in `folder`.
    """
    original = _original(setting)
    sleeps = batch(None)
    given = _given(setting, original, sleeps.processors(), sleeps.quantum_s)
    workload = given.workload
    tell(
        f"{int(given.counted.sum())} jobs, {int((given.counted & given.wide).sum())} of them elastic where there is EJB"
    )
    overheads, unit = sleeps.measure(workload.processors), sleeps.node_processors()
    tell(f"starts after {overheads.arrival_s:.2f} s, hands over in {overheads.handover_s:.2f} s")
    elastic: ElasticRuns | BatchRuns | None = None
    if setting.elastic:
        if daemon is None:
            raise EjbError(Code.INVALID, "elastic jobs need a daemon")
        elastic = ElasticRuns(daemon, program, folder)
    elif program.checked:
        elastic = batch(program)
    if program.why:
        tell(f"elastic jobs run {program.name}: {program.why}")
    if elastic is None:  # only the C program finds its ranks without EJB
        tell(f"{sleeps.starts_by} does not start {program.name}: under EASY these jobs sleep")
    loads: list[float] = []

    def pause(seconds: float) -> None:
        loads.append(os.getloadavg()[0])
        time.sleep(seconds)

    try:
        played = play(
            workload, sleeps, elastic, given.wide.tolist(), limit_s=setting.patience_s, tell=tell, pause=pause
        )
    finally:
        sleeps.close()
        if elastic is not None:
            elastic.close()
    if elastic is not None:
        overheads = elastic.measured(overheads)
    document = _compared(setting, given, overheads, unit, sleeps.quantum_s, live_times(played))
    load = {"mean": round(sum(loads) / len(loads), 2), "highest": max(loads)}
    told: dict[str, Any] = {"batch": sleeps.name, "scale": setting.scale, "original_procs": original.processors}
    told |= (
        {"skip": setting.skip} if setting.window is None else {"window": setting.window, "within_h": setting.within_h}
    )
    if elastic is not None:
        told |= {"program": program.name, "pace_s": program.pace_s, "results_checked": program.checked}
        told |= {"program_why": program.why} if program.why else {}
    return {**document, "parameters": told | document["parameters"], "load_average": load}


def simulated_again(told: Mapping[str, Any], trace: Path, scale: float | None = None) -> dict[str, Any]:
    """What an earlier play told, beside the simulation as it is now; nothing is played.

    With a `scale` it is the simulation of the same window at that one, with the costs (in seconds) of the play.
    """
    given, elastic = told["parameters"], told["policy"] == "ejb"
    setting = LiveSetting(
        trace, scale or given["scale"], given.get("skip", 0), told["jobs"], given["original_procs"],
        given.get("window"), elastic, given["min_procs"], within_h=given.get("within_h", 24.0),
    )  # fmt: skip
    if elastic:
        setting = replace(
            setting, lambda_s=given["decision_lambda_s"], omax=given["omax"], suspend=given["suspend"],
            j0_in_turn=given.get("j0_in_turn", False), poll_s=given["poll_s"],
            plain_below=given.get("plain_below", 0.0),
        )  # fmt: skip
    quantum_s = given.get("walltime_quantum_s", SlurmRuns.quantum_s)  # documents of before were Slurm's
    again = _given(setting, _original(setting), told["procs"], quantum_s)
    jobs = told["each"]
    submit = np.array([job["submit_s"] for job in jobs]) if scale is None else again.workload.jobs.submit
    start, end = (np.array([job["live"][which] for job in jobs]) for which in (0, 1))
    live = JobTimes(submit, start, end, told["moves"]["live"])
    document = _compared(setting, again, Overheads(**told["overheads"]), given["node_procs"], quantum_s, live)
    return {**document, "parameters": given | document["parameters"], "load_average": told["load_average"]}


def _original(setting: LiveSetting) -> Workload:
    log = read_log(setting.trace)
    name = setting.trace.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".swf")
    whole = workload_of(log, name, processors=setting.processors)
    return whole if setting.window is not None else rows_of(whole, setting.skip, setting.limit)


class _Given(NamedTuple):
    """What is played, and which of its jobs means are of, and which of them are elastic where there is EJB (flags)."""

    workload: Workload
    counted: Any
    wide: Any


def _given(setting: LiveSetting, original: Workload, processors: int, quantum_s: float) -> _Given:
    before = 0
    if setting.window is not None:
        here = on_cluster(original, processors)
        rule = Rule(min_processors=setting.min_processors, end_s=setting.within_h * HOUR_S)
        window = pick(here, rule, (setting.window,))[setting.window]
        original, before = opened(here, window, setting.scale), int(window.running.size)
    workload = scaled(original, setting.scale, processors, quantum_s)
    counted = np.arange(len(workload)) >= before
    return _Given(workload, counted, counted & (workload.jobs.processors >= setting.min_processors))


def _compared(
    setting: LiveSetting, given: _Given, overheads: Overheads, unit: int, quantum_s: float, live: JobTimes
) -> dict[str, Any]:
    """The simulation of what was played, of the very submissions, beside it."""
    policy = Policy.EJB if setting.elastic else Policy.EASY
    workload = given.workload
    parameters = BundlingParameters(
        omax=setting.omax,
        lambda_s=setting.lambda_s if overheads.move_s is None else overheads.move_s,
        walltime_quantum_s=quantum_s,
        suspend=setting.suspend,
        order=Order.LEAST_WORK,
        guard=Guard.ON,  # as queues have it, and turns
        j0_in_turn=setting.j0_in_turn,
        start_up_s=overheads.start_up_s,
        giving_back_s=overheads.giving_back_s,
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
            submitted, policy, parameters, given.wide, overheads,
            slack_s=slack(cost.kept_s, margins), margins=margins, unit=unit, plain=True,
            plain_below=setting.plain_below,
        )  # fmt: skip
        simulations.append(times)
    document = comparison(workload, policy, given.wide, overheads, live, simulations, given.counted)
    told: dict[str, Any] = {"node_procs": unit, "min_procs": setting.min_processors, "walltime_quantum_s": quantum_s}
    if policy is Policy.EJB:
        told |= {key: value for key, value in asdict(parameters).items() if value != float("inf")}
        told |= {"decision_lambda_s": setting.lambda_s, "poll_s": setting.poll_s, "plain_below": setting.plain_below}
    return {**document, "parameters": told}
