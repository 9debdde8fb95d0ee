"""What a script is told that asks Slurm about its own job, where Slurm's job of that number is EJB's J0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.ejb_worker import own_job
from workers.ejb_worker.shimfolder import write_queries

J0 = """\
JobId=7 JobName=solve
   JobState=RUNNING Reason=None Dependency=(null)
   RunTime=00:00:05 TimeLimit=01:00:00 TimeMin=N/A
   StartTime=2026-11-29T15:18:15 EndTime=2026-11-29T16:18:15 Deadline=N/A
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=8 NumTasks=8 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Command=(null)
   WorkDir=/spool/jobs/1a2b/subjobs/1a2b.0
   Comment=ejb-1a2b.0 
   StdErr=/spool/job.out
   StdIn=/dev/null
   StdOut=/spool/job.out
   Power=
"""  # noqa: W291 (as Slurm writes it)
WAITING = (
    J0.replace("RUNNING Reason=None", "PENDING Reason=Resources")
    .replace("RunTime=00:00:05", "RunTime=00:00:00")
    .replace("15:18:15 EndTime=2026-11-29T16:18:15", "17:00:00 EndTime=2026-11-29T18:00:00")
    .replace("NodeList=n[1-2]\n   BatchHost=n1", "NodeList= SchedNodeList=n[1-2]")
    .replace("NumNodes=2", "NumNodes=2-2")
)
SUBJOB = J0.replace("JobId=7", "JobId=9").replace("n[1-2]", "n4").replace("BatchHost=n1", "BatchHost=n4")
AS_ASKED = (
    J0.replace("Command=(null)", "Command=/home/ada/run.sh a b")
    .replace("/spool/jobs/1a2b/subjobs/1a2b.0", "/home/ada")
    .replace("   Comment=ejb-1a2b.0 \n", "")
    .replace("StdErr=/spool/job.out", "StdErr=/home/ada/my err")
    .replace("StdOut=/spool/job.out", "StdOut=/home/ada/out")
)
FAKE = """\
#!/bin/sh
case "$*" in
    *--noheader*--jobs=7*--format=%T*) cat "$0.state" ;;
    *show*7*) [ -f "$0.7" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }; cat "$0.7" ;;
    *show*9*) cat "$0.9" ;;
    *) echo "$@" ;;
esac
"""


class Site:
    """A folder of the shims, in front of commands that answer as Slurm's do."""

    def __init__(self, folder: Path, batch_job: str) -> None:
        self.real, self.shims = folder / "bin", folder / "shims"
        self.real.mkdir()
        for name in ("scontrol", "squeue"):
            (self.real / name).write_text(FAKE)
            (self.real / name).chmod(0o755)
        self.env = {
            "PATH": f"{self.shims}:{self.real}:{os.environ['PATH']}",
            "SLURM_JOB_NAME": "solve",
            "SLURM_SUBMIT_DIR": "/home/ada",
            "SLURM_JOB_NODELIST": "n4,n1",
            "SLURM_JOB_NUM_NODES": "2",
            "EJB_COMMAND": "/home/ada/run.sh a b",
        }
        job = own_job.describe_job("7", batch_job, self.env, "/home/ada/out", "/home/ada/my err")
        write_queries(str(self.shims), job)
        assert json.loads((self.shims / own_job.FILE).read_text()) == job

    def answers(self, name: str, **texts: str) -> None:
        for what, text in texts.items():
            (self.real / f"{name}.{what.strip('_')}").write_text(text)

    def ask(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout


@pytest.mark.parametrize("words", [("show", "job", "7"), ("show", "jobid=7"), ("-dd", "show", "jobs", "7")])
def test_a_running_j0_is_shown_with_the_scripts_own_file_folder_and_output(tmp_path: Path, words: list[str]) -> None:
    site = Site(tmp_path, "7")
    site.answers("scontrol", _7=J0)
    assert site.ask("scontrol", *words) == AS_ASKED
    site.answers("scontrol", _7=" ".join(J0.split()) + "\n")
    assert site.ask("scontrol", "-o", *words).split() == AS_ASKED.split()


def test_a_j0_that_waits_is_shown_as_the_batch_job_runs_that_has_the_script(tmp_path: Path) -> None:
    site = Site(tmp_path, "9")
    site.answers("scontrol", _7=WAITING, _9=SUBJOB)
    assert site.ask("scontrol", "show", "job", "7") == AS_ASKED.replace("=n[1-2]", "=n4,n1").replace("=n1", "=n4")
    site.answers("scontrol", _7=J0)  # once it runs, it is the job
    assert site.ask("scontrol", "show", "job", "7") == AS_ASKED
    (site.real / "scontrol.7").unlink()  # a number of EJB's own
    told = site.ask("scontrol", "show", "job", "7")
    assert told.startswith("JobId=7 JobName=solve\n") and "Command=/home/ada/run.sh a b\n" in told


def test_squeue_is_asked_about_the_batch_job_that_has_the_script_with_what_is_known_put_in(tmp_path: Path) -> None:
    site = Site(tmp_path, "9")
    site.answers("squeue", state="PENDING\n")
    asked = site.ask("squeue", "-h", "-j", "7", "-o", "%.4i|%o|%Z|%L|%-3k")
    assert asked == "-h -j 9 -o    7|/home/ada/run.sh a b|/home/ada|%L|%-3k\n"
    assert site.ask("squeue", "--jobs=7", "--format=%20j|%T") == f"--jobs=9 --format={'solve':20}|%T\n"
    assert site.ask("squeue", "-j7", "-o%L") == "-j9 -o%L\n"
    site.answers("squeue", state="RUNNING\n")
    assert site.ask("squeue", "-j7", "-o%i %o %L") == "-j7 -o%i /home/ada/run.sh a b %L\n"


def test_all_else_is_slurms_own_affair(tmp_path: Path) -> None:
    site = Site(tmp_path, "9")
    for words in ("show hostnames n[1-3]", "show job 8", "show partition", "update JobId=7 Name=x", "requeue 7"):
        assert site.ask("scontrol", *words.split()) == f"{words}\n"
    for words in ("-u ada", "-j 7,8 -h", "-h -j 8"):
        assert site.ask("squeue", *words.split()) == f"{words}\n"
    (site.real / "scontrol").unlink()
    site.env["PATH"] = f"{site.shims}"
    assert (
        subprocess.run([str(site.shims / "scontrol")], env=site.env, check=False, capture_output=True).returncode == 127
    )
    assert sys.executable in (site.shims / "scontrol").read_text()
