"""How fast the simulator is: EASY on whole logs, every single target, all jobs elastic, and what the cost grows with.

    python benchmarks/sim_speed.py [--traces DIR] [--runs 3] [--out DIR] [--peer 'NAME=COMMAND {log} {procs}' ...]

Without `--traces` the logs are made by Lublin & Feitelson's model. Compiling, which is done once for each version of
the sources and kept, is told apart from running. Each figure is CPU time of this process (others may be busy), the best
of the runs. A peer simulator is run on the same logs, once each, by a command of yours; jobs a second are by the clock
and hold its start and the reading of the log. Memory is the greatest of the process up to then.

Then the first log is repeated to a long one: how fast it is read, and whole processes of `ejb sim run` beside what they
say of playing and of loading kernels, by the clock and in CPU time, the least of the runs.

Aims: reading 1,000,000 rows a second; 300,000 jobs under EASY in 1.5 s as a process, once compiled; a first number on a
fresh installation within 2 s; EASY 100,000 jobs a second on each log; every target of the four logs in 5 minutes on 2
cores; BLUE with all jobs elastic in 60 s; less than 1 GB.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import math
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from ejbd.sim.metrics import Outcome  # noqa: E402
from ejbd.sim.models import Model, generate  # noqa: E402
from ejbd.sim.prepare import compile_all  # noqa: E402
from ejbd.sim.run import Policy, run  # noqa: E402
from ejbd.sim.settings import Source, load  # noqa: E402
from ejbd.sim.swf import read_swf, write_swf  # noqa: E402
from ejbd.sim.targets import run_targets  # noqa: E402
from ejbd.sim.workload import Workload  # noqa: E402
from ejbd.sim.world import Jobs  # noqa: E402

LOGS = (
    ("KTH", "KTH-SP2-1996", 100),
    ("CTC", "CTC-SP2-1996", 338),
    ("SDSC", "SDSC-SP2-1998", 128),
    ("BLUE", "SDSC-BLUE-2000", 1152),
)
QUEUES = (10, 30, 100, 300, 1000, 3000, 10_000)
PARTS = (0.01, 0.03, 0.1, 0.3, 1.0)

R = TypeVar("R")


def cpu(call: Callable[[], R], runs: int = 1) -> tuple[float, R]:
    """The least CPU seconds of a few calls, and what the last of them returned."""
    best = float("inf")
    for _ in range(runs):
        begin = time.process_time()
        result = call()
        best = min(best, time.process_time() - begin)
    return best, result


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def made(folder: Path, jobs: int) -> list[tuple[str, Source]]:
    path = folder / "lublin.swf"
    write_swf(path, generate(Model.LUBLIN, jobs=jobs, processors=256, seed=1, load=0.8))
    return [("lublin", Source(path, 256))]


def found(folder: Path) -> list[tuple[str, Source]]:
    logs = []
    for name, begins, processors in LOGS:
        paths = sorted(folder.glob(f"{begins}*.swf*"))
        if paths:
            logs.append((name, Source(paths[0], processors)))
        else:
            print(f"sim_speed: {folder} has no log {begins}*.swf*; it is left out", file=sys.stderr)
    return logs


def fast(work: Workload, policy: Policy = Policy.EASY) -> Outcome:
    """The whole log, compiled."""
    return run(work, policy, again=math.inf)


def repeated(folder: Path, source: Source, jobs: int) -> Path:
    """A log of so many jobs at least: the given one again and again, each time after the time before."""
    log = read_swf(source.path)
    submit = log.column("submit_s")
    span = float(submit.max() - submit.min()) + 3600.0
    times = -(-jobs // len(log))
    rows = np.concatenate([log.rows] * times)
    rows[:, 0] = np.arange(1, len(rows) + 1)
    rows[:, 1] += np.repeat(np.arange(times) * span, len(log))
    path = folder / "repeated.swf"
    write_swf(path, replace(log, rows=rows, lines=None))
    return path


def process(words: list[str], cache: Path | None, runs: int) -> tuple[float, float, dict[str, Any]]:
    """The least seconds by the clock and of CPU of `ejb sim run` as a process, and the report of the last one."""
    env = dict(os.environ) | ({} if cache is None else {"XDG_CACHE_HOME": str(cache)})
    command = [sys.executable, "-m", "ejbd.cli.main", "sim", "run", *words, "--json", "-"]
    wall = used = math.inf
    for _ in range(runs):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=env)
        wall = min(wall, time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = min(used, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return wall, used, json.loads(done.stdout)


def whole_processes(folder: Path, source: Source, jobs: int, runs: int) -> None:
    """What a researcher waits for: reading, the whole of a long log, and the first number of a fresh installation."""
    path = repeated(folder, source, jobs)
    text = path.read_bytes()
    (folder / "repeated.swf.gz").write_bytes(gzip.compress(text, 6))
    (folder / "repeated.swf.xz").write_bytes(lzma.compress(text, preset=1))
    print(f"\n| reading of {source.path.name}, repeated | rows | CPU | rows a second |\n| --- | ---: | ---: | ---: |")
    for suffix in ("", ".gz", ".xz"):
        file = path.with_name(path.name + suffix)
        seconds, log = cpu(lambda file=file: read_swf(file), runs)  # type: ignore[misc]
        print(f"| {file.suffix} | {len(log):,} | {1000 * seconds:.0f} ms | {len(log) / seconds:,.0f} |")
    few, _ = cpu(lambda: read_swf(path.with_name("repeated.swf.xz"), limit=200), runs)
    print(f"| .xz, `--limit 200` | 200 | {1000 * few:.1f} ms | |")

    print("\n| `ejb sim run`, whole process | jobs | by the clock | CPU | playing | kernels |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    at = ["--procs", str(source.processors)]
    rows: list[tuple[str, list[str], Path | None]] = [
        ("EASY, compiled before", [str(path), "--policy", "easy"], None),
        ("EASY, a fresh installation", [str(path), "--policy", "easy", "--limit", "2000"], folder / "none"),
        ("EJB, a fresh installation", [str(path), "--policy", "ejb", "--limit", "2000"], folder / "none"),
    ]
    for name, words, cache in rows:
        wall, used, report = process([*words, *at], cache, runs)
        print(
            f"| {name} | {report['jobs']:,} | {wall:.2f} s | {used:.2f} s "
            f"| {report['elapsed_s']:.2f} s | {report['kernels_s']:.2f} s |",
            flush=True,
        )


def table(logs: list[tuple[str, Source]], runs: int) -> None:
    print("| log | jobs | reading | EASY | jobs/s | targets | all of them | a second | all elastic | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    sums = [0.0, 0.0]
    for name, source in logs:
        reading, work = cpu(lambda source=source: load(source))  # type: ignore[misc]
        easy, baseline = cpu(lambda work=work: fast(work), runs)  # type: ignore[misc]
        single, played = cpu(lambda w=work, b=baseline: run_targets(w, baseline=b, again=math.inf))  # type: ignore[misc]
        many, _ = cpu(lambda work=work: fast(work, Policy.EJB), runs)  # type: ignore[misc]
        count = played.targets.size
        sums[0] += count
        sums[1] += single
        print(
            f"| {name} | {len(work):,} | {reading:.2f} s | {1000 * easy:.0f} ms | {len(work) / easy:,.0f} "
            f"| {count:,} | {single:.1f} s | {count / single:,.0f} | {many:.2f} s | {memory_mb():.0f} MB |",
            flush=True,
        )
    print(f"\nall targets: {sums[0]:,.0f} simulations in {sums[1]:.1f} s of one core")


def uncompiled(source: Source) -> None:
    """The same kernels as plain Python, beside the compiled ones, on the log's first rows."""
    few = load(Source(source.path, source.processors, limit=2000))
    slow, _ = cpu(lambda: run(few, Policy.EASY, plain=True))
    quick, _ = cpu(lambda: fast(few), 3)
    print(f"\nEASY uncompiled, first {len(few):,} rows of the first log: {len(few) / slow:,.0f} jobs/s", end="")
    print(f", compiled {slow / quick:,.0f} times that")


def peers(logs: list[tuple[str, Source]], given: list[str]) -> None:
    for text in given:
        name, _, command = text.partition("=")
        for log, source in logs:
            with tempfile.TemporaryDirectory(prefix="ejb-bench-") as folder:
                plain = Path(folder) / f"{log}.swf"
                data = source.path.read_bytes()
                plain.write_bytes(lzma.decompress(data) if source.path.suffix == ".xz" else data)
                words = [w.format(log=plain, procs=source.processors) for w in shlex.split(command)]
                begin = time.perf_counter()
                code = subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode
                elapsed = time.perf_counter() - begin
            jobs = len(load(source))
            print(f"{name} on {log}: {jobs / elapsed:,.0f} jobs/s ({elapsed:.1f} s)" + (f", code {code}" * bool(code)))


def waiting(queue: int, jobs: int) -> Workload:
    """`queue` long jobs arrive behind one that holds most of the cluster; short narrow ones backfill past them."""
    dice = np.random.default_rng(1)
    narrow = jobs - queue - 1
    submit = np.concatenate([[0.0], np.full(queue, 1.0), 2.0 + np.arange(narrow) * 5.0])
    run_s = np.concatenate([[1e7], np.full(queue, 1e6), dice.integers(1, 60, narrow)]).astype(np.float64)
    width = np.concatenate([[100], np.full(queue, 128), np.ones(narrow)]).astype(np.int64)
    return Workload("waiting", 128, Jobs(submit, run_s, run_s.copy(), width, np.arange(1, jobs + 1)))


def by_queue() -> list[tuple[float, float]]:
    """Microseconds of EASY an event, by how many wait meanwhile."""
    points = []
    for queue in QUEUES:
        jobs = queue + 1 + 5000
        work = waiting(queue, jobs)
        seconds, _ = cpu(lambda work=work: fast(work), 2)  # type: ignore[misc]
        idle = waiting(queue, queue + 1)
        rest, _ = cpu(lambda idle=idle: fast(idle), 2)  # type: ignore[misc]
        points.append((float(queue), 1e6 * max(0.0, seconds - rest) / (2 * 5000)))
    return points


def by_length(source: Source) -> list[tuple[float, float, float]]:
    """Microseconds a job under EASY and with all jobs elastic, by how long the log is."""
    whole = load(source)
    points = []
    for part in PARTS:
        count = max(200, int(part * len(whole)))
        jobs = whole.jobs
        jobs = Jobs(
            jobs.submit[:count], jobs.run[:count], jobs.walltime[:count], jobs.processors[:count], jobs.id[:count]
        )
        work = Workload(whole.name, whole.processors, jobs)
        easy, _ = cpu(lambda work=work: fast(work), 2)  # type: ignore[misc]
        many, _ = cpu(lambda work=work: fast(work, Policy.EJB), 1)  # type: ignore[misc]
        points.append((float(count), 1e6 * easy / count, 1e6 * many / count))
    return points


def plots(out: Path, queue: list[tuple[float, float]], length: list[tuple[float, float, float]], name: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), constrained_layout=True)
    left.plot([x for x, _ in queue], [y for _, y in queue], marker="o", color="#1b6ca8")
    left.set(xscale="log", yscale="log", xlabel="jobs waiting", ylabel="CPU time of an event (µs)")
    left.set_title("EASY, by queue length")
    right.plot([x for x, _, _ in length], [y for _, y, _ in length], marker="o", color="#9a9a9a", label="EASY")
    right.plot([x for x, _, _ in length], [y for _, _, y in length], marker="s", color="#1b6ca8", label="all elastic")
    right.set(xscale="log", yscale="log", xlabel=f"jobs of {name}", ylabel="CPU time of a job (µs)")
    right.set_title("by length of the log")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for suffix in ("png", "svg"):
        figure.savefig(out / f"sim-speed.{suffix}", dpi=200)
    plt.close(figure)
    print(out / "sim-speed.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="folder with the four logs")
    parser.add_argument("--jobs", type=int, default=20_000, help="without --traces: jobs of the log that is made")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=300_000, help="jobs of the long log, the first one repeated")
    parser.add_argument("--brief", action="store_true", help="without what the cost grows with, and peers")
    parser.add_argument("--out", type=Path, help="plots of the cost by queue length and by trace length go here")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print(f"compiling or loading of the kernels: {compile_all():.1f} s by the clock\n")
    with tempfile.TemporaryDirectory(prefix="ejb-bench-") as folder:
        logs = found(given.traces) if given.traces else made(Path(folder), given.jobs)
        if not logs:
            raise SystemExit(f"sim_speed: there is no log in {given.traces}")
        table(logs, given.runs)
        uncompiled(logs[0][1])
        whole_processes(Path(folder), logs[0][1], given.repeat, given.runs)
        if given.brief:
            return
        peers(logs, given.peer)
        queue, (name, source) = by_queue(), logs[-1]
        length = by_length(source)
    print("\n| jobs waiting | µs an event |\n| ---: | ---: |")
    for waits, cost in queue:
        print(f"| {waits:,.0f} | {cost:.2f} |")
    print(f"\n| jobs of {name} | EASY, µs a job | all elastic, µs a job |\n| ---: | ---: | ---: |")
    for count, easy, many in length:
        print(f"| {count:,.0f} | {easy:.2f} | {many:.2f} |")
    if given.out:
        plots(given.out, queue, length, name)


if __name__ == "__main__":
    main()
