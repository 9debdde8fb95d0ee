#!/usr/bin/env python3
"""The sim-to-real error: three windows of two logs played on a real 8 x 4 Slurm, under EASY alone and with EJB.

    benchmarks/sim_to_real.py TRACES OUT [--at-once 1]

A play of about 12 minutes each; those whose JSON is in OUT already are not played again. Then the table of the errors
of all plays together, and OUT/sim-to-real.png, .svg and .pdf. The logs are those of the Parallel Workloads Archive, by
their names there (TRACES/KTH-SP2-1996-2.swf.xz ...).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ejbd.sim.live import pooled
from ejbd.sim.live_figure import draw
from harness import ROOT, machine

KTH, SDSC = "KTH-SP2-1996-2.swf.xz", "SDSC-SP2-1998.rebuilt.swf.xz"
WINDOWS = {
    "kth-1800": (KTH, "--scale=1/120", "--skip=1800", "--limit=80"),
    "kth-5200": (KTH, "--scale=1/180", "--skip=5200", "--limit=120"),
    "sdsc-1800": (SDSC, "--procs=128", "--scale=1/180", "--skip=1800", "--limit=80"),
}
POLICIES = {"easy": ("--policy=easy",), "ejb": ("--policy=ejb", "--lambda=8")}


def play(traces: Path, out: Path, window: str, policy: str) -> None:
    """One play on a cluster of its own."""
    log, *words = WINDOWS[window]
    cluster = [sys.executable, str(ROOT / "scripts" / "cluster")]
    with tempfile.TemporaryDirectory(prefix="ejb-live-") as folder:
        subprocess.run([*cluster, "up", folder, "--nodes=8", "--cpus=4", "--profile=easy"], check=True)
        try:
            argv = [sys.executable, "-m", "ejbd.cli.main", "sim", "live", str(traces / log), *words, *POLICIES[policy]]
            argv += ["--cluster", folder, "--json", str(out / f"{window}-{policy}.json")]
            subprocess.run(argv, cwd=ROOT, check=True)
        finally:
            subprocess.run([*cluster, "down", folder], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=1, help="so many plays at the same time")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print(machine())
    every = [(window, policy) for window in WINDOWS for policy in POLICIES]
    missing = [pair for pair in every if not (args.out / f"{pair[0]}-{pair[1]}.json").is_file()]
    with ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(lambda pair: play(args.traces, args.out, *pair), missing))
    told = {pair: json.loads((args.out / f"{pair[0]}-{pair[1]}.json").read_text()) for pair in every}
    rows = [(f"{window} {policy}", one) for (window, policy), one in told.items()]
    together = pooled(list(told.values()))
    rows += [(f"together {one['policy']}", one) for one in together]
    print(f"{'':18} {'jobs':>5} {'wait':>16} {'run':>16} {'turnaround':>16}  error of each (%)    load")
    for name, one in rows:
        live, simulated, errors = (one["all"][key] for key in ("live", "simulated", "error_percent"))
        means = " ".join(f"{live[key]:8.1f}{simulated[key]:8.1f}" for key in live)
        load = one.get("load_average", {}).get("mean", "")
        print(f"{name:18} {one['jobs']:5} {means}  " + " ".join(f"{errors[key]:+6.1f}" for key in live) + f"  {load}")
    for path in draw(args.out / "sim-to-real", together):
        print(path)


if __name__ == "__main__":
    main()
