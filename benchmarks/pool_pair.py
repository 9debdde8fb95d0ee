"""How many times as long do two programs take that are folded together on a pool, each onto half of the processors?

    python benchmarks/pool_pair.py [--seconds 20] [--pair jacobi paced]

A real daemon with the embedded cluster as a pool of one node, with as many processors as there are CPUs: ranks are
bound. Two of these run alone first, each on all processors, then both at once: a Jacobi iteration (jacobi.c, MPICH),
LAMMPS (`lmp` on PATH, a Lennard-Jones melt by itself on each rank), and examples/paced.c. The one that ends first is
folded all the time. The other is unfolded then, and its stretch is that of the time before. Aim of the paper's idea:
below 1.6; a program that computes all the time takes 2 on a quiet machine, and so does paced.c. Debian's `lmp` is
linked with Open MPI, one mpirun of which cannot be folded: so each rank is a run of its own. Where others use the CPUs,
what runs alone is slowed down as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import ROOT, folder, machine
from ranks import compile_rank
from tests.fakes.daemon import FAST, Daemon

CPUS = len(os.sched_getaffinity(0))
PACE_S = 0.1
SWEEPS, GRID = 20, 512
MELT = """\
units lj
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run ${steps}
"""
PROBE = {"jacobi": 200, "lammps": 100}  # steps, by which the length of a step is found out
ALONE_ENV = {"OMPI_MCA_ess_singleton_isolated": "1", "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="that each is to take alone, about")
    parser.add_argument("--pair", nargs=2, choices=("jacobi", "lammps", "paced"), default=("jacobi", "paced"))
    asked = parser.parse_args()
    if CPUS < 2:
        raise SystemExit("it takes two CPUs")
    print(machine())
    with folder() as where:
        paced = where / "paced"
        subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
        queue = FAST.replace("[queues.default]\n", '[queues.default]\npolicy = "fcfs-malleable"\nmin_processors = 1\n')
        shape = f'[local]\nprocessors_per_node = {CPUS}\npool = true\nnode_names = ["n1"]\nstep = "env"\n'
        daemon = Daemon(
            where, f'batch = "local"\npoll_s = 1\nworker_python = "{sys.executable}"\n{queue}\n{shape}', as_program=True
        )
        daemon.start()
        try:
            (where / "melt").write_text(MELT)
            programs = {"paced": str(paced), "lammps": shutil.which("lmp") or "lmp"}
            if "jacobi" in asked.pair:
                programs["jacobi"] = str(compile_rank(where, "jacobi.c"))
            play(daemon, programs, asked.pair, asked.seconds)
        finally:
            daemon.stop()
            down = [sys.executable, "-m", "ejbd.batch.local", "down", str(daemon.state / "cluster")]
            subprocess.run(down, check=False, timeout=120)
    print(machine())


def line(name: str, program: str, steps: int) -> list[str]:
    match name:
        case "jacobi":
            return [program, str(GRID), str(steps), str(SWEEPS)]
        case "lammps":
            alone = ["env", "-u", "SLURM_JOB_ID", "-u", "SLURM_JOBID", "-u", "SLURM_NODELIST"]  # else it asks for srun
            return [*alone, program, "-in", "melt", "-var", "steps", str(steps), "-log", "none"]
    return [program, "--steps", str(steps), "--pace", f"{round(1000 * PACE_S)}ms"]


def play(daemon: Daemon, programs: dict[str, str], pair: Sequence[str], seconds: float) -> None:
    words = {}
    for name in pair:
        steps = round(seconds / PACE_S)
        if probe := PROBE.get(name):
            begin, end = took(daemon, submit(daemon, line(name, programs[name], probe)))
            steps = max(probe, round(probe * seconds / (end - begin)))
        words[name] = line(name, programs[name], steps)
    alone = {name: took(daemon, submit(daemon, argv)) for name, argv in words.items()}
    whole = {name: end - begin for name, (begin, end) in alone.items()}
    jobs = {name: submit(daemon, argv) for name, argv in words.items()}
    both = {name: took(daemon, job) for name, job in jobs.items()}
    first = min(both, key=lambda name: both[name][1])
    begin_s, until_s = max(begin for begin, _ in both.values()), both[first][1]
    for name, (begin, end) in both.items():
        beside_s = until_s - begin_s
        folded_work_s = whole[name] - (end - begin - beside_s)
        resized = daemon.kinds(jobs[name]).count("epoch.resized")
        print(
            f"{name}: {whole[name]:.1f} s alone, together {end - begin:.1f} s, {beside_s:.1f} s of it side by side. "
            f"Folded it takes {beside_s / folded_work_s:.2f} times as long ({resized} resizes)"
        )


def submit(daemon: Daemon, argv: list[str]) -> str:
    if Path(argv[0]).name == "paced":
        return daemon.submit(*argv, ranks=CPUS, time="20:00")
    mpi = "mpich" if Path(argv[0]).name == "jacobi" else "none"
    env = {"PATH": os.environ["PATH"], **ALONE_ENV}
    return daemon.submit(*argv, ranks=CPUS, time="20:00", env=env, overrides={"engine": "none", "mpi": mpi})


def took(daemon: Daemon, job: str) -> tuple[float, float]:
    """From when its ranks ran until it had ended (epoch seconds)."""
    found = daemon.wait(job, timeout_s=300)
    if found["state"] != "completed":
        said = (daemon.folder / f"ejb-{job}.out").read_text()[-2000:]
        raise SystemExit(f"job {job} is {found['state']}: {found['reason']}\n{said}")
    return next(e["at_s"] for e in daemon.events(job) if e["kind"] == "epoch.running"), found["end_s"]


if __name__ == "__main__":
    main()
