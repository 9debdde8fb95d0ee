"""What over-subscription of MPICH ranks costs, with and without EJB's progress library, against Eq. 2 of the paper.

Eq. 2: P ranks on q processors make progress at 1/(Delta * P/q) of their full speed. The same Jacobi iteration (fixed
grid, bands of rows, halo exchange and allreduce each step) runs on all cores with 1, 2, 4 and 8 ranks a core, bound as
EJB binds them. The work is the same, so that with Delta = 1 all would take as long as one rank a core; Delta is the
ratio to that run. Three grains: how long a rank of the run with one a core computes between two exchanges.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import matplotlib

from harness import folder, machine
from ranks import compile_rank, cores, library, missing, run

SIZE = 512  # of the grid: 4 MB for both copies, so that smaller bands are not the faster ones for their caches
DEGREES = (1, 2, 4, 8)
GRAINS = {"coarse": (20, 400), "middle": (200, 40), "fine": (2000, 4)}  # steps, sweeps a step
WAYS = ("with the library", "MPICH alone")


def measure(where: Path, rounds: int, limit_s: float) -> dict[str, dict[str, dict[int, list[float | None]]]]:
    """grain -> way -> degree -> seconds (None: not within the limit), by turns."""
    program, preload, on = compile_rank(where, "jacobi.c"), library(where), cores()
    found: dict[str, dict[str, dict[int, list[float | None]]]] = {}
    for grain, (steps, sweeps) in GRAINS.items():
        times = found.setdefault(grain, {way: {degree: [] for degree in DEGREES} for way in WAYS})
        for _ in range(rounds):
            for degree in DEGREES:
                for way in WAYS:
                    before = times[way][degree]
                    if before and before[-1] is None:
                        continue  # once too long is enough
                    use = preload if way == WAYS[0] else None
                    argv = [str(program), str(SIZE), str(steps), str(sweeps)]
                    before.append(run(argv, degree * len(on), on, use, limit_s))
    return found


def deltas(times: dict[int, list[float | None]], base_s: float) -> dict[int, float | None]:
    return {
        degree: None if None in seconds or not seconds else statistics.median(s for s in seconds if s) / base_s
        for degree, seconds in times.items()
    }


def plot(found: dict[str, dict[str, dict[int, float | None]]], file: Path, limit_s: float) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(11, 3.8), sharey=True)
    for axis, (grain, ways) in zip(axes, found.items(), strict=True):
        for way, mark in zip(WAYS, ("o-", "s--"), strict=True):
            points = [(d, v) for d, v in ways[way].items() if v is not None]
            axis.plot([d for d, _ in points], [v for _, v in points], mark, label=way)
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_title(grain)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(DEGREES, [f"{d}x" for d in DEGREES])
        axis.set_xlabel("ranks a core")
    axes[0].set_ylabel("$\\Delta$ of Eq. 2")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which a run is given up")
    parser.add_argument("--plot", type=Path, default=None, help="write a figure (PNG or SVG by its name)")
    given = parser.parse_args()
    if reason := missing():
        print(f"oversubscription: {reason}: not measured")
        return
    begun = time.monotonic()
    with folder() as where:
        found = measure(where, given.rounds, given.limit)
    figures: dict[str, dict[str, dict[int, float | None]]] = {}
    print(f"{len(cores())} cores used, {machine()}; {given.rounds} rounds, {time.monotonic() - begun:.0f} s")
    for grain, ways in found.items():
        steps, _ = GRAINS[grain]
        plain = [s for s in ways[WAYS[1]][1] if s is not None]  # what one has without over-subscription and library
        base_s = statistics.median(plain)
        figures[grain] = {way: deltas(times, base_s) for way, times in ways.items()}
        print(f"{grain}: {1000 * base_s / steps:.3g} ms a step with one rank a core ({base_s:.3g} s in all)")
        for way in WAYS:
            told = []
            for degree, value in figures[grain][way].items():
                told.append(f"{degree}x {f'{value:.2f}' if value is not None else f'> {given.limit / base_s:.0f}'}")
            print(f"  Delta, {way:16}: " + "  ".join(told))
    if given.plot is not None:
        plot(figures, given.plot, given.limit)
        print(f"wrote {given.plot}")


if __name__ == "__main__":
    main()
