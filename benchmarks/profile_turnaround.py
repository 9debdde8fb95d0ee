"""The turnaround of applications by their profiles on a real Slurm, beside the rigid job's and over-subscribed ones.

    benchmarks/profile_turnaround.py                                   # all that are installed
    benchmarks/profile_turnaround.py pwscf field --block 60
    benchmarks/profile_turnaround.py field --ways rigid,profile,none

The same minutes are played once for each way, on a Slurm of 4 x 2. Other people's jobs leave one processor free (two
for OpenFOAM). More comes free after a third of `--block`, and two whole nodes at `--block` seconds.
`rigid` is the job under `sbatch`, which waits for those. `profile` begins on what is free and widens. `dmtcp` keeps its
four ranks, over-subscribed, where DMTCP can carry them. Seconds go from the submission to the end.
Ranks compute on this machine's own cores: with fewer of them than ranks an application gains little by being wide.
`field` is paced by sleeping, as it would be on nodes of its own.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import ROOT, folder, machine
from tests.acceptance.sites import SlurmSite
from tests.acceptance.test_applications_slurm import CASES, ENVIRONMENT, over
from tests.fakes import applications
from tests.fakes.daemon import Daemon, until
from tests.fakes.field_profile import PROGRAM, TEXT
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster
from tests.integration.test_profiles_applications import LAMMPS, MPI4PY, SYSTEMS_PYTHON, water

WAYS = ("rigid", "profile")
LONGEST_S = 480.0
# All nodes are this machine: mpirun by itself starts ranks of several nodes by ssh, to names that are none.
HERE = {"OMPI_MCA_plm": "isolated", "OMPI_MCA_ras": "^slurm", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# The molecule of the tests, which swings there: far from its length, in a large box, and with a fine basis.
RELAXATION = {
    "'md'": "'relax'",
    ", dt = 5.0": "",
    "celldm(1) = 12.0": "celldm(1) = 20.0",
    "ecutwfc = 30.0": "ecutwfc = 100.0",
    "H 1.5 0.0 0.0": "H 2.6 0.3 0.2",
}
CP2K_STEPS, FOAM_STEPS = 240, 1200


@dataclass(frozen=True, slots=True)
class Played:
    """An application: what makes its case in an empty folder, what is run there first, and its launch."""

    program: str
    make: Callable[[Path], None]
    launch: str
    first: str = ""
    least: int = 1


def _lammps(case: Path) -> None:
    (case / "in.melt").write_text(LAMMPS.replace("run 1500", "run 200000"))


def _pwscf(case: Path) -> None:
    """A relaxation of some ten steps, of which each takes seconds."""
    applications.pwscf(case)
    file = case / "h2.in"
    text = file.read_text()
    for old, new in RELAXATION.items():
        if old not in text:
            raise ValueError(f"the input of pw.x has no {old}")
        text = text.replace(old, new)
    file.write_text(text)


def _gromacs(case: Path) -> None:
    case.rmdir()
    water(case, 6000)


def _field(case: Path) -> None:
    (case / "field.toml").write_text(TEXT)


def _mpi4py(case: Path) -> None:
    (case / "field.toml").write_text(MPI4PY)


LONGER: dict[str, Callable[[Path], None]] = {
    "cp2k": partial(applications.cp2k, steps=CP2K_STEPS),
    "pwscf": _pwscf,
    "openfoam": partial(applications.openfoam, steps=FOAM_STEPS),
}
"""The cases of the tests, so long that they widen before they end."""
PLAYED = {
    "field": Played(sys.executable, _field, f"srun -n $SLURM_NTASKS {sys.executable} {PROGRAM} 400 0.3"),
    "mpi4py": Played(
        SYSTEMS_PYTHON, _mpi4py,
        f"mpirun -np $SLURM_NTASKS {SYSTEMS_PYTHON} {ROOT}/tests/fakes/field_mpi4py.py 240 800 0.2",
    ),
    "lammps": Played("lmp", _lammps, "mpirun -np $SLURM_NTASKS lmp -in in.melt"),
    "gromacs": Played(
        "gmx_mpi", _gromacs,
        "mpirun -np $SLURM_NTASKS gmx_mpi mdrun -deffnm md -ntomp 1 -notunepme -npme 0 -pin off",
    ),
    **{
        name: Played(
            one.program, LONGER.get(name, one.make), one.parallel, "blockMesh" if name == "openfoam" else "", one.least
        )
        for name, one in CASES.items()
    },
}  # fmt: skip


def _left_slurm(cluster: SlurmCluster, id: str) -> bool:
    return cluster.states().get(id) in ("COMPLETED", "FAILED", "TIMEOUT")


def _over(daemon: Daemon, id: str) -> bool:
    return over(daemon.job(id))


def _printed(at: Path) -> str:
    """The end of what a job printed, if it came to that."""
    output = at / "out.txt"
    return output.read_text()[-2000:] if output.exists() else "it printed nothing"


def play(cluster: SlurmCluster, at: Path, one: Played, way: str, block_s: float) -> tuple[float, str]:
    """Seconds from the submission to the end of one way, and the widths that it had."""
    at.mkdir()
    case = at / "case"
    case.mkdir()
    one.make(case)
    if one.first:
        subprocess.run(
            ["sh", "-c", one.first], cwd=case, env=os.environ | ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
        )
    engine = "auto" if way == "profile" else way
    # Under EJB the environment comes with the job; a PATH of the script's own would hide EJB's srun and mpirun.
    given = ENVIRONMENT | HERE if way == "rigid" else {}
    sets = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())
    text = f"#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=2 -t 10 -o {at}/out.txt\n"
    text += f"#EJB engine={engine} restartable\ncd {case}\n{sets}\n{one.launch}\n"
    site = SlurmSite(cluster, at)
    environment = {**site.environment, "EJB_PROFILES": str(case)}
    daemon = Daemon(at, site.toml, environment, as_program=True)
    try:
        site.fill()
        if one.least == 2:
            site.more()
        if way == "rigid":
            began = time.monotonic()
            id = cluster.sbatch("-N", "2", "--ntasks-per-node=2", "-t", "10", script=text.split("\n", 1)[1])
            ended = partial(_left_slurm, cluster, id)
        else:
            daemon.start()
            began = time.monotonic()
            id = daemon.submit(
                script=text, ranks=4, time="10:00", env=ENVIRONMENT, cwd=str(case),
                overrides={"engine": None, **site.layout},
            )  # fmt: skip
            ended = partial(_over, daemon, id)
        moments = [(began + block_s, site.unblock)]
        if site.background is not None and site.ended < len(site.background.fillers):
            moments.insert(0, (began + block_s / 3, site.more))
        for moment, comes in moments:
            while time.monotonic() < moment and not ended():
                time.sleep(0.3)
            if not ended():
                comes()
        until(ended, f"{way} did not end", LONGEST_S)
        seconds = time.monotonic() - began
        if way == "rigid":
            said = cluster.states()[id]
            if said != "COMPLETED":
                sys.exit(f"the rigid job: {said}\n{_printed(at)}")
            return seconds, "4"
        state = daemon.job(id)["state"]
        if state != "completed":
            sys.exit(f"{way}: {state}\n{_printed(at)}\n{daemon.trace(id)()}")
        told = [str(e["data"]["ranks"]) for e in daemon.events(id) if e["kind"] == "epoch.launching"]
        return seconds, " ".join(told)
    finally:
        daemon.stop()
        site.close()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("applications", nargs="*", metavar="APPLICATION", help=", ".join(PLAYED))
    asked.add_argument("--block", type=float, default=60.0, help="seconds until four ranks fit on nodes of their own")
    asked.add_argument("--ways", default=",".join(WAYS))
    given = asked.parse_args()
    if reason := missing_slurm():
        sys.exit(reason)
    print(f"{machine()}; four ranks fit after {given.block:g} s")
    print("| application | way | turnaround | beside the rigid job | widths |\n| --- | --- | ---: | ---: | --- |")
    with slurm_cluster(4, 2) as cluster:
        for name in given.applications or PLAYED:
            one = PLAYED[name]
            if shutil.which(one.program) is None:
                print(f"| {name} | {one.program} is not installed | | | |")
                continue
            rigid_s = 0.0
            for way in given.ways.split(","):
                with folder() as scratch:
                    seconds, widths = play(cluster, scratch / way, one, way, given.block)
                    rigid_s = seconds if way == "rigid" else rigid_s
                    beside = f"{100 * (seconds / rigid_s - 1):+.0f} %" if rigid_s else ""
                    print(f"| {name} | {way} | {seconds:.0f} s | {beside} | {widths} |", flush=True)


if __name__ == "__main__":
    main()
