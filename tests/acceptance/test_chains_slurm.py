"""Chains on a real Slurm with accounts: `sbatch -d afterok:$SLURM_JOB_ID` in an elastic job that never needs its J0."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("chains-slurm")]
KINDS = ("afterok", "afternotok", "afterany")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm(accounting=True):
        pytest.skip(reason)
    with shared_cluster(2, 2, "--profile=acct") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("chains-slurm")
    toml = f'batch = "slurm"\npoll_s = 1.0\nworker_python = "{sys.executable}"\n' + FAST
    with running_site(folder, toml, {"SLURM_CONF": str(cluster.conf)}) as site:
        site.environment["SLURM_CONF"] = str(cluster.conf)
        yield site


def submit(cluster: SlurmCluster, *options: str) -> str:
    return cluster.run("sbatch", "--parsable", "--output=/dev/null", *options).strip()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("code", [0, 3])
def test_what_a_job_submits_to_follow_itself_follows_it(site: Site, cluster: SlurmCluster, code: int) -> None:
    block = submit(cluster, "-n3", "-t10", "--wrap", "sleep 600")  # of 4 processors: J0 would begin when it ends
    try:
        (site.folder / "next.sh").write_text("#!/bin/sh\n")
        numbers = site.folder / f"numbers-{code}"
        job = site.submit(
            f"""\
            #!/bin/bash
            #SBATCH -n 4 --time=1
            srun true
            for kind in {" ".join(KINDS)}; do
                sbatch --parsable -n1 -t1 -o /dev/null -d $kind:$SLURM_JOB_ID next.sh
            done > {numbers}
            exit {code}
            """
        )
        ended = site.daemon.wait(job)
        assert (ended["state"], ended["exit_code"]) == ("failed" if code else "completed", code), ended
        waiting = dict(zip(KINDS, numbers.read_text().split(), strict=True))
        never = "afternotok" if code == 0 else "afterok"
        states = cluster.states

        def followed() -> bool:
            return all(states()[number] == "COMPLETED" for kind, number in waiting.items() if kind != never)

        until(followed, "what follows the job did not run", 60, site.daemon.trace(job))
        assert states()[waiting[never]] in ("PENDING", "CANCELLED")
        cluster.run("scancel", waiting[never])
        j0 = site.daemon.job(job)["subjobs"][0]["batch_id"]

        def accounts() -> str:
            words = ("sacct", "-X", "-n", "-P", "-o", "State,ExitCode,NCPUS", "-j", j0)
            return cluster.run(*words).strip()

        told = f"FAILED|{code}:0|1" if code else "COMPLETED|0:0|1"
        until(lambda: accounts() == told, f"the accounts show {accounts()}", 60)
        until(lambda: "subjob.ends-as-job" in site.daemon.kinds(job), "no event told of it", 30)
    finally:
        cluster.run("scancel", block)
        cluster.empty()


def test_what_follows_a_job_whose_j0_began_too_late_follows_it(site: Site, cluster: SlurmCluster) -> None:
    """J0 goes back into the queue, and is there for what the last line of the script submits."""
    if os.environ.get("EJB_TEST_SCRIPTS") != "all":
        pytest.skip("J0 has a time limit of a minute at least: EJB_TEST_SCRIPTS=all")
    block = submit(cluster, "-n3", "-t10", "--wrap", "sleep 600")
    try:
        (site.folder / "next.sh").write_text("#!/bin/sh\n")
        begun, go, number = (site.folder / name for name in ("begun", "go", "number"))
        job = site.submit(
            f"""\
            #!/bin/bash
            #SBATCH -n 3 --time=1
            srun true
            touch {begun}
            for _ in $(seq 900); do [ -e {go} ] && break; sleep 0.1; done
            sbatch --parsable -n1 -t1 -o /dev/null -d afterok:$SLURM_JOB_ID next.sh > {number}
            """
        )
        until(begun.exists, "the script did not begin", 60, site.daemon.trace(job))
        cluster.run("scancel", block)
        until(lambda: "subjob.aside" in site.daemon.kinds(job), "J0 is not set aside", 120, site.daemon.trace(job))
        j0 = site.daemon.job(job)["subjobs"][0]["batch_id"]
        until(lambda: cluster.states()[j0] == "PENDING", "J0 is not back in the queue", 60, site.daemon.trace(job))
        go.touch()
        ended = site.daemon.wait(job)
        assert (ended["state"], ended["exit_code"]) == ("completed", 0), ended
        follows = number.read_text().strip()
        until(
            lambda: cluster.states()[follows] == "COMPLETED",
            "what follows the job did not run",
            90,
            site.daemon.trace(job),
        )
        until(lambda: cluster.states()[j0] == "COMPLETED", "J0 did not end as its job", 30)
    finally:
        cluster.run("scancel", block)
        cluster.empty()


@pytest.mark.nightly("unit/test_manager_chains.py has it on the fake world")
def test_a_j0_for_which_nothing_waits_is_cancelled(site: Site, cluster: SlurmCluster) -> None:
    block = submit(cluster, "-n3", "-t10", "--wrap", "sleep 600")
    try:
        job = site.submit("#!/bin/bash\n#SBATCH -n 4 --time=1\nsrun true\n")
        assert site.daemon.wait(job)["state"] == "completed"
        j0 = site.daemon.job(job)["subjobs"][0]["batch_id"]
        until(lambda: cluster.states().get(j0) == "CANCELLED", "J0 is left", 60)
        assert "subjob.ends-as-job" not in site.daemon.kinds(job)
    finally:
        cluster.run("scancel", block)
        cluster.empty()
