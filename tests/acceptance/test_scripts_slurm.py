"""Batch scripts on a real Slurm: grown in the middle of a launch, handed over to J0, cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.scripting import Site, running_site, said, sleeping
from tests.fakes.daemon import FAST, HEAT, Daemon, until
from tests.integration.background import Background, fill
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("scripts-slurm")]
POLL_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(4, 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("scripts-slurm")
    toml = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n' + FAST
    with running_site(folder, toml, {"SLURM_CONF": str(cluster.conf)}) as site:
        yield site


@pytest.fixture
def background(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Background]:
    """4 of 16 processors are idle; a job of 8 would wait for the block's end."""
    background = fill(cluster, tmp_path, free=4, block_nodes=2)
    yield background
    background.end_all()
    cluster.empty()


def batch_jobs(cluster: SlurmCluster, daemon: Daemon, id: str) -> list[str]:
    """States of the job's batch jobs in Slurm that have not ended."""
    ids = {s["batch_id"] for s in daemon.job(id)["subjobs"]}
    return [state for job, state in cluster.states().items() if job in ids and state in ("RUNNING", "PENDING")]


@pytest.mark.nightly("test_scripts_moved.py grows in the middle of a launch")
def test_an_ordinary_script_grows_and_runs_once(site: Site, cluster: SlurmCluster, background: Background) -> None:
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH --job-name=grows -N 2 --ntasks-per-node=4 --time=2
        #SBATCH --output=%x-%j.txt
        #EJB engine=application
        echo preamble $MINE; echo body >> grows.txt
        srun "{sys.executable}" "{HEAT}" --size 16 --steps 500 --pace 10ms --result grown
        echo "code $?"
        mpirun -np 2 hostname
        srun -n 2 sh -c 'exit 3'
        """,
        env={"MINE": "as submitted"},
    )
    site.daemon.wait_event(id, "epoch.running")
    background.end(*background.fillers)
    site.daemon.wait_event(id, "epoch.running", 2)
    job = site.daemon.wait(id)
    assert (job["state"], job["exit_code"]) == ("failed", 3), job
    lines = said((site.folder / f"grows-{job['subjobs'][0]['batch_id']}.txt").read_text())
    assert lines[0] == "preamble as submitted"
    assert [line for line in lines if line.startswith("heat: ")] == lines[1:-3], "what rank 0 prints at the end"
    assert lines[-3] == "code 0"
    assert lines[-2] == lines[-1] == os.uname().nodename
    assert (site.folder / "grows.txt").read_text() == "body\n"
    undisturbed = site.folder / "undisturbed"
    options = ["--size", "16", "--steps", "500", "--result", str(undisturbed), "--spawn", "8"]
    subprocess.run([sys.executable, str(HEAT), *options], check=True, capture_output=True, timeout=180)
    assert (site.folder / "grown").read_bytes() == undisturbed.read_bytes()
    until(lambda: not batch_jobs(cluster, site.daemon, id), "a subjob is left", 30)


@pytest.mark.nightly("integration/test_worker_script.py starts one again; unit/test_manager_journey.py has J0")
def test_a_restartable_script_follows_its_ranks_to_j0(
    site: Site, cluster: SlurmCluster, background: Background
) -> None:
    id = site.submit(
        f"""\
        #!/bin/bash
        #SBATCH -N 2 --ntasks-per-node=4 --time=2
        #EJB restartable engine=application lambda=0
        echo body >> again.txt
        srun -n 2 sh -c 'echo rank >> again.txt'
        srun "{sys.executable}" counter.py 400
        echo "code $?"
        """
    )
    site.daemon.wait_event(id, "epoch.running", 2)
    background.end(background.block)
    assert site.daemon.wait(id)["state"] == "completed"
    assert site.daemon.kinds(id).count("lead.appointed") == 2, site.daemon.explain(id)
    assert (site.folder / "again.txt").read_text().split() == ["body", "rank", "rank", "body"]
    lines = (site.folder / f"ejb-{id}.out").read_text().splitlines()
    assert sorted(lines[:-1]) == sorted(f"rank {r} step {s}" for r in range(8) for s in range(400)), "each line once"
    assert lines[-1] == "code 0"
    until(lambda: not batch_jobs(cluster, site.daemon, id), "a subjob is left", 30)


@pytest.mark.nightly("test_scripts.py cancels a script with children")
def test_cancel_ends_everything(site: Site, cluster: SlurmCluster, background: Background) -> None:
    script = """\
        #!/bin/bash
        #SBATCH -N 2 --ntasks-per-node=4 --time=2
        trap 'echo "TERM came first"; exit 7' TERM
        setsid sleep 9872.1 &
        later() { srun sleep 9872.2; }
        later &
        wait
        """
    id = site.submit(script)
    until(lambda: [len(sleeping(f"9872.{n}")) for n in (1, 2)] == [1, 8], "the script did not come so far", 30)
    assert site.daemon.client.post(f"/v1/jobs/{id}/cancel").status_code < 300
    assert site.daemon.wait(id, timeout_s=120)["state"] == "cancelled"
    until(lambda: not any(sleeping(f"9872.{n}") for n in (1, 2)), "something is left", 60)
    assert (site.folder / f"ejb-{id}.out").read_text() == "TERM came first\n"
    until(lambda: not batch_jobs(cluster, site.daemon, id), "a subjob is left", 30)
    until(lambda: not site.daemon.processes(), "a worker, a script or a rank is left", 30)


ENVIRONMENTS = """\
#!/bin/bash
#SBATCH -N 2 --ntasks-per-node=4 --time=2 --job-name=told
#EJB engine=none
env > body.env
echo $((SLURM_JOB_ID + 1)) > number
srun bash -c 'env > rank$SLURM_PROCID.env'
srun -n 3 bash -c 'env > second$SLURM_PROCID.env'
mv told-$SLURM_JOB_ID.out output
"""
# Of this very process, of the connection between srun and its step, or of a shell: nobody's to compare.
OF_THE_MOMENT = (
    "SLURM_TASK_PID SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEP_LAUNCHER_PORT SLURM_PRIO_PROCESS _ SHLVL"
)
# What srun says about its own working, and Slurm's name for the machine that it runs on.
OF_SRUN = "SRUN_DEBUG SLURMD_DEBUG SLURM_LAUNCH_NODE_IPADDR SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0"
# Where the ranks of a launch are that needs less than all of the job.
PLACED = {f"SLURM_{word}" for word in ["LOCALID", "NODEID", "GTIDS", "NNODES", "TASKS_PER_NODE", "TOPOLOGY_ADDR"]}
PLACED |= {f"SLURM_STEP_{word}" for word in ["NODELIST", "NUM_NODES", "TASKS_PER_NODE"]} | {"SLURMD_NODENAME"}


NUMBERS = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_SLUID")
TIMES = ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")


def length_s(variables: dict[str, str]) -> int:
    begin, end = (int(variables[name]) for name in TIMES)
    return end - begin


def environments(folder: Path) -> dict[str, dict[str, str]]:
    left_out = {*OF_THE_MOMENT.split(), *OF_SRUN.split()}
    found = {}
    for path in sorted(folder.glob("*.env")):
        variables = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
        found[path.stem] = {name: value for name, value in variables.items() if name not in left_out}
    return found


def test_a_script_and_its_ranks_are_told_what_sbatch_and_srun_would_tell_them(
    site: Site, cluster: SlurmCluster
) -> None:
    here = {"PATH": os.environ["PATH"], "HOME": str(site.folder), "SLURM_CONF": str(cluster.conf)}
    plain, elastic = site.folder / "plain", site.folder / "elastic"
    for folder in (plain, elastic):
        folder.mkdir()
    (plain / "job.sh").write_text(ENVIRONMENTS)
    words = ["sbatch", "--wait", "--output=told-%j.out", "job.sh"]
    subprocess.run(words, cwd=plain, env=here, check=True, capture_output=True, timeout=180)
    id = site.submit(ENVIRONMENTS, cwd=elastic, overrides={"output": "told-%j.out"})
    assert site.daemon.wait(id)["state"] == "completed", site.daemon.job(id)
    wanted, got = environments(plain), environments(elastic)
    assert set(got) == set(wanted) and len(wanted) == 12
    for name, variables in got.items():
        number = variables["SLURM_JOB_ID"]
        assert number == next(s["batch_id"] for s in site.daemon.job(id)["subjobs"] if s["ordinal"] == 0)
        told = {key: value.replace(str(elastic), str(plain)) for key, value in variables.items()}
        told |= {key: wanted[name][key] for key in NUMBERS if key in told and key in wanted[name]}
        if "SLURM_JOB_END_TIME" in told:  # newer Slurms say it
            assert length_s(told) == length_s(wanted[name])
            told |= {key: wanted[name][key] for key in TIMES}
        own = {key for key in told if key.startswith(("EJB_", "BASH_FUNC_", "PMI_")) or key == "PATH"}
        assert told["EJB_JOB_ID"] == id
        expected = {key: value for key, value in wanted[name].items() if key != "PATH"}
        if name.startswith("second"):  # srun spreads them over all nodes, where EJB fills one processor after the other
            placed = {key for key in expected if key.startswith("SLURM") and told[key] != expected[key]}
            assert placed <= PLACED, placed
            expected |= {key: told[key] for key in placed}
        assert {key: value for key, value in told.items() if key not in own} == expected, name
    assert (elastic / "output").exists(), "%j is the number that the script knows"
    assert (elastic / "number").read_text() == f"{int(number) + 1}\n"
