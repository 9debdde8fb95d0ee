"""Windows of the week by `ejb queue`, on a daemon that runs nothing: set, shown, cleared, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.cli.output import Output
from ejbd.cli.show.calendars import tell_calendar
from ejbd.errors import EjbError
from tests.fakes.api_server import ApiServer

NIGHT = "mon-fri 20:00-08:00"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path)
    monkeypatch.setenv("EJB_SOCKET", str(made.socket))
    monkeypatch.delenv("EJB_URL", raising=False)
    yield made
    made.close()


def ejb(*words: str) -> Any:
    return CliRunner().invoke(app, ["queue", *words])


def test_a_window_is_set_shown_and_cleared(server: ApiServer) -> None:
    shown = ejb("set", "main", "elasticity=on", "omax=4", "--when", NIGHT)
    assert shown.exit_code == 0, shown.exception
    line = f"queue main, {NIGHT} (UTC): elasticity=on omax=4; in force"
    assert line in shown.stdout and line in ejb("show", "main").stdout
    found = json.loads(ejb("show", "main", "--json").stdout)
    assert [row["when"] for row in found["calendar"]["windows"]] == [NIGHT] and found["overridden"] == []
    assert json.loads(ejb("clear", "main", "--when", NIGHT, "--json").stdout)["calendar"]["windows"] == []
    for words in (("clear", "main"), ("clear", "nix"), ("set", "nix", "omax=4", "--when", NIGHT)):
        refused = ejb(*words)
        assert isinstance(refused.exception, EjbError) and refused.exception.code.value == "not-found", words


def test_what_no_queue_can_have_is_refused_before_any_window_is_made(server: ApiServer) -> None:
    for words in (("omax=0",), ("colour=1",), ("elasticity=maybe",)):
        refused = ejb("set", "main", *words, "--when", NIGHT)
        assert isinstance(refused.exception, EjbError) and refused.exception.code.value == "invalid", words
    assert json.loads(ejb("show", "main", "--json").stdout)["calendar"]["windows"] == []


def test_it_is_said_until_when_what_is_in_force_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    window = {"when": NIGHT, "settings": {"omax": 4}, "in_force": False}
    for until, says in ((1.8e9, "are in force until 2027-01-15"), (None, "are in force for good")):
        queue = {"name": "main", "calendar": {"time_zone": "UTC", "windows": [window], "until_s": until}}
        tell_calendar(queue, Output())
        told = capsys.readouterr().out
        assert says in told and "omax=4; not now" in told
    tell_calendar({"name": "main", "calendar": {"time_zone": "UTC", "windows": [], "until_s": None}}, Output())
    assert capsys.readouterr().out == ""
