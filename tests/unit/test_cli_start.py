"""How `ejb` starts: what it imports, and that a line that is read quickly means what typer takes it for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

from ejbd.cli import starting_daemon
from ejbd.cli.app import MODULES, app
from ejbd.cli.submission import command as submit_command
from ejbd.cli.submission import sbatchwords
from ejbd.cli.submission import submitting as submit
from ejbd.cli.submission import words as submit_words
from ejbd.cli.submission.words import KNOWN, OPTIONS, Kind, Typed
from ejbd.errors import EjbError
from tests.fakes.daemon import until
from tests.nightly import examples

# What a start of `ejb submit` must not load: it would be paid for at every submission.
HEAVY = {
    *("pydantic", "pydantic_core", "typer", "rich", "httpx", "httpcore", "anyio", "sqlalchemy", "fastapi", "numpy"),
    *("structlog", "asyncio", "argparse", "dataclasses", "inspect", "uuid", "typing_extensions", "importlib.metadata"),
    *("http.client", "ssl", "tempfile", "shutil", "pathlib", "urllib.parse", "ipaddress", "fnmatch", "grp"),
}
MOST_LOADED = 72  # modules, those of Python with them
OURS = {
    *("ejbd", "ejbd.cli", "ejbd.cli.main", "ejbd.cli.output", "ejbd.cli.submission", "ejbd.errors", "ejbd.files"),
    *(f"ejbd.cli.submission.{name}" for name in ("submitting", "words", "sbatchwords")),
    *("ejbd.files.paths", "ejbd.files.profilefiles", "ejbd.client", "ejbd.client.client"),
    *("ejbd.client.messages", "ejbd.client.here", "ejbd.client.unix", "ejbd.wire", "ejbd.wire.reaching"),
    *("ejbd.wire.visible", "ejbd.cli.starting_daemon"),  # the latter where no daemon answers
}


def loaded_by(line: list[str], folder: Path, name: str = "ejb") -> set[str]:
    """The modules that a whole run of `ejb`, or of a link to it, has loaded by its end; no daemon answers it."""
    code = (
        f"import sys\nbefore = set(sys.modules)\nsys.argv[0] = {name!r}\nfrom ejbd.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(set(sys.modules) - before), file=open('loaded', 'w'))\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "EJB_SOCKET": str(folder / "none.sock")}
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run(
        [sys.executable, "-c", code, *line],
        cwd=folder, env=environment | {"PYTHONPATH": root}, capture_output=True, check=True, timeout=180,
    )  # fmt: skip
    return set((folder / "loaded").read_text().split())


def test_the_version_is_told_by_what_is_there_anyway(tmp_path: Path) -> None:
    loaded = loaded_by(["--version"], tmp_path)
    assert {name for name in loaded if name.startswith("ejbd")} == {
        *("ejbd", "ejbd.cli", "ejbd.cli.main", "ejbd.release", "ejbd.release.version")
    }
    assert not loaded & HEAVY and "http.client" not in loaded


@pytest.mark.parametrize("line", [["submit", "job.sh"], ["submit", "-n", "4", "-t10", "--", "./app", "x"]])
def test_a_submission_loads_only_what_it_needs(line: list[str], tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -n 4 -t 10\nsrun hostname\n")
    loaded = loaded_by(line, tmp_path)
    assert {name for name in loaded if name.startswith("ejbd")} == OURS
    assert loaded & (HEAVY | {"socket", "selectors"}) == set()
    assert len(loaded) <= MOST_LOADED, sorted(loaded)


@pytest.mark.parametrize("link", ["squeue", "scancel"])
def test_a_link_that_shows_no_nodes_does_not_load_what_folds_their_names(link: str, tmp_path: Path) -> None:
    line = {"squeue": [], "scancel": ["5"]}[link]
    assert not {"ClusterShell", "logging", "typer"} & loaded_by(line, tmp_path, link)


def test_a_command_does_not_load_the_others(tmp_path: Path) -> None:
    loaded = loaded_by(["status", "--help"], tmp_path)
    others = {"ejbd.cli.sim.commands", "ejbd.cli.jobs", "ejbd.cli.site", "ejbd.cli.submission.command"}
    assert "ejbd.cli.status" in loaded and not loaded & others


@pytest.mark.parametrize("name", MODULES)
def test_every_command_is_where_the_table_has_it(name: str) -> None:
    assert get_command(app).commands[name].name == name  # type: ignore[attr-defined]


def by_typer(line: list[str]) -> Typed | None:
    """What typer makes of the words behind `ejb submit`; None where it has something to say itself."""
    found: list[Typed] = []
    command = get_command(app).commands["submit"]  # type: ignore[attr-defined]
    try:
        with command.make_context("submit", list(line)) as context:
            values: dict[str, Any] = dict(context.params)
            words = list(values.pop("words") or ())
            given = {name: value for name, value in values.items() if value is not None and value is not False}
            given = {
                name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value != ()
            }
            switches = [option.name for option in OPTIONS if option.kind is Kind.SWITCH]
            given |= {name: False for name in switches if values[name] is False}
            found.append(Typed(given, words, bool(context.meta[submit_command._IS_COMMAND])))
    except (Exception, SystemExit) as error:
        assert not isinstance(error, EjbError)
        return None
    return found[0]


VALUES = {
    Kind.TEXT: st.sampled_from(["a", "", "a b", "-x", "--", "é", "1:00:00", "\udcff", "=v"]),
    Kind.WHOLE: st.sampled_from(["4", "0", "007", "-1", "4.0", " 4", "1_0", "x", "", "99999999999999999999"]),
    Kind.NUMBER: st.sampled_from(["3.5", "60", ".5", "5.", "1e3", "nan", "inf", "-1", "x", ""]),
    Kind.TEXTS: st.sampled_from(["--mem=4G", "--exclusive", ""]),
}


@st.composite
def typed_options(draw: st.DrawFn) -> list[str]:
    option = draw(st.sampled_from(OPTIONS))
    spelling = draw(st.sampled_from([*option.spellings, *option.opposites]))
    if not option.takes_value:
        return [draw(st.sampled_from([spelling, spelling, spelling, f"{spelling}=x"]))]
    value = draw(VALUES[option.kind])
    joint = "=" if spelling.startswith("--") else ""
    return draw(st.sampled_from([[spelling, value], [spelling + joint + value], [spelling]]))


LINES = st.builds(
    lambda options, end, words: [word for option in options for word in option] + end + words,
    st.lists(typed_options(), max_size=4),
    st.sampled_from([[], ["--"], ["-"], ["-Z"], ["--help"], ["-h"], ["--mem=4G"], ["--nonsense"]]),
    st.lists(st.sampled_from(["job.sh", "./app", "-n", "9", "--", "--dry-run", "x y", "\udcff"]), max_size=4),
)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(LINES)
def test_a_line_that_is_read_quickly_is_what_typer_reads(line: list[str]) -> None:
    try:
        quick = submit_words.read(sbatchwords.translated(line, KNOWN))
    except EjbError:
        return  # both ask sbatchwords
    if quick is not None:
        plain = {name: value for name, value in quick.given.items() if value is not None}
        assert by_typer(line) == quick._replace(given=plain)


@pytest.mark.parametrize(
    "line",
    [
        ["job.sh"],
        ["-n", "16", "-t10", "-HW", "--part=q", "--mem=4G", "job.sh", "a", "-n", "3"],
        ["--restartable", "--no-restartable", "--lambda", "3.5", "-O", "--nice=5", "--", "./app", "--", "x"],
        ["--json", "--dry-run", "-"],
        [],
    ],
)
def test_what_is_typed_every_day_is_read_quickly(line: list[str]) -> None:
    assert submit_words.read(sbatchwords.translated(line, KNOWN)) is not None


@pytest.mark.parametrize(
    "line",
    [
        ["--version"],
        ["status"],
        ["--url", "submit"],
        ["--nonsense", "submit", "job.sh"],
        ["submit", "--help"],
        ["submit", "-h", "job.sh"],
        ["submit", "-n", "four", "job.sh"],
        ["submit", "--hold=yes", "job.sh"],
        ["submit", "--nonsense", "job.sh"],
    ],
)
def test_whatever_is_not_plain_is_left_to_typer(line: list[str]) -> None:
    assert submit.quickly(line) is None


LATE = """\
import socket, sys, time
time.sleep(float(sys.argv[2]))
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1])
one.listen()
print(one.accept())
"""


def test_a_daemon_that_is_just_starting_is_waited_for_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "sock")
    assert not starting_daemon.await_starting_daemon(path) and capsys.readouterr().err == ""
    (tmp_path / "ejbd").write_text(LATE)
    line = [sys.executable, str(tmp_path / "ejbd"), path]
    with subprocess.Popen([*line, "0.5"], stdout=subprocess.DEVNULL):
        until(lambda: starting_daemon.await_starting_daemon(path), "it is not waited for", 60)
    assert capsys.readouterr().err.endswith("ejb: an ejbd is just starting; waiting until it answers\n")
    monkeypatch.setattr(starting_daemon, "STARTS_WITHIN_S", 0.2)
    with subprocess.Popen([*line, "600"]) as never:
        assert not starting_daemon.await_starting_daemon(str(tmp_path / "other"))
        never.kill()
