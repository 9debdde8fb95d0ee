"""E-HPC's three workflows (Fig. 5) among the jobs of a log, in four modes: core-hours, turnaround, Eq. 7.

What the paper says of them: Montage has nine stages in four logical ones, and at 32 cores 72 % of its time is serial;
BLAST has three in two, and more than 99 % is parallel; the synthetic one has a serial stage and a parallel one of the
same length at 32 cores. Serial stages hold 32 cores (one node), parallel ones scale perfectly. What it does not say is
assumed: an hour at 32 cores, and the time of stages of one kind in equal parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from ejbd.core.bundling.parameters import BundlingParameters, Guard, Order
from ejbd.errors import Code, EjbError
from ejbd.sim.stages import Fate, Flow, Rules, Staged, Step, Way
from ejbd.sim.stages_elastic import play_elastic_flows
from ejbd.sim.workload import Workload

NODE = 32
HOUR_S = 3600.0
WIDTHS = (32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Part:
    """Stages of one kind that follow each other: the paper's logical stage. `shares` of the time at 32 cores."""

    parallel: bool
    shares: tuple[float, ...]


WORKFLOWS: dict[str, tuple[Part, ...]] = {
    "montage": (
        Part(True, (0.07, 0.07)),  # mProjectPP, mDiffFit
        Part(False, (0.18, 0.18)),  # mConcatFit, mBgModel
        Part(True, (0.14,)),  # mBackground
        Part(False, (0.09, 0.09, 0.09, 0.09)),  # mImgtbl, mAdd, mShrink, mJPEG
    ),
    "blast": (Part(True, (0.002, 0.993)), Part(False, (0.005,))),
    "synthetic": (Part(False, (0.5,)), Part(True, (0.5,))),
}


def steps_of(workflow: str, width: int, bundled: bool) -> tuple[Step, ...]:
    """The allocations of a workflow at its greatest width: one a stage, or stages of one width together."""
    found: list[Step] = []
    for part in WORKFLOWS[workflow]:
        of, scale = (width, NODE / width) if part.parallel else (NODE, 1.0)
        for share in part.shares:
            run_s = share * HOUR_S * scale
            if bundled and found and found[-1].width == of:
                found[-1] = Step(of, found[-1].run_s + run_s)
            else:
                found.append(Step(of, run_s))
    return tuple(found)


def flows_in(workload: Workload, width: int, bundled: bool, every: int) -> list[tuple[str, Flow]]:
    """A workflow after every so many jobs of the log, each kind in its turn; the first and last tenth are left out."""
    names = list(WORKFLOWS)
    count = len(workload)
    places = range(count // 10, count - count // 10, every)
    return [
        (name, Flow(float(workload.jobs.submit[at]), steps_of(name, width, bundled)))
        for turn, at in enumerate(places)
        for name in [names[turn % len(names)]]
    ]


CASES = (
    (Way.ONE, True, False),
    *((way, bundled, False) for way in (Way.CHAINED, Way.DEFAULT, Way.FAST) for bundled in (True, False)),
    *((way, True, True) for way in (Way.ONE, Way.CHAINED, Way.DEFAULT)),
)
"""How they are run; whether stages share allocations; whether each allocation is an elastic job."""


def compare(
    workload: Workload,
    widths: Sequence[int],
    every: int,
    rules: Rules,
    told: Callable[[str], None] = lambda line: None,
    delta: float = 1.0,
) -> list[dict[str, Any]]:
    """A row for each width, workflow, mode, and bundling: means over its workflows, hours and core-hours.

    `delta`: what elastic ranks lose by sharing a processor. `others_h`: the mean turnaround of the log's own jobs.
    `eq7`, `eq6`: the share of the workflows with Eq. 7 and Eq. 6, each against the same one in a rigid allocation.
    Raises EjbError (INVALID) where none of the widths fits.
    """
    fitting = [width for width in widths if width <= workload.processors]
    if not fitting or min(fitting) < NODE:
        hint = f"the workflows are {NODE} processors wide and more"
        raise EjbError(
            Code.INVALID, f"no width fits the {workload.processors} processors of {workload.name}", hint=hint
        )
    rows = []
    for width in fitting:
        whole: list[Fate] = []
        for way, bundled, elastic in CASES:
            named = flows_in(workload, width, bundled, every)
            flows, mode = [flow for _, flow in named], replace(rules, way=way)
            if elastic:
                parameters = BundlingParameters(
                    lambda_s=rules.move_s, delta=delta, guard=Guard.ON, order=Order.LEAST_WORK
                )
                played = play_elastic_flows(workload, flows, mode, parameters)
            else:
                played = Staged(workload, flows, mode).play()
            fates = played.fates
            if not whole:
                whole = fates
            for workflow in WORKFLOWS:
                chosen = [at for at, (name, _) in enumerate(named) if name == workflow]
                if chosen:
                    row = _row([fates[at] for at in chosen], [whole[at] for at in chosen], played.others_s)
                    where = {"log": workload.name, "width": width, "workflow": workflow}
                    rows.append({**where, "mode": way.value, "bundled": bundled, "elastic": elastic, **row})
            told(f"{workload.name}, {width} processors: {label(way.value, bundled, elastic)}")
    return rows


def label(mode: str, bundled: bool, elastic: bool) -> str:
    """A case in words."""
    return mode + ("" if bundled else ", a job a stage") + (", elastic" if elastic else "")


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each log, mode and bundling: means over the workflows and over the widths of more than one node."""
    found = []
    for log in dict.fromkeys(row["log"] for row in rows):
        wide = [row for row in rows if row["log"] == log and row["width"] > NODE]
        for way, bundled, elastic in CASES:
            case = (way.value, bundled, elastic)
            chosen = [row for row in wide if (row["mode"], row["bundled"], row["elastic"]) == case]
            if chosen:
                means = {key: mean(row[key] for row in chosen) for key in MEANS}
                count = sum(row["workflows"] for row in chosen)
                where = {
                    "log": log,
                    "width": 0,
                    "workflow": "all three",
                    "mode": way.value,
                    "bundled": bundled,
                    "elastic": elastic,
                }
                found.append({**where, "workflows": count, **means})
    return found


MEANS = ("allocations", "core_h", "idle_core_h", "turnaround_h", "wait_h", "others_h", "eq7", "eq6")


def _row(fates: Sequence[Fate], whole: Sequence[Fate], others_s: float) -> dict[str, Any]:
    pairs = list(zip(fates, whole, strict=True))
    return {
        "workflows": len(fates),
        "allocations": mean(len(one.waits_s) for one in fates),
        "core_h": mean(one.held for one in fates) / HOUR_S,
        "idle_core_h": mean(one.idle for one in fates) / HOUR_S,
        "turnaround_h": mean(one.turnaround_s for one in fates) / HOUR_S,
        "wait_h": mean(one.wait_s for one in fates) / HOUR_S,
        "others_h": others_s / HOUR_S,
        "eq7": mean(one.wait_s < other.wait_s for one, other in pairs),
        "eq6": mean(one.turnaround_s < other.turnaround_s for one, other in pairs),
    }
