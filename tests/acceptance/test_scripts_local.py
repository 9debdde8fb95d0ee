"""Ordinary scripts on the embedded cluster, by links with the names of Slurm's commands: what a real sbatch gives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ejbd.cli.main import LINKS
from tests.acceptance.scripting import Site, local_site
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

EJB = Path(sys.executable).with_name("ejb")
PATIENCE_S = 120.0
# Each with what it writes under Slurm 22.05 on eight nodes of four processors: the nightly test asks it again.
SCRIPTS = {
    "memory": (
        "#SBATCH -J mem --mem=100M",
        'echo "$SLURM_JOB_NAME $SLURM_MEM_PER_NODE ${SLURM_MEM_PER_CPU:-none} $SLURM_CPUS_ON_NODE"',
        "mem 100 none 1\n",
    ),
    "threads": (
        "#SBATCH -c 4",
        'echo "$SLURM_CPUS_PER_TASK $SLURM_CPUS_ON_NODE ${SLURM_NTASKS:-none} $SLURM_JOB_NUM_NODES"',
        "4 4 none 1\n",
    ),
    "layout": (
        "#SBATCH -N 2 --ntasks-per-node=2 --mem-per-cpu=50",
        'echo "$SLURM_TASKS_PER_NODE $SLURM_NTASKS $SLURM_MEM_PER_CPU"\n'
        "srun sh -c 'echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $SLURM_NTASKS' | sort\n"
        "srun -n 1 -N 1 sh -c 'echo $SLURM_STEP_ID $SLURM_STEP_NUM_TASKS'",
        "2(x2) 4 50\n0 0 0 4\n1 0 1 4\n2 1 0 4\n3 1 1 4\n1 1\n",
    ),
    "whole": (
        "#SBATCH -N 1 --exclusive",
        'echo "$SLURM_CPUS_ON_NODE $SLURM_JOB_CPUS_PER_NODE $SLURM_TASKS_PER_NODE"',
        "4 4 4\n",
    ),
    "named": ("#SBATCH -w n2", "echo $SLURM_JOB_NODELIST", "n2\n"),
    "excluded": ("#SBATCH -x n[1-7]", "echo $SLURM_JOB_NODELIST", "n8\n"),
    "overcommit": ("#SBATCH -O -n 6 -N 1", "srun sh -c 'echo x' | wc -l; echo $SLURM_CPUS_ON_NODE", "6\n1\n"),
    "farm": (
        "#SBATCH -n 4",
        "for i in 1 2 3; do srun -n1 -N1 --exact sh -c \"echo $i > farm.$i\" & done; wait; cat farm.?",
        "1\n2\n3\n",
    ),
    "input": ("#SBATCH -i words", "cat", "some words\n"),
    "cyclic": ("#SBATCH -N 2 --ntasks-per-node=2 -m cyclic", "srun sh -c 'echo $SLURM_PROCID $SLURM_NODEID' | sort",
               "0 0\n1 1\n2 0\n3 1\n"),
}  # fmt: skip
NEXT = """\
#SBATCH -t 9
a=$(sbatch --parsable -t 9 -o /dev/null --wrap "sleep 1; touch first")
b=$(sbatch --parsable -t 9 -o /dev/null --wrap "exit 3")
sbatch --parsable -t 9 -o next.ok -d afterok:$a --wrap "ls first" > /dev/null
sbatch --parsable -t 9 -o next.bad -d afternotok:$b --wrap "echo bad" > /dev/null
sbatch --parsable -t 9 -o next.either -d "afterok:$b?afterany:$a" --wrap "echo either" > /dev/null
sbatch --parsable -t 9 -o next.later --begin=now+1 --wrap "echo later" > /dev/null
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with local_site(tmp_path, nodes=8) as site:
        yield site


@pytest.fixture
def environment(site: Site, tmp_path: Path) -> dict[str, str]:
    names = tmp_path / "names"
    names.mkdir()
    for name in LINKS:
        (names / name).symlink_to(EJB)
    path = os.pathsep.join([str(names), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "EJB_SOCKET": str(site.daemon.state / "ejbd.sock")}


def submit(folder: Path, environment: Mapping[str, str], name: str, body: str) -> subprocess.CompletedProcess[str]:
    (folder / f"{name}.sh").write_text(f"#!/bin/bash\n#SBATCH -t 9 -o {name}.out\n#EJB elastic=off\n{body}\n")
    return subprocess.run(
        ["sbatch", f"{name}.sh"], cwd=folder, env=environment, capture_output=True, text=True, timeout=180
    )


def is_written(path: Path, expected: str) -> bool:
    return path.exists() and path.read_text() == expected


def until_written(folder: Path, expected: Mapping[str, str]) -> None:
    """Wait until each file holds what it should; then say which does not."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not all(is_written(folder / name, text) for name, text in expected.items()):
        time.sleep(0.2)
    found = {name: (folder / name).read_text() if (folder / name).exists() else None for name in expected}
    assert found == dict(expected)


def test_ordinary_scripts_do_on_the_embedded_cluster_what_they_do_under_sbatch(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "words").write_text("some words\n")
    for name, (options, body, _) in SCRIPTS.items():
        done = submit(tmp_path, environment, name, f"{options}\n{body}")
        assert done.returncode == 0 and done.stdout.startswith("Submitted batch job "), (name, done.stderr)
    assert submit(tmp_path, environment, "next", NEXT).returncode == 0
    refused = submit(tmp_path, environment, "devices", "#SBATCH --gres=gpu:2\ntrue")
    assert refused.returncode == 1 and "Requested node configuration is not available" in refused.stderr
    features = "#SBATCH -C haswell --hint=nomultithread -A me\necho ran"
    assert submit(tmp_path, environment, "features", features).returncode == 0
    plan = [str(EJB), "submit", "--dry-run", "features.sh"]
    told = subprocess.run(plan, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert "without effect on the embedded cluster: --" in told.stdout + told.stderr
    assert "--account" not in told.stdout + told.stderr
    expected = {f"{name}.out": text for name, (_, _, text) in SCRIPTS.items()}
    expected |= {"next.ok": "first\n", "next.bad": "bad\n", "next.either": "either\n", "next.later": "later\n"}
    until_written(tmp_path, expected | {"features.out": "ran\n"})


@pytest.mark.slurm
@pytest.mark.nightly("the one before holds the same scripts against what Slurm wrote")
def test_and_a_real_slurm_does_the_same(tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(8, 4) as slurm:
        environment = {**os.environ, "SLURM_CONF": str(slurm.conf)}
        (tmp_path / "words").write_text("some words\n")
        for name, (options, body, _) in SCRIPTS.items():
            done = submit(tmp_path, environment, name, f"{options}\n{body}")
            assert done.returncode == 0, (name, done.stderr)
        assert submit(tmp_path, environment, "next", NEXT).returncode == 0
        expected = {f"{name}.out": text for name, (_, _, text) in SCRIPTS.items()}
        expected |= {"next.ok": "first\n", "next.bad": "bad\n", "next.either": "either\n", "next.later": "later\n"}
        until_written(tmp_path, expected)
