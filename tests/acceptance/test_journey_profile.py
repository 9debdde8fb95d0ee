"""An application that writes its own state, by its profile, on the embedded cluster: it starts on what is free, widens
twice, and ends on all that it asked for; its result is the same to the bit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.journeys import made_again, nothing_left
from tests.acceptance.sites import LocalSite, SlurmSite
from tests.acceptance.test_site_plans_slurm import ejb
from tests.fakes.daemon import Daemon, until
from tests.fakes.field_profile import PROGRAM, TEXT, total
from tests.fakes.mpi import build_open_mpi, open_mpi_first
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster
from tests.integration.test_profiles_applications import LAMMPS, water

STEPS = 400
LAMMPS_STEPS = 12000
GROMACS_STEPS = 5000
QUIET = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"],
}  # fmt: skip


def script(launch: str, folder: Path, engine: str) -> str:
    return f"#!/bin/sh\n#SBATCH -n 8 -t 2 -o {folder}/out.txt\n#EJB engine={engine} restartable\n{launch}\n"


def widened(daemon: Daemon, site: Any, text: str, env: dict[str, str] | None = None) -> list[int]:
    """The widths that it had, one after the other, up to its end."""
    env = env or {}
    plan = daemon.client.post("/v1/jobs/plan", json=body(text) | {"env": env}).json()
    assert plan["engine"] == "profile" and "field stops and resumes it" in plan["why"], plan
    assert plan["application"]["profile"] == "field" and plan["application"]["widths"][0]["ranks"] == 8
    job = daemon.submit(script=text, ranks=8, time="2:00", env=env, overrides={"engine": None})
    daemon.wait_event(job, "epoch.running", 1)
    site.more()
    daemon.wait_event(job, "epoch.running", 2)
    site.more()
    daemon.wait_event(job, "epoch.running", 3)
    until(lambda: daemon.job(job)["progress"] > 0.1, "it does not get on")
    site.unblock()
    final = daemon.wait(job)
    assert (final["state"], final["exit_code"]) == ("completed", 0), final
    told = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
    assert all(one["ranks"] == one["processors"] for one in told), "each rank has a processor of its own"
    assert made_again(daemon, daemon.folder)["differing"] == [], "its decisions are made again, rungs and all"
    nothing_left(daemon, site, job)
    return [one["ranks"] for one in told]


def body(text: str) -> dict[str, Any]:
    return {"cwd": "/", "script": text, "script_name": "job", "env": {}, "overrides": {}}


@pytest.mark.nightly("on a real Slurm below it widens, too; unit/test_manager_reshaping.py has each width and its plan")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("ranks", "engine"), [("-n $SLURM_NTASKS", "profile"), ("-n 8", "auto")])
def test_it_starts_narrow_widens_twice_and_its_result_is_the_same(tmp_path: Path, ranks: str, engine: str) -> None:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "field.toml").write_text(TEXT)
    site = LocalSite(tmp_path, 4, 4, block=8, fillers=(2, 2, 2))
    daemon = Daemon(tmp_path, site.toml, {"EJB_PROFILES": str(profiles)}, as_program=True)
    case = tmp_path / "case"
    case.mkdir()
    try:
        site.fill()
        daemon.start()
        text = script(f"cd {case}\nsrun {ranks} '{sys.executable}' '{PROGRAM}' {STEPS} 0.2", tmp_path, engine)
        widths = widened(daemon, site, text)
        assert widths[0] == 2 and widths == sorted(set(widths)) and len(widths) >= 3, widths
        assert (case / "result.txt").read_text() == total(STEPS), "bit for bit what one rank alone makes"
    finally:
        daemon.stop()
        site.close()


MPI_PROFILE = TEXT.replace('["reshapable.py"]', '["field_mpi"]').replace('["state.json"]', '["state.bin"]')
CELLS = 240


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An Open MPI program that goes on at another width, as a job has it, and what it makes of a few steps alone."""
    program = tmp_path_factory.mktemp("field") / "field_mpi"
    built, why = build_open_mpi(Path(__file__).parents[1] / "fakes" / "field_mpi.c", program)
    if built is None:
        pytest.skip(why)
    return built


def alone(field: Path, folder: Path, steps: int) -> str:
    """The result of one rank that nothing stops."""
    folder.mkdir()
    words = [str(field), str(CELLS), str(steps), "0"]
    subprocess.run(words, cwd=folder, env={**os.environ, **QUIET}, check=True, timeout=180, stdout=subprocess.DEVNULL)
    return (folder / "result.txt").read_text()


@pytest.mark.nightly("the next one has Open MPI on the nodes of a real Slurm")
def test_ranks_of_open_mpi_are_spread_over_nodes_and_the_field_is_the_same_to_the_bit(
    tmp_path: Path, field: Path
) -> None:
    """One mpirun at home, and its daemons with the other workers: with two ranks on one node first, with all on two."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "field.toml").write_text(MPI_PROFILE)
    site = LocalSite(tmp_path, 4, 4, block=8, fillers=(2, 2, 2))
    daemon = Daemon(tmp_path, site.toml, {"EJB_PROFILES": str(tmp_path / "profiles")}, as_program=True)
    case, steps = tmp_path / "case", 900
    case.mkdir()
    try:
        site.fill()
        daemon.start()
        text = script(f"cd {case}\nmpirun -np $SLURM_NTASKS {field} {CELLS} {steps} 40000", tmp_path, "auto")
        widths = widened(daemon, site, text, QUIET | {"PATH": open_mpi_first(tmp_path / "bin")})
        assert widths[0] == 2 and widths == sorted(set(widths)) and len(widths) >= 3 and widths[-1] > 4, widths
        assert (case / "result.txt").read_text() == alone(field, tmp_path / "alone", steps)
    finally:
        daemon.stop()
        site.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 2) as cluster:
        yield cluster


@pytest.mark.sampled(2, first=1)
@pytest.mark.slurm
@pytest.mark.parametrize("mpi", [False, True], ids=["srun", "open-mpi"])
def test_beside_other_jobs_of_a_real_slurm_it_ends_before_the_rigid_job_begins(
    cluster: SlurmCluster, tmp_path: Path, mpi: bool, request: pytest.FixtureRequest
) -> None:
    """The same job under sbatch waits behind others until they end; by its profile it is done by then.

    Ranks of Open MPI have one mpirun, whose daemons EJB's workers start on the other nodes.
    """
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "field.toml").write_text(MPI_PROFILE if mpi else TEXT)
    site = SlurmSite(cluster, tmp_path, block_minutes=30)  # on a busy machine the job takes as long as six
    case = tmp_path / "case"
    case.mkdir()
    steps, env = 300, {}
    launch = f"srun -n $SLURM_NTASKS '{sys.executable}' '{PROGRAM}' {steps} 0.12"
    if mpi:
        field = request.getfixturevalue("field")
        launch = f"mpirun -np $SLURM_NTASKS {field} {CELLS} {steps} 120000"
        env = QUIET | {"PATH": open_mpi_first(tmp_path / "bin")}
    text = f"#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=2 -t 5 -o {tmp_path}/out.txt\n#EJB engine=auto restartable\n"
    text += f"cd {case}\n{launch}\n"
    environment = {**site.environment, "EJB_PROFILES": str(tmp_path / "profiles")}
    daemon = Daemon(tmp_path, site.toml, environment, as_program=True)
    try:
        site.fill()
        rigid = cluster.sbatch("-N", "2", "--ntasks-per-node=2", "-t", "5", script="sleep 1")
        daemon.start()
        job = daemon.submit(script=text, ranks=4, time="5:00", env=env, overrides={"engine": None, **site.layout})
        daemon.wait_event(job, "epoch.running", 1)
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        site.more()
        daemon.wait_event(job, "epoch.running", 3)
        final = daemon.wait(job, timeout_s=240)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        widths = [e["data"]["ranks"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert widths[0] == 1 and widths == sorted(set(widths)) and widths[-1] <= 4, widths
        same = alone(field, tmp_path / "alone", steps) if mpi else total(steps)
        assert (case / "result.txt").read_text() == same
        state, begins = cluster.run("squeue", "-h", "-t", "all", "-o", "%T %S", "-j", rigid).split()
        # What the job gives back at its end may be what the rigid job begins on; what waits has a planned time alone.
        written_s = int((case / "result.txt").stat().st_mtime)
        began = state != "PENDING" and datetime.fromisoformat(begins).timestamp() < written_s
        assert not began, (state, begins, written_s, daemon.trace(job)())
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
        site.close()


def on_one_node(tmp_path: Path, case: Path, launch: str, placements: int) -> list[dict[str, Any]]:
    """The placements of six ranks of Open MPI on a node: 1, then 3 in two subjobs, then 5 in three, then all on J0."""
    site = LocalSite(tmp_path, 1, 12, block=7, fillers=(2, 2))
    daemon = Daemon(tmp_path, site.toml, as_program=True)
    text = f"#!/bin/sh\n#SBATCH -n 6 -t 5 -o {tmp_path}/out.txt\n#EJB engine=auto restartable\ncd {case}\n{launch}\n"
    try:
        site.fill()
        daemon.start()
        job = daemon.submit(script=text, ranks=6, time="5:00", env=QUIET, cwd=str(case), overrides={"engine": None})
        daemon.wait_event(job, "epoch.running", 1)
        until(lambda: daemon.job(job)["progress"] > 0.0, "it does not get on")
        site.more()
        daemon.wait_event(job, "epoch.running", 2)
        site.more()
        daemon.wait_event(job, "epoch.running", placements)
        until(lambda: daemon.job(job)["progress"] > 0.04, "it does not get on")
        site.unblock()
        final = daemon.wait(job, timeout_s=300)
        assert (final["state"], final["exit_code"]) == ("completed", 0), (final, (tmp_path / "out.txt").read_text())
        told = [e["data"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]
        assert told[0]["ranks"] == 1 and told[1]["ranks"] == 3 and len(told) >= placements, told
        nothing_left(daemon, site, job)
        return told
    finally:
        daemon.stop()
        site.close()


@pytest.mark.nightly("integration/test_profiles_applications.py has LAMMPS; the one before Open MPI")
@pytest.mark.skipif(shutil.which("lmp") is None, reason="LAMMPS (lmp) is not on the PATH")
def test_lammps_by_its_profile_under_open_mpi(tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    (case / "in.melt").write_text(LAMMPS.replace("run 1500", f"run {LAMMPS_STEPS}"))
    (case / "STOP").touch()  # left over from before
    epochs = on_one_node(tmp_path, case, "mpirun -n 6 lmp -in in.melt", 3)
    widths = [one["ranks"] for one in epochs]
    assert widths == sorted(set(widths)), widths
    output = (tmp_path / "out.txt").read_text()
    stops = [int(line.split()[2]) for line in output.splitlines() if line.startswith("DONE step")]
    # A placement may be stopped before its first step is done.
    assert 1 < len(stops) <= len(epochs) and stops == sorted(set(stops)) and stops[-1] == LAMMPS_STEPS, stops
    assert not (case / "STOP").exists()


@pytest.mark.nightly("unit/test_manager_reshaping.py goes back; integration/test_profiles_applications.py has GROMACS")
@pytest.mark.skipif(shutil.which("gmx_mpi") is None, reason="GROMACS (gmx_mpi) is not on the PATH")
def test_gromacs_by_its_profile_goes_back_from_a_width_that_it_cannot_have(tmp_path: Path) -> None:
    """Its box has no five parts: it goes on with fewer from the state as it was, and five are not tried again."""
    case = tmp_path / "case"
    water(case, GROMACS_STEPS)
    launch = "mpirun -n 6 gmx_mpi mdrun -deffnm md -ntomp 1 -notunepme -npme 0 -pin off"
    epochs = on_one_node(tmp_path, case, launch, 4)
    widths = [one["ranks"] for one in epochs]
    assert widths[:3] == [1, 3, 5] and 5 not in widths[3:], widths
    assert epochs[2]["restart_from"] == epochs[3]["restart_from"] == 2, "from the state as it was"
    log = (case / "md.log").read_text()
    frames = [int(step) for step in re.findall(r"^ +Step +Time\n +(\d+)", log, re.MULTILINE)]
    ends = log.count("Received the TERM signal")
    assert log.count("Finished mdrun on rank") == 1 and frames[-1] == GROMACS_STEPS
    regular = [step for step in frames if step % 100 == 0]
    assert set(range(0, GROMACS_STEPS + 1, 100)) <= set(regular), "no frame is missing"
    assert len(regular) - len(set(regular)) <= 2 * ends, "but for where it was stopped none is there twice"


def quick(daemon: Daemon, job: str) -> list[int]:
    return [e["data"]["ranks"] for e in daemon.events(job) if e["kind"] == "epoch.launching"]


@pytest.mark.nightly("test_manager_reshaping.py grows beyond; the one before reshapes on a real Slurm")
@pytest.mark.slurm
def test_on_an_idle_slurm_it_grows_beyond_its_ranks_and_gives_that_back_to_the_first_that_waits(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """On J0 from the beginning; a move is made up for before what was added is given back."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "field.toml").write_text(TEXT)
    site = SlurmSite(cluster, tmp_path)
    case, steps = tmp_path / "case", 400
    case.mkdir()
    text = f"#!/bin/sh\n#SBATCH -n 2 -t 5 -o {tmp_path}/out.txt\n#EJB engine=auto ntasks-max=6 restartable\n"
    text += f"cd {case}\nsrun -n $SLURM_NTASKS '{sys.executable}' '{PROGRAM}' {steps} 0.25\n"
    daemon = Daemon(tmp_path, site.toml, {**site.environment, "EJB_PROFILES": str(tmp_path / "profiles")})
    try:
        daemon.start()
        job = daemon.submit(script=text, ranks=2, time="5:00", overrides={"engine": None, "ntasks": None})
        daemon.wait_event(job, "epoch.running", 2)
        assert quick(daemon, job) == [2, 6] and daemon.job(job)["state"] == "running"
        other = cluster.sbatch("-n", "4", "-t", "1", script="sleep 3")
        daemon.wait_event(job, "epoch.running", 3)
        assert quick(daemon, job) == [2, 6, 2]
        until(lambda: cluster.run("squeue", "-h", "-t", "PD", "-j", other).strip() == "", "what waits does not start")
        why = next(e["data"] for e in daemon.events(job) if e["kind"] == "decision.shrink")
        assert why["reason"].startswith("another job waits: the 4 processors beyond the 2 that were asked for")
        final = daemon.wait(job, timeout_s=120)
        assert (final["state"], final["exit_code"]) == ("completed", 0), final
        assert (case / "result.txt").read_text() == total(steps)
        assert made_again(daemon, daemon.folder)["differing"] == []
        nothing_left(daemon, site, job)
    finally:
        daemon.stop()
        site.close()


@pytest.mark.nightly("unit/test_manager_improvements.py suspends, unit/test_manager_drains.py drains")
@pytest.mark.slurm
def test_by_its_profile_it_makes_way_for_what_waits_goes_on_and_leaves_a_node_that_is_drained(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    """Suspended with its work kept, since a job fits into what it holds below its width; then an operator takes a
    node."""
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "field.toml").write_text(TEXT)
    site = SlurmSite(cluster, tmp_path)
    case, steps = tmp_path / "case", 260
    case.mkdir()
    text = f"#!/bin/sh\n#SBATCH -n 8 -t 2 -o {tmp_path}/out.txt\n#EJB engine=auto restartable\n"
    text += f"cd {case}\nsrun -n $SLURM_NTASKS '{sys.executable}' '{PROGRAM}' {steps} 0.6\n"
    daemon = Daemon(tmp_path, site.toml, {**site.environment, "EJB_PROFILES": str(tmp_path / "profiles")})
    try:
        block = cluster.sbatch("-N", "2", "-n", "4", "--nodelist=n[1-2]", "-t", "6", script="sleep 900")
        cluster.until(lambda: cluster.states().get(block) == "RUNNING", "nobody is there")
        daemon.start()
        job = daemon.submit(script=text, ranks=8, time="2:00", overrides={"engine": None, "ntasks": None})
        daemon.wait_event(job, "epoch.running", 1)
        until(lambda: daemon.job(job)["progress"] > 0.02, "it does not get on", 60, daemon.trace(job))
        other = cluster.sbatch("-n", "4", "-t", "1", script="sleep 2")
        daemon.wait_event(job, "decision.suspend", 1)
        cluster.until(lambda: cluster.states().get(other) in ("RUNNING", "COMPLETED"), "nobody made way")
        daemon.wait_event(job, "epoch.running", 2)
        kept = daemon.job(job)["progress"]
        assert ejb(daemon, "drain", "n4", "--by", "now+5").count(job) == 1
        until(lambda: "no elastic job is there" in ejb(daemon, "drain"), "it stays", 60, daemon.trace(job))
        daemon.wait_event(job, "epoch.running", 3)
        ejb(daemon, "drain", "n4", "--cancel")
        cluster.run("scancel", block)  # on J0 the rest is soon done
        final = daemon.wait(job, timeout_s=240)
        assert (final["state"], final["exit_code"]) == ("completed", 0), (final, daemon.trace(job)())
        assert (case / "result.txt").read_text() == total(steps), "no step was lost, and none done twice"
        events = daemon.events(job)
        assert "epoch.failed" not in [e["kind"] for e in events] and kept > 0
        told = next(e["data"] for e in events if e["kind"] == "decision.suspend")
        assert told["given_to"] == other, told
        nodes = {one["id"]: one["nodes"] for one in final["subjobs"]}
        third = [e["data"] for e in events if e["kind"] == "epoch.launching"][2]
        assert all("n4" not in nodes[id] for id in third["subjobs"]) and third["restart_from"] == 2, (third, nodes)
        assert made_again(daemon, daemon.folder)["differing"] == []
    finally:
        daemon.stop()
        site.close()
