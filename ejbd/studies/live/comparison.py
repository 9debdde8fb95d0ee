"""A log played against a real batch system, beside the simulation of the same log: the sim-to-real error.

The log is scaled so that it fits into minutes. Its rigid jobs sleep; the elastic ones run a program, by the live EJB
or, without it, by srun. What a real system costs on top (the scheduler's pass, start-up, moves) is measured and given
to the simulation as parameters, each under its name; nothing else is fitted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.progress import round_up
from ejbd.core.room.slots import NO_MARGINS, Margins
from ejbd.errors import Code, EjbError
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.workload import Workload
from ejbd.sim.world import Costs, Jobs
from ejbd.studies.live.windows import on_cluster

LOOK_S = 0.5
ROOM, ROOM_S = 1.1, 20.0  # the least walltime of a run time: a start on a busy machine is no reason to be killed


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the live system costs and a simulation does not know of, in seconds.

    `arrival_s`: from the submission to the start of a job that fits at once. `handover_s`: from the end of a job to
    the start of the next one on its processors. Of elastic jobs: `start_up_s` from the start of the first subjob until
    its ranks run, `begin_s` until they compute, `giving_back_s` from the end until the processors are given back,
    `move_s` one move, and `pace`, by how much longer than meant they compute. Under EASY `begin_s` and `pace` are of
    the same jobs, started by srun.
    """

    arrival_s: float = 0.0
    handover_s: float = 0.0
    elastic_arrival_s: float = 0.0
    start_up_s: float = 0.0
    begin_s: float = 0.0
    giving_back_s: float = 0.0
    move_s: float | None = None
    pace: float = 1.0


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """What became of one job: seconds since the epoch; `None` where it never came so far."""

    submit_s: float
    start_s: float | None
    end_s: float | None
    moves: int = 0
    why: str = ""  # it has no end


def line_through(meant: Sequence[float], took: Sequence[float]) -> tuple[float, float]:
    """Slope and intercept (0 at least) of the least squares; without different lengths the ratio of the sums, and 0."""
    x, y = np.array(meant), np.array(took)
    if np.ptp(x) > 0:
        slope, intercept = np.polyfit(x, y, 1)
        if slope > 0 and intercept > 0:
            return float(slope), float(intercept)
    return float(y.sum() / x.sum()), 0.0


class Runner(Protocol):
    """Where jobs are submitted to: real, and at once."""

    def submit(self, number: int, processors: int, walltime_s: float, run_s: float) -> None: ...

    def running(self) -> int:
        """How many of those submitted are not over."""

    def played(self) -> dict[int, PlayedJob]:
        """What became of each job that was submitted, by its number."""

    def close(self) -> None:
        """End what still runs."""


def rows_of(workload: Workload, skip: int, limit: int | None) -> Workload:
    """The jobs after the first `skip`, `limit` of them at most. Raises EjbError if none are left."""
    kept = slice(skip, None if limit is None else skip + limit)
    of = workload.jobs
    jobs = Jobs(of.submit[kept], of.run[kept], of.walltime[kept], of.processors[kept], of.id[kept])
    if not len(jobs.submit):
        raise EjbError(
            Code.INVALID, f"{workload.name} has {len(workload)} jobs: none are left to play after the first {skip}"
        )
    users = None if workload.users is None else workload.users[kept]
    return replace(workload, jobs=jobs, users=users)


def scaled(workload: Workload, scale: float, processors: int, quantum_s: float) -> Workload:
    """The workload with every time multiplied by `scale`, on a cluster of another size, walltimes in whole quanta.

    Widths are scaled by the ratio of the sizes and rounded up. Run times are whole seconds, 1 at least. A walltime
    leaves room for what a start costs, so that a job that nearly fills its own is not killed for it.
    """
    if not scale > 0:
        raise EjbError(Code.INVALID, f"times cannot be scaled by {scale:g}; give a scale above 0")
    jobs = workload.jobs
    width = on_cluster(workload, processors).jobs.processors
    submit = (jobs.submit - jobs.submit[0]) * scale
    run_s = np.maximum(1.0, np.round(jobs.run * scale))
    walltime = np.maximum(jobs.walltime * scale, run_s * ROOM + ROOM_S)
    walltime = np.array([round_up(float(value), quantum_s) for value in walltime])
    made = Jobs(submit, run_s, walltime, width, jobs.id)
    return replace(workload, processors=processors, jobs=made)


def play(
    workload: Workload,
    rigid: Runner,
    elastic: Runner | None,
    chosen: Sequence[bool],
    *,
    limit_s: float,
    tell: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> list[PlayedJob]:
    """Submit every job at its time and wait for all. Those that are `chosen` go to `elastic`, if there is one.

    Raises EjbError if they are not over `limit_s` after the last submission.
    """
    jobs, begin = workload.jobs, clock()
    to = [elastic if elastic is not None and one else rigid for one in chosen]
    for number, runner in enumerate(to):
        wait = begin + float(jobs.submit[number]) - clock()
        if wait > 0:
            pause(wait)
        shape = int(jobs.processors[number]), float(jobs.walltime[number]), float(jobs.run[number])
        runner.submit(number, *shape)
    runners = [rigid] if elastic is None else [rigid, elastic]
    deadline = clock() + limit_s
    left = -1
    while (now_left := sum(runner.running() for runner in runners)) > 0:
        if now_left != left:
            left = now_left
            tell(f"{clock() - begin:.0f} s: {left} of {len(to)} jobs are not over")
        if clock() > deadline:
            raise EjbError(
                Code.CONFLICT,
                f"{left} jobs are not over {limit_s:g} s after the last submission",
                hint="see --patience",
            )
        pause(LOOK_S)
    found: dict[int, PlayedJob] = {}
    for runner in runners:
        found |= runner.played()
    failed = [number for number in range(len(to)) if found[number].end_s is None]
    if failed:
        first = f"the first of them job {int(jobs.id[failed[0]])} of the log"
        why = found[failed[0]].why or "no reason is known"
        raise EjbError(Code.CONFLICT, f"{len(failed)} jobs did not run to their end, {first}: {why}")
    return [found[number] for number in range(len(to))]


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Submission, start and end of each job, in seconds from the first submission."""

    submit: Any
    start: Any
    end: Any
    moves: int

    def means(self, kept: Any) -> dict[str, float]:
        """Mean wait, run and turnaround of the jobs that `kept` (flags) names."""
        values = {"wait_s": self.start - self.submit, "run_s": self.end - self.start}
        values["turnaround_s"] = self.end - self.submit
        return {f"mean_{name}": float(value[kept].mean()) for name, value in values.items()}


def live_times(played: Sequence[PlayedJob]) -> JobTimes:
    """The same of a live run."""
    begin = played[0].submit_s
    submit = np.array([job.submit_s - begin for job in played])
    start = np.array([(job.start_s or 0.0) - begin for job in played])
    end = np.array([(job.end_s or 0.0) - begin for job in played])
    return JobTimes(submit, start, end, sum(job.moves for job in played))


def simulated_times(
    workload: Workload,
    policy: Policy,
    parameters: BundlingParameters,
    elastic: Any,
    overheads: Overheads,
    *,
    slack_s: float = 0.0,
    margins: Margins = NO_MARGINS,
    unit: int = 1,
    plain: bool = False,
    plain_below: float = 0.0,
) -> JobTimes:
    """The simulation of what is played, with the measured overheads put in. `slack_s`, `margins`: as in :class:`Costs`.

    `elastic`: flags of the jobs that run the program, and may be elastic under EJB. `unit`: processors of a node, where
    whole nodes are reserved. `plain_below`: the queue's.
    """
    jobs = workload.jobs
    wide = np.asarray(elastic)
    candidate = wide & (policy is Policy.EJB)
    late = np.where(candidate, overheads.elastic_arrival_s, overheads.arrival_s)
    kept_s = 0.0 if overheads.move_s is None else overheads.move_s + overheads.handover_s
    costs = Costs(
        launch_s=overheads.start_up_s + overheads.begin_s,
        release_s=overheads.giving_back_s + overheads.handover_s,
        slack_s=slack_s,
        keep_s=kept_s,
        margins=margins,
        plain_launch_s=overheads.begin_s,
        plain_release_s=overheads.handover_s,
    )
    computing = np.where(wide, jobs.run * overheads.pace, jobs.run)
    rigid_s = computing + np.where(wide, overheads.begin_s, 0.0) + overheads.handover_s
    # An elastic job ends in a whole second there, the next one: 1.01 s of work would be two.
    run_s = np.where(candidate, np.maximum(1.0, np.round(computing)), rigid_s)
    arrivals = jobs.submit + late
    order = np.argsort(arrivals, kind="stable")
    walltime = np.maximum(jobs.walltime, run_s + np.where(candidate, costs.launch_s + costs.release_s, 0.0))
    shifted = Jobs(arrivals[order], run_s[order], walltime[order], jobs.processors[order], jobs.id[order])
    # A manager measures this part of it. All elastic jobs are of one user, and run one program.
    below = plain_below * (overheads.start_up_s + overheads.giving_back_s) / (costs.launch_s + costs.release_s or 1.0)
    outcome = run(
        Workload(workload.name, workload.processors, shifted, users=np.where(candidate[order], 0, -1)),
        policy,
        ties=Ties.BATCH,
        parameters=parameters,
        candidates=candidate[order],
        plain=plain,
        costs=costs,
        unit=unit,
        plain_below=below,
    )
    back = np.empty_like(order)
    back[order] = np.arange(order.size)
    # After its end a job's processors are not the next one's at once: the job holds them so much longer.
    without_workers = np.asarray(outcome.without_workers)[back] != 0
    after = np.where(candidate & ~without_workers, costs.release_s, overheads.handover_s)
    start, end = outcome.start[back], outcome.end[back] - after
    return JobTimes(jobs.submit, start, end, int(outcome.moves.sum()))


def comparison(
    workload: Workload,
    policy: Policy,
    elastic: Any,
    overheads: Overheads,
    live: JobTimes,
    simulations: Sequence[JobTimes],
    counted: Any = None,
) -> dict[str, Any]:
    """Live and simulated means side by side, and the error of the simulation against the live run in per cent.

    `elastic`: flags of the jobs that are told apart. `counted`: flags of the jobs that means are of (all of them); the
    others are what the play began with, the same under every policy.

    Simulated means are those of all `simulations`, with their standard deviation as `spread_s`; job by job, and the
    moves, it is the first one.
    """
    simulated = simulations[0]
    ours = np.full(len(workload), True) if counted is None else np.asarray(counted)
    wide = np.asarray(elastic)
    groups = {"all": ours, "elastic": ours & wide, "non_elastic": ours & ~wide}
    document: dict[str, Any] = {
        "trace": workload.name,
        "policy": policy.name.lower(),
        "jobs": int(ours.sum()),
        "procs": workload.processors,
        "overheads": asdict(overheads),
        "moves": {"live": live.moves, "simulated": simulated.moves},
    }
    for name, kept in groups.items():
        if not kept.any():
            continue
        real, told = live.means(kept), [one.means(kept) for one in simulations]
        model = {key: float(np.mean([means[key] for means in told])) for key in real}
        spread = {key: float(np.std([means[key] for means in told])) for key in real}
        document[name] = _beside(int(kept.sum()), real, model)
        document[name]["spread_s"] = spread
    document["each"] = [
        {
            "job_id": int(workload.jobs.id[n]),
            "procs": int(workload.jobs.processors[n]),
            "counted": bool(ours[n]),
            "elastic": bool(wide[n]),
            "submit_s": round(float(live.submit[n]), 3),
            "live": [round(float(live.start[n]), 3), round(float(live.end[n]), 3)],
            "simulated": [round(float(simulated.start[n]), 3), round(float(simulated.end[n]), 3)],
        }
        for n in range(len(workload))
    ]
    return document


def _beside(jobs: int, real: Mapping[str, float], model: Mapping[str, float]) -> dict[str, Any]:
    """Means of so many jobs, live and simulated, and the errors of the latter."""
    errors = {key: 100.0 * (model[key] / real[key] - 1.0) if real[key] else None for key in real}
    return {"jobs": jobs, "live": real, "simulated": model, "error_percent": errors}


def pooled(comparisons: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Several comparisons as one for each policy: the means of all their jobs, and the errors of those."""
    found: list[dict[str, Any]] = []
    for policy in dict.fromkeys(one["policy"] for one in comparisons):
        plays = [one for one in comparisons if one["policy"] == policy]
        sizes = sorted({one["procs"] for one in plays})
        procs = sizes[0] if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        document: dict[str, Any] = {"policy": policy, "plays": len(plays), "procs": procs}
        document["jobs"] = sum(one["jobs"] for one in plays)
        document["each"] = [job for one in plays for job in one["each"] if job.get("counted", True)]
        real, model = (
            {
                key: sum(one["all"][world][key] * one["jobs"] for one in plays) / document["jobs"]
                for key in plays[0]["all"][world]
            }
            for world in ("live", "simulated")
        )
        document["all"] = _beside(document["jobs"], real, model)
        found.append(document)
    return found
