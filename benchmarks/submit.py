"""`ejb submit` beside `sbatch`: whole processes, from their start until they have answered and ended.

    python benchmarks/submit.py [--runs 15]

Both submit the same script on this machine, by turns: `ejb submit` to a real `ejbd` (durable before it answers) in
front of a real Slurm of 8 x 4, `sbatch` to that Slurm. One job holds every processor, so that nothing starts. A Python
that does nothing is the floor of whatever is written in it. Aim: `ejb submit` takes at most 4 times as long.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from harness import ELASTIC, ROOT, by_turns, folder, machine, spread
from tests.fakes.daemon import Daemon
from tests.integration.batch_counts import occupy
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=16\n#SBATCH --time=10\n#SBATCH --output=/dev/null\nsrun hostname\n"


Cost = tuple[float, float]  # milliseconds by the clock, and of CPU time


def timed(argv: list[str], environment: Mapping[str, str], where: Path) -> Cost:
    """Raises CalledProcessError where the command fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(argv, env=environment, cwd=where, check=True, capture_output=True, timeout=60)
    passed = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return passed * 1e3, cpu * 1e3


def measure(cluster: SlurmCluster, where: Path, runs: int) -> dict[str, list[Cost]]:
    script = where / "job.sh"
    script.write_text(SCRIPT)
    daemon = Daemon(
        where, f'batch = "slurm"\npoll_s = 5\n{ELASTIC}', {"SLURM_CONF": str(cluster.conf)}, as_program=True
    )
    daemon.start()
    try:
        ejb = str(Path(sys.executable).with_name("ejb"))
        ours = {**os.environ, "EJB_SOCKET": str(daemon.state / "ejbd.sock"), "PYTHONPATH": str(ROOT)}
        commands = {
            "ejb submit": ([ejb, "submit", str(script)], ours),
            "sbatch": (["sbatch", "--no-requeue", str(script)], cluster.environment),
            "ejb --version": ([ejb, "--version"], ours),
            "python -c pass": ([sys.executable, "-c", "pass"], os.environ),
        }
        return by_turns(commands, runs, lambda _, command: timed(*command, where))
    finally:
        daemon.client.close()
        daemon.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    print(machine())
    if reason := missing_slurm():
        print(f"skipped: {reason}")
        return
    with slurm_cluster(8, 4) as cluster, folder() as where:
        occupy(cluster)
        found = measure(cluster, where, options.runs)
    sbatch, python = (statistics.median(clock for clock, _ in found[name]) for name in ("sbatch", "python -c pass"))
    floor = statistics.median(cpu for _, cpu in found["python -c pass"])
    for name, costs in found.items():
        clock, cpu = [one for one, _ in costs], statistics.median(one for _, one in costs)
        median = statistics.median(clock)
        ratios = f"{median / python:>5.1f} x Python (CPU {cpu / floor:.1f})   {median / sbatch:>5.1f} x sbatch"
        print(f"{name:<16}{spread(clock, ' ms'):<32}CPU {cpu:>6.1f} ms   {ratios}")


if __name__ == "__main__":
    main()
