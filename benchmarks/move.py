"""How long a move is, hop by hop: from free processors to ranks that run on them, and from an application's end to
processors that are free again.

    python benchmarks/move.py [--runs 5] [--against TREE] [--cluster local slurm] [--program mover heat] [--poll 5]

A real `ejbd` on the embedded cluster and on a private Slurm of 8 x 4: 28 processors are held by others, so that a job
of 16 ranks starts on 4; then 12 more come free, and it moves. `mover` is a C program that does next to nothing, so that
what is measured is EJB's own part; `heat` is examples/heat.py with `--pace 20ms`, 35 kB of state in all, as in the
demo. Ranks write down themselves when they begin and when they stop; the rest is told by the events of the job and by
the batch system's own records. `--against` runs the same in another worktree (with its own .venv), by turns.

Aims, on a quiet machine of 2 cores: seen until ranks run on all of it 1.0 s; ranks standing still 0.5 s; started by the
batch system until ranks run 1.0 s; the application's end until its processors are free 0.5 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from harness import ELASTIC, NODES, PROCESSORS, ROOT, folder, machine, spread
from tests.fakes.daemon import Daemon, ordinary

HERE = Path(__file__).resolve()
# Without the guard: with it a job gives its own J0 what it holds, where that makes J0 fit, and does not grow first.
QUEUE = f'{ELASTIC}guard = "off"\nfirst_checkpoint_s = 0\nlambda_s = 1\n'
RANKS = 16
STEPS = 400  # of heat, at 20 ms where each rank has a processor
PATIENCE_S = 90.0
HEAT = """
import atexit, importlib.util, os, sys, time
stamps, program = sys.argv[1:3]
sys.argv[:] = sys.argv[2:]
spec = importlib.util.spec_from_file_location("heat", program)
heat = importlib.util.module_from_spec(spec)
spec.loader.exec_module(heat)
seen = []
compute = heat.Plate.compute
def stamped(*words):
    seen[1:] = [time.time()]
    compute(*words)
    seen[1:] = [time.time()]
def first(*words):
    seen.append(time.time())
    heat.Plate.compute = stamped
    stamped(*words)
heat.Plate.compute = first
code = heat.main()
with open("%s/%s.%s" % (stamps, os.environ["EJB_EPOCH"], os.environ["EJB_RANK"]), "w") as file:
    file.write("%f %f %f" % (seen[0], seen[-1], time.time()))
sys.exit(code)
"""
AIMS = {
    "seen until ranks run on all of it": 1.0,
    "ranks stand still": 0.5,
    "started until ranks run": 1.0,
    "end until processors are free": 0.5,
}


class Embedded:
    """The embedded cluster of a daemon. Its clock and its books are exact."""

    toml = ""
    variables: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, daemon: Daemon, where: Path) -> None:
        from ejbd.batch.local import LocalBatch

        self._batch = LocalBatch(daemon.state / "cluster", NODES, PROCESSORS)
        self._where = where

    def block(self, name: str, nodes: int) -> str:
        from ejbd.batch.base import Identity

        job = ordinary(name, nodes * PROCESSORS, 3600, self._where, "exec sleep 3600\n")
        return asyncio.run(self._batch.submit(Identity.own(), job))

    def cancel(self, id: str) -> None:
        from ejbd.batch.base import Identity

        asyncio.run(self._batch.cancel(Identity.own(), [id]))

    def started_s(self, id: str) -> float | None:
        return next((j.start_s for j in asyncio.run(self._batch.observe()).jobs if j.id == id), None)

    def ended_s(self, id: str) -> float | None:
        outcome = asyncio.run(self._batch.outcomes({id: Path("/nowhere")})).get(id)
        return outcome.end_s if outcome is not None else None


class Slurm:
    """A private Slurm. Its controller's log tells milliseconds."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._log = cluster.directory / "log" / "slurmctld.log"
        self._free: dict[str, float] = {}

    def block(self, name: str, nodes: int) -> str:
        shape = (f"--job-name={name}", f"--nodes={nodes}", f"--ntasks-per-node={PROCESSORS}", "--time=120")
        return str(self._cluster.sbatch(*shape, script="exec sleep 7200"))

    def cancel(self, id: str) -> None:
        self._cluster.run("scancel", id)

    def started_s(self, id: str) -> float | None:
        return self._logged(rf"(?:Started|Allocate) JobId={id}\b")

    def ended_s(self, id: str) -> float | None:
        """When it was first seen that it holds no processor any more (not when its script ended)."""
        if (
            id not in self._free
            and not self._cluster.run(
                "squeue",
                "--noheader",
                f"--jobs={id}",
                "--states=PENDING,RUNNING,COMPLETING",
                "--format=%i",
                check=False,
            ).strip()
        ):
            self._free[id] = time.time()
        return self._free.get(id)

    def _logged(self, pattern: str) -> float | None:
        found = re.findall(rf"^\[([^\]]+)\] .*?{pattern}", self._log.read_text(errors="replace"), re.MULTILINE)
        return datetime.fromisoformat(found[-1]).timestamp() if found else None


def until(ready: Any, what: str, trace: Any = None) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = ready()
        if found:
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(f"in vain: {what}\n{trace() if trace else ''}")
        time.sleep(0.02)


def one_run(daemon: Daemon, cluster: Any, where: Path, program: str) -> dict[str, float]:
    """One job from its submission until its processors are free; seconds of each hop."""
    stamps, end = where / "stamps", where / "end"
    stamps.mkdir()
    holders = [cluster.block("others", 4), cluster.block("leaves", 3)]
    until(lambda: all(cluster.started_s(id) for id in holders), "the other jobs run")
    if program == "mover":
        argv = [str(where.parent / "mover"), str(stamps), str(end)]
    else:
        options = ["--steps", str(STEPS), "--pace", "20ms"]
        argv = [sys.executable, "-c", HEAT, str(stamps), str(ROOT / "examples" / "heat.py"), *options]
    id = daemon.submit(*argv, ranks=RANKS, time="10:00", cwd=str(where))
    trace = daemon.trace(id)
    kinds = daemon.kinds
    until(lambda: "epoch.running" in kinds(id), "the job runs", trace)
    time.sleep(1.0)
    cluster.cancel(holders[1])
    freed_s = time.time()
    until(lambda: kinds(id).count("epoch.running") >= 2 or "job.completed" in kinds(id), "the job moves", trace)
    time.sleep(1.0)
    if program == "mover":
        end.write_text("")
    until(lambda: "job.completed" in kinds(id), "the job ends", trace)
    subjobs = {s["id"]: s["batch_id"] for s in daemon.job(id)["subjobs"] if s["ordinal"] and s["batch_id"]}
    ended = until(lambda: [t for t in map(cluster.ended_s, subjobs.values()) if t] if all(
        map(cluster.ended_s, subjobs.values())) else None, "its processors are free", trace)  # fmt: skip
    started = {s: cluster.started_s(batch) for s, batch in subjobs.items()}
    cluster.cancel(holders[0])
    until(lambda: cluster.ended_s(holders[0]), "the other jobs end")
    return hops(daemon.events(id), read_stamps(stamps), started, freed_s, max(ended))


def read_stamps(stamps: Path) -> dict[int, tuple[float, float, float, float]]:
    """Epoch -> first and last rank to begin, last step of any, last end."""
    epochs: dict[int, list[list[float]]] = {}
    for file in stamps.iterdir():
        epochs.setdefault(int(file.name.partition(".")[0]), []).append([float(w) for w in file.read_text().split()])
    return {
        number: (min(r[0] for r in rows), max(r[0] for r in rows), max(r[1] for r in rows), max(r[2] for r in rows))
        for number, rows in epochs.items()
    }


def hops(
    events: list[dict[str, Any]],
    ranks: dict[int, tuple[float, float, float, float]],
    started: dict[str, float | None],
    freed_s: float,
    free_s: float,
) -> dict[str, float]:
    """Seconds of each hop of the start, the move and the end of a job that moved once."""

    def at(kind: str, subjob: str | None = None, epoch: int | None = None, **data: Any) -> float:
        for event in events:
            if event["kind"] == kind and (subjob is None or event["subjob"] == subjob):
                wanted = data if epoch is None else {**data, "epoch": epoch}
                if all(event["data"].get(key) == value for key, value in wanted.items()):
                    return float(event["at_s"])
        raise RuntimeError(f"no {kind} of {subjob or epoch}\n{json.dumps(events, indent=1)[:4000]}")

    found = {}
    epochs = sorted(ranks)
    if len(epochs) != 2:
        raise RuntimeError(f"{len(epochs)} placements instead of 2\n{[(e['at_s'], e['kind']) for e in events]}")
    one, two = sorted(started)
    for name, subjob, epoch in (("start", one, epochs[0]), ("move", two, epochs[1])):
        decided, handed = at("subjob.planned", subjob), at("intent.done", subjob, intent="submit")
        begun, registered = started[subjob] or 0.0, at("worker.registered", subjob)
        seen, launched = at("subjob.running", subjob), at("epoch.launching", epoch=epoch)
        running = at("epoch.running", epoch=epoch)
        if name == "move":
            found["freed by others -> decided"] = decided - freed_s
        found |= {
            f"{name}: decided -> sbatch has answered": handed - decided,
            f"{name}: sbatch -> started by the batch system": begun - handed,
            f"{name}: started -> worker registered": registered - begun,
            f"{name}: registered -> seen as running": seen - registered,
        }
        if name == "move":
            before = epochs[0]
            stopping, stopped = at("epoch.stopping", epoch=before), at("epoch.stopped", epoch=before)
            ready = max(seen, registered)
            found |= {
                "move: ready -> checkpoint asked for": stopping - ready,
                "move: asked -> last step": ranks[before][2] - stopping,
                "move: last step -> last rank has ended": ranks[before][3] - ranks[before][2],
                "move: last rank ended -> stopped": stopped - ranks[before][3],
                "move: stopped -> launch sent": launched - stopped,
            }
            found["ranks stand still"] = ranks[epoch][1] - ranks[before][2]
            found["ranks stand still, as EJB counts it"] = running - stopping
        found |= {
            f"{name}: launch sent -> first rank begins": ranks[epoch][0] - launched,
            f"{name}: first -> last rank begins": ranks[epoch][1] - ranks[epoch][0],
            f"{name}: last rank begins -> running": running - ranks[epoch][1],
        }
        up = max(running, ranks[epoch][1])
        found["started until ranks run" if name == "start" else "started until ranks run (move)"] = up - begun
        if name == "move":
            found["seen until ranks run on all of it"] = up - seen
    last = ranks[epochs[1]][3]
    ended, done = at("epoch.ended", epoch=epochs[1]), at("job.completed")
    found |= {
        "end: last rank has ended -> told": ended - last,
        "end: told -> job completed": done - ended,
        "end: completed -> processors free": free_s - done,
        "end until processors are free": free_s - last,
    }
    return found


@contextmanager
def cluster_of(kind: str, where: Path, poll_s: float) -> Iterator[tuple[Daemon, Any]]:
    base = f"poll_s = {poll_s}\n"
    if kind == "local":
        daemon = Daemon(where, base + QUEUE, as_program=True)
        try:
            daemon.start()
            yield daemon, Embedded(daemon, where)
        finally:
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, cwd=ROOT, check=False, capture_output=True, timeout=90)
        return
    from tests.integration.slurm_clusters import slurm_cluster

    with slurm_cluster(NODES, PROCESSORS) as cluster:
        toml = f'batch = "slurm"\n{base}[slurm]\nconf = "{cluster.conf}"\n{QUEUE}'
        daemon = Daemon(where, toml, {"SLURM_CONF": str(cluster.conf)}, as_program=True)
        try:
            daemon.start()
            yield daemon, Slurm(cluster)
        finally:
            daemon.stop()


def measure(kind: str, program: str, runs: int, poll_s: float) -> Iterator[dict[str, float]]:
    with folder() as where:
        source = HERE.with_name("mover.c")
        subprocess.run(["cc", "-O2", "-o", str(where / "mover"), str(source)], check=True, timeout=60)
        with cluster_of(kind, where, poll_s) as (daemon, cluster):
            for number in range(runs):
                run = where / f"run-{number}"
                run.mkdir()
                yield one_run(daemon, cluster, run, program)


def in_tree(tree: Path, kind: str, program: str, poll_s: float) -> dict[str, float]:
    """One run with another worktree's code."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "benchmarks")}
    words = ["--one", "--cluster", kind, "--program", program, "--poll", str(poll_s)]
    argv = [str(tree / ".venv" / "bin" / "python"), "-P", str(HERE), *words]
    done = subprocess.run(argv, env=environment, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{tree}: {done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--against", type=Path, default=None, metavar="TREE", help="another worktree, by turns")
    parser.add_argument("--cluster", nargs="+", choices=("local", "slurm"), default=["local", "slurm"])
    parser.add_argument("--program", nargs="+", choices=("mover", "heat"), default=["mover", "heat"])
    parser.add_argument("--poll", type=float, default=5.0, help="seconds between two polls of the timer (default: 5)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for found in measure(options.cluster[0], options.program[0], 1, options.poll):
            print(json.dumps(found))
        return
    print(machine())
    trees = [HERE.parents[1], *([options.against.resolve()] if options.against else [])]
    for kind in options.cluster:
        for program in options.program:
            figures: list[dict[str, list[float]]] = [{} for _ in trees]
            for number in range(options.runs * len(trees)):
                for name, seconds in in_tree(trees[number % len(trees)], kind, program, options.poll).items():
                    figures[number % len(trees)].setdefault(name, []).append(seconds * 1e3)
            load = f"load {os.getloadavg()[0]:.1f}"
            print(f"\n{kind}, {program}, a poll every {options.poll:g} s, {options.runs} runs, {load}")
            show(figures)


def show(figures: list[dict[str, list[float]]]) -> None:
    """A line a hop: here, and in the other tree."""
    for name, mine in figures[0].items():
        cells = [f"{spread(mine, ' ms'):<28}"]
        for other in figures[1:]:
            ratio = statistics.median(mine) / statistics.median(other[name]) if statistics.median(other[name]) else 0.0
            cells.append(f"other {spread(other[name], ' ms'):<28} x {ratio:.2f}")
        aim = AIMS.get(name)
        word = "" if aim is None else "met" if statistics.median(mine) <= aim * 1e3 else "MISSED"
        met = "" if aim is None else f"  aim {aim * 1e3:.0f} ms: {word}"
        print(f"{name:<46}{'  '.join(cells)}{met}")


if __name__ == "__main__":
    main()
