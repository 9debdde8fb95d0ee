"""What over-subscription of MPICH ranks costs, with and without EJB's progress library, against Eq. 2 of the paper.

Eq. 2: P ranks on q processors make progress at 1/(Delta * P/q) of their full speed. The same Jacobi iteration (fixed
grid, bands of rows, halo exchange and allreduce each step) runs on all cores with 1, 2, 4 and 8 ranks a core, bound as
EJB binds them. The work is the same, so that with Delta = 1 all would take as long as one rank a core; Delta is the
ratio to that run. Three grains: how long a rank of the run with one a core computes between two exchanges.

The library is told by a page how many ranks a core has, as the worker tells it. With `--before DIR` (a worktree of an
earlier commit) that commit's library is run by turns with this one's. `--degrees 1 --rounds 20` is what the library
costs where nothing is over-subscribed: least and greatest are told too.
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
LIBRARY, BEFORE, ALONE = "with the library", "library before", "MPICH alone"


def measure(
    where: Path, rounds: int, limit_s: float, degrees: list[int], before_this: Path | None
) -> dict[str, dict[str, dict[int, list[float | None]]]]:
    """grain -> way -> degree -> seconds (None: not within the limit), by turns."""
    program, on = compile_rank(where, "jacobi.c"), cores()
    ways: dict[str, Path | None] = {LIBRARY: library(where), ALONE: None}
    if before_this is not None:
        (where / "before").mkdir()
        ways[BEFORE] = library(where / "before", before_this / "workers" / "native" / "progress.c")
    page = where / "page"
    found: dict[str, dict[str, dict[int, list[float | None]]]] = {}
    for grain, (steps, sweeps) in GRAINS.items():
        times = found.setdefault(grain, {way: {degree: [] for degree in degrees} for way in ways})
        for turn in range(rounds):
            for degree in degrees:
                page.write_bytes(bytes([degree]))
                for way in list(ways)[:: 1 if turn % 2 else -1]:
                    before = times[way][degree]
                    if before and before[-1] is None:
                        continue  # once too long is enough
                    argv = [str(program), str(SIZE), str(steps), str(sweeps)]
                    told = {"EJB_DEGREE_PAGE": str(page)}
                    before.append(run(argv, degree * len(on), on, ways[way], limit_s, environment=told))
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
        for way, mark in zip(ways, ("o-", "s--", "^:"), strict=False):
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
    parser.add_argument("--degrees", default=",".join(map(str, DEGREES)), help="ranks a core, 1 among them")
    parser.add_argument("--before", type=Path, help="a worktree of an earlier commit: its library is run as well")
    parser.add_argument("--plot", type=Path, default=None, help="write a figure (PNG or SVG by its name)")
    given = parser.parse_args()
    if reason := missing():
        print(f"oversubscription: {reason}: not measured")
        return
    degrees = [int(word) for word in given.degrees.split(",")]
    if 1 not in degrees:
        parser.error("--degrees: everything is told beside one rank a core")
    begun = time.monotonic()
    with folder() as where:
        found = measure(where, given.rounds, given.limit, degrees, given.before)
    figures: dict[str, dict[str, dict[int, float | None]]] = {}
    print(f"{len(cores())} cores used, {machine()}; {given.rounds} rounds, {time.monotonic() - begun:.0f} s")
    for grain, ways in found.items():
        steps, _ = GRAINS[grain]
        plain = [s for s in ways[ALONE][1] if s is not None]  # what one has without over-subscription and library
        if not plain:
            print(f"{grain}: one rank a core was not through within {given.limit:g} s: nothing to tell")
            continue
        base_s = statistics.median(plain)
        figures[grain] = {way: deltas(times, base_s) for way, times in ways.items()}
        print(f"{grain}: {1000 * base_s / steps:.3g} ms a step with one rank a core ({base_s:.3g} s in all)")
        for way, by_degree in figures[grain].items():
            told = []
            for degree, value in by_degree.items():
                if value is None:
                    told.append(f"{degree}x > {given.limit / base_s:.0f}")
                    continue
                each = [s / base_s for s in ways[way][degree] if s is not None]
                told.append(f"{degree}x {value:.3f} ({min(each):.2f} to {max(each):.2f})")
            print(f"  Delta, {way:16}: " + "  ".join(told))
    if given.plot is not None:
        plot(figures, given.plot, given.limit)
        print(f"wrote {given.plot}")


if __name__ == "__main__":
    main()
