"""What can be seen in a script that an elastic job could not hold, and what must not be mistaken for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobRequest, Overrides, build_spec
from ejbd.manager.jobspec.shell import is_shell, look

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
    ],
)
def test_a_launch_in_the_background_is_seen(body: str, line: int) -> None:
    assert [where for where, message in found(body) if BACKGROUND in message or "coproc" in message] == [f"line {line}"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("salloc -n 4", "allocation of its own"),
        ("sbatch --wrap='srun x'", "outside of this job"),
        ("srun --pty bash", "interactive"),
        ("srun a | srun b", "at the same time"),
        ("/usr/bin/srun a", "past EJB"),
    ],
)
def test_what_else_cannot_be_held(body: str, words: str) -> None:
    assert [where for where, message in found(body) if words in message] == ["line 2"]


@pytest.mark.parametrize(
    "body",
    [
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
