"""How long it takes to replay a day for what other jobs gained and lost.

    python benchmarks/hindsight.py [--jobs 10000] [--elastic 200] [--processors 65536] [--load 1.1] [--runs 3]

A made-up day of `--jobs` other jobs and the day before it, as a stretch of `ejbd/core/hindsight.py` has them, with
`--elastic` elastic jobs, at `--load` times what the processors can do, so that a queue grows.
"""

from __future__ import annotations

import argparse
import random
import time

from ejbd.core.hindsight import Compared, Submitted, compare, replay
from harness import machine, spread

DAY_S = 86400.0
WIDTHS = (1, 4, 16, 32, 64, 128, 256, 512)


def jobs(count: int, processors: int, load: float, letter: str, dice: random.Random) -> list[Submitted]:
    """Over two days, of run times so long that together they are `load` of the room."""
    mean_s = load * processors * 2 * DAY_S / (count * sum(WIDTHS) / len(WIDTHS))
    found = []
    for at in range(count):
        run_s = dice.expovariate(1 / mean_s)
        walltime_s = run_s * dice.uniform(1, 5)
        found.append(Submitted(f"{letter}{at}", dice.choice(WIDTHS), walltime_s, dice.uniform(0, 2 * DAY_S), run_s))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--elastic", type=int, default=200)
    parser.add_argument("--processors", type=int, default=65_536)
    parser.add_argument("--load", type=float, default=1.1)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    dice = random.Random(1)
    others = jobs(2 * options.jobs, options.processors, options.load, "o", dice)
    rigid = jobs(2 * options.elastic, options.processors, options.load / 50, "r", dice)
    halves = [Submitted(f"s{job.id}", max(1, job.processors // 2), 3 * job.walltime_s, job.submit_s, 2 * job.run_s)
              for job in rigid]  # fmt: skip
    starts = replay(others, options.processors, 0.0)
    real = [(job, starts[job.id]) for job in others]
    waiting = max(starts[job.id] - job.submit_s for job in others)
    print(machine())
    print(f"{len(others)} other jobs of two days, {len(rigid)} elastic, load {options.load:g}; ", end="")
    print(f"the longest wait {waiting / 3600:.1f} h")
    took = []
    found: list[Compared] = []
    for _ in range(options.runs):
        begun = time.perf_counter()
        found = compare(real, halves, rigid, options.processors, 0.0)
        took.append(time.perf_counter() - begun)
    print(f"both replays of a day    {spread(took, ' s')}")
    print(f"compared {len(found)}, of which {sum(abs(one.gained_s) >= 1 for one in found)} start at another time")


if __name__ == "__main__":
    main()
