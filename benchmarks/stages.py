"""E-HPC's experiments (Fox et al. 2017) on a private Slurm of 8 x 4, with the paper's ratios beside.

    python benchmarks/stages.py [--small] [--only EXPERIMENT ...] [--rounds 3] [--busy] [--json FILE]
    python benchmarks/stages.py --only four --busy [--small] [--rounds 1]

figure9 is the synthetic workflow: a stage on 4 processors, then one that scales, as one allocation and as two stages.
figure6 expands a run from 4 to 8 processors when 40 % of it is done; figure10 does so early and late, where a move has
to pay for itself. figure11 is what a checkpoint takes by the number of ranks. montage (Debian's montage, on images that
are made up) and blast (Debian's ncbi-blast+, on a random database) run in four ways: one allocation, chained jobs by
`sbatch --dependency`, and plans in modes default and fast. Table 3, the overhead with waits and without, comes of those
and of figure9. four is a workflow of 4, 16, 4 and 16 processors in the same ways, as jobs that are queued as the one
before has ended, and as a plan with elastic stages. `--busy`: other jobs keep the cluster full meanwhile; six of them
wait at any time, and each way of four meets the same ones. script is one script of four launches: in a job as wide as
its widest, with `#EJB stages`, as a plan, and as a chain; it takes 5 minutes at most.

figure9, figure6 and figure10 are paced: their ranks hold processors by sleeping, so that the machine is not what is
measured. Montage and BLAST compute, and speed up no further than the machine has cores. Times are those of Slurm's own
records, in whole seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.client import Client
from harness import folder, machine
from tests.acceptance.evolving import build_paced
from tests.fakes.daemon import FAST, Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

NARROW, PATIENCE_S = 4, 900.0
WIDTHS = (4, 8, 16, 32)
GOLDEN = {4: 1.0, 8: 1.5, 16: 2.5, 32: 4.5}  # Fig. 9b by arithmetic, at the paper's 32 to 256
TABLE3 = {  # the paper's, at 64, 128 and 256 on Cori: with waits, without
    "montage": "86.1 (10.3), 32.8 (10.3), 42.3 (11.1)",
    "blast": "5.7 (3.9), 10.5 (7.6), 18.3 (13.6)",
    "figure9": "13.8 (.29), 21.4 (.36), 3.5 (.37)",
}
RANK = """
import os, signal, sys, time
rank, asked = os.environ["EJB_RANK"], []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
state = os.urandom(int(sys.argv[1]))
restart = os.environ.get("EJB_RESTART_DIR")
if restart:
    with open("%s/%s" % (restart, rank), "rb") as file:
        state = file.read()
while not asked and not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
if asked:
    path = "%s/%s" % (os.environ["EJB_CHECKPOINT_DIR"], rank)
    with open(path + ".tmp", "wb") as file:
        file.write(state)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sys.exit(85)
"""


@dataclass(frozen=True)
class Stage:
    """Lines of bash on so many processors; $WIDTH has them."""

    name: str
    width: int
    command: str


@dataclass(frozen=True)
class Run:
    """Seconds: from the first start to the last end, of which between allocations; core-seconds that were held."""

    turnaround_s: float
    waits_s: float
    core_s: float
    end_s: float = 0.0  # since the epoch
    spans: Sequence[tuple[float, float, int]] = ()  # begin, end and width of each allocation

    @property
    def run_s(self) -> float:
        return self.turnaround_s - self.waits_s


class Bench:
    """A cluster, a daemon before it, and a client."""

    def __init__(
        self, where: Path, cluster: SlurmCluster, small: bool, busy: bool = False, only: Sequence[str] = ()
    ) -> None:
        """`only`: of the ways of `four` these alone (none: all)."""
        self.where, self.cluster, self.small, self.busy, self.only = where, cluster, small, busy, only
        toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
        self.daemon = Daemon(where, toml, {"SLURM_CONF": str(cluster.conf)}, as_program=True)
        self.daemon.start()
        self.client = Client(socket=str(self.daemon.state / "ejbd.sock"))
        self.made = 0

    def fresh(self) -> Path:
        self.made += 1
        found = self.where / f"run{self.made}"
        found.mkdir()
        return found

    # -- four ways ----------------------------------------------------------------------------------------------------

    def sbatch(self, where: Path, name: str, width: int, body: str, *words: str) -> str:
        script = where / f"{name}.sh"
        script.write_text(f"#!/bin/bash -e\ncd {shlex.quote(str(where))}\nexport WIDTH={width}\n{body}\n")
        return self.cluster.run(
            "sbatch", "--parsable", "-n", str(width), "-t", "15", "-o", f"{where}/{name}.out", *words, str(script)
        ).strip()

    def one_allocation(self, where: Path, stages: Sequence[Stage]) -> Run:
        widest = max(stage.width for stage in stages)
        body = "\n".join(f"(export WIDTH={stage.width}; {stage.command}\n)" for stage in stages)
        return self.over([(self.sbatch(where, "one", widest, body), widest)])

    def chained(self, where: Path, stages: Sequence[Stage]) -> Run:
        ids: list[tuple[str, int]] = []
        for stage in stages:
            words = [f"--dependency=afterok:{ids[-1][0]}"] if ids else []
            ids.append((self.sbatch(where, stage.name, stage.width, stage.command, *words), stage.width))
        return self.over(ids)

    def queued_late(self, where: Path, stages: Sequence[Stage]) -> Run:
        """Chained jobs as E-HPC has them: each is queued as the one before has ended."""
        ids = []
        for stage in stages:
            ids.append((self.sbatch(where, stage.name, stage.width, stage.command), stage.width))
            self.over_with(ids[-1][0])
        return self.over(ids)

    def planned(self, where: Path, stages: Sequence[Stage], mode: str, elastic: bool = False) -> Run:
        """`elastic`: a stage may start on a quarter of its processors, and moves when it has all of them."""
        how = "engine: application" if elastic else "elastic: off"
        lines = [f"workflow:\n  mode: {mode}\n  {how}\n  stages:"]
        for stage in stages:
            least = f", min_tasks: {stage.width // 4}" if elastic else ""
            (where / f"{stage.name}.sh").write_text(
                f"#!/bin/bash -e\ncd {shlex.quote(str(where))}\nexport WIDTH={stage.width}\n{stage.command}\n"
            )
            command = json.dumps(stage.command if elastic else f"bash {where}/{stage.name}.sh")
            lines.append(f"    {stage.name}: {{tasks: {stage.width}{least}, walltime: 15, command: {command}}}")
        os.chdir(where)  # the client submits from where this process is
        id = self.client.submit_workflow("\n".join(lines) + "\n")["id"]
        ended = ("completed", "failed", "cancelled")
        until(lambda: self.client.workflow(id)["state"] in ended, "the workflow did not end", PATIENCE_S)
        found = self.client.workflow(id)
        if found["state"] != "completed":
            raise RuntimeError(f"{found}\n{self.outputs(where)}")
        ids = []
        for one in self.client.workflow_report(id)["attempts"]:
            job = self.client.job(one["job"]).status()
            if elastic:
                ids += [(part["batch_id"], part["processors"]) for part in job["subjobs"] if part["batch_id"]]
            else:
                ids += [(batch_id, one["tasks"]) for batch_id in job["batch_ids"]]
        return self.over(ids, given_back=elastic)

    def staged(self, where: Path, stages: Sequence[Stage]) -> Run:
        """One script with `#EJB stages`, each launch of which has a width of its own."""
        widest = max(stage.width for stage in stages)
        head = f"#!/bin/bash -e\n#SBATCH -n {widest} -t 15\n#EJB stages engine=none\n"
        file = where / "staged.sh"
        file.write_text(head + "".join(f"{stage.command}\n" for stage in stages))
        os.chdir(where)
        job = self.client.submit(script=str(file))
        ended = ("completed", "failed", "cancelled", "timeout")
        until(lambda: job.status()["state"] in ended, "the script did not end", PATIENCE_S)
        found = job.status()
        if found["state"] != "completed":
            raise RuntimeError(f"{found}\n{self.outputs(where)}")
        return self.over([(one["batch_id"], one["processors"]) for one in found["subjobs"] if one["batch_id"]], True)

    def over(self, ids: Sequence[tuple[str, int]], given_back: bool = False) -> Run:
        """By Slurm's own records, once all of them have ended. `given_back`: some never begin, or are ended by EJB."""
        spans = []
        for id, width in ids:
            self.over_with(id)
            state, begin_s, end_s = self.record(id)
            if given_back and (state == "CANCELLED" and not 0.0 < begin_s < end_s):
                continue
            if state != "COMPLETED" and not given_back:
                raise RuntimeError(f"job {id} is {state}: {self.outputs(self.where / f'run{self.made}')}")
            spans.append((begin_s, end_s, width))
        spans.sort()
        gaps, until_s = 0.0, spans[0][1]
        for begin_s, end_s, _ in spans[1:]:
            gaps += max(0.0, begin_s - until_s)
            until_s = max(until_s, end_s)
        core_s = sum((end_s - begin_s) * width for begin_s, end_s, width in spans)
        last_s = max(end for _, end, _ in spans)
        return Run(last_s - spans[0][0], gaps, core_s, last_s, spans)

    def over_with(self, id: str) -> None:
        under_way = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
        until(lambda: self.record(id)[0] not in under_way, f"{id} did not end", PATIENCE_S)

    def record(self, id: str) -> tuple[str, float, float]:
        text = self.cluster.run("scontrol", "show", "job", id)
        found = dict(re.findall(r"(JobState|StartTime|EndTime)=(\S+)", text))
        times = [
            0.0 if found[key] == "Unknown" else datetime.fromisoformat(found[key]).timestamp()
            for key in ("StartTime", "EndTime")
        ]
        return found["JobState"], times[0], times[1]

    @staticmethod
    def outputs(where: Path) -> str:
        return "\n".join(path.read_text()[-500:] for path in sorted(where.glob("*.out")))

    def ways(self) -> Mapping[str, Callable[[Path, Sequence[Stage]], Run]]:
        return {
            "one allocation": self.one_allocation,
            "chained jobs": self.chained,
            "default": lambda where, stages: self.planned(where, stages, "default"),
            "fast": lambda where, stages: self.planned(where, stages, "fast"),
        }

    def close(self) -> None:
        self.client.close()
        self.daemon.stop()


# -- figure 9, and Table 3 ---------------------------------------------------------------------------------------------


def figure9(bench: Bench, rounds: int) -> dict[str, Any]:
    """One unit on 4 processors, then one that scales: 1 / n of it on n."""
    unit_s = 8 if bench.small else 60
    rows: dict[str, Any] = {}
    for width in WIDTHS:
        stages = [
            Stage("sequence", NARROW, f"sleep {unit_s}"),
            Stage("parallel", width, f"sleep {unit_s * NARROW / width:g}"),
        ]
        one = bench.one_allocation(bench.fresh(), stages)
        staged = bench.planned(bench.fresh(), stages, "default")
        ratio = one.core_s / staged.core_s
        rows[str(width)] = {
            "one_core_s": one.core_s,
            "staged_core_s": staged.core_s,
            "ratio": ratio,
            "golden": GOLDEN[width],
            "off_percent": 100 * (ratio / GOLDEN[width] - 1),
            **overhead(one, staged),
        }
        print(
            f"figure9, {width:2} processors: one allocation {one.core_s:.0f} core-s, staged {staged.core_s:.0f}, "
            f"{ratio:.2f} times (by arithmetic {GOLDEN[width]}), run time {staged.turnaround_s / one.turnaround_s:.2f}"
            f" of it, overhead {told(rows[str(width)])}",
            flush=True,
        )
    print(f"  Table 3 of the paper, at 64 to 256: {TABLE3['figure9']}")
    return rows


def overhead(one: Run, staged: Run) -> dict[str, float]:
    """Table 3: per cent more than one allocation, with the waits between stages, and without."""
    return {
        "with_wait_percent": 100 * (staged.turnaround_s / one.run_s - 1),
        "without_wait_percent": 100 * (staged.run_s / one.run_s - 1),
    }


def told(row: Mapping[str, float]) -> str:
    return f"{row['with_wait_percent']:+.1f} % ({row['without_wait_percent']:+.1f} % without waits)"


# -- four stages, and a queue ------------------------------------------------------------------------------------------


def four(bench: Bench, rounds: int) -> dict[str, Any]:
    """4, 16, 4 and 16 processors, from the submission to the end, first wait included.

    Each stage is one `srun` of a program with ranks that sleep, and longer where they share a processor.
    """
    program = build_paced(bench.fresh())
    narrow_s, wide_s = (20, 8) if bench.small else (60, 30)
    seconds = {NARROW: narrow_s, 16: wide_s}
    ranks = f"{program} --pace 250ms --steps"
    stages = [
        Stage(f"stage{at}", n, f"export EJB_RENDEZVOUS=$(mktemp -d)\nsrun -n {n} {ranks} {4 * seconds[n]}")
        for at, n in enumerate((NARROW, 16, NARROW, 16))
    ]
    ways: dict[str, Callable[[Path, Sequence[Stage]], Run]] = {
        "queued as the one before has ended": bench.queued_late,
        **bench.ways(),
        "elastic stages": lambda where, stages: bench.planned(where, stages, "default", elastic=True),
    }
    ways = {way: run for way, run in ways.items() if way in (bench.only or ways)}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            with busy(bench.cluster) if bench.busy else nullcontext():
                begin_s = time.time()
                done = run(bench.fresh(), stages)
            found[way].append((done.end_s - begin_s, done.core_s))
            print(f"  {way}: {found[way][-1][0]:.0f} s, {done.core_s:.0f} core-s; {parts(done, begin_s)}", flush=True)
    rows: dict[str, Any] = {}
    for way, runs in found.items():
        took_s, core_s = (statistics.median(one) for one in zip(*runs, strict=True))
        rows[way] = {"seconds": took_s, "core_s": core_s, "all": runs}
        print(f"four, {way}: {took_s:.0f} s from its submission, {core_s:.0f} core-s", flush=True)
    return rows


def parts(run: Run, begin_s: float) -> str:
    """Each allocation: width, and when it began and ended, in seconds since the submission."""
    return ", ".join(f"{width} from {b - begin_s:.0f} to {e - begin_s:.0f}" for b, e, width in run.spans)


@contextmanager
def busy(cluster: SlurmCluster) -> Iterator[None]:
    """Other jobs, six of which wait at any time: in each run the same ones, in the same order, on an empty cluster."""
    draw, over = random.Random(7), threading.Event()

    def feed() -> None:
        while not over.wait(1.0):
            waiting = cluster.run("squeue", "-h", "-t", "PD", "-n", "other", "-o", "%i").split()
            for _ in range(6 - len(waiting)):
                wide, long_s = draw.choice((8, 12, 20, 28)), draw.choice((5, 10, 20))
                words = ["-n", str(wide), "-t", "1", "-J", "other", "-o", "/dev/null"]
                cluster.run("sbatch", *words, "--wrap", f"sleep {long_s}")

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        time.sleep(20)  # the queue as it will be
        yield
    finally:
        over.set()
        feeder.join(60)
        cluster.run("scancel", "-n", "other")
        until(lambda: not cluster.run("squeue", "-h", "-o", "%i").split(), "the cluster is not empty", 120)


def script(bench: Bench, rounds: int) -> dict[str, Any]:
    """One script of four launches: in a job of its widest one, with `#EJB stages`, as a plan, and as chained jobs."""
    narrow_s, wide_s = (12, 6) if bench.small else (20, 10)
    stages = [
        Stage(f"stage{at}", width, f"srun -n {width} sleep {narrow_s if width == NARROW else wide_s}")
        for at, width in enumerate((NARROW, 16, NARROW, 16))
    ]
    ways: dict[str, Callable[[Path, Sequence[Stage]], Run]] = {
        "sbatch --dependency": bench.chained,
        "sbatch, the widest": bench.one_allocation,
        "#EJB stages": bench.staged,
        "plan": lambda where, stages: bench.planned(where, stages, "default"),
    }
    rows: dict[str, Any] = {}
    for way, run in ways.items():
        begin_s = time.time()
        done = run(bench.fresh(), stages)
        rows[way] = {"seconds": done.end_s - begin_s, "core_s": done.core_s}
        first = rows["sbatch --dependency"]
        took, core = (rows[way][key] / first[key] for key in ("seconds", "core_s"))
        print(
            f"script of {narrow_s} and {wide_s} s, {way}: {done.end_s - begin_s:.0f} s ({took:.2f} of the chain), "
            f"{done.core_s:.0f} core-s ({core:.2f})",
            flush=True,
        )
    return rows


# -- figures 6 and 10 --------------------------------------------------------------------------------------------------


def paced(bench: Bench, program: Path, steps: int, profile: str, at: float | None = None) -> tuple[float, float]:
    """Seconds of ranks from their first to their last, and core-seconds of a job of 8 ranks. `at`: the part of it that
    is done when it is resized to 8 processors."""
    where = bench.fresh()
    words = [str(program), "--steps", str(steps), "--pace", "250ms", "--result", str(where / "result")]
    with_s = {"profile": profile, "ntasks": None, "time": "30", "engine": "application", "best_effort": True}
    job = bench.daemon.submit(*words, overrides=with_s)
    bench.daemon.wait_event(job, "epoch.running", 1, timeout_s=PATIENCE_S)
    if at is not None:
        time.sleep(at * steps * 0.5)
        bench.client.job(job).resize(8)
    final = bench.daemon.wait(job, timeout_s=PATIENCE_S)
    if final["state"] != "completed":
        raise RuntimeError(str(final))
    events = bench.daemon.events(job)
    begin_s = next(one["at_s"] for one in events if one["kind"] == "epoch.running")
    end_s = next(one["at_s"] for one in events if one["kind"] == "epoch.ended")
    over = ("completed", "cancelled", "failed")
    until(lambda: all(s["state"] in over for s in bench.daemon.job(job)["subjobs"]), "it holds processors", 120)
    return end_s - begin_s, bench.daemon.job(job)["processor_s"]


def figure6(bench: Bench, rounds: int) -> dict[str, Any]:
    steps = 60 if bench.small else 240
    return resized(bench, "figure6", steps, {"expanded at 40 %": 0.4}, "the paper: about 0.7; by arithmetic 0.7")


def figure10(bench: Bench, rounds: int) -> dict[str, Any]:
    said = "a move pays where (1 - x) r (1 - n/n') is more than its cost; the paper's BLAST ran longer expanded"
    return resized(bench, "figure10", 30, {"expanded at 10 %": 0.1, "expanded at 80 %": 0.8}, said)


def resized(bench: Bench, name: str, steps: int, ways: Mapping[str, float], said: str) -> dict[str, Any]:
    program = build_paced(bench.fresh())
    narrow = paced(bench, program, steps, "4:25m,8:1m")
    wide = paced(bench, program, steps, "8:25m")
    rows: dict[str, Any] = {"4 processors": narrow, "8 processors": wide}
    for way, at in ways.items():
        rows[way] = paced(bench, program, steps, "4:25m,8:1m", at)
    for way, (run_s, core_s) in rows.items():
        print(
            f"{name}, {way}: {run_s:.1f} s, {run_s / narrow[0]:.2f} of that at 4; {core_s:.0f} core-s, "
            f"{core_s / narrow[1]:.2f}",
            flush=True,
        )
    for way in ways:
        if rows[way][0] > narrow[0]:
            print(f"  {way} it LOSES: longer than without")
    print(f"  {said}")
    return rows


# -- figure 11 ---------------------------------------------------------------------------------------------------------


def figure11(bench: Bench, rounds: int) -> dict[str, Any]:
    """A checkpoint and a restart by the number of ranks, of 4 MB each: from half of its processors to all of them."""
    rows: dict[str, Any] = {}
    for ranks in (4, 8) if bench.small else WIDTHS:
        where = bench.fresh()
        program, end = where / "rank.py", where / "end"
        program.write_text(RANK)
        with_s = {"profile": f"{ranks // 2}:20m,{ranks}:1m", "ntasks": None, "time": "30", "engine": "application"}
        words = [sys.executable, "-S", str(program), str(4 << 20), str(end)]
        job = bench.daemon.submit(*words, overrides={**with_s, "best_effort": True})
        bench.daemon.wait_event(job, "epoch.running", 1, timeout_s=PATIENCE_S)
        bench.client.job(job).resize(ranks)
        bench.daemon.wait_event(job, "epoch.running", 2, timeout_s=PATIENCE_S)
        move = next(one for one in bench.daemon.explain(job)["moves"] if one["job_id"] == job)
        end.touch()
        bench.daemon.wait(job, timeout_s=PATIENCE_S)
        rows[str(ranks)] = {key: move[key] for key in ("bytes", "checkpoint_s", "restart_s")}
        print(
            f"figure11, {ranks:2} ranks: checkpoint {move['checkpoint_s']:.2f} s, restart "
            f"{move['restart_s'] or 0:.2f} s, {move['bytes'] / 1e6:.1f} MB",
            flush=True,
        )
    print("  the paper: all three grow in proportion to the ranks, up to 150")
    return rows


# -- Montage and BLAST -------------------------------------------------------------------------------------------------


def image(path: Path, size: int, ra: float, dec: float, scale: float) -> None:
    """A FITS image of noise, in TAN projection."""
    said = {
        "SIMPLE": "T", "BITPIX": -32, "NAXIS": 2, "NAXIS1": size, "NAXIS2": size, "CTYPE1": "'RA---TAN'",
        "CTYPE2": "'DEC--TAN'", "CRVAL1": ra, "CRVAL2": dec, "CRPIX1": size / 2, "CRPIX2": size / 2,
        "CDELT1": -scale, "CDELT2": scale, "CROTA2": 0.0, "EQUINOX": 2000.0,
    }  # fmt: skip
    cards = [f"{key:8}= {value:>20}".ljust(80) for key, value in said.items()] + ["END".ljust(80)]
    head = "".join(cards).encode()
    data = np.random.default_rng(round(ra * 1e6)).normal(10, 1, (size, size)).astype(">f4").tobytes()
    path.write_bytes(head + b" " * (-len(head) % 2880) + data + b"\0" * (-len(data) % 2880))


def each(pattern: str, command: str) -> str:
    """`command` for each file, $f, of a pattern, by the ranks in turn."""
    body = f'i=0; for f in {pattern}; do [ $((i++ % WIDTH)) = "$SLURM_PROCID" ] || continue; {command}; done'
    return f"srun -n $WIDTH bash -c {shlex.quote(body)} >/dev/null"


def montage(bench: Bench, rounds: int) -> dict[str, Any]:
    """Nine programs in four stages, as E-HPC groups them."""
    if shutil.which("mProjectPP") is None:
        print("montage: is not installed (apt-get install montage)")
        return {}
    side, size = (3, 80) if bench.small else (6, 300)
    width = 8 if bench.small else 16

    def prepared(where: Path) -> list[Stage]:
        for name in ("raw", "projected", "corrected", "differences"):
            (where / name).mkdir()
        step = 0.8 * size / 1000
        for at in range(side * side):
            ra, dec = 150 + (at % side) * step, 2 + (at // side) * step
            image(where / "raw" / f"i{at:03}.fits", size, ra, dec, 0.001)
        first = "[ -e region.hdr ] || { mImgtbl raw raw.tbl; mMakeHdr raw.tbl region.hdr; } >/dev/null"
        fit = (
            "{ mImgtbl projected projected.tbl; mOverlaps projected.tbl differences.tbl\n"
            "mDiffExec -p projected differences.tbl region.hdr differences\n"
            "mFitExec differences.tbl fits.tbl differences; mBgModel projected.tbl fits.tbl corrections.tbl\n"
            "} >/dev/null"
        )
        correct = "(cd projected; g=${f##*/}; mBackground -t $g ../corrected/$g ../projected.tbl ../corrections.tbl)"
        add = (
            "{ mImgtbl corrected corrected.tbl; mAdd -p corrected corrected.tbl region.hdr mosaic.fits\n"
            "mViewer -ct 1 -gray mosaic.fits -1s max gaussian-log -out mosaic.jpg; } >/dev/null; [ -s mosaic.jpg ]"
        )
        return [
            Stage(
                "project", width, first + "\n" + each("raw/*.fits", "mProjectPP $f projected/$(basename $f) region.hdr")
            ),
            Stage("fit", NARROW, fit),
            Stage("correct", width, each("projected/i???.fits", correct)),
            Stage("add", NARROW, add),
        ]

    return four_ways(bench, "montage", rounds, prepared)


def blast(bench: Bench, rounds: int) -> dict[str, Any]:
    """A random database, queries out of it in pieces, and a merge."""
    if shutil.which("blastn") is None:
        print("blast: is not installed (apt-get install ncbi-blast+)")
        return {}
    width = 8 if bench.small else 16
    draw = random.Random(32)
    sequences = ["".join(draw.choices("ACGT", k=5000)) for _ in range(40 if bench.small else 400)]
    base = bench.fresh()
    (base / "all.fa").write_text("".join(f">s{at}\n{text}\n" for at, text in enumerate(sequences)))
    bench.cluster.run("makeblastdb", "-in", str(base / "all.fa"), "-dbtype", "nucl", "-out", str(base / "db"))

    def prepared(where: Path) -> list[Stage]:
        for at in range(32):
            picked = [sequences[(at + 7 * turn) % len(sequences)][:800] for turn in range(2 if bench.small else 20)]
            (where / f"q{at:02}.fa").write_text("".join(f">q{n}\n{text}\n" for n, text in enumerate(picked)))
        search = f"blastn -word_size 7 -db {base}/db -query $f -outfmt 6 -out $f.tsv"
        return [
            Stage("search", width, each("q??.fa", search)),
            Stage("merge", NARROW, "cat q*.tsv | sort > all.tsv; [ -s all.tsv ]"),
        ]

    return four_ways(bench, "blast", rounds, prepared)


def four_ways(bench: Bench, name: str, rounds: int, prepared: Callable[[Path], list[Stage]]) -> dict[str, Any]:
    found: dict[str, list[Run]] = {way: [] for way in bench.ways()}
    for _ in range(rounds):
        for way, run in bench.ways().items():
            where = bench.fresh()
            found[way].append(run(where, prepared(where)))
    rows: dict[str, Any] = {}
    for way, runs in found.items():
        middle = Run(
            *(statistics.median(getattr(run, key) for run in runs) for key in ("turnaround_s", "waits_s", "core_s"))
        )
        one = rows.setdefault("_one", middle)
        rows[way] = {
            "turnaround_s": middle.turnaround_s,
            "waits_s": middle.waits_s,
            "core_s": middle.core_s,
            "core_ratio": middle.core_s / one.core_s,
            **overhead(one, middle),
        }
        print(
            f"{name}, {way}: {middle.turnaround_s:.0f} s, of which waits {middle.waits_s:.0f}, "
            f"{middle.core_s:.0f} core-s ({middle.core_s / one.core_s:.2f} of one allocation), "
            f"overhead {told(rows[way])}",
            flush=True,
        )
    del rows["_one"]
    print(f"  Table 3 of the paper, at 64 to 256: {TABLE3[name]}")
    return rows


EXPERIMENTS: dict[str, Callable[[Bench, int], dict[str, Any]]] = {
    "figure9": figure9,
    "four": four,
    "script": script,
    "figure6": figure6,
    "figure10": figure10,
    "figure11": figure11,
    "montage": montage,
    "blast": blast,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="minutes: short units, few images, one round")
    parser.add_argument("--only", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--rounds", type=int, help="of montage and blast; without: 3, and 1 with --small")
    parser.add_argument("--busy", action="store_true", help="other jobs keep the cluster full")
    parser.add_argument("--ways", nargs="+", default=(), help="of four: these alone, such as 'chained jobs' default")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    options = parser.parse_args()
    if reason := missing_slurm():
        sys.exit(reason)
    print(machine())
    found = {}
    with folder() as where, slurm_cluster(8, 4) as cluster:
        bench = Bench(where, cluster, options.small, options.busy, options.ways)
        try:
            for name in options.only:
                with busy(cluster) if options.busy and name != "four" else nullcontext():
                    found[name] = EXPERIMENTS[name](bench, options.rounds or (1 if options.small else 3))
        finally:
            bench.close()
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
