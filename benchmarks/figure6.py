"""Figure 6 of the paper, with what Debian offers: how programs slow down when their ranks share fewer processors.

The paper runs six NAS Parallel Benchmarks with 100 or 128 ranks on ever fewer cores of a cluster and compares with one
rank a core. NPB is not in Debian; HPCC is, and its HPL (dense LU), PTRANS (transposition), MPIRandomAccess and MPIFFT
are compiled here from Debian's source against MPICH, each by itself; a Jacobi iteration (jacobi.c) stands for the
stencil codes. This machine's cores are few, so that it is done in two ways:

- as in the paper: as many ranks as cores, on all cores (1x), on half of them (2x), ...;
- by work: P ranks on all cores for P = 1, 2, 4, 8 times the cores. The problem is the same; perfectly scaling ranks on
  P cores would take cores/P of the 1x run's time, and the degradation is told against that.

End-to-end time, as in the paper, median of the rounds. Eq. 2 with Delta = 1 is the diagonal.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib

from harness import folder, machine, spread
from ranks import compile_rank, cores, library, missing, run

DEGREES = (1, 2, 4, 8)
BLAS = "libblas.so.3"

# Debian's own example with our sizes; what is not named here is of no matter to the four tests.
INPUT = """HPLinpack benchmark input file
Innovative Computing Laboratory, University of Tennessee
HPL.out output file name
8 device out
1 # of problems sizes
{n} Ns
1 # of NBs
{nb} NBs
0 PMAP
1 # of process grids
{p} Ps
{q} Qs
16.0 threshold
1 # of panel fact
2 PFACTs
1 # of recursive stopping criterium
4 NBMINs
1 # of panels in recursion
2 NDIVs
1 # of recursive panel fact
1 RFACTs
1 # of broadcast
1 BCASTs
1 # of lookahead depth
1 DEPTHs
2 SWAP
64 swapping threshold
0 L1
0 U
1 Equilibration
8 memory alignment
##### separator #####
0 Number of additional problem sizes for PTRANS
1200 values of N
0 number of additional blocking sizes for PTRANS
40 values of NB
"""


@dataclass(frozen=True, slots=True)
class Program:
    """`n` decides the memory of the four tests of HPCC; `times` repeats a short one."""

    name: str
    label: str
    n: int
    times: int


PROGRAMS = (
    Program("hpl", "HPL (dense LU)", 2200, 1),
    Program("ptrans", "PTRANS", 3000, 4),
    Program("randomaccess", "MPIRandomAccess", 1000, 1),
    Program("fft", "MPIFFT", 3000, 2),
    Program("jacobi", "Jacobi", 0, 1),
)


def unpacked(given: Path | None, where: Path) -> Path:
    """HPCC's source: the folder or archive that was given, or Debian's by apt-get."""
    if given is not None and given.is_dir():
        return given
    if given is None:
        subprocess.run(["apt-get", "source", "-qq", "--download-only", "hpcc"], cwd=where, check=True, timeout=120)
        given = next(where.glob("hpcc_*.orig.tar.*"))
    with tarfile.open(given) as archive:
        archive.extractall(where, filter="data")
    return next(path for path in where.glob("hpcc-*") if path.is_dir())


def compile_hpcc(source: Path, where: Path) -> Path:
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    blas = next((line.split()[-1] for line in listed.splitlines() if line.strip().startswith(BLAS)), "")
    if not blas:
        raise SystemExit(f"figure6: {BLAS} is not installed (apt-get install libblas3)")
    parts = ("hpl/src", "hpl/testing", "DGEMM", "FFT", "PTRANS", "RandomAccess", "STREAM", "src")
    files = [str(f) for part in parts for f in sorted((source / part).rglob("*.c")) if f != source / "src/hpcc.c"]
    includes = [f"-I{source / part}" for part in ("include", "hpl/include", "FFT", "RandomAccess")]
    defines = ["-DAdd_", "-DF77_INTEGER=int", "-DStringSunStyle"]
    return compile_rank(where, "hpcc_one.c", "-w", *defines, *includes, *files, blas)


def grid(ranks: int) -> tuple[int, int]:
    """The squarest grid of so many ranks."""
    p = max(d for d in range(1, ranks + 1) if ranks % d == 0 and d * d <= ranks)
    return p, ranks // p


class Runner:
    def __init__(self, where: Path, source: Path | None, preload: bool, limit_s: float) -> None:
        self.where = where
        self.hpcc = compile_hpcc(unpacked(source, where), where)
        self.jacobi = compile_rank(where, "jacobi.c")
        self.preload = library(where) if preload else None
        self.limit_s = limit_s
        self.runs = 0

    def seconds(self, program: Program, ranks: int, on: list[int]) -> float | None:
        self.runs += 1
        work = self.where / f"run-{self.runs}"
        work.mkdir()
        if program.name == "jacobi":
            argv = [str(self.jacobi), "512", "400", "20"]
        else:
            p, q = grid(ranks)
            (work / "hpccinf.txt").write_text(INPUT.format(n=program.n, nb=64, p=p, q=q))
            argv = [str(self.hpcc), program.name, str(program.times)]
        return run(argv, ranks, on, self.preload, self.limit_s, cwd=work)


Found = dict[str, dict[int, list[float | None]]]


def collect(runner: Runner, rounds: int, as_paper: bool) -> Found:
    found: Found = {program.name: {} for program in PROGRAMS}
    on = cores()
    for _ in range(rounds):
        for program in PROGRAMS:
            for degree in DEGREES:
                if as_paper and degree > len(on):
                    continue
                ranks, used = (len(on), on[: len(on) // degree]) if as_paper else (degree * len(on), on)
                times = found[program.name].setdefault(degree, [])
                if None not in times:  # once too long is enough
                    times.append(runner.seconds(program, ranks, used))
    return found


def degradation(times: dict[int, list[float | None]], as_paper: bool) -> dict[int, float | None]:
    """Time against one rank a core (times the degree, where the work stayed on all cores)."""
    base = [s for s in times[1] if s is not None]
    result: dict[int, float | None] = {}
    for degree, seconds in times.items():
        known = [s for s in seconds if s is not None]
        ratio = statistics.median(known) / statistics.median(base) if known and None not in seconds and base else None
        result[degree] = None if ratio is None else ratio * (1 if as_paper else degree)
    return result


def tell(title: str, found: Found, as_paper: bool) -> dict[str, dict[int, float | None]]:
    print(title)
    figures = {}
    for program in PROGRAMS:
        figures[program.name] = degradation(found[program.name], as_paper)
        told = [
            f"{degree}x {'not in time' if value is None else f'{value:.2f} (Delta {value / degree:.2f})'}"
            for degree, value in figures[program.name].items()
        ]
        base = [s for s in found[program.name][1] if s is not None]
        print(f"  {program.label:16} 1x is {spread(base, ' s') if base else 'not in time'}: " + "  ".join(told[1:]))
    return figures


def plot(ways: dict[str, dict[str, dict[int, float | None]]], file: Path) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(ways), figsize=(10, 4.2), sharey=True)
    for axis, (title, figures) in zip(axes, ways.items(), strict=True):
        for program, mark in zip(PROGRAMS, "os^Dv", strict=True):
            points = [(d, v) for d, v in figures[program.name].items() if v is not None]
            axis.plot([d for d, _ in points], [v for _, v in points], marker=mark, label=program.label)
        degrees = sorted({d for values in figures.values() for d in values})
        axis.plot(degrees, degrees, color="black", linewidth=0.8, linestyle=":", label="Eq. 2, $\\Delta$ = 1")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xticks(degrees, [f"{d}x" for d in degrees])
        axis.set_yticks(DEGREES, [str(d) for d in DEGREES])
        axis.set_xlabel("ranks a core")
        axis.set_title(title, fontsize=10)
    axes[0].set_ylabel("time against one rank a core")
    axes[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=None, help="HPCC's source, unpacked or not (default: apt-get)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a run is given up")
    parser.add_argument("--without-library", action="store_true", help="MPICH alone")
    parser.add_argument("--plot", type=Path, default=None, help="write a figure (PNG or SVG by its name)")
    given = parser.parse_args()
    if reason := missing():
        print(f"figure6: {reason}: not measured")
        return
    with folder() as where:
        runner = Runner(where, given.source, not given.without_library, given.limit)
        paper = collect(runner, given.rounds, True)
        work = collect(runner, given.rounds, False)
    count = len(cores())
    print(f"{machine()}, {'MPICH alone' if given.without_library else 'with the library'}, {given.rounds} rounds")
    titles = f"{count} ranks on {count} cores and fewer", f"{count} to {8 * count} ranks on {count} cores"
    ways = {titles[0]: tell(titles[0], paper, True), titles[1]: tell(titles[1], work, False)}
    if given.plot is not None:
        plot(ways, given.plot)
        print(f"wrote {given.plot}")


if __name__ == "__main__":
    main()
