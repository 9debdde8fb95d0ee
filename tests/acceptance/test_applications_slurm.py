"""Applications of others, each by its shipped profile under a daemon on a real Slurm: it starts on what is free,
widens, and its result is what its authors promise over widths.

Debian's packages cp2k, quantum-espresso, openfoam and python3-torch; one that is absent is skipped, with its name.
Ranks have Open MPI's mpirun, spread over nodes, or torchrun's own rendezvous. The cases take seconds on one rank.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import nothing_left
from tests.acceptance.sites import SlurmSite
from tests.acceptance.test_journey_profile import QUIET
from tests.fakes import applications
from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("applications-slurm"),
    pytest.mark.nightly("minutes of others' programs; the same way is shown by test_journey_profile.py"),
]
LONGEST_S = 600.0
FOAM = {"WM_PROJECT_DIR": "/usr/share/openfoam"}
TORCH = {"PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}  # torchrun 1.13 on Python 3.11 does not read the default, 0
ENVIRONMENT = QUIET | FOAM | TORCH | {"CP2K_DATA_DIR": "/usr/share/cp2k"}
TRAIN = f"train_torch.py --steps {applications.TORCH_STEPS} --pace 1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        yield cluster


@dataclass(frozen=True, slots=True)
class Case:
    """`serial` makes on one rank what the job makes; a line like `step` is one of its steps; `same` compares the two
    folders, of which the first is the job's."""

    program: str
    package: str
    profile: str
    make: Callable[[Path], None]
    parallel: str
    serial: str
    step: str
    same: Callable[[Path, Path], None]
    least: int = 1
    log: str = "out.txt"


def over(detail: dict[str, Any]) -> bool:
    return detail["state"] in ("completed", "failed", "timeout", "cancelled")


def energies(case: Path, name: str, pattern: str) -> list[float]:
    return [float(word) for word in re.findall(pattern, (case / name).read_text(), re.MULTILINE)]


def cp2k_is_the_same(case: Path, alone: Path) -> None:
    """Every step once, and energies to 1e-5 Ha."""
    rows = [[line.split() for line in (folder / "w-1.ener").read_text().splitlines()[1:]] for folder in (case, alone)]
    ours, theirs = ([(int(row[0]), float(row[4])) for row in one] for one in rows)
    assert [step for step, _ in ours] == list(range(applications.CP2K_STEPS)) == [step for step, _ in theirs]
    assert max(abs(a[1] - b[1]) for a, b in zip(ours, theirs, strict=True)) < 1e-5


def pwscf_is_the_same(case: Path, alone: Path) -> None:
    """The energy of the last step, to eight digits."""
    pattern = r"^!\s+total energy\s+=\s+(\S+) Ry"
    ours, theirs = energies(case, "out.txt", pattern), energies(alone, "out.txt", pattern)
    assert abs(ours[-1] - theirs[-1]) < 1e-7 * abs(theirs[-1]), (ours[-1], theirs[-1])
    assert len(theirs) == applications.PWSCF_STEPS <= len(ours)


def openfoam_is_the_same(case: Path, alone: Path) -> None:
    """The pressure at the end, to the solver's tolerance."""
    subprocess.run(
        ["reconstructPar", "-latestTime"],
        cwd=case,
        env=os.environ | FOAM,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=180,
    )
    end = f"{applications.FOAM_STEPS * applications.FOAM_STEP_S:g}"
    ours, theirs = ([float(word) for word in field(folder / end / "p")] for folder in (case, alone))
    assert len(ours) == len(theirs) == applications.FOAM_CELLS
    assert max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) < 1e-3 * max(map(abs, theirs))


def torch_is_the_same(case: Path, alone: Path) -> None:
    """Every step is told, the loss at the end agrees to six digits, and all processes that there were took part."""
    ours, theirs = ((folder / "train.log").read_text() for folder in (case, alone))
    steps = {int(one) for one in re.findall(r"^step (\d+) of", ours, re.MULTILINE)}
    assert steps == set(range(1, applications.TORCH_STEPS + 1))
    ends = [re.findall(r"^done at step \d+ loss (\S+)", text, re.MULTILINE) for text in (ours, theirs)]
    assert len(ends[0]) == 1 and abs(float(ends[0][0]) / float(ends[1][0]) - 1) < 1e-6, ends
    groups = [int(one) for one in re.findall(r"^from step \d+ with (\d+)", ours, re.MULTILINE)]
    assert groups[0] == 1 < groups[-1], groups


def field(file: Path) -> list[str]:
    found = re.search(r"internalField\s+nonuniform List<scalar>\s+\d+\s+\(([^)]*)\)", file.read_text())
    assert found is not None, file
    return found[1].split()


CASES = {
    "cp2k": Case(
        "cp2k.psmp", "cp2k", "cp2k", applications.cp2k, "mpirun -np $SLURM_NTASKS cp2k.psmp -i w.inp",
        "cp2k.psmp -i w.inp", r"MD\| Step number", cp2k_is_the_same,
    ),
    "pwscf": Case(
        "pw.x", "quantum-espresso", "pwscf", applications.pwscf, "mpirun -np $SLURM_NTASKS pw.x -in h2.in",
        "pw.x -in h2.in", r"^!\s+total energy", pwscf_is_the_same,
    ),
    "openfoam": Case(
        "icoFoam", "openfoam", "openfoam", applications.openfoam, "mpirun -np $SLURM_NTASKS icoFoam -parallel",
        "icoFoam", r"^Time = ", openfoam_is_the_same, 2,
    ),
    "torchrun": Case(
        "torchrun", "python3-torch", "torchrun", applications.torch,
        f"srun torchrun --nnodes=1:4 --nproc_per_node=1 {TRAIN}",
        f"torchrun --standalone --nproc_per_node=1 {TRAIN}", r"^step \d+ of", torch_is_the_same, 1, "train.log",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_starts_on_what_is_free_widens_and_its_result_is_as_its_profile_says(
    cluster: SlurmCluster, tmp_path: Path, name: str
) -> None:
    one = CASES[name]
    if shutil.which(one.program) is None:
        pytest.skip(f"{one.program} is not on the PATH (Debian's package {one.package})")
    case, alone = tmp_path / "case", tmp_path / "alone"
    for folder in (case, alone):
        folder.mkdir()
        one.make(folder)
    begins = "blockMesh > mesh.txt && " if name == "openfoam" else ""
    for folder, run in ((alone, f"{begins}{one.serial} > out.txt"), (case, f"{begins}true")):
        subprocess.run(["sh", "-c", run], cwd=folder, env=os.environ | ENVIRONMENT, check=True, timeout=LONGEST_S)
    site = SlurmSite(cluster, tmp_path)
    text = "#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=2 -t 10 -o out.txt\n#EJB engine=auto restartable\n"
    text += f"{one.parallel}\n"
    daemon = Daemon(tmp_path, site.toml, site.environment, as_program=True)
    output, log = case / "out.txt", case / one.log

    def steps() -> int:
        text = log.read_text() if log.exists() else ""
        return len(re.findall(one.step, text, re.MULTILINE))

    try:
        site.fill()
        if one.least == 2:
            site.more()
        daemon.start()
        job = daemon.submit(
            script=text,
            ranks=4,
            time="10:00",
            env=ENVIRONMENT,
            cwd=str(case),
            overrides={"engine": None, **site.layout},
        )
        detail = daemon.job(job)
        assert detail["engine"] == "profile", detail
        daemon.wait_event(job, "epoch.running", 1, LONGEST_S)
        until(lambda: steps() > 1 or over(daemon.job(job)), "it does not get on", LONGEST_S, daemon.trace(job))
        assert not over(daemon.job(job)), output.read_text()[-3000:]
        site.more()
        daemon.wait_event(job, "epoch.running", 2, LONGEST_S)
        final = daemon.wait(job, timeout_s=LONGEST_S)
        assert (final["state"], final["exit_code"]) == ("completed", 0), (final, output.read_text()[-3000:])
        told = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        widths = [epoch["ranks"] for epoch in told]
        assert widths[0] == one.least and len(widths) > 1 and widths[1] > widths[0], daemon.trace(job)()
        assert "epoch.failed" not in daemon.kinds(job), daemon.trace(job)()
        one.same(case, alone)
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
        site.close()
