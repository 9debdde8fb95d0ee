"""Which scripts are begun again where their shell is lost, and what the users of the others are told beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from ejbd.manager.jobspec import JobRequest, Overrides, Reading, read


def reading(*lines: str, head: str = "#SBATCH -n 4 -t 5", first: str = "#!/bin/bash", **overrides: Any) -> Reading:
    script = "\n".join([first, head, *lines, ""])
    return read(JobRequest(cwd="/w", script=script, env={"SHELL": "/bin/sh"}, overrides=Overrides(**overrides)))


@pytest.mark.parametrize(
    "lines",
    [
        ("srun ./a",),
        ("module load mpi", "cd run", "export OMP_NUM_THREADS=1 STEPS=10", "srun ./a > log 2>&1", "echo done"),
        ("set -e", "for i in 1 2 3; do srun ./a $i; done", "exit 0"),
        ("if srun ./a; then", "    mpirun -np 4 ./b || exit 3", "fi", "echo nothing > /dev/null"),
        ("cd $PBS_O_WORKDIR", "N=`wc -l < list`", "mpirun -np $(cat $PBS_NODEFILE | wc -l) ./a"),
        ("# cp a b", "srun ./a '>>' \"#\" <<END", "cp a b", "END"),
    ],
)
def test_a_script_that_only_launches_is_begun_again(lines: tuple[str, ...]) -> None:
    found = reading(*lines)
    assert found.spec.begins_again and not found.notes


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("cp result result.1", "'cp' is work beside the launches"),
        ("echo begun >> diary", "'echo' writes a file"),
        ("> marker", "writes a file"),
        ("srun ./more >> log", "added twice"),
        ("srun ./more $(./next)", "substitution"),
        ("N=`cat list | tee copy`", "substitution"),
        ("N=$(cat list > copy)", "substitution"),
        ("for f in $(cat list); do srun ./b $f; done", "what the loop goes over"),
        ("if [ -f restart ]; then srun ./b; fi", "'[' is work"),
        ("for f in *.in; do srun ./b $f; done", "what the loop goes over"),
        ("python3 after.py", "'python3' is work"),
        (". ./settings", "'.' is work"),
        ("srun ./a | tee log", "'tee' is work"),
        ("work() { srun ./b; }", ""),
    ],
)
def test_what_may_be_work_is_in_the_way_and_named_beforehand(line: str, why: str) -> None:
    found = reading("srun ./a", line)
    if not why:  # a function's name says nothing; its call does
        found = reading("srun ./a", line, "work")
        why = "'work' is work"
    (note,) = found.notes
    assert not found.spec.begins_again
    assert note.startswith(f"line {5 if 'work()' in line else 4}: the script is not begun again where the node")
    assert why in note and "--requeue" in note and "#EJB restartable" in note


def test_its_user_may_say_so() -> None:
    for head in ("#SBATCH -n 4 -t 5 --requeue", "#PBS -l nodes=1:ppn=4,walltime=60 -r y"):
        found = reading("srun ./a", "cp a b", head=head)
        assert found.spec.begins_again and not found.notes, "--requeue is acted on"
    assert not reading("srun ./a", "cp a b", head="#SBATCH -n 4 -t 5\n#EJB restartable").notes
    assert not reading("srun ./a", "cp a b", restartable=True).notes


def test_its_user_may_say_that_it_is_not() -> None:
    for head in ("#SBATCH -n 4 -t 5 --no-requeue", "#PBS -l nodes=1:ppn=4,walltime=60 -r n"):
        found = reading("srun ./a", head=head)
        assert not found.spec.begins_again and "not to be run again" in found.notes[0]
    both = reading("srun ./a", head="#SBATCH -n 4 -t 5 --no-requeue\n#SBATCH --requeue")
    assert both.spec.begins_again and both.spec.rigid_options == ("--requeue",), "the last word holds"


def test_what_is_no_shell_s_is_not_looked_into_and_a_command_has_no_shell() -> None:
    found = reading("import os", "os.system('srun ./a')", first="#!/usr/bin/env python3")
    assert not found.spec.begins_again and "cannot be seen" in found.notes[0]
    command = read(JobRequest(cwd="/w", command=("./a",), env={}, overrides=Overrides(ntasks="4", time="5")))
    assert not command.spec.begins_again and not command.notes


@pytest.mark.parametrize(
    ("first", "line", "where"),
    [
        ("#!/bin/bash", "trap 'scontrol requeue $SLURM_JOB_ID' USR1", "line 3"),
        ("#!/bin/bash", 'srun bash -c "[ $SLURM_PROCID = 0 ] && scontrol requeue ${SLURM_ARRAY_JOB_ID}_1"', "line 3"),
        ("#!/bin/bash", "/usr/bin/scontrol -v requeuehold State=SpecialExit $SLURM_JOBID", "line 3"),
        ("#!/usr/bin/env python3", 'check_call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])', "line 3"),
        ("#!/bin/bash", "# scontrol requeue $SLURM_JOB_ID", ""),
        ("#!/bin/bash", "scontrol show job $SLURM_JOB_ID > requeue", ""),
        ("#!/bin/bash", "sbatch --requeue next.sh; scontrol show job 3 # --requeue", ""),
    ],
)
def test_a_script_that_puts_itself_back_into_the_queue_is_no_elastic_one(first: str, line: str, where: str) -> None:
    found = reading(line, "srun ./a", first=first, head="#SBATCH -n 4 -t 5 --requeue")
    told = [one for one in found.refusals if "back into the queue" in one.message]
    assert [(one.where, one.doubt) for one in told] == ([(where, False)] if where else [])


@pytest.mark.parametrize(
    ("options", "doubted"),
    [
        ("--signal=USR1@60", True),
        ("--signal=USR1@60 --requeue", True),
        ("--signal=USR1@60 --requeue --no-requeue", False),
        ("--signal=B:USR1@60", False),
        ("--requeue", False),
    ],
)
def test_ranks_that_are_told_of_their_end_may_put_the_job_back(options: str, doubted: bool) -> None:
    """submitit, Lightning and others do, in a handler that no script shows."""
    found = reading("srun python3 train.py", head=f"#SBATCH -n 4 -t 5 {options}")
    told = [one for one in found.refusals if "back into the queue" in one.message]
    assert [(one.where, one.doubt) for one in told] == ([("line 2", True)] if doubted else [])
    assert found.elastic_spec().signal == ("" if options == "--requeue" else options.split()[0].partition("=")[2])


@pytest.mark.parametrize(("mode", "kept"), [("append", True), ("a", True), ("truncate", False)])
def test_output_that_is_there_stays_where_the_job_says_so(mode: str, kept: bool) -> None:
    found = reading("srun ./a", head=f"#SBATCH -n 4 -t 5 --open-mode={mode}")
    assert found.elastic_spec().keeps_output is kept and not found.notes
    assert f"--open-mode={mode}" in found.passed_through("").rigid_options
