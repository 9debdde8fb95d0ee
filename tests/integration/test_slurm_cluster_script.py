"""scripts/cluster: several side by side, repeatable, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from clusters import cgroups, netns
from tests.fakes.hosts import missing_hosts
from tests.integration.slurm_clusters import SCRIPT, missing_slurm, shared_cluster, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(missing_slurm()), reason=missing_slurm())]


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def processes(directory: Path) -> list[str]:
    """Live processes whose environment names this cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"{directory}/slurm.conf".encode() in environment and state not in "ZX":
            found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def test_two_side_by_side_one_of_them_mended() -> None:
    with slurm_cluster(2, 2) as one, slurm_cluster(3, 1, "--profile=easy") as two:
        again = cluster("up", str(one.directory), "--nodes=2", "--cpus=2")
        assert again.returncode == 0 and f"export SLURM_CONF={one.conf}" in again.stdout
        other = cluster("up", str(one.directory), "--nodes=3", "--cpus=2")
        assert other.returncode == 2 and "take it down first" in other.stderr
        assert "bf_job_part_count_reserve=1" in two.conf.read_text()
        assert two.run("sinfo", "--noheader", "--format=%D %C").split() == ["3", "0/3/0/3"]
        kept = one.sbatch("--time=5", script="sleep 300")
        one.until(lambda: one.states()[kept] == "RUNNING", "the job did not start")
        os.kill(one.pids()["n2"], signal.SIGKILL)
        assert cluster("status", str(one.directory)).returncode == 3
        one.up_again()
        assert cluster("status", str(one.directory)).returncode == 0
        assert one.states()[kept] == "RUNNING"


def test_down_leaves_no_process_of_daemons_steps_or_jobs() -> None:
    with slurm_cluster(2, 2) as site:
        # A step, a process that left its session, and one that ignores TERM.
        id = site.sbatch("--time=5", "--ntasks=4", script="setsid sleep 300 & trap '' TERM; srun sleep 300; sleep 300")
        site.until(
            lambda: len([p for p in processes(site.directory) if "sleep 300" in p]) >= 5, "the job did not start"
        )
        assert site.states()[id] == "RUNNING"
        assert cluster("down", str(site.directory)).returncode == 0
        deadline = time.monotonic() + 10
        while processes(site.directory) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes(site.directory) == []
        assert cluster("down", str(site.directory)).returncode == 0
        assert cluster("status", str(site.directory), "--json").returncode == 3


def test_a_shell_that_only_exported_the_variable_is_spared() -> None:
    with slurm_cluster(1, 1) as site:
        bystander = subprocess.Popen(["sleep", "300"], env={**os.environ, "SLURM_CONF": str(site.conf)})
        try:
            assert cluster("down", str(site.directory)).returncode == 0
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()


def test_a_shared_one_is_given_again_empty_unless_something_went_wrong() -> None:
    with shared_cluster(1, 1, "--profile=easy") as first:
        first.sbatch("--time=5", script="sleep 300")
    with pytest.raises(LookupError), shared_cluster(1, 1, "--profile=easy") as again:
        assert again.directory == first.directory
        assert again.run("squeue", "--noheader", "--states=RUNNING,PENDING,COMPLETING") == ""
        raise LookupError
    assert not first.directory.exists()


def test_wrong_use_is_told_in_one_sentence() -> None:
    with tempfile.TemporaryDirectory(prefix="ejb-slurm-") as folder:
        for arguments in (["up", folder, "--nodes=0"], ["up", f"{folder}/a b"], ["up", f"{folder}/{'x' * 90}"]):
            done = cluster(*arguments)
            assert done.returncode == 2 and done.stderr.startswith("cluster: ") and done.stderr.count("\n") == 1
        assert cluster("down", f"{folder}/none").returncode == 0
        assert cluster("status", f"{folder}/none").returncode == 3


def test_nodes_that_are_hosts_two_clusters_of_them_side_by_side() -> None:
    if reason := missing_hosts():
        pytest.skip(reason)
    with slurm_cluster(3, 1, "--profile=netns") as one, slurm_cluster(2, 1, "--profile=netns") as two:
        networks = [netns_of(site.directory) for site in (one, two)]
        assert networks[0] != networks[1]
        for site, network in zip((one, two), networks, strict=True):
            # From a job's script on one node, by name, to all others: each is where its address is.
            told = "echo $(hostname) $(getent hosts $(hostname)) $(ip -4 -brief addr show eth0)"
            names = [f"n{i}" for i in range(1, site.nodes + 1)]
            lines = site.run("srun", f"--nodes={site.nodes}", "--chdir=/", "sh", "-c", told).splitlines()
            assert sorted(line.split()[0] for line in lines) == names
            for line in lines:
                name, address, same_name, _interface, state, with_mask = line.split()
                assert address == netns.address(network, int(name[1:])) and same_name == name
                assert (state, with_mask) == ("UP", f"{address}/24")
            assert site.controller_address == netns.address(network, netns.MACHINE)
        os.kill(one.pids()["n2"], signal.SIGKILL)
        one.up_again("--profile=netns")
        assert one.run("srun", "--nodelist=n2", "--chdir=/", "hostname").strip() == "n2"
        for _ in range(2):
            assert cluster("down", str(one.directory)).returncode == 0
        assert left_of(networks[0]) == [] and left_of(networks[1]) != []
        assert two.run("srun", "--nodes=2", "--chdir=/", "hostname").split() in (["n1", "n2"], ["n2", "n1"])
    assert left_of(networks[1]) == []


def test_jobs_are_held_to_their_processors_by_control_groups() -> None:
    if reason := cgroups.impossible(1, 1):
        pytest.skip(reason)
    with slurm_cluster(1, 1, "--profile=cgroup", "--memory=200") as cluster:
        said = cluster.directory / "said"
        script = "srun cat /proc/self/cgroup && srun grep Cpus_allowed_list /proc/self/status"
        id = cluster.sbatch(f"--output={said}", script=script)
        cluster.until(lambda: cluster.states().get(id) == "COMPLETED", "the job did not end", 60)
        text = said.read_text()
        assert f"job_{id}/step_0" in text and len(re.findall(r"Cpus_allowed_list:\s+[0-9]+$", text, re.MULTILINE)) == 1
    assert not [*cgroups.MOUNT.glob("*/slurm_n1/uid_*"), *cgroups.MOUNT.glob("*/n1_slurmstepd.scope")]


def netns_of(directory: Path) -> int:
    return int(json.loads((directory / "cluster.json").read_text())["network"])


def left_of(network: int) -> list[str]:
    """What a network has on this machine: namespaces and interfaces."""
    listed = [*Path("/run/netns").glob("*"), *Path("/sys/class/net").iterdir()]
    return [path.name for path in listed if path.name.partition("-")[0] == netns.name(network)]


def test_hosts_are_refused_where_they_cannot_be_made() -> None:
    words = [sys.executable, str(SCRIPT), "up"]
    if os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv (util-linux) is not installed: nothing to take root's rights away with")
        words = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", *words]
    with tempfile.TemporaryDirectory(prefix="ejb-slurm-") as folder:
        done = subprocess.run(
            [*words, folder, "--profile=netns"], capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("cluster: the profile netns cannot be used: "), done.stderr
        assert cluster("down", folder).returncode == 0
