"""Tools that submit jobs by themselves and know Slurm's commands only: Snakemake, and what Nextflow does with Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST
from tests.fakes.me import ME
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("scripts-slurm")]
EJB = Path(sys.executable).with_name("ejb")
LONG_S = 240.0

SNAKEFILE = """
rule all:
    input: "sum.txt"

rule square:
    output: "square-{n}.txt"
    threads: 2
    resources: elastic="on"
    shell: "srun -n {threads} sh -c 'echo $((SLURM_PROCID * {wildcards.n}))' | sort -n | tail -n 1 > {output}"

rule sum:
    input: expand("square-{n}.txt", n=[3, 4])
    output: "sum.txt"
    resources: elastic="auto"
    shell: "cat {input} | paste -sd+ - | bc > {output} || awk '{{s += $1}} END {{print s}}' {input} > {output}"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if reason := missing_slurm():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("workflows")
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    with slurm_cluster(2, 4) as cluster, running_site(folder, toml, {"SLURM_CONF": str(cluster.conf)}) as site:
        yield site


@pytest.fixture
def environment(site: Site, tmp_path: Path) -> dict[str, str]:
    """As a user has it: `ejb` on the PATH, and before it links to it that are called as Slurm's commands."""
    names = tmp_path / "names"
    names.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        (names / name).symlink_to(EJB)
    path = os.pathsep.join([str(names), str(EJB.parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "EJB_SOCKET": str(site.daemon.state / "ejbd.sock"), "HOME": str(tmp_path)}


def snakemake() -> str:
    found = os.environ.get("EJB_TEST_SNAKEMAKE") or shutil.which("snakemake")
    if not found:
        pytest.skip("no snakemake on the PATH: pip install snakemake snakemake-executor-plugin-cluster-generic")
    return found


def test_snakemake_runs_its_rules_as_jobs_of_ejb(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    program = snakemake()
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    words = ["--executor", "cluster-generic", "--jobs", "4", "--latency-wait", "10", "--seconds-between-status-checks"]
    words += [
        "1",
        "--cluster-generic-submit-cmd",
        "ejb submit --parsable -n {threads} -t 2 --elastic {resources.elastic}",
    ]
    words += ["--cluster-generic-status-cmd", "ejb status --snakemake", "--cluster-generic-cancel-cmd", "scancel"]
    done = subprocess.run(
        [program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sum.txt").read_text() == "7\n"
    ids = re.findall(r"external jobid '([0-9a-f]{8})'", done.stderr)
    jobs = [site.daemon.job(id) for id in ids]
    assert len(jobs) == 3 and {job["state"] for job in jobs} == {"completed"}
    assert [job["processes"] for job in jobs if job["elastic"]] == [2, 2]
    # A rule that fails is told as such, and the workflow ends.
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("echo $((", "exit 3; echo $((").replace("| sort", "&& sort"))
    (tmp_path / "square-3.txt").unlink()
    words += ["square-3.txt"]
    done = subprocess.run(
        [program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.returncode != 0 and "Error in rule square" in done.stderr


@dataclass
class Task:
    """One task of a workflow: its folder, and what the grid executor knows of it."""

    folder: Path
    job: str = ""


class NextflowsSlurm:
    """What Nextflow's slurm executor does, as its source has it (SlurmExecutor, AbstractGridExecutor, GridTaskHandler).

    It stands for Nextflow itself, which is in no package index that a test could take it from.
    """

    SUBMITTED = re.compile(r"Submitted batch job (\d+)")
    ACTIVE = ("R", "CG", "S", "ST")  # RUNNING and HOLD; whoever has begun and is in no such state is taken for dead

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.seen: set[str] = set()

    def task(self, folder: Path, command: str, *directives: str) -> Task:
        folder.mkdir(parents=True)
        header = ["-J nf-square_(1)", f"-o {folder}/.command.log", "--no-requeue", "--signal B:USR2@30", *directives]
        (folder / ".command.run").write_text(
            "#!/bin/bash\n"
            + "".join(f"#SBATCH {line}\n" for line in header)
            + "on_exit() { status=${nxf_main_ret:-$?}; printf -- $status > .exitcode; exit $status; }\n"
            + "trap on_exit EXIT; trap 'exit 130' INT TERM USR2\n"
            + f"cd {folder}; : > .command.begin\n"
            + f"{command}\n"
        )
        return Task(folder)

    def _said(self, *words: str, cwd: Path | None = None) -> tuple[int, str]:
        done = subprocess.run(
            words,
            cwd=cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout

    def submit(self, task: Task) -> None:
        code, said = self._said("sbatch", ".command.run", cwd=task.folder)
        match = self.SUBMITTED.search(said)
        assert code == 0 and match, said
        task.job = match[1]

    def states(self) -> dict[str, str]:
        """By `squeue`; every line has to have two words."""
        code, said = self._said("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", ME.user)
        assert code == 0, said
        rows = [line.split() for line in said.splitlines()]
        assert all(len(row) == 2 for row in rows), said
        return {row[0]: row[1] for row in rows}

    def wait(self, *tasks: Task) -> list[int]:
        """Until each has written its exit code."""
        until = time.monotonic() + LONG_S
        while not all((task.folder / ".exitcode").exists() for task in tasks):
            assert time.monotonic() < until, self.states()
            states = self.states()
            for task in tasks:
                self.seen.add(states[task.job])
                begun, over = (task.folder / ".command.begin").exists(), (task.folder / ".exitcode").exists()
                assert not begun or over or states[task.job] in (*self.ACTIVE, "PD", "CD"), states
            time.sleep(0.3)
        return [int((task.folder / ".exitcode").read_text()) for task in tasks]

    def kill(self, *tasks: Task) -> None:
        code, said = self._said("scancel", *(task.job for task in tasks))
        assert code == 0, said


def test_nextflows_slurm_executor_runs_its_tasks_as_jobs_of_ejb(
    site: Site, environment: Mapping[str, str], tmp_path: Path
) -> None:
    nextflow = NextflowsSlurm(environment)
    words = "srun -n 2 sh -c 'echo $SLURM_PROCID' > ranks.txt; exit"
    tasks = [
        nextflow.task(tmp_path / "work" / f"{code}a", f"{words} {code}", "-t 00:02:00", *more)
        for code, more in ((0, ["-c 2"]), (7, ["-n 2", "--mem 100M"]))
    ]
    for task in tasks:
        nextflow.submit(task)
    assert nextflow.wait(*tasks) == [0, 7]
    assert sorted((tasks[1].folder / "ranks.txt").read_text().split()) == ["0", "1"]
    assert {nextflow.states()[task.job] for task in tasks} <= {"R", "CG", "CD", "F"}
    long = nextflow.task(tmp_path / "work" / "long", "while :; do sleep 600 & wait; done", "-t 00:20:00")
    nextflow.submit(long)
    until = time.monotonic() + LONG_S
    while not (long.folder / ".command.begin").exists():
        assert time.monotonic() < until, nextflow.states()
        time.sleep(0.2)
    nextflow.kill(long)
    assert nextflow.wait(long) == [130]
    while nextflow.states()[long.job] != "CA":
        assert time.monotonic() < until, nextflow.states()
        time.sleep(0.2)


def test_numbers_name_jobs_wherever_ids_do(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    def said(*words: str, code: int = 0) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout.strip() or done.stderr.strip()

    first = said("sbatch", "--parsable", "-n", "1", "-t", "1", "--wrap", "exit 4")
    second = said("sbatch", "-d", f"afternotok:{first}", "-n", "1", "-t", "1", "--wrap", "true").split()[-1]
    assert first.isdigit() and second.isdigit() and int(first) >= 2**32
    id = said("ejb", "status", "--quiet", "-o", "id", "--no-heading", f"{first}..{first}")
    assert site.daemon.wait(id)["exit_code"] == 4
    assert said("ejb", "wait", "--quiet", second) == "completed"
    assert said("squeue", "-h", "-t", "all", "-o", "%i|%T|%.3j", "-j", second) == f"{second}|COMPLETED|" + "wrap"[:3]
    assert said("ejb", "status", "--snakemake", second) == "success"
    assert said("ejb", "status", "--snakemake", first) == "failed"
    assert "EJB's squeue does not know '--start'" in said("squeue", "--start", code=2)
    assert "%e is no field that EJB tells" in said("squeue", "-o", "%e", code=2)
    assert "'XX' is not the state of a job" in said("squeue", "-t", "XX", code=2)
    assert "there is no job '12345'" in said("scancel", "12345", code=3)
    assert "one job is asked about at a time" in said("ejb", "status", "--snakemake", code=2)
    assert said("sbatch", "--test-only", "-n", "1", "-t", "1", "--wrap", "true")
