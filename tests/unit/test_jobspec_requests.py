"""Scripts that are none, commands, and environments."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.errors import Code, EjbError
from ejbd.manager.jobspec import JobKind, JobRequest, Overrides, build_spec, parse_script

GIVEN = Overrides(ntasks="16", time="10")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the script is empty"),
        (" \n\t\n", "nothing but blanks"),
        ("echo hi\n", "does not look like a batch script"),
        ("\n#!/bin/sh\n", "does not look like a batch script"),
        ("#!/bin/sh\r\necho\r\n", "DOS line ends"),
        ("\x7fELF\0\0", "binary file"),
    ],
)
def test_what_is_no_script(text: str, words: str) -> None:
    with pytest.raises(EjbError, match=words) as caught:
        parse_script(text)
    assert caught.value.code is Code.INVALID


def test_a_command() -> None:
    spec = build_spec(JobRequest(cwd="/w", command=("./bin/app", "-n", "$(x)", ""), overrides=GIVEN))
    assert (spec.kind, spec.argv, spec.name) == (JobKind.COMMAND, ("./bin/app", "-n", "$(x)", ""), "app")
    assert (spec.processes, spec.walltime_s, spec.script) == (16, 600.0, None)


@pytest.mark.parametrize(
    "request_",
    [
        JobRequest(cwd="/w", command=()),
        JobRequest(cwd="/w", command=(" ",)),
        JobRequest(cwd="/w", command=("a\0b",)),
        JobRequest(cwd="/w", command=("\udcff",)),
        JobRequest(cwd="/w"),
        JobRequest(cwd="/w", command=("x",), script="#!/bin/sh\n"),
        JobRequest(cwd="/w", command=("x",), args=("y",)),
        JobRequest(cwd="relative", command=("x",)),
        JobRequest(cwd="/w\n", command=("x",)),
        JobRequest(cwd="/w", command=("x",), env={"": "x"}),
        JobRequest(cwd="/w", command=("x",), env={"A=B": "x"}),
        JobRequest(cwd="/w", command=("x",), env={"A": "\0"}),
        JobRequest(cwd="/w", command=("x",), env={"A": "\udcff"}),
    ],
)
def test_requests_that_cannot_be_right(request_: JobRequest) -> None:
    with pytest.raises(EjbError) as caught:
        build_spec(replace(request_, overrides=GIVEN))
    assert caught.value.code is Code.INVALID


def test_restartable_is_about_scripts() -> None:
    with pytest.raises(EjbError, match="about scripts"):
        build_spec(JobRequest(cwd="/", command=("x",), overrides=Overrides(time="5", restartable=True)))


ENVIRONMENT = {"HOME": "/h", "PATH": "/bin", "X": "1", "Y": "a,b", "SLURM_JOB_ID": "7", "EJB_SUBJOB_ID": "a.1"}


@pytest.mark.parametrize(
    ("export", "expected"),
    [
        (None, {"HOME": "/h", "PATH": "/bin", "X": "1", "Y": "a,b"}),
        ("ALL", {"HOME": "/h", "PATH": "/bin", "X": "1", "Y": "a,b"}),
        ("NONE", {"HOME": "/h", "PATH": "/bin"}),
        ("NIL", {}),
        ("X", {"HOME": "/h", "PATH": "/bin", "X": "1"}),
        ("X=2,Z=b=c", {"HOME": "/h", "PATH": "/bin", "X": "2", "Z": "b=c"}),
        ("Z='a,b',X", {"HOME": "/h", "PATH": "/bin", "X": "1", "Z": "a,b"}),
        ("ALL,X=2", {"HOME": "/h", "PATH": "/bin", "X": "2", "Y": "a,b"}),
        ("X=2,ALL", {"HOME": "/h", "PATH": "/bin", "X": "2", "Y": "a,b"}),
        ("MISSING", {"HOME": "/h", "PATH": "/bin"}),
    ],
)
def test_export(export: str | None, expected: dict[str, str]) -> None:
    overrides = Overrides(time="5", export=export)
    assert build_spec(JobRequest(cwd="/", command=("x",), env=ENVIRONMENT, overrides=overrides)).env == expected


def test_a_job_finds_the_daemon_that_it_was_submitted_to() -> None:
    """Under --export=NONE, too, as Slurm tells every job where Slurm is; a token is a variable as others are."""
    token = "its user's own"
    env = {"PATH": "/bin", "EJB_URL": "http://head:8642", "EJB_TOKEN": token, "EJB_JOB_ID": "d6f8c0b3"}

    def of(export: str | None) -> dict[str, str]:
        overrides = Overrides(time="5", export=export)
        return build_spec(JobRequest(cwd="/", command=("x",), env=env, overrides=overrides)).env

    assert of(None) == {"PATH": "/bin", "EJB_URL": "http://head:8642", "EJB_TOKEN": token}
    assert of("NONE") == {"PATH": "/bin", "EJB_URL": "http://head:8642"}
    assert of("NIL") == {}


@pytest.mark.parametrize("export", ["", "a b", "1x", ",", "X,,Y", "X='a"])
def test_export_that_is_no_list(export: str) -> None:
    with pytest.raises(EjbError) as caught:
        build_spec(JobRequest(cwd="/", command=("x",), env={}, overrides=Overrides(time="5", export=export)))
    assert caught.value.code is Code.INVALID


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.lists(st.text(max_size=5), max_size=4))
def test_any_command_and_environment_are_a_job_or_an_error(env: dict[str, str], argv: list[str]) -> None:
    try:
        spec = build_spec(JobRequest(cwd="/w", command=tuple(argv), env=env, overrides=GIVEN))
    except EjbError as error:
        assert "\n" not in error.sentence()
        return
    assert spec.argv == tuple(argv)
