"""Passed-through jobs beside the same under sbatch itself, on one real Slurm: they see, and do, just the same."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.daemon import Daemon, first_line, until
from tests.fakes.slurm_commands import UNREACHABLE, FaultyCommands
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("passed-through-slurm")]

LIMITS = """
[limits]
missing_grace_s = 3
settle_s = 1
check_timeout_s = 10
"""

# Prints all that a job can see of how it was submitted, but for what differs between any two jobs.
PROBE = """\
#!/bin/bash
#SBATCH -t 2
{lines}
echo "$0" "$#"; for word in "$@"; do echo "<$word>"; done
pwd; umask; ulimit -S -a; trap -p INT
env | sort
{scontrol} show job $SLURM_JOB_ID | grep -E '(Command|JobName|Comment|NumTasks|StdOut|WorkDir|Requeue|TimeLimit)='
"""
PYTHON = """\
#!/usr/bin/env python3
#SBATCH -t 2 -J snake
import os, sys
print(sys.argv[1:], os.getcwd(), sorted(name for name in os.environ if not name.startswith("EJB_")))
"""
RANKS = """\
#!/bin/bash
#SBATCH -t 2 -N 2 --exclusive
srun sh -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS' | sort
echo $SLURM_TASKS_PER_NODE $SLURM_JOB_CPUS_PER_NODE "${SLURM_NTASKS-unset}"
"""


@dataclass
class Place:
    cluster: SlurmCluster
    daemon: Daemon
    folder: Path
    faults: FaultyCommands

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "SLURM_CONF": str(self.cluster.conf),
            "EJB_SOCKET": str(self.daemon.state / "ejbd.sock"),
            **more,
        }

    def run(self, argv: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        """A command in a user's shell, with a umask and limits that are not the daemon's."""
        shell = 'umask 027; ulimit -S -n 777; ulimit -S -c 0; exec "$@"'
        return subprocess.run(
            ["sh", "-c", shell, "sh", *argv],
            cwd=self.folder,
            env=self.environment(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ejb(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run([sys.executable, "-m", "ejbd.cli.main", *words], **more)

    def submit(self, *words: str, **more: str) -> str:
        done = self.ejb("submit", *words, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def sbatch(self, *words: str, **more: str) -> str:
        done = self.run(["sbatch", "--parsable", *words], **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def batch_id(self, job: str) -> str:
        def ids() -> list[str]:
            """Of the only subjob: none before the job was looked at, and before sbatch has answered."""
            return [one["batch_id"] for one in self.daemon.job(job)["subjobs"] if one["batch_id"] is not None]

        until(lambda: bool(ids()), "it was not submitted", 30)
        return str(ids()[0])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if reason := missing_slurm():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("passed-through")
    home = folder / "home"
    (home / "sub").mkdir(parents=True)
    with slurm_cluster(4, 4, "--exclusive") as cluster:
        faults = FaultyCommands(folder / "commands")
        toml = f'batch = "slurm"\npoll_s = 0.5\nworker_python = "{sys.executable}"\n' + LIMITS
        daemon = Daemon(folder, toml, {"SLURM_CONF": str(cluster.conf), "PATH": faults.path})
        daemon.start()
        assert not daemon.ended(), daemon.log.read_text()
        try:
            yield Place(cluster, daemon, home, faults)
        finally:
            daemon.stop()


CASES: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "arguments": ("", ["probe.sh", "p q", "it's", "-x", "*"], {}),
    "comment and name": ("#SBATCH --comment='my own' -J mine", ["-N", "2", "probe.sh"], {}),
    "another folder": ("#SBATCH -o %x-%j-%u.txt", ["-D", "sub", "HOME/probe.sh"], {}),
    "tasks": ("#SBATCH --tasks-per-node=2 -N 2 --mail-user=", ["probe.sh"], {}),
    "within a job": ("", ["-n", "2", "probe.sh"], {"SLURM_NTASKS": "9", "SLURM_JOB_ID": "7", "LD_LIBRARY_PATH": "/x"}),
    "chosen environment": ("#SBATCH --export=MINE,OTHER=2", ["probe.sh"], {"MINE": "1", "HIS": "2"}),
    "no environment": ("", ["--export=NONE", "probe.sh"], {"MINE": "1"}),
    "requeue": ("#SBATCH --no-requeue --open-mode=append", ["probe.sh"], {"BASH_ENV": "/nowhere"}),
}


def comparable(text: str, id: str) -> list[str]:
    """Without what differs between any two jobs: ids, nodes, processes; and without the tag, which is documented."""
    text = re.sub(rf"(job0*|JOB_?ID=|JobId=|(?<!/pytest)(?<!STEP_ID=)(?<!STEPID=)-){id}\b", r"\1ID", text)
    text = re.sub(r" ejb-[0-9a-f]{8}\.0", "", re.sub(r"=ejb-[0-9a-f]{8}\.0", "=", text))
    text = re.sub(r"\bn(\d|\[[^]]*\])", "NODE", text)
    own = "SLURM_(?:TASK_PID|JOB_START_TIME|JOB_END_TIME|JOB_SLUID)"
    lines = [re.sub(rf"({own}|SLURM_\w*PER_NODE)=.*", r"\1", line).rstrip() for line in text.splitlines()]
    lines = [re.sub(r"RunTime=\S+", "RunTime", line) for line in lines]
    return [line for line in lines if not re.match(r"EJB_SOCKET=|\s*Comment=$", line)]


def test_a_script_sees_and_does_what_it_would_under_sbatch(place: Place) -> None:
    pairs: dict[str, tuple[str, str]] = {}
    for name, (lines, relative, more) in CASES.items():
        words = [word.replace("HOME", str(place.folder)) for word in relative]
        place.write("probe.sh", PROBE.format(lines=lines, scontrol=shutil.which("scontrol")))
        passed = place.submit(*words, **more)
        pairs[name] = place.batch_id(passed), place.sbatch(*words, **more)
    place.write("snake.py", PYTHON)
    place.write("ranks.sh", RANKS)
    for name, words in {"python": ["snake.py", "a b"], "ranks": ["ranks.sh"]}.items():
        pairs[name] = place.batch_id(place.submit(*words)), place.sbatch(*words)
    ids = {id for pair in pairs.values() for id in pair}
    place.cluster.until(
        lambda: all(place.cluster.states().get(id) == "COMPLETED" for id in ids), "the jobs did not complete", 120
    )
    for name, (ours, theirs) in pairs.items():
        texts = [_output(place, id).read_text() for id in (ours, theirs)]
        seen = [comparable(text, id) for text, id in zip(texts, (ours, theirs), strict=True)]
        assert seen[0] == seen[1], (name, sorted(set(seen[0]) ^ set(seen[1])))
        assert oct(_output(place, ours).stat().st_mode) == oct(_output(place, theirs).stat().st_mode), name
    assert "<it's>" in _output(place, pairs["arguments"][0]).read_text()
    assert "rank 1 of 2" in _output(place, pairs["ranks"][0]).read_text()


def test_a_job_submits_the_next_by_the_link_of_sbatchs_name(place: Place) -> None:
    links = place.folder / "links"
    links.mkdir()
    ejb = links / "sbatch"
    ejb.write_text(f"{first_line()}import sys\nsys.argv[0] = 'sbatch'\nfrom ejbd.cli.main import main\nmain()\n")
    ejb.chmod(0o755)
    place.write("next.sh", "#!/bin/bash\n#SBATCH -n 1 -t 2\ntouch came\n")
    place.write("first.sh", f"#!/bin/bash\n#SBATCH -n 1 -t 2\n{ejb} next.sh\n")
    ran = place.daemon.wait(place.submit("first.sh", PYTHONPATH=str(Path(__file__).parents[2])), timeout_s=60)
    assert ran["state"] == "completed"
    said = _output(place, ran["subjobs"][0]["batch_id"]).read_text()
    assert said.startswith("Submitted batch job "), said
    until((place.folder / "came").exists, "the next job did not run", 60)


def _output(place: Place, id: str) -> Path:
    shown = place.cluster.run("scontrol", "show", "job", id)
    found = re.search(r"StdOut=(.*)", shown)
    assert found is not None, shown
    path = Path(found[1].strip())
    until(path.exists, f"{path} is not there", 60)
    return path


def test_an_array_is_passed_through_with_the_state_of_all_elements(place: Place) -> None:
    place.write("array.sh", "#!/bin/bash\n#SBATCH -t 2 -a 1-6%3\nexit $((SLURM_ARRAY_TASK_ID == 4))\n")
    job = place.daemon.wait(place.submit("array.sh"), timeout_s=60)
    assert (job["state"], job["exit_code"]) == ("failed", 1), job
    assert job["subjobs"][0]["elements"] == {"completed": 5, "failed": 1}
    assert "5 completed" in job["reason"] and "1 failed (4)" in job["reason"]
    place.write("good.sh", "#!/bin/bash\n#SBATCH -t 2\nsleep 1\n")
    assert place.daemon.wait(place.submit("-O", "--array=0-4:2", "good.sh"), timeout_s=60)["state"] == "completed"


def test_a_heterogeneous_job_that_completed_is_completed(place: Place) -> None:
    place.write("het.sh", "#!/bin/bash\n#SBATCH -n 1 -t 2\n#SBATCH hetjob\n#SBATCH -n 2\nsleep 1\n")
    job = place.daemon.wait(place.submit("het.sh"), timeout_s=60)
    assert (job["state"], job["exit_code"]) == ("completed", 0), job


def test_one_of_several_partitions_is_used(place: Place) -> None:
    place.write("ok.sh", "#!/bin/sh\n#SBATCH -t 2\ntrue\n")
    job = place.daemon.wait(place.submit("-p", "batch,whole", "ok.sh"), timeout_s=60)
    assert job["state"] == "completed" and job["queue"] in ("batch", "whole"), job


def test_singletons_run_one_after_another_under_their_own_name(place: Place) -> None:
    place.write("single.sh", "#!/bin/bash\n#SBATCH -t 2 -d singleton -J alone\nsleep 2\n")
    ids = [place.batch_id(place.submit("single.sh")) for _ in range(2)]
    listed = place.cluster.run("squeue", "--noheader", "--name=alone", "--states=all", "--format=%i").split()
    assert sorted(listed) == sorted(ids)
    place.cluster.until(lambda: all(place.cluster.states().get(id) == "COMPLETED" for id in ids), "they did not end")
    shown = [place.cluster.run("scontrol", "show", "job", id) for id in ids]
    times = [dict(re.findall(r"(StartTime|EndTime)=(\S+)", text)) for text in shown]
    assert times[1]["StartTime"] >= times[0]["EndTime"], "they ran side by side"


def test_a_renamed_job_is_still_ours(place: Place) -> None:
    place.write("long.sh", "#!/bin/bash\n#SBATCH -t 2\nsleep 4; exit 3\n")
    job = place.submit("long.sh")
    place.daemon.wait(job, "running", timeout_s=60)
    place.cluster.run("scontrol", "update", f"JobId={place.batch_id(job)}", "JobName=renamed")
    found = place.daemon.wait(job, timeout_s=60)
    assert (found["state"], found["exit_code"]) == ("failed", 3), found


def test_what_slurm_refuses_is_refused_at_submission_and_in_the_dry_run(place: Place) -> None:
    place.write("wide.sh", "#!/bin/bash\n#SBATCH -t 2 -n 500\nhostname\n")
    before = len(place.daemon.client.get("/v1/jobs").json()["jobs"])
    for words in (["submit", "wide.sh"], ["submit", "--dry-run", "wide.sh"]):
        done = place.ejb(*words)
        assert done.returncode == 7 and "More processors requested than permitted" in done.stderr, done.stderr
    assert len(place.daemon.client.get("/v1/jobs").json()["jobs"]) == before
    place.faults.fault("sbatch", UNREACHABLE, once=True)
    done = place.ejb("submit", "--dry-run", "wide.sh")
    assert done.returncode == 0 and "not checked" in done.stderr, done.stderr


def test_what_slurm_would_refuse_is_refused_of_an_elastic_job_too_and_a_drained_node_is_no_refusal(
    place: Place,
) -> None:
    place.write("wide.sh", "#!/bin/bash\n#SBATCH -t 2 -n 16\nsrun sleep 0\n")
    place.ejb("queue", "set", "batch", "elasticity=on")
    try:
        for option in ("--gres=tpu:1", "--constraint=nosuch"):
            for words in (["submit", option, "wide.sh"], ["submit", "--dry-run", option, "wide.sh"]):
                done = place.ejb(*words)
                assert done.returncode == 7 and "Invalid" in done.stderr, (words, done.stderr)
        place.cluster.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
        until(lambda: "DRAIN" in place.cluster.run("sinfo", "-h", "-N", "-o", "%T").upper(), "it is not drained", 30)

        def taken() -> bool:  # once the daemon has seen it, too
            return all(
                place.ejb("submit", "--dry-run", *words, "wide.sh").returncode == 0 for words in ([], ["--elastic=off"])
            )

        until(taken, "a job as wide as the cluster was refused for one drained node, where sbatch takes it", 30)
    finally:
        place.cluster.run("scontrol", "update", "NodeName=n1", "State=RESUME")
        place.ejb("queue", "set", "batch", "elasticity=off")


def test_the_answer_says_that_it_is_passed_through_and_why(place: Place) -> None:
    place.write("ok.sh", "#!/bin/sh\n#SBATCH -t 2 --mail-type=NONE\ntrue\n")
    done = place.ejb("submit", "ok.sh")
    assert done.stderr == "ejb: passed through as an ordinary job: elasticity is off in queue batch\n", done.stderr
    dry = place.ejb("submit", "--dry-run", "ok.sh")
    assert "elasticity is off in queue batch" in dry.stdout and "elastic=off" not in dry.stdout, dry.stdout
    asked = place.ejb("submit", "--elastic", "off", "ok.sh")
    assert "the job asked for elastic=off" in asked.stderr


def test_the_end_that_nobody_saw_is_told_by_the_exit_file_or_is_unknown(place: Place) -> None:
    text = place.cluster.conf.read_text()
    place.cluster.conf.write_text(re.sub(r"MinJobAge=\d+", "MinJobAge=2", text))
    place.cluster.run("scontrol", "reconfigure")
    body = f"until [ -e {place.folder}/go ]; do sleep 0.2; done; exit "
    place.write("bash.sh", f"#!/bin/bash\n#SBATCH -t 5\n{body}0\n")
    place.write("sh.sh", f"#!/bin/sh\n#SBATCH -t 5\n{body}0\n")
    jobs = {name: place.submit(f"{name}.sh") for name in ("bash", "sh")}
    jobs["command"] = place.submit("-t", "5", "--", "sh", "-c", body + "3")
    for job in jobs.values():
        place.daemon.wait(job, "running", timeout_s=60)
    ids = [place.batch_id(job) for job in jobs.values()]
    place.daemon.kill()
    (place.folder / "go").touch()
    deadline = time.monotonic() + 120
    while any(id in place.cluster.states() for id in ids):
        assert time.monotonic() < deadline, "Slurm did not forget them"
        time.sleep(0.5)
    place.daemon.start()
    assert place.daemon.wait(jobs["bash"], timeout_s=60)["exit_code"] == 0
    found = place.daemon.wait(jobs["command"], timeout_s=60)
    assert (found["state"], found["exit_code"]) == ("failed", 3)
    unknown = place.daemon.wait(jobs["sh"], "unknown", timeout_s=60)
    assert "how it ended is not known" in unknown["reason"]
    assert place.ejb("cancel", jobs["sh"]).returncode == 0
    assert place.daemon.job(jobs["sh"])["state"] == "cancelled"


NAP = """\
#!/bin/bash
#SBATCH -t 5 -o nap.out
#EJB walltime=auto rerunnable app=nap elastic=off
echo begun
[ "$(wc -l <nap.out)" -ge 2 ] || exec sleep 600
"""


@pytest.mark.nightly("test_kept_place_slurm.py goes on after a time-out with a learned walltime on a real Slurm")
def test_a_learned_walltime_and_the_next_after_a_time_out(place: Place) -> None:
    """The first run is ended by Slurm as by its time limit, which is moved forward; nothing else is changed."""
    runs = 12
    columns = {
        "user": getpass.getuser(), "application": "nap", "input_class": "", "processors": 1, "requested_s": 300.0,
        "outcome": "completed",
    }  # fmt: skip
    history = {
        **{name: [value] * runs for name, value in columns.items()},
        "key": list(range(runs)),
        "run_s": [30.0 + at for at in range(runs)],
        "end_s": [1000.0 + at for at in range(runs)],
    }
    assert place.daemon.client.post("/v1/history", json=history).json() == {"new": runs}
    place.write("nap.sh", NAP)
    job = place.submit("--parsable", "nap.sh")
    first = place.batch_id(job)
    place.daemon.wait(job, "running")
    assert re.search(r"TimeLimit=00:01:00\b", place.cluster.run("scontrol", "show", "job", first))
    place.cluster.run("scontrol", "update", f"JobId={first}", "EndTime=now+3")
    place.daemon.wait(job, "completed", "failed", "timeout", "cancelled", timeout_s=180)
    found = place.daemon.job(job)
    assert found["state"] == "completed", place.daemon.trace(job)()
    asked = place.daemon.explain(job)["walltimes"]
    assert [s["walltime_s"] for s in found["subjobs"]][:2] == asked["sequence_s"][:2] and asked["at"] == 1
    assert max(asked["sequence_s"]) == 300.0, "the user's own is the last"
    # Where the second run lasts until a poll, a third place is kept behind it, and given back unused.
    assert [s["state"] for s in found["subjobs"] if s["start_s"] is not None] == ["timeout", "completed"]
    output = (place.folder / "nap.out").read_text()
    assert output.count("begun") == 2 and "DUE TO TIME LIMIT" in output, "the second run appended to the first's"
