"""The program that a command line is about, behind wrappers and interpreters."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ejbd._workers.ejb_worker.profiles.wrapping import unwrapped
from ejbd._workers.ejb_worker.programs import program_name, skip_interpreter, skip_wrappers
from ejbd.manager.jobspec.beside import without_wrappers
from ejbd.profiles.reading import SHIPPED, matching, read_all

SHIPPED_PROFILES = read_all([SHIPPED])

SAME = [
    "env A=b",
    "env -u X A=b B=c",
    "/usr/bin/env --unset=X",
    "nice",
    "nice -n 5",
    "nice -5",
    "nice --adjustment=5",
    "ionice -c 3",
    "ionice -c3 -n 7",
    "chrt -b 0",
    "taskset -c 0-3",
    "taskset 0x3",
    "numactl --interleave=all",
    "numactl -N 0 -m 0",
    "numactl -C0-3 --localalloc --",
    "numactl --cpunodebind 0",
    "stdbuf -oL",
    "stdbuf -o L -e 0",
    "nohup",
    "time",
    "/usr/bin/time -v -o times",
    "/usr/bin/time -f '%e s'",
    "catchsegv",
    "prlimit --stack=unlimited",
    "env A=b nice -n 5 numactl -l",
]
"""Of a program that is started again and again they mean the same each time."""
ONCE = ["timeout 60", "timeout -k 5 1h", "timeout -s INT 60", "setsid", "setsid -w", "env -i A=b", "env - A=b", "exec"]
"""They do not, or take away what EJB tells the program: a profile is not looked for behind them."""
PYTHONS = [
    ("python3 field.py", "python3 field.py"),
    ("python3 -u field.py", "python3 field.py"),
    ("python3.11 -uB field.py", "python3.11 field.py"),
    ("/opt/bin/python -W ignore -X dev field.py", "python field.py"),
    ("python3 -Wignore -uXdev field.py", "python3 field.py"),
    ("python3 -m ada.field", "python3 ada.field"),
    ("python3 -um ada.field", "python3 ada.field"),
    ("pypy3 -u -- field.py", "pypy3 field.py"),
    ("perl -w -Ilib -Mstrict field.pl", "perl field.pl"),
    ("perl -I lib field.pl", "perl field.pl"),
    ("Rscript --vanilla field.R", "Rscript field.R"),
    ("julia -t 4 --project=. field.jl", "julia field.jl"),
    ("bash -euo pipefail field.sh", "bash field.sh"),
    ("sh -x field.sh", "sh field.sh"),
    ("java -Xmx4g -cp a:b Field", "java Field"),
    ("java -jar field.jar", "java field.jar"),
    ("node --max-old-space-size=4096 field.js", "node field.js"),
]
CODE = [
    "python3 -c print()",
    "python3 -uc print()",
    "python3 -",
    "python3",
    "bash -c ./field",
    "bash -lc ./field",
    "perl -ne print",
    "Rscript -e 1",
    "julia -e 1",
]
"""An interpreter that is told code, or reads it: there is no program by whose name it could be known."""


@pytest.mark.parametrize("wrapper", [*SAME, *ONCE])
def test_a_program_is_found_behind_what_starts_it(wrapper: str) -> None:
    before, own = shlex.split(wrapper), ["./field", "-n", "5", "A=b"]
    words = [*before, *own]
    assert words[skip_wrappers(words) :] == own and program_name(words) == "field"
    assert list(without_wrappers(["X=1", *words])) == own
    assert skip_wrappers(words, again=True) == (len(before) if wrapper in SAME else 0)


@pytest.mark.parametrize(
    "line",
    ["env", "env A=b", "nice", "numactl -s", "numactl --hardware", "taskset -p 7", "ionice -p 7", "time", "exec"],
)
def test_a_wrapper_without_a_program_is_one_itself(line: str) -> None:
    words = line.split()
    assert skip_wrappers(words) == 0 and program_name(words) == words[0]


@pytest.mark.parametrize(("line", "name"), PYTHONS)
def test_an_interpreters_script_or_module_is_the_program(line: str, name: str) -> None:
    words = [*line.split(), "-u", "5"]
    at = skip_interpreter(words)
    assert at and words[at:] == [name.split()[1], "-u", "5"]
    assert program_name(words) == name and program_name(["env", "A=b", *words]) == name


@pytest.mark.parametrize("line", CODE)
def test_an_interpreter_without_a_script_has_its_own_name(line: str) -> None:
    words = line.split()
    assert skip_interpreter(words) is None and program_name(words) == words[0]


@pytest.mark.parametrize("wrapper", ["", *SAME])
@pytest.mark.parametrize(
    ("program", "profile"),
    [
        ("gmx_mpi mdrun -deffnm md", "gromacs"),
        ("/opt/bin/lmp -in in.melt", "lammps"),
        ("python3 -u ejb-own-field.py", "own"),
        ("python3.11 -m torch.distributed.run --nnodes=1:4 train.py", "torchrun"),
    ],
)
def test_a_profile_is_found_behind_what_starts_its_program(wrapper: str, program: str, profile: str) -> None:
    for container in ([], ["apptainer", "exec", "image.sif"]):
        words = [*shlex.split(wrapper), *container, *shlex.split(wrapper), *program.split()]
        found = unwrapped(words, "/case")
        one = matching(found.program, SHIPPED_PROFILES)
        assert one is not None and one.name == profile
        assert found.wrapper + found.program == words, "what it is started with stays"


@pytest.mark.parametrize("wrapper", ONCE)
def test_no_profile_is_found_where_a_start_once_more_would_not_be_the_same(wrapper: str) -> None:
    words = [*wrapper.split(), "lmp", "-in", "in.melt"]
    assert matching(unwrapped(words, "/case").program, SHIPPED_PROFILES) is None


def test_arguments_of_a_script_are_counted_behind_it() -> None:
    found = unwrapped(["env", "A=b", "python3", "-u", "field.py", "in.dat"], "/case")
    assert (found.wrapper, found.program) == (["env", "A=b", "python3", "-u"], ["field.py", "in.dat"])
    assert found.tools == ["env", "A=b"], "what prepares a start has the same variables"


WORDS = st.lists(
    st.one_of(
        st.sampled_from(["env", "nice", "python3", "bash", "time", "taskset", "numactl", "timeout", "exec", "java"]),
        st.sampled_from(["-u", "-n", "-c", "-m", "-W", "-", "--", "A=b", "5", "x.py", "./a", "-jar", "+o"]),
    ),
    max_size=7,
)


@given(WORDS)
def test_every_command_has_a_program_among_its_words(words: list[str]) -> None:
    at = skip_wrappers(words)
    assert 0 <= skip_wrappers(words, again=True) <= at <= max(0, len(words) - 1)
    script = skip_interpreter(words[at:])
    assert script is None or at + script <= max(0, len(words) - 1)
    found = unwrapped(words, "/")
    assert found.wrapper + found.program == words
