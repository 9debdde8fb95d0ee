"""The command lines of srun, mpirun and mpiexec."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.ejb_worker.launch_options import Usage, parse

ENV = {"PATH": "/usr/bin:/bin", "HERE": "x"}


@pytest.mark.parametrize(
    ("line", "size", "argv"),
    [
        ("srun true", None, ["true"]),
        ("srun -n 4 true -n 5", 4, ["true", "-n", "5"]),
        ("srun -n4 true", 4, ["true"]),
        ("srun --ntasks=4 -- true", 4, ["true"]),
        ("srun --ntasks 4 -N 2 --ntasks-per-node=2 true", 4, ["true"]),
        ("srun -N 3 --ntasks-per-node 2 true", 6, ["true"]),
        ("srun -N2 true", None, ["true"]),
        ("srun --mpi=pmix --cpu-bind=cores -u --exclusive --hint=nomultithread -K1 -t 10 true", None, ["true"]),
        ("srun --mem=4G -c1 -J name --kill-on-bad-exit=1 true", None, ["true"]),
        ("srun --unbuffered --overlap --exact -q normal true", None, ["true"]),
        ("mpirun -np 8 --oversubscribe --bind-to core --map-by ppr:1:core true", 8, ["true"]),
        ("mpirun --mca btl tcp,self -mca pml ob1 -n 2 true", 2, ["true"]),
        ("mpirun --hostfile hosts --allow-run-as-root true", None, ["true"]),
        ("mpiexec -n 2 -genvall -ppn 4 -f hosts true", 2, ["true"]),
        ("mpiexec true -l", None, ["true", "-l"]),
    ],
)
def test_what_is_asked_for(line: str, size: int | None, argv: list[str]) -> None:
    name, *words = line.split()
    request = parse(name, words, ENV)
    assert (request.size, request.argv, request.env) == (size, argv, ENV)
    assert request.cwd == str(Path.cwd())


@pytest.mark.parametrize(
    ("line", "variable", "together"),
    [
        ("srun true", "", False),
        ("srun -K0 true", "1", False),
        ("srun --kill-on-bad-exit=0 true", "", False),
        ("srun -K true", "", True),
        ("srun -K1 true", "", True),
        ("srun --kill-on-bad-exit true", "0", True),
        ("srun --kill-on-bad-exit=1 true", "0", True),
        ("srun true", "1", True),
        ("srun true", "0", False),
        ("mpirun true", "", True),
        ("pbsdsh true", "", False),
    ],
)
def test_whether_a_rank_that_fails_ends_the_others(line: str, variable: str, together: bool) -> None:
    name, *words = line.split()
    assert parse(name, words, {**ENV, "SLURM_KILL_BAD_EXIT": variable}).together is together


@pytest.mark.parametrize(
    ("line", "env"),
    [
        ("srun --export=ALL,A=1,B=x=y true", {**ENV, "A": "1", "B": "x=y"}),
        ("srun --export=HERE,ALL true", ENV),
        ("srun --export=ALL,HERE=y true", ENV),  # the script's own value counts
        ("srun --export=HERE,A=1 true", {"HERE": "x", "A": "1"}),
        ("srun --export=HERE=y true", {"HERE": "y"}),
        ("srun --export=NONE true", {}),
        ("srun --export=NIL true", {}),
        ("mpirun -x HERE -x A=1 true", {**ENV, "A": "1"}),
        ("mpirun -x HERE=y true", {**ENV, "HERE": "y"}),
        ("mpiexec -genv A 1 -env B 2 true", {**ENV, "A": "1", "B": "2"}),
    ],
)
def test_variables(line: str, env: dict[str, str]) -> None:
    name, *words = line.split()
    assert parse(name, words, ENV).env == env


def test_srun_without_export_does_as_the_job_was_told() -> None:
    """sbatch says so by SLURM_EXPORT_ENV. What srun's own option says goes before, and mpirun knows neither."""
    told = {**ENV, "SLURM_EXPORT_ENV": "HERE", "SLURM_JOB_ID": "7", "EJB_JOB_ID": "a"}
    kept = {name: value for name, value in told.items() if name != "PATH"}
    assert parse("srun", ["true"], told).env == kept
    assert parse("srun", ["--export=ALL", "true"], told).env == parse("mpirun", ["true"], told).env == told


@pytest.mark.parametrize(
    ("line", "propagate"),
    [
        ("srun true", None),
        ("srun --propagate true", "all"),
        ("srun --propagate=STACK,NOFILE true", "STACK,NOFILE"),
        ("srun --propagate=NONE true", "NONE"),
    ],
)
def test_the_limits_that_ranks_are_to_have(line: str, propagate: str | None) -> None:
    name, *words = line.split()
    request = parse(name, words, ENV)
    assert (request.propagate, request.argv) == (propagate, ["true"])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("srun -n 2 true", {}),
        ("srun -n 2 -c 2 true", {"SLURM_CPUS_PER_TASK": "2"}),
        # The master of a pool that is started alone counts by it how many workers it may spawn.
        ("mpirun -np 1 true", {"SLURM_NTASKS": "8", "SLURM_NPROCS": None}),
        ("pbsdsh true", {}),
    ],
)
def test_what_a_launcher_tells_its_ranks_of_the_job_in_its_own_way(line: str, told: dict[str, str | None]) -> None:
    name, *words = line.split()
    assert parse(name, words, {**ENV, "SLURM_NTASKS": "8"}).told == told


@pytest.mark.parametrize(
    ("line", "dealt", "even", "told"),
    [
        ("srun true", 0, True, {}),
        ("srun -m cyclic true", 1, True, {"SLURM_DISTRIBUTION": "cyclic"}),
        ("srun --distribution=*:Cyclic:block true", 0, True, {"SLURM_DISTRIBUTION": "block:cyclic:block"}),
        ("srun -m plane=3 true", 3, True, {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "3"}),
        ("srun -m cyclic,NoPack true", 1, True, {"SLURM_DISTRIBUTION": "cyclic,nopack"}),
        ("srun -N 1 -n 2 true", 0, False, {}),
        ("srun -N 2 -n 2 true", 0, True, {}),
        ("srun -N 2 -n 4 --ntasks-per-node=2 true", 0, True, {"SLURM_NTASKS_PER_NODE": "2"}),
        ("srun -N 2 -n 8 --ntasks-per-node=2 true", 0, True, {}),
        ("srun -J other true", 0, True, {"SLURM_JOB_NAME": "other"}),
        ("mpirun -np 2 --map-by core true", 0, False, {"SLURM_NTASKS": None, "SLURM_NPROCS": None}),
    ],
)
def test_how_ranks_are_laid_out_and_what_they_are_told_of_it(
    line: str, dealt: int, even: bool, told: dict[str, str | None]
) -> None:
    name, *words = line.split()
    found = parse(name, words, ENV)
    assert (found.dealt, found.even, found.told) == (dealt, even, told)


def test_variables_stand_for_options_of_srun_before_those_of_its_line() -> None:
    plane = {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}
    said = {**ENV, **plane, "SLURM_NTASKS": "4", "SRUN_CPUS_PER_TASK": "3"}
    found = parse("srun", ["true"], said)
    assert (found.dealt, found.size, found.threads, found.told["SLURM_DIST_PLANESIZE"]) == (2, 4, 3, "2")
    typed = parse("srun", ["-m", "cyclic", "-n", "2", "-c", "1", "true"], said)
    assert (typed.dealt, typed.size, typed.threads, typed.told["SLURM_DISTRIBUTION"]) == (1, 2, 1, "cyclic")
    assert parse("mpirun", ["true"], said).size is None
    for name in ("SLURM_WAIT", "SLURM_LABELIO", "SLURM_TASK_PROLOG", "SLURM_STDOUTMODE", "SLURM_GPUS_PER_TASK"):
        with pytest.raises(Usage):
            parse("srun", ["true"], {**ENV, name: "1"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("srun", "no program"),
        ("srun -m arbitrary true", "places the ranks itself"),
        ("srun -m plane true", "whole number"),
        ("srun -m block,Pack true", "places the ranks itself"),
        ("srun -W 30 true", "whenever others have ended"),
        ("srun --gpus-per-task=1 true", "which devices"),
        ("srun --gres=gpu:1 true", "which devices"),
        ("srun --cpu-bind=map_cpu:0,2 true", "by their numbers"),
        ("srun -C fast true", "places the ranks itself"),
        ("srun -k true", "begin anew"),
        ("srun -E true", "told of their launch"),
        ("srun --task-prolog=p true", "runs programs around"),
        ("mpirun --map-by node true", "places the ranks itself"),
        ("mpirun --rank-by node:pe=2 true", "places the ranks itself"),
        ("mpirun --bynode true", "places the ranks itself"),
        ("mpiexec -genvnone true", "environment"),
        ("srun -n", "-n needs a value"),
        ("srun -n 0 true", "at least 1"),
        ("srun -n -3 true", "at least 1"),
        ("srun -n four true", "not four"),
        ("srun --ntasks= true", "not nothing"),
        ("srun --ntasks=99999999999999999999x true", "whole number"),
        ("srun -N 1-4 true", "whole number"),
        ("srun --label true", "labels"),
        ("srun --pty bash", "terminal"),
        ("srun -w n1 true", "places the ranks itself"),
        ("srun --multi-prog conf", "MPMD"),
        ("srun -o out.txt true", "redirect"),
        ("srun -Z true", "-Z is not known to EJB's srun"),
        ("srun --mpi", "--mpi needs a value"),
        ("mpirun -n 1 true : -n 2 false", "MPMD"),
        ("mpirun --tag-output true", "labels"),
        ("mpirun --dance true", "--dance is not known to EJB's mpirun"),
        ("mpiexec -genv A", "-genv needs a value"),
        ("mpiexec no-such-program", "no-such-program was not found"),
    ],
)
def test_refusals(line: str, words: str) -> None:
    name, *rest = line.split()
    with pytest.raises(Usage, match=words.replace("(", "\\(")):
        parse(name, rest, ENV)


@pytest.mark.parametrize(
    ("line", "size", "threads", "spread", "reader"),
    [
        ("srun true", None, None, False, "all"),
        ("srun -n 4 -c 2 true", 4, 2, False, "all"),
        ("srun -c2 -N 2 -n 2 true", 2, 2, True, "all"),
        ("srun -N 2 --ntasks-per-node=3 true", 6, None, True, "all"),
        ("srun --input=none true", None, None, False, "none"),
        ("srun -i /dev/null true", None, None, False, "none"),
        ("srun --input=2 true", None, None, False, "2"),
        ("srun -i list true", None, None, False, "list"),
        ("mpirun -np 2 true", 2, None, False, "0"),
    ],
)
def test_what_a_launch_asks_for_each_of_its_ranks(
    line: str, size: int | None, threads: int | None, spread: bool, reader: str
) -> None:
    name, *rest = line.split()
    found = parse(name, rest, ENV)
    assert (found.size, found.threads, found.spread, found.reader) == (size, threads, spread, reader)


def test_a_program_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    program = tmp_path / "sub" / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    request = parse("srun", ["--chdir", "sub", "mine"], ENV)
    assert request.argv == [str(program)]
    assert request.cwd == str(tmp_path / "sub")
    assert parse("mpirun", ["-wdir", str(tmp_path), "./sub/mine"], ENV).argv == ["./sub/mine"]


WORDS = st.one_of(
    st.sampled_from(
        ["-n", "-np", "-N", "--ntasks=3", "--export=A=1", "-x", "-genv", "--", "-", "true", ":", "--mca", ""]
    ),
    st.text(st.characters(exclude_characters="\0"), max_size=6),
)


@given(st.sampled_from(["srun", "mpirun", "mpiexec"]), st.lists(WORDS, max_size=8))
def test_every_line_is_understood_or_refused(name: str, words: list[str]) -> None:
    try:
        request = parse(name, words, {"PATH": os.defpath})
    except Usage as refusal:
        assert str(refusal)
    else:
        assert request.argv
        assert request.size is None or request.size >= 1
