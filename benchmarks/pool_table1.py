"""Table 1 of Utrera et al. redone: jobs of Lublin's model on a live pool, and the same jobs in the simulator.

    python benchmarks/pool_table1.py [--jobs 150] [--load 0.9] [--run 20] [--least 5] [--processors 16]
                                     [--rehearse 40] [--each]

A real daemon with the embedded cluster as a pool of one node. Each job is examples/paced.c, so that two ranks on a
processor take twice as long (model `linear`). `--run`: their mean run time in seconds, into which the log's is scaled.
`--least`: none is shorter. Of Lublin's run times most are a hundredth of the mean, which would be nothing but starts.
A job has its processors for longer than its steps: until its ranks run, and from their end until they are given back.
The simulator is given what that took on average, as seconds that no folding makes longer, and so is the time until the
pool's queue has a job. Both are measured before the play, in a rehearsal: so many other jobs of the same model at the
same load. What several jobs that start at one time cost is told before, and how much CPU time of which processes.
Told are mean wait, response and slowdown of both, by how much the simulator's differ, and where the live jobs' time
went beside the simulated ones'. The mean error is that of the three means. Of a wait of nearly nothing it says little:
choose a load with a queue. The same is told with the costs of the play itself, and with those of one job alone.
`--each` has a line a job.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from ejbd.core.malleable.stretching import Model
from ejbd.sim.malleable import run_malleable
from ejbd.sim.metrics import Outcome
from ejbd.sim.models import Model as Made
from ejbd.sim.models import generate
from ejbd.sim.workload import Workload
from ejbd.sim.world import FloatArray, Jobs
from ejbd.studies.malleable.small import parameters
from harness import ROOT, folder, machine
from tests.fakes.daemon import FAST, Daemon

PACE_S = 0.1
UNIT = 100.0  # the simulator's ends are whole seconds
ENDS_S = 900.0
ALONE_STEPS = 20


class Course(NamedTuple):
    """A job, in seconds since its submission. `folded_s`: for how long its ranks ran on half of their processors."""

    submit_s: float  # since the epoch
    queued_s: float  # the pool's queue has it
    given_s: float  # it has processors
    ranks_s: float  # its ranks run
    ended_s: float  # they have ended
    back_s: float  # it has none any more
    folded_s: float

    @property
    def fixed_s(self) -> float:
        return self.ranks_s - self.given_s + self.back_s - self.ended_s

    @property
    def work_s(self) -> float:
        """What its ranks have done, in seconds on processors of their own."""
        return self.ended_s - self.ranks_s - self.folded_s / 2


class Means(NamedTuple):
    wait_s: float
    response_s: float
    slowdown: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--run", type=float, default=20.0)
    parser.add_argument("--least", type=float, default=5.0)
    parser.add_argument("--processors", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", type=int, default=5)
    parser.add_argument("--rehearse", type=int, default=40)
    parser.add_argument("--each", action="store_true")
    asked = parser.parse_args()
    print(machine())
    with folder() as where:
        program = where / "paced"
        subprocess.run(["cc", "-O2", "-o", program, ROOT / "examples" / "paced.c"], check=True, timeout=120)
        toml = FAST.replace("[queues.default]\n", '[queues.default]\npolicy = "fcfs-malleable"\nmin_processors = 1\n')
        shape = f"[local]\nnodes = 1\nprocessors_per_node = {asked.processors}\npool = true\n"
        daemon = Daemon(
            where, f'batch = "local"\npoll_s = 1\nworker_python = "{sys.executable}"\n{toml}\n{shape}', as_program=True
        )
        daemon.start()
        try:
            course(daemon, submit(daemon, program, 1, 2))  # the first one of a daemon finds caches empty
            alone = [course(daemon, submit(daemon, program, ALONE_STEPS, 2)) for _ in range(asked.alone)]
            extra_s = statistics.mean(one.back_s - ALONE_STEPS * PACE_S for one in alone)
            print(f"a job alone costs {extra_s:.2f} s beside its steps")
            for count in (asked.processors // 4, asked.processors // 2):
                before_s = used(daemon)
                print(f"of {count} that start at one time each costs {at_once(daemon, program, count):.2f} s")
                spent = {name: (now_s - before_s[name]) / count for name, now_s in used(daemon).items()}
                print("  CPU seconds a job: " + ", ".join(f"{name} {one_s:.2f}" for name, one_s in spent.items()))
            sys.stdout.flush()
            before = played(daemon, program, made(asked, asked.rehearse, asked.seed + 1000, extra_s))
            rehearsed_s = mean(one.fixed_s for one in before), mean(one.queued_s for one in before)
            told = f"{rehearsed_s[0]:.2f} s beside its steps, and {rehearsed_s[1]:.2f} s until the pool's queue has it"
            print(f"in a rehearsal of {asked.rehearse} other jobs each costs {told}")
            play = made(asked, asked.jobs, asked.seed, extra_s)
            submit_s, steps, widths = play
            print(f"all are submitted within {float(submit_s[-1]):.0f} s")
            sys.stdout.flush()
            live = played(daemon, program, play)
        finally:
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, check=False, timeout=120)
    work_s = steps * PACE_S
    fixed_s, queued_s = rehearsed_s
    found = of_simulator(submit_s + queued_s, work_s, widths, asked.processors, fixed_s)
    tell(live, found, submit_s, work_s, fixed_s)
    here_s = mean(one.fixed_s for one in live), mean(one.queued_s for one in live)
    print(f"in the play itself a job cost {here_s[0]:.2f} s, and {here_s[1]:.2f} s until the pool's queue had it")
    for what, (other_s, later_s) in {"in the play": here_s, "alone": (extra_s, 0.0)}.items():
        other = of_simulator(submit_s + later_s, work_s, widths, asked.processors, other_s)
        error = mean(map(abs, errors(live, other, submit_s, work_s + other_s)))
        print(f"given what a job costs {what} instead, the simulator's mean error is {error:.1f} %", flush=True)
    if asked.each:
        tell_each(live, found, submit_s, work_s, widths)
    print(machine())


class Play(NamedTuple):
    submit_s: FloatArray  # since the first one
    steps: Any
    widths: Any


def made(asked: argparse.Namespace, jobs: int, seed: int, extra_s: float) -> Play:
    """Jobs of Lublin's model, at the load that was asked for with what one costs alone."""
    log = generate(Made.LUBLIN, jobs=jobs, processors=asked.processors, seed=seed, load=asked.load)
    steps = np.maximum(1, np.round(scaled(log.column("run_s"), asked.run, asked.least) / PACE_S)).astype(int)
    widths = log.column("processors").astype(int)
    gaps = np.diff(log.column("submit_s"), prepend=log.column("submit_s")[0])
    span_s = float((widths * (steps * PACE_S + extra_s)).sum()) / (asked.processors * asked.load)
    return Play(np.cumsum(gaps) * (span_s / float(gaps.sum())), steps, widths)


def used(daemon: Daemon) -> dict[str, float]:
    """CPU seconds of the daemon, of the pool's server, and of what has run below it and ended."""
    assert daemon.process is not None
    own = psutil.Process(daemon.process.pid)
    (server,) = [one for one in psutil.process_iter(["cmdline", "cwd"]) if _serves(one, daemon)]
    mine, its = own.cpu_times(), server.cpu_times()
    return {
        "the daemon": mine.user + mine.system,
        "the pool's server": its.user + its.system,
        "steps, workers and ranks": its.children_user + its.children_system,
    }


def _serves(process: psutil.Process, daemon: Daemon) -> bool:
    words = process.info["cmdline"] or []
    return "ejbd.batch.local.server" in words and process.info["cwd"] == str(daemon.state / "cluster")


def at_once(daemon: Daemon, program: Path, count: int) -> float:
    """What each of so many jobs of two ranks costs beside its steps, if all are submitted at one time."""
    ids = [submit(daemon, program, ALONE_STEPS, 2) for _ in range(count)]
    return mean(course(daemon, job).fixed_s for job in ids)


def scaled(run_s: FloatArray, mean_s: float, least_s: float) -> FloatArray:
    """Run times by one factor, but none below the least, with this mean."""
    if mean_s <= least_s:
        raise SystemExit("the mean run time is to be above the least")
    low, high = 0.0, mean_s / float(run_s.mean())
    for _ in range(60):
        factor = (low + high) / 2
        low, high = (factor, high) if np.maximum(least_s, run_s * factor).mean() < mean_s else (low, factor)
    return np.maximum(least_s, run_s * high)


def submit(daemon: Daemon, program: Path, steps: int, ranks: int) -> str:
    words = [str(program), "--steps", str(steps), "--pace", f"{round(1000 * PACE_S)}ms"]
    return daemon.submit(*words, ranks=ranks, time="20:00")


def course(daemon: Daemon, job: str) -> Course:
    """Of a job, once its processors are given back."""
    until = time.monotonic() + ENDS_S
    while time.monotonic() < until:
        found = daemon.job(job)
        if found["end_s"] is not None and found["state"] != "completed":
            raise SystemExit(f"job {job} is {found['state']}: {found['reason']}")
        subjobs = found["subjobs"]
        if found["end_s"] is not None and all(one["state"] == "completed" for one in subjobs):
            return _course(found, daemon.events(job))
        time.sleep(0.5)
    raise SystemExit(f"job {job} has not ended in {ENDS_S:g} s")


def _course(found: dict[str, Any], events: list[dict[str, Any]]) -> Course:
    kinds = {event["kind"]: event["at_s"] for event in events}
    begin, end = kinds["epoch.running"], kinds["epoch.ended"]
    started = next(event for event in events if event["kind"] == "epoch.running")
    folded, since, folded_s = started["data"]["rate"] < 1.0, begin, 0.0
    for event in [*(one for one in events if one["kind"] == "epoch.resized"), None]:
        at_s = end if event is None else event["at_s"]
        folded_s += (at_s - since) * folded
        since, folded = at_s, event is not None and event["data"]["rate"] < 1.0
    from_s = found["submit_s"]
    given_s = min(one["start_s"] for one in found["subjobs"])
    back_s = max(one["end_s"] for one in found["subjobs"])
    queued_s = min(kinds["subjob.pending"], given_s)
    return Course(from_s, queued_s - from_s, given_s - from_s, begin - from_s, end - from_s, back_s - from_s, folded_s)


def played(daemon: Daemon, program: Path, play: Play) -> list[Course]:
    """The jobs live, each submitted when its time comes."""
    begin, ids = time.monotonic(), []
    for at, count, width in zip(*play, strict=True):
        time.sleep(max(0.0, begin + float(at) - time.monotonic()))
        ids.append(submit(daemon, program, int(count), int(width)))
    found = [course(daemon, job) for job in ids]
    print(f"folded or unfolded {sum(daemon.kinds(job).count('epoch.resized') for job in ids)} times")
    return found


def of_simulator(submit_s: FloatArray, work_s: FloatArray, widths: Any, processors: int, fixed_s: float) -> Outcome:
    run = work_s * UNIT
    jobs = Jobs(submit_s * UNIT, run, run.copy(), widths.astype(np.int64), np.arange(1, len(widths) + 1))
    workload = Workload("Lublin", processors, jobs)
    return run_malleable(workload, replace(parameters(), model=Model.LINEAR), fixed_s=fixed_s * UNIT)


def tell(live: list[Course], simulated: Outcome, submit_s: FloatArray, work_s: FloatArray, fixed_s: float) -> None:
    whole_s = work_s + fixed_s
    wait, end = simulated.start / UNIT - submit_s, simulated.end / UNIT - submit_s
    told = errors(live, simulated, submit_s, whole_s)
    for name, one, s, error in zip(Means._fields, of_live(live, whole_s), means(wait, end, whole_s), told, strict=True):
        print(f"{name}: live {one:.2f}, simulator {s:.2f} ({error:+.1f} %)")
    print(f"mean error {mean(map(abs, told)):.1f} %")
    parts = {
        "until it has processors": (mean(one.given_s for one in live), float(wait.mean())),
        "until its ranks run": (mean(one.ranks_s - one.given_s for one in live), 0.0),
        "its ranks run": (mean(one.ended_s - one.ranks_s for one in live), float((end - wait).mean()) - fixed_s),
        "until its processors are given back": (mean(one.back_s - one.ended_s for one in live), fixed_s),
    }
    for name, (one, s) in parts.items():
        print(f"{name}: live {one:.2f} s, simulator {s:.2f} s")
    print(f"of that folded: live {mean(one.folded_s for one in live):.2f} s")
    print(f"work by its processors: {mean(one.work_s for one in live):.2f} s, its steps: {float(work_s.mean()):.2f} s")


def of_live(live: list[Course], whole_s: FloatArray) -> Means:
    return means(np.array([one.given_s for one in live]), np.array([one.back_s for one in live]), whole_s)


def errors(live: list[Course], simulated: Outcome, submit_s: FloatArray, whole_s: FloatArray) -> list[float]:
    """By how many per cent each of the simulator's means is another."""
    theirs = means(simulated.start / UNIT - submit_s, simulated.end / UNIT - submit_s, whole_s)
    return [100 * (s / one - 1) if one else 0.0 for s, one in zip(theirs, of_live(live, whole_s), strict=True)]


def tell_each(live: list[Course], simulated: Outcome, submit_s: FloatArray, work_s: FloatArray, widths: Any) -> None:
    """Seconds since the first submission; work as its processors would have done it."""
    print("job ranks work_s submitted | given ranks ended back (folded, work done) | simulated: given back (folds)")
    base_s = live[0].submit_s
    for at, one in enumerate(live):
        since = one.submit_s - base_s
        times = [since + at_s for at_s in (one.given_s, one.ranks_s, one.ended_s, one.back_s)]
        print(
            f"{at:3} {widths[at]:3} {work_s[at]:6.1f} {since:7.2f} ({since - submit_s[at]:+.2f}) |"
            f" {' '.join(f'{at_s:7.2f}' for at_s in times)} ({one.folded_s:6.2f}, {one.work_s:6.2f}) |"
            f" {simulated.start[at] / UNIT:7.2f} {simulated.end[at] / UNIT:7.2f} ({simulated.moves[at]})"
        )


def mean(values: Any) -> float:
    return float(statistics.mean(values))


def means(wait_s: FloatArray, response_s: FloatArray, whole_s: FloatArray) -> Means:
    return Means(float(wait_s.mean()), float(response_s.mean()), float((response_s / whole_s).mean()))


if __name__ == "__main__":
    main()
