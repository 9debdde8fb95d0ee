"""Tools that submit jobs by themselves and know Slurm's commands only, on one real Slurm: Snakemake, submitit, Parsl,
dask-jobqueue, and what Nextflow does with Slurm."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from ejbd.cli.main import LINKS
from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST
from tests.fakes.me import ME
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("workflow-tools")]
EJB = Path(sys.executable).with_name("ejb")
LONG_S = 240.0
TOOLS = str(Path(sys.executable).parent)

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
def slurm() -> Iterator[SlurmCluster]:
    """One for all tools."""
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(2, 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    toml = f'batch = "slurm"\npoll_s = 1\nworker_python = "{sys.executable}"\n' + FAST
    with running_site(tmp_path_factory.mktemp("workflows"), toml, {"SLURM_CONF": str(slurm.conf)}) as site:
        yield site


@pytest.fixture
def environment(slurm: SlurmCluster, site: Site, tmp_path: Path) -> dict[str, str]:
    """As a user has it: `ejb` on the PATH, and before it links to it that are called as Slurm's commands."""
    names = tmp_path / "names"
    names.mkdir()
    for name in LINKS:
        (names / name).symlink_to(EJB)
    # Snakemake's job steps take SLURM_CONF from their environment, where a site's Slurm needs none.
    if srun := shutil.which("srun"):
        (names / "srun").write_text(f'#!/bin/sh\nSLURM_CONF={slurm.conf} exec {srun} "$@"\n')
        (names / "srun").chmod(0o755)
    path = os.pathsep.join([str(names), str(EJB.parent), os.environ["PATH"]])
    told = {"EJB_SOCKET": str(site.daemon.state / "ejbd.sock"), "SLURM_CONF": str(slurm.conf)}
    return {**os.environ, "PATH": path, "HOME": str(tmp_path), **told}


def snakemake(plugin: str) -> str:
    """The program: as scripts/setup has made it, or the user's own, with a plug-in that it needs."""
    own = str(Path(sys.prefix) / "tools" / "bin")
    found = os.environ.get("EJB_TEST_SNAKEMAKE") or shutil.which("snakemake", path=own) or shutil.which("snakemake")
    if not found:
        pytest.skip("no snakemake in .venv/tools (scripts/setup) or on the PATH")
    python = str(Path(found).resolve().with_name("python"))
    if subprocess.run([python, "-c", f"import {plugin}"], check=False, capture_output=True).returncode:
        pytest.skip(f"snakemake has no {plugin}: scripts/setup")
    return found


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere submits and asks; unit/test_cli_links.py has more")
def test_snakemake_runs_its_rules_as_jobs_of_ejb(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    program = snakemake("snakemake_executor_plugin_cluster_generic")
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
            timeout=180,
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


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere asks by the same links, unit/test_cli_links.py by more")
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
    until = time.monotonic() + LONG_S
    # A task's file is there before the daemon's next look at the batch system.
    while not {nextflow.states()[task.job] for task in tasks} <= {"R", "CG", "CD", "F"}:
        assert time.monotonic() < until, nextflow.states()
        time.sleep(0.2)
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


def tool(package: str, *programs: str) -> None:
    """Skip where a tool is not installed."""
    if find_spec(package) is None or any(shutil.which(one, path=TOOLS) is None for one in programs):
        pytest.skip(f"{package} is not installed: pip install -e '.[dev]'")


def run_by(environment: Mapping[str, str], folder: Path, *words: str, code: int = 0) -> str:
    """Run a program as a user does; what it wrote."""
    path = os.pathsep.join([environment["PATH"], TOOLS])
    done = subprocess.run(
        words, cwd=folder, env={**environment, "PATH": path}, capture_output=True, text=True, timeout=LONG_S
    )
    assert done.returncode == code, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere asks by the same links, unit/test_cli_links.py by more")
def test_snakemakes_slurm_executor_runs_its_rules(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    program = snakemake("snakemake_executor_plugin_slurm")
    (tmp_path / "Snakefile").write_text(
        """
rule all:
    input: "sum.txt"

rule square:
    output: "square-{n}.txt"
    threads: 2
    shell: "echo $(({wildcards.n} * {wildcards.n})) $SLURM_JOB_ID > {output}"

rule sum:
    input: expand("square-{n}.txt", n=[3, 4])
    output: "sum.txt"
    shell: "cut -d' ' -f1 {input} | paste -sd+ - > {output}"
"""
    )
    words = [program, "--executor", "slurm", "--jobs", "4", "--latency-wait", "20", "--default-resources"]
    words += ["slurm_partition=batch", "runtime=5", "mem_mb=100", "slurm_account=none"]
    words += ["--seconds-between-status-checks", "2", "--slurm-init-seconds-before-status-checks", "2"]
    told = run_by(environment, tmp_path, *words)
    assert (tmp_path / "sum.txt").read_text() == "9+16\n"
    numbers = re.findall(r"submitted with SLURM jobid ([0-9]+)", told)
    assert len(numbers) == 3
    assert {site.daemon.job(number)["state"] for number in numbers} == {"completed"}
    inside = {(tmp_path / f"square-{n}.txt").read_text().split()[1] for n in (3, 4)}
    assert inside < set(numbers)


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere asks by the same links, unit/test_cli_links.py by more")
def test_submitit_gets_results_from_its_jobs(environment: Mapping[str, str], tmp_path: Path) -> None:
    tool("submitit")
    (tmp_path / "work.py").write_text("import os\n\ndef square(x): return x * x, os.environ['SLURM_JOB_ID']\n")
    (tmp_path / "main.py").write_text(
        """
import submitit, time, work
executor = submitit.AutoExecutor(folder="log", cluster="slurm")
executor.update_parameters(timeout_min=3, slurm_partition="batch", slurm_mem="100", cpus_per_task=1)
job = executor.submit(work.square, 7)
value, number = job.result()
assert value == 49 and number == job.job_id, (value, number, job.job_id)
until = time.monotonic() + 60
while job.get_info(mode="force").get("State") != "COMPLETED":
    assert time.monotonic() < until, job.get_info()
    time.sleep(0.5)
tasks = executor.map_array(work.square, [1, 2, 3])
assert [task.result()[0] for task in tasks] == [1, 4, 9]
failing = executor.submit(work.square, "a")
assert "TypeError" in str(failing.exception())
lasting = executor.submit(time.sleep, 600)
lasting.cancel()
print("all well")
"""
    )
    python = dict(environment, PYTHONPATH=str(tmp_path))
    assert "all well" in run_by(python, tmp_path, sys.executable, "main.py")


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere asks by the same links, unit/test_cli_links.py by more")
def test_parsl_runs_its_apps_on_blocks_of_ejb(environment: Mapping[str, str], tmp_path: Path) -> None:
    tool("parsl", "process_worker_pool.py")
    (tmp_path / "main.py").write_text(
        """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SrunLauncher
from parsl.providers import SlurmProvider

provider = SlurmProvider("batch", launcher=SrunLauncher(), nodes_per_block=1, init_blocks=1, min_blocks=0, max_blocks=2,
                         walltime="00:05:00", exclusive=False, cores_per_node=2)
executor = HighThroughputExecutor(label="htex", address="127.0.0.1", max_workers_per_node=2, provider=provider)

@parsl.python_app
def square(x):
    return x * x

with parsl.load(Config(executors=[executor], strategy="simple", strategy_period=1, max_idletime=5)):
    assert [one.result(timeout=200) for one in [square(n) for n in range(6)]] == [n * n for n in range(6)]
    provider.status(list(provider.resources))
    states = {str(one["status"].state) for one in provider.resources.values()}
    assert states <= {"JobState.RUNNING", "JobState.PENDING"}, states
print("all well")
"""
    )
    assert "all well" in run_by(environment, tmp_path, sys.executable, "main.py")


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere asks by the same links, unit/test_cli_links.py by more")
def test_dask_jobqueue_scales_by_jobs_of_ejb(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    tool("dask_jobqueue")
    (tmp_path / "main.py").write_text(
        """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

with SLURMCluster(queue="batch", cores=1, processes=1, memory="200MB", walltime="00:05:00", interface="lo",
                  job_name="dask-of-ejb", log_directory="log", scheduler_options={"dashboard_address": ":0"},
                  worker_extra_args=["--no-dashboard"]) as cluster:
    cluster.scale(jobs=2)
    with Client(cluster) as client:
        client.wait_for_workers(2, timeout=200)
        assert client.gather(client.map(lambda x: x * x, range(5))) == [0, 1, 4, 9, 16]
        numbers = [worker.job_id for worker in cluster.workers.values()]
    print("jobs", *numbers)
"""
    )
    told = run_by(environment, tmp_path, sys.executable, "main.py")
    numbers = re.findall(r"^jobs (.*)$", told, re.MULTILINE)[0].split()
    jobs = [site.daemon.job(number) for number in numbers]
    assert [job["name"] for job in jobs] == ["dask-of-ejb"] * 2
    until = time.monotonic() + LONG_S
    while {site.daemon.job(number)["state"] for number in numbers} - {"cancelled", "completed"}:
        assert time.monotonic() < until
        time.sleep(0.3)


def test_a_job_goes_by_one_number_everywhere(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    def said(*words: str, code: int = 0) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == code, done.stderr
        return done.stdout.strip() or done.stderr.strip()

    line = 'srun -n 2 sh -c "sleep 0; echo $SLURM_JOB_ID"; squeue -h -o %A -j $SLURM_JOB_ID; exit 4'
    elastic = said("sbatch", "--parsable", "-n", "2", "-t", "2", "--wrap", line)
    passed = said("sbatch", "-n", "1", "-t", "2", "--wrap", "echo $SLURM_JOB_ID").removeprefix("Submitted batch job ")
    told = {number: site.daemon.job(number) for number in (elastic, passed)}
    assert [told[number]["elastic"] for number in (elastic, passed)] == [True, False]
    for number, code in ((elastic, 4), (passed, 0)):
        job = site.daemon.wait(told[number]["id"])
        assert job["exit_code"] == code and job["number"] == number
        (first,) = [one for one in job["subjobs"] if one["role"] in ("placeholder", "rigid")]
        assert first["batch_id"] == number  # Slurm's own
        assert set((tmp_path / f"slurm-{number}.out").read_text().split()) == {number}
        state = "FAILED" if code else "COMPLETED"
        assert said("squeue", "-h", "-t", "all", "-o", "%i|%T|%.3j", "-j", number) == f"{number}|{state}|wra"
        assert (
            said("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State,ExitCode", "-j", number)
            == f"{number}|{state}|{code}:0"
        )
        assert f"JobId={number} " in said("scontrol", "show", "job", number)
    id = said("ejb", "status", "--quiet", "-o", "id", "--no-heading", f"{elastic}..{elastic}")
    assert id == told[elastic]["id"]
    assert said("ejb", "status", "--snakemake", elastic) == "failed"
    # A job that waits for another has no number of Slurm's yet: it goes by one that Slurm takes for nobody's.
    first = said("sbatch", "--parsable", "-n", "2", "-t", "2", "--wrap", "srun sleep 3; exit 3")
    second = said("sbatch", "--parsable", "-d", f"afternotok:{first}", "-n", "2", "-t", "2", "--wrap", line)
    assert int(second) >= 2**30
    assert said("ejb", "wait", "--quiet", second, code=4) == "failed"
    assert set((tmp_path / f"slurm-{second}.out").read_text().split()) == {second}
    real = subprocess.run(["/usr/bin/scancel", second], capture_output=True, text=True, timeout=180, env=environment)
    assert "Terminating" not in real.stderr


def test_what_is_no_job_of_ejb_is_left_to_slurms_own_commands(
    site: Site, environment: Mapping[str, str], tmp_path: Path
) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    real = shutil.which("sbatch", path=os.environ["PATH"])
    assert real is not None
    other = said(real, "--parsable", "-H", "-t", "2", "--wrap", "true")[1]
    ours = said("sbatch", "--parsable", "-H", "-n", "2", "-t", "2", "--wrap", "srun sleep 0")[1]
    assert said("squeue", "-h", "-o", "%i %t", "-j", f"{ours},{other}")[1].splitlines() == [f"{ours} PD", f"{other} PD"]
    assert f"JobId={other} " in said("scontrol", "show", "job", other)[1]
    assert "PartitionName=batch" in said("scontrol", "show", "partition")[1]
    assert said("sbatch", "--version")[1] == said(real, "--version")[1]
    code, _, why = said("squeue", "-j", "999999")
    assert code == 1 and "Invalid job id specified" in why
    assert said("scancel", other, ours) == (0, "", "")
    assert said("squeue", "-h", "-t", "all", "-o", "%T", "-j", other)[1] == "CANCELLED"
    assert said("squeue", "-h", "-t", "all", "-o", "%T", "-j", ours)[1] == "CANCELLED"


@pytest.mark.nightly("unit/test_cli_links.py has what scancel takes and signals; test_scripts.py cancels a real script")
def test_scancel_signals_jobs_and_ends_elements(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def until(state: str, name: str) -> None:
        """Elements are told one by one, as squeue of Slurm does."""
        end = time.monotonic() + LONG_S
        while said("squeue", "-h", "-r", "-t", "all", "-o", "%T", "-j", name).split() != [state]:
            assert time.monotonic() < end, said("squeue", "-t", "all", "-j", name)
            time.sleep(0.3)

    trapping = "trap 'echo told > told.{}; exit 0' USR1; while :; do sleep 0.1; done"
    (tmp_path / "rank.sh").write_text("#!/bin/bash\n" + trapping.format("rank"))
    (tmp_path / "rank.sh").chmod(0o755)
    ranks = said("sbatch", "--parsable", "-n", "2", "-t", "5", "--wrap", "srun ./rank.sh")
    shell = said("sbatch", "--parsable", "-n", "1", "-t", "5", "--wrap", trapping.format("shell"))
    assert [site.daemon.job(number)["elastic"] for number in (ranks, shell)] == [True, False]
    for number, words, file in ((ranks, (), "told.rank"), (shell, ("--batch",), "told.shell")):
        until("RUNNING", number)
        end = time.monotonic() + LONG_S
        while not (tmp_path / file).exists():
            assert time.monotonic() < end
            subprocess.run(
                ["scancel", "--signal=USR1", *words, number], env=environment, capture_output=True, timeout=180
            )
            time.sleep(1)
        until("COMPLETED", number)
    for body in ("srun sleep 300", "sleep 300"):
        array = said("sbatch", "--parsable", "-a", "1-2", "-n", "2", "-t", "5", "--wrap", body)
        said("scancel", f"{array}_2")
        until("CANCELLED", f"{array}_2")
        until("RUNNING", f"{array}_1")
        said("scancel", array)
        until("CANCELLED", f"{array}_1")


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere submits and asks; unit/test_cli_links.py has more")
def test_the_executor_for_snakemake_of_the_examples(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    """Its rules say themselves how wide they are and whether they are elastic."""
    program = snakemake("snakemake_executor_plugin_cluster_generic")
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    told = run_by(
        dict(environment, PYTHONPATH=str(EXAMPLES)),
        tmp_path,
        *(program, "--executor", "ejb", "--jobs", "4", "--latency-wait", "10", "--seconds-between-status-checks", "1"),
    )
    assert (tmp_path / "sum.txt").read_text() == "7\n"
    jobs = [site.daemon.job(id) for id in set(re.findall(r"external jobid '([0-9a-f]{8})'", told))]
    assert len(jobs) == 3 and {job["state"] for job in jobs} == {"completed"}
    assert [job["processes"] for job in jobs if job["elastic"]] == [2, 2]


@pytest.mark.nightly("test_a_job_goes_by_one_number_everywhere submits and asks; unit/test_cli_links.py has more")
def test_the_provider_for_parsl_of_the_examples(site: Site, environment: Mapping[str, str], tmp_path: Path) -> None:
    tool("parsl", "process_worker_pool.py")
    (tmp_path / "main.py").write_text(
        """
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl_ejb import EjbProvider

provider = EjbProvider(processors=2, walltime="5", options=["--elastic", "off"], max_blocks=2)
executor = HighThroughputExecutor(label="htex", address="127.0.0.1", max_workers_per_node=2, provider=provider)

@parsl.python_app
def square(x):
    return x * x

with parsl.load(Config(executors=[executor], strategy="simple", strategy_period=1, max_idletime=5)):
    assert [one.result(timeout=200) for one in [square(n) for n in range(6)]] == [n * n for n in range(6)]
    print("blocks", *provider.resources)
print("all well")
"""
    )
    told = run_by(dict(environment, PYTHONPATH=str(EXAMPLES)), tmp_path, sys.executable, "main.py")
    assert "all well" in told
    (line,) = re.findall("^blocks (.*)$", told, re.MULTILINE)
    for block in line.split():
        assert site.daemon.wait(block)["state"] in ("cancelled", "completed")
