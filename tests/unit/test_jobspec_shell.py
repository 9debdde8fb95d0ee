"""What can be seen in a script that an elastic job could not hold, and what must not be mistaken for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, build_spec
from ejbd.manager.jobspec.shell import is_shell, look, read_script

BACKGROUND = "in the background"


def found(body: str) -> list[tuple[str, str]]:
    return [(refusal.where, refusal.message) for refusal in look(f"#!/bin/bash\n{body}")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("srun a &\nwait", 2),
        ("echo x\nFOO=1 srun a&", 3),
        ("for i in 1 2; do\n  srun a $i &\ndone\nwait", 3),
        ("for i in 1 2; do srun a; done &", 2),
        ("for i in 1 2; do srun a; done > log 2>&1 &", 2),
        ("( srun a; echo done ) &", 2),
        ("{ mpirun a; } &", 2),
        ("cd x && srun a &", 2),
        ("srun a | tee log &", 2),
        ("nohup mpirun -n 4 a > x 2>&1 &", 2),
        ("timeout 60 srun a &", 2),
        ("srun a \\\n  --flag \\\n  &", 2),
        ("case $x in\n  a) echo & ;;\n  b) srun y & ;;\nesac", 4),
        ("if true; then srun a & fi", 2),
        ("while read x; do mpiexec $x & done < list", 2),
        ("cat <<EOF\ntext\nEOF\nsrun a &", 5),
        ("x='\n\n'; srun a &", 4),
        ('echo "a\nb" "$(cat <<< x)"\nsrun a &', 4),
        ("coproc srun a", 2),
        ("work() { srun a $1; }\nfor i in 1 2; do\n  work $i &\ndone", 4),
        ("function work {\n  srun a\n}\nwork 1 &", 5),
        ("function work { srun a; }\nwork 1 &", 3),
        ("work() { srun a; }; all() { work; }\nall &", 3),
    ],
)
def test_a_launch_in_the_background_is_seen(body: str, line: int) -> None:
    assert [where for where, message in found(body) if BACKGROUND in message or "coproc" in message] == [f"line {line}"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("salloc -n 4", "allocation of its own"),
        ("srun --pty bash", "interactive"),
        ("srun a | srun b", "at the same time"),
        ("/usr/bin/srun a", "past EJB"),
        ('ip=$(srun --nodes=1 --ntasks=1 -w "${names[0]}" hostname --ip-address)', "places the ranks itself"),
        ('echo "at $(srun -N1 -n1 -w $n hostname)"', "places the ranks itself"),
        ("a=`srun -l hostname`", "labels"),
        ("while read n; do srun -w $n true; done < <(sort n)", "places the ranks itself"),
        ("R='-n 1 -w n1'; srun $R a", "places the ranks itself"),
        ("parallel -j 4 srun -n 1 a {} ::: 1 2", "at the same time"),
        ("S='srun -N1 -n1'; $parallel \"$S a {1}\" ::: 1 2", "at the same time"),
        ("xargs -P 4 -I{} srun -n 1 a {} < list", "at the same time"),
    ],
)
def test_what_else_cannot_be_held(body: str, words: str) -> None:
    assert [where for where, message in found(body) if words in message] == ["line 2"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("srun -l a", "labels"),
        ("srun --label -n 2 a", "labels"),
        ("srun -o out.%t a", "redirect"),
        ("srun --output=out.%t a", "redirect"),
        ("srun --multi-prog conf", "several programs"),
        ("mpirun -n 1 a : -n 3 b", "several programs"),
        ("srun -w n1 a", "places the ranks itself"),
        ("srun --dance a", "--dance is not known"),
        ("srun -n 17 a", "17 ranks are asked for, but the job has 16"),
        ("srun -N 5 --ntasks-per-node=4 a", "20 ranks are asked for"),
        ("timeout 60 srun -l a", "labels"),
        ("taskset -c 0-3 nice -n 5 srun -l a", "labels"),
        ("numactl --interleave=all mpirun --tag-output a", "labels"),
        ("export RUN='srun -l'\n$RUN a".replace("\n", "; "), "labels"),
        ("ibrun a", "no launcher that EJB can stand for"),
        ("/opt/mpi/bin/mpiexec.hydra -n 4 a", "past EJB"),
        ("aprun -n 4 a", "no launcher that EJB can stand for"),
        ("$MPIEXEC -n 4 a", "may name a launcher"),
        ("${MPIRUN:-mpirun} a", "may name a launcher"),
        ("MPI_EXEC=/opt/mpi/bin/mpiexec; $MPI_EXEC a", "past EJB"),
    ],
)
def test_what_stands_in_the_text_and_cannot_be_held_is_told_by_its_line(body: str, words: str) -> None:
    refusals = look(f"#!/bin/bash\n{body}", 16)
    assert [refusal.where for refusal in refusals if words in refusal.message] == ["line 2"], refusals


@pytest.mark.parametrize(
    ("body", "handled"),
    [
        ("srun a", [False]),
        ("srun a || exit 1", [True]),
        ("srun a && srun b", [False, False]),
        ("srun a && echo ok || echo failed", [True]),
        ("if srun a; then srun b; fi", [True, False]),
        ("if true; then srun a; elif srun b; then srun c; else srun d; fi", [False, True, False, False]),
        ("if ! srun a; then exit 3; fi", [True]),
        ("! srun a; srun b", [True, False]),
        ("until srun a; do sleep 1; done", [True]),
        ("while true; do srun a; done", [False]),
        ("( cd x && srun a ) || echo failed; srun b", [True, False]),
        ("{ srun a; srun b; } || true\nsrun c", [True, True, False]),
        ("srun a; srun b || true", [False, True]),
        ("srun a | tee log || true", [True]),
        ("for i in 1 2; do srun a || break; done", [True]),
    ],
)
def test_whether_a_script_asks_how_a_launch_ended(body: str, handled: list[bool]) -> None:
    assert [launch.handled for launch in read_script(f"#!/bin/bash\n{body}", 16).launches] == handled


def test_the_lines_of_a_launch() -> None:
    launches = read_script("#!/bin/bash\nsrun \\\n  -n 2 \\\n  a\n\nmpirun b\n", 16).launches
    assert [(launch.first_line, launch.last_line) for launch in launches] == [(2, 4), (6, 6)]


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\nsrun a\n",
        "#!/bin/bash\n> log srun a\n",
        "#!/bin/bash\nout=$(srun a)\n",
        '#!/bin/bash\necho "got $(cd x; srun a)"\n',
        "#!/bin/bash\necho `mpirun a`\n",
        "#!/bin/bash\nf() { mpiexec.hydra a; }\nf\n",
        "#!/bin/bash\nLAUNCH='srun -n 4'\n$LAUNCH a\n",
        "#!/bin/bash\nexport LAUNCH=mpirun\n${LAUNCH} -np 4 a\n",
        "#!/bin/bash\norterun -np 4 a; mpirun.openmpi a; mpiexec.mpich a\n",
        '#!/usr/bin/env python3\nimport subprocess\nsubprocess.run(["srun", "a"])\n',
        "#!/usr/bin/perl\nsystem('mpirun -np 4 ./a');\n",
    ],
)
def test_a_launch_is_seen_wherever_it_stands_in_the_place_of_a_command(script: str) -> None:
    seen = read_script(script, 16)
    assert seen.doubt is None and seen.refusals == ()


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/bash\nmake -j 16\n",
        "#!/bin/bash\n./pipeline --workers 16\n",
        "#!/bin/bash\n# srun a\necho srun a; echo 'srun a'; which srun\n",
        "#!/bin/bash\ncat > run.sh <<EOF\nsrun a\nEOF\nbash run.sh\n",
        "#!/bin/bash\nx=$(which mpirun)\nxargs srun < list\n",
        "#!/bin/bash\nsource lib.sh; run_all\n",
        "#!/usr/bin/env python3\n# srun\nfrom multiprocessing import Pool\n",
        "#!/bin/bash\nsrun() { echo; }\nsrun a\n",
    ],
)
def test_a_script_in_which_no_launch_is_seen_is_in_doubt(script: str) -> None:
    seen = read_script(script, 16)
    assert seen.doubt is not None and seen.doubt.doubt and seen.launches == ()


@pytest.mark.parametrize(
    "body",
    [
        "srun a < /dev/null",
        "srun --input=none a < list",
        "while read x; do srun a $x < /dev/null; done < list",
        "while read x; do srun -i none a $x; done < list",
        "for x in 1 2; do srun a; done > log",
        "while read x; do echo $x; done < list; srun a",
        "cat list | wc; srun a",
        "srun a 3< in",
        "srun $OPTIONS a < /dev/null",
        "srun -n $SLURM_NTASKS -c ${THREADS} --export=$LIST a",
        "srun -n$N a",
        "srun --export=ALL,A=1 -n 16 a",
        "$HOME/bin/tool a",
        "srun a",
        "srun a 2>&1 | tee x",
        "srun a &>log",
        "srun a >& log",
        "srun a && srun b || srun c",
        "srun a; echo x &",
        "(cd x; srun a)\necho y &",
        "# srun a &",
        "echo x # srun a &",
        "echo 'srun a &'",
        'echo "srun a &"',
        "echo srun &",
        "echo $(srun a) &",
        "echo `srun a` &",
        "x=$(srun a) &",
        "cat <<EOF\nsrun a &\nEOF",
        "cat <<'E' > f\nsrun a &\nE",
        "cat <<-E\n\tsrun a &\n\tE\n",
        "srun() { echo; }\nsrun &",
        "alias srun=echo\nsrun &",
        "function srun { echo; }\nsrun &",
        "a=(srun x) &",
        "(( x = srun & 1 ))",
        "[[ a =~ (srun|b) ]] && x &",
        "[[ srun && a ]] &",
        "case srun in srun) foo & ;; esac",
        "if srun a; then y & fi",
        "f() {\n srun a\n}\nf",
        "run_srun &",
        "./srun-wrapper &",
        "sbatch next.sh",
        "echo ${x:-srun &}",
        "echo 'unclosed\nsrun a &",
        "find . -name srun &",
        "which srun & wait",
        "''(",
    ],
)
def test_nothing_is_refused_without_need(body: str) -> None:
    assert found(body) == []


def test_only_shells_are_looked_at() -> None:
    assert is_shell("#!/bin/bash -l\n") and is_shell("#!/usr/bin/env bash\n") and is_shell("#! /bin/sh\n")
    assert not is_shell("#!/usr/bin/env python3\n") and not is_shell("#!\n")


def test_a_refusal_reaches_the_user_and_a_passed_through_job_may_do_it() -> None:
    script = "#!/bin/bash\n#SBATCH -n 4 -t 5\nsrun a &\nsrun b &\nwait\n"
    with pytest.raises(EjbError) as caught:
        build_spec(JobRequest(cwd="/", script=script))
    assert caught.value.code is Code.UNSUPPORTED and caught.value.where == "line 3"
    assert "--elastic off" in caught.value.hint
    assert build_spec(JobRequest(cwd="/", script=script, overrides=Overrides(elastic="off"))).elastic is False


_PIECES = st.sampled_from(
    [
        *(
            "srun a",
            " & ",
            "\n",
            ";",
            "(",
            ")",
            "{ ",
            "; }",
            "'",
            '"',
            "$(",
            "`",
            "<<E\n",
            "E\n",
            "|",
            "&&",
            "do ",
            "done",
        ),
        *(
            "case x in ",
            "a)",
            ";;",
            "esac",
            "#",
            "\\",
            "[[ ",
            " ]]",
            "((",
            "))",
            ">",
            "x=(",
            "f()",
            "if ",
            "then ",
            "fi",
        ),
    ]
)


@settings(deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=3)), max_size=60).map("".join))
def test_any_text_can_be_looked_at(text: str) -> None:
    lines = text.count("\n") + 2
    for where, _ in found(text):
        assert 2 <= int(where.removeprefix("line ")) <= lines


def test_deep_nesting_is_survived() -> None:
    assert found('"$(' * 20_000) == []
    assert found("(" * 200_000) == []


@pytest.mark.parametrize(
    ("body", "where", "words"),
    [
        ("srun hostname\n./solver", "script", "only look at their nodes"),
        ("H=$(srun hostname)\n./solver", "script", "only look at their nodes"),
        ("srun true\n. ./steps.sh", "script", "only look at their nodes"),
        ("srun bash -c hostname\n./solver", "script", "only look at their nodes"),
        ("srun sh -lc 'hostname; echo $SLURM_PROCID && env'\n./solver", "script", "only look at their nodes"),
        ("srun -n 2 mkdir -p $TMPDIR/a\nsrun cp in $TMPDIR/a\n./solver", "script", "lay out files"),
        ("srun env | sort", "script", "only look at their nodes"),
        ("srun hostname > hosts\njulia --machine-file hosts x.jl", "line 3", "`julia` is told the job's nodes"),
        ("srun hostname -s | sort -u > ./hosts\nfluent 3d -cnf=hosts", "line 3", "`fluent` is told the job's nodes"),
        ("srun ./a\nH=`srun hostname`\n./mine --hosts=$H", "line 4", "`mine` is told the job's nodes"),
        ("scontrol show hostnames $SLURM_JOB_NODELIST > n\nsort n > m\nsrun a\nx m", "line 5", "`x` is told"),
        ("srun a\nfor h in $(cat $PBS_NODEFILE); do ssh $h b; done", "line 3", "`ssh` starts work on nodes"),
        ("srun a\nstarccm+ -batch x.sim", "line 3", "`starccm+` starts its processes itself"),
        ("srun a\nmake -j $SLURM_NTASKS", "line 3", "`make` is told how many processors"),
        ("srun a\n./b --threads=${SLURM_CPUS_ON_NODE}", "line 3", "`b` is told how many processors"),
        ("export M=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nsrun ./t", "line 3", "by `M`"),
        ("n=($(scontrol show hostnames))\nhead=${n[0]}\nsrun ./t --at $head:29500", "line 4", "in its words"),
        ("M=$(hostname)\nexport M\nsrun nvidia-smi\nsrun ./t", "line 5", "by `M`"),
        ("M=$(hostname -I) srun ./t", "line 2", "by `M`"),
        ("srun ./t --hosts $SLURM_JOB_NODELIST", "line 2", "in its words"),
    ],
)
def test_work_beside_the_launches_passes_a_script_through_and_says_why(body: str, where: str, words: str) -> None:
    doubt = read_script(f"#!/bin/bash\n{body}", 16).doubt
    assert doubt is not None and doubt.doubt and doubt.where == where and words in doubt.message


@pytest.mark.parametrize(
    "body",
    [
        "srun hostname\nsrun ./a",
        "srun nvidia-smi; mpirun -np 4 ./a",
        "echo $SLURM_JOB_NODELIST\nsrun ./a\npython post.py",
        "srun ./a\nfoamDictionary -set numberOfSubdomains $SLURM_NTASKS d",
        "N=$(scontrol show hostnames | wc -l)\nsrun ./t --nodes $N",
        "nodes=($(scontrol show hostnames))\nexport N=${#nodes[@]}\nsrun ./t",
        "export LOG=log.$(hostname)\nsrun ./t",
        "mpirun -hostfile $PBS_NODEFILE -np 4 ./a",
        "cat $PBS_NODEFILE | sort -u > h\nmpirun -np 4 ./a",
        "ssh archive mkdir x\nsrun ./a",
        "WORK=/scratch/$(hostname)\nsrun ./a\n./post $WORK",
        "srun env A=1 ./a",
        "srun ./a\nsbatch -d afterok:$SLURM_JOB_ID --wrap 'srun ./b'",
        "srun bash -c 'hostname; ./a'",
        "srun sh -c 'for i in 1 2; do echo $i; done'",
        "srun bash -c 'cd x && ./a'",
        "sed s/N/$SLURM_NTASKS/ in > out; srun ./a < out",
    ],
)
def test_what_stands_beside_launches_and_is_no_work(body: str) -> None:
    assert read_script(f"#!/bin/bash\n{body}", 16).doubt is None
