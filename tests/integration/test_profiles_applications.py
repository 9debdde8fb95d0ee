"""The shipped profiles, each with the application itself where it is installed: three widths, by `ejb profile test`.

Debian's packages: lammps, gromacs. The others are told as skipped: their ends are held by tests/unit/test_profiles.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ejbd.profiles.acts.trying import Trial, try_profile
from ejbd.profiles.reading import SHIPPED, parse, read_all

LONGEST_S = 240.0
PROGRAMS = {"lammps": "lmp", "gromacs": "gmx", "pwscf": "pw.x", "cp2k": "cp2k.psmp", "openfoam": "icoFoam"}
LAMMPS = """\
variable first index 1
variable resume index none
units lj
atom_style atomic
if "${first} == 1" then "jump SELF fresh"
read_restart ${resume}
jump SELF common
label fresh
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
label common
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neigh_modify every 20 delay 0 check no
fix 1 all nve
variable seen atom is_file(STOP)
compute seen all reduce max v_seen
variable s equal c_seen
fix h all halt 20 v_s > 0 error continue
restart 100 melt.last.r1 melt.last.r2
thermo 20
run 1500 upto
variable stopped equal is_file(STOP)
write_restart melt.last
variable n equal step
print "DONE step ${n} stopped ${stopped}"
"""
TOPOLOGY = """\
#include "oplsaa.ff/forcefield.itp"
#include "oplsaa.ff/spce.itp"
[ system ]
water
[ molecules ]
"""
MD = """\
integrator = md
dt = 0.002
nsteps = 1500
nstlist = 20
verlet-buffer-tolerance = -1
rlist = 0.85
rvdw = 0.8
rcoulomb = 0.8
coulombtype = PME
nstlog = 100
nstenergy = 100
tcoupl = v-rescale
tc-grps = System
tau-t = 0.5
ref-t = 300
gen-vel = yes
"""


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread a rank, and ranks that wait give their processor away."""
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_mpi_yield_when_idle"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_what_is_not_installed_is_told() -> None:
    """Which applications the two tests below do not run: a reason is printed."""
    absent = [f"{name} ({program})" for name, program in PROGRAMS.items() if shutil.which(program) is None]
    assert set(PROGRAMS) < set(read_all([SHIPPED]))
    if absent:
        pytest.skip(f"not on the PATH, so that the profiles are not run with them: {', '.join(absent)}")


@pytest.mark.skipif(shutil.which("lmp") is None, reason="LAMMPS (lmp) is not on the PATH")
def test_lammps_stops_goes_on_at_two_widths_and_ends(tmp_path: Path, quiet: None) -> None:
    case = tmp_path / "case"
    case.mkdir()
    (case / "in.melt").write_text(LAMMPS)
    (case / "STOP").touch()  # left over from before: the first launch takes it away
    words = ["mpirun", "-np", "1", "--oversubscribe", "lmp", "-in", "in.melt"]
    trial = _came_through(tmp_path, "lammps", case, words)
    assert trial.parts[0].state_bytes > 0


@pytest.mark.skipif(shutil.which("gmx") is None, reason="GROMACS (gmx) is not on the PATH")
def test_gromacs_stops_goes_on_at_two_widths_and_ends(tmp_path: Path, quiet: None) -> None:
    case = tmp_path / "case"
    water(case, 1500)
    words = "gmx mdrun -deffnm md -ntmpi {ranks} -ntomp 1 -notunepme -pin off".split()  # noqa: SIM905
    _came_through(tmp_path, "gromacs", case, words)
    log = (tmp_path / "scratch" / "chain" / "md.log").read_text()
    assert log.count("Received the TERM signal") == 2 and log.count("Finished mdrun on rank") == 1


def water(case: Path, steps: int) -> None:
    """A case for `gmx mdrun -deffnm md`."""
    case.mkdir()
    (case / "topol.top").write_text(TOPOLOGY)
    (case / "md.mdp").write_text(MD.replace("nsteps = 1500", f"nsteps = {steps}"))
    _gmx(case, "solvate", "-cs", "spc216.gro", "-box", "1.87", "1.87", "1.87", "-o", "conf.gro", "-p", "topol.top")
    _gmx(case, "grompp", "-f", "md.mdp", "-c", "conf.gro", "-p", "topol.top", "-o", "md.tpr", "-maxwarn", "5")


def _gmx(case: Path, *words: str) -> None:
    argv = ["gmx", "-quiet", *words]
    done = subprocess.run(
        argv, cwd=case, env=os.environ, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


MPI4PY = """
[field]
match = { program = ["field_mpi4py.py"] }
stop = { signal = "USR1", to = "ranks" }
stopped = { codes = [85], line = "^stopped after step" }
finished = { codes = [0], line = "^done at step" }
state = ["state.json"]
progress = { line = "^step +(\\\\d+)", total = "^steps +(\\\\d+)" }
compare = { how = "bits", files = ["result.txt"] }
"""
SYSTEMS_PYTHON = "/usr/bin/python3"  # Debian's mpi4py is for that one


def missing_mpi4py() -> str:
    words = [SYSTEMS_PYTHON, "-c", "import mpi4py.MPI as m; print(m.Get_library_version())"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    except OSError:
        return f"there is no {SYSTEMS_PYTHON}"
    return "" if "Open MPI" in done.stdout else "mpi4py of Open MPI is not installed (apt-get install python3-mpi4py)"


def test_a_program_in_mpi4py_has_the_same_field_to_the_bit_over_three_widths(tmp_path: Path, quiet: None) -> None:
    if reason := missing_mpi4py():
        pytest.skip(reason)
    case = tmp_path / "case"
    case.mkdir()
    program = Path(__file__).parents[1] / "fakes" / "field_mpi4py.py"
    words = ["mpirun.openmpi", "-np", "1", "--oversubscribe", SYSTEMS_PYTHON, str(program), "240", "300", "0.02"]
    trial = try_profile(parse(MPI4PY, "field.toml")[0], words, case, tmp_path / "scratch", (2, 3), longest_s=LONGEST_S)
    assert trial.wrong == [] and trial.compared == "result.txt: bit for bit the same", trial
    assert [(part.ranks, part.verdict) for part in trial.parts] == [(2, "stopped"), (3, "stopped"), (2, "finished")]


def _came_through(tmp_path: Path, name: str, case: Path, words: list[str]) -> Trial:
    profile = read_all([SHIPPED])[name]
    trial = try_profile(profile, words, case, tmp_path / "scratch", (1, 2), longest_s=LONGEST_S)
    assert trial.wrong == [] and "statistically" in trial.compared
    assert [(part.ranks, part.verdict) for part in trial.parts] == [(1, "stopped"), (2, "stopped"), (1, "finished")]
    return trial
