"""The turnaround of applications by their profiles on a real Slurm, beside the rigid job's and over-subscribed ones.

    benchmarks/profile_turnaround.py                                   # all that are installed, some 20 minutes
    benchmarks/profile_turnaround.py pwscf mpi4py --block 90
    benchmarks/profile_turnaround.py lammps --ways rigid,profile,none

The same minutes are played once for each way, on a Slurm of 4 x 2. Other people's jobs leave one processor free (two
for OpenFOAM), and two whole nodes come free at `--block` seconds. For jobs of four ranks one processor more does after
a third of that.
`rigid` is the job under `sbatch`, which waits for those. `profile` begins on what is free and widens. All ranks on one
processor are `none` (not moved; one core of this machine, until J0) and `dmtcp` (by DMTCP, if it is on the PATH). That
carries the ranks of MPICH and of no MPI alone. Debian's applications have Open MPI, so that the program `field` stands
for it. Seconds go from the submission to the end.
Ranks compute on this machine's own cores, which the output tells. On fewer than four a job that computes has two ranks:
more would be no faster. OpenFOAM has four, since its profile begins with two. `field` and `mpi4py` have four; they are
paced by sleeping, as they would be on nodes of their own. The cases last some 40 s on two cores. The rigid job's ranks
share memory here, which on two nodes they could not. EJB's of two nodes talk over TCP. What fails is told in its row,
and the others are played all the same.
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
from pathlib import Path

from harness import ROOT, folder, machine
from tests.acceptance.sites import SlurmSite
from tests.acceptance.test_applications_slurm import CASES, ENVIRONMENT
from tests.fakes import applications
from tests.fakes.daemon import Daemon
from tests.fakes.field_profile import PROGRAM, TEXT
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster
from tests.integration.test_profiles_applications import LAMMPS, MPI4PY, SYSTEMS_PYTHON, water

WAYS = ("rigid", "profile")
# All nodes are this machine: mpirun by itself starts ranks of several nodes by ssh, to names that are none.
HERE = {"OMPI_MCA_plm": "isolated", "OMPI_MCA_ras": "^slurm", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# The molecule of the tests, which swings there: far from its length, in a large box, and with a fine basis.
RELAXATION = {
    "'md'": "'relax'",
    ", dt = 5.0": "",
    "celldm(1) = 12.0": "celldm(1) = 24.0",
    "ecutwfc = 30.0": "ecutwfc = {:.0f}.0",
    "H 1.5 0.0 0.0": "H 2.6 0.3 0.2",
}
# Steps that take some 40 s on two cores, and pw.x's cutoff beyond the least one.
LAMMPS_STEPS, GROMACS_STEPS, CP2K_STEPS, FOAM_STEPS, CUTOFF = 32_000, 80_000, 190, 136, 90.0
FINER = 4  # steps of icoFoam, where cells are half as wide: with longer ones its solution grows without bound
# One processor of Slurm's is no core: what is over-subscribed on it has one, and what has begun anew on J0 has all.
BOUND = """\
#!/bin/sh
case $EJB_SUBJOB_ID in *.0) exec "$@" ;; *) exec taskset -c 0 "$@" ;; esac
"""
CUT = """\
foamDictionary -entry numberOfSubdomains -set 4 system/decomposeParDict > cut.txt
foamDictionary -entry simpleCoeffs -set '{ n (4 1 1); delta 0.001; }' system/decomposeParDict >> cut.txt
decomposePar -force >> cut.txt"""


@dataclass(frozen=True, slots=True)
class Played:
    """An application: what makes its case in an empty folder, what is run there first, and its launch.

    `rigid` is what a job without a profile does before the launch. `more` are the ways that it has beside WAYS.
    `steps`: those of a launch that says them itself.
    """

    program: str
    make: Callable[[Path, float], None]
    launch: str
    first: str = ""
    least: int = 1
    rigid: str = ""
    more: tuple[str, ...] = ()
    steps: int = 0

    @property
    def ranks(self) -> int:
        return 4 if self.steps or self.least == 2 or (os.cpu_count() or 1) >= 4 else 2


def _changed(file: Path, changes: dict[str, str]) -> None:
    text = file.read_text()
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{file.name} has no {old}")
        text = text.replace(old, new)
    file.write_text(text)


def _lammps(case: Path, size: float) -> None:
    (case / "in.melt").write_text(LAMMPS)
    steps = max(1, round(LAMMPS_STEPS * size))
    larger = {"run 1500": f"run {steps}", "0 6 0 6 0 6": "0 10 0 10 0 10", "restart 100": "restart 1000"}
    _changed(case / "in.melt", larger)


def _pwscf(case: Path, size: float) -> None:
    """A relaxation of some seven steps, of which each takes seconds."""
    applications.pwscf(case)
    _changed(case / "h2.in", {old: new.format(30.0 + CUTOFF * size) for old, new in RELAXATION.items()})


def _cp2k(case: Path, size: float) -> None:
    applications.cp2k(case, steps=max(1, round(CP2K_STEPS * size)))


def _openfoam(case: Path, size: float) -> None:
    """With four times the cells of the tests': ranks compute for longer than they talk."""
    applications.openfoam(case, steps=max(1, round(FOAM_STEPS / FINER * size)))
    usual = applications.FOAM_STEP_S
    _changed(case / "system" / "controlDict", {f"deltaT {usual:g}": f"deltaT {usual / FINER:g}"})
    _changed(case / "system" / "blockMeshDict", {"(100 100 1)": "(200 200 1)"})


def _gromacs(case: Path, size: float) -> None:
    case.rmdir()
    water(case, max(1, round(GROMACS_STEPS * size)))


def _field(case: Path, size: float) -> None:
    (case / "field.toml").write_text(TEXT)


def _mpi4py(case: Path, size: float) -> None:
    (case / "field.toml").write_text(MPI4PY)


PLAYED = {
    "mpi4py": Played(
        SYSTEMS_PYTHON, _mpi4py,
        f"mpirun -np $SLURM_NTASKS {SYSTEMS_PYTHON} {ROOT}/tests/fakes/field_mpi4py.py 240 {{steps}} 0.2", steps=480,
    ),
    "lammps": Played("lmp", _lammps, "mpirun -np $SLURM_NTASKS lmp -in in.melt", more=("none",)),
    "gromacs": Played(
        "gmx_mpi", _gromacs,
        "mpirun -np $SLURM_NTASKS gmx_mpi mdrun -deffnm md -ntomp 1 -notunepme -npme 0 -pin off",
    ),
    # Two bands are too few for what pw.x makes of four ranks by itself.
    "pwscf": Played("pw.x", _pwscf, f"{CASES['pwscf'].parallel} -ndiag 1"),
    "cp2k": Played("cp2k.psmp", _cp2k, CASES["cp2k"].parallel),
    "openfoam": Played(
        "icoFoam", _openfoam, CASES["openfoam"].parallel, "blockMesh", 2, CUT,
    ),
    "field": Played(
        sys.executable, _field, f"srun -n $SLURM_NTASKS {sys.executable} {PROGRAM} {{steps}} 0.3",
        more=("dmtcp",), steps=400,
    ),
}  # fmt: skip


def _printed(at: Path) -> str:
    """The end of what a job printed, if it came to that."""
    output = at / "out.txt"
    return output.read_text()[-2000:] if output.exists() else "it printed nothing"


class Failed(Exception):
    """A job that did not come to its end, with what it printed."""


def _script(at: Path, case: Path, one: Played, way: str, size: float) -> str:
    engine = "auto" if way == "profile" else way
    # Under EJB the environment comes with the job; a PATH of the script's own would hide EJB's srun and mpirun.
    given = ENVIRONMENT | HERE if way == "rigid" else {}
    sets = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in given.items())
    first = "" if way == "profile" else one.rigid
    launch = one.launch.replace("{steps}", str(max(1, round(one.steps * size))))
    if way == "none":
        (at / "bound").write_text(BOUND)
        (at / "bound").chmod(0o755)
        launch = launch.replace("$SLURM_NTASKS ", f"$SLURM_NTASKS {at}/bound ")
    asks = f"#SBATCH -N {one.ranks // 2} --ntasks-per-node=2 -t 10 -o {at}/out.txt"
    return f"#!/bin/sh\n{asks}\n#EJB engine={engine} restartable\ncd {case}\n{sets}\n{first}\n{launch}\n"


def play(cluster: SlurmCluster, at: Path, one: Played, way: str, asked: argparse.Namespace) -> tuple[float, float, str]:
    """Seconds from the submission to the start and to the end of one way, and the widths that it had."""
    at.mkdir()
    case = at / "case"
    case.mkdir()
    one.make(case, asked.size)
    if one.first:
        subprocess.run(
            ["sh", "-c", one.first], cwd=case, env=os.environ | ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
        )
    text = _script(at, case, one, way, asked.size)
    site = SlurmSite(cluster, at)
    environment = {**site.environment, "EJB_PROFILES": str(case)}
    daemon = Daemon(at, site.toml, environment, as_program=True)
    try:
        site.fill()
        if one.least == 2:
            site.more()
        began, started = time.monotonic(), 0.0
        if way == "rigid":
            # On the command line, where it counts more than the cluster's own, which is nowhere.
            asks = ("-N", str(one.ranks // 2), "--ntasks-per-node=2", "-t", "10", "-o", str(at / "out.txt"))
            id = cluster.sbatch(*asks, script=text.partition("\n")[2])
        else:
            daemon.start()
            began = time.monotonic()
            id = daemon.submit(
                script=text, ranks=one.ranks, time="10:00", env=ENVIRONMENT, cwd=str(case),
                overrides={"engine": None, "nodes": one.ranks // 2, "ntasks_per_node": 2},
            )  # fmt: skip

        def state() -> str:
            nonlocal started
            found = cluster.states().get(id, "") if way == "rigid" else str(daemon.job(id)["state"])
            if not started and found.lower() not in ("", "pending", "waiting", "configuring"):
                started = time.monotonic()
            return found.lower()

        def ended() -> bool:
            return state() in ("completed", "failed", "timeout", "cancelled")

        moments = [(began + asked.block, site.unblock)]
        if one.least == 1 and one.ranks == 4:  # else all ranks would fit by then
            moments.insert(0, (began + asked.block / 3, site.more))
        for moment, comes in moments:
            while time.monotonic() < moment and not ended():
                time.sleep(0.3)
            if not ended():
                comes()
        while not ended() and time.monotonic() < began + asked.longest:
            time.sleep(0.3)
        seconds, said = time.monotonic() - began, state()
        if said != "completed":
            trace = "" if way == "rigid" else f"\n{daemon.trace(id)()}"
            raise Failed(f"{said} after {seconds:.0f} s\n{_printed(at)}{trace}")
        if way == "rigid":
            return started - began, seconds, str(one.ranks)
        events = daemon.events(id)
        widths = " ".join(str(e["data"]["ranks"]) for e in events if e["kind"] == "epoch.launching")
        return started - began, seconds, widths
    finally:
        daemon.stop()
        site.close()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("applications", nargs="*", metavar="APPLICATION", help=", ".join(PLAYED))
    asked.add_argument("--block", type=float, default=60.0, help="seconds until four ranks fit on nodes of their own")
    asked.add_argument("--ways", default="", help=f"{', '.join(WAYS)}, none, dmtcp; by default what fits each")
    asked.add_argument("--size", type=float, default=1.0, help="how long the cases are, as a part of what they are")
    asked.add_argument("--longest", type=float, default=280.0, help="seconds after which a row has failed")
    asked.add_argument("--within", type=float, default=1220.0, help="seconds after which no further row is begun")
    given = asked.parse_args()
    end = time.monotonic() + given.within
    if reason := missing_slurm():
        sys.exit(reason)
    print(f"{os.cpu_count()} real cores for all nodes; {machine()}; all ranks fit after {given.block:g} s")
    print("| application | way | waited | turnaround | beside the rigid job | widths |")
    print("| --- | --- | ---: | ---: | ---: | --- |", flush=True)
    failed = 0
    with slurm_cluster(4, 2) as cluster:
        for name in given.applications or PLAYED:
            one = PLAYED[name]
            if shutil.which(one.program) is None:
                print(f"| {name} | {one.program} is not installed | | | | |")
                continue
            rigid_s = 0.0
            for way in given.ways.split(",") if given.ways else (*WAYS, *one.more):
                if way == "dmtcp" and shutil.which("dmtcp_launch") is None:
                    print(f"| {name} | dmtcp: dmtcp_launch is not on the PATH | | | | |")
                    continue
                if time.monotonic() > end:
                    failed += 1
                    print(f"| {name} | {way}: not begun within {given.within:.0f} s | | | | |")
                    continue
                with folder() as scratch:
                    try:
                        waited_s, seconds, widths = play(cluster, scratch / way, one, way, given)
                    except Failed as why:
                        failed += 1
                        print(f"| {name} | {way} | | failed | | |\n{why}", flush=True)
                        continue
                    beside = f"{100 * (seconds / rigid_s - 1):+.0f} %" if rigid_s else ""
                    rigid_s = seconds if way == "rigid" else rigid_s
                    row = f"| {name} | {way} | {waited_s:.0f} s | {seconds:.0f} s | {beside} | {widths} |"
                    print(row, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
