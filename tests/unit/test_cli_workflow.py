"""`ejb workflow` against a daemon: what it prints, and what it refuses before it asks."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.cli.show.workflow_chart import chart
from ejbd.errors import EjbError
from tests.fakes.api_server import ApiServer

PLAN = """\
workflow:
  name: two
  stages:
    one: {command: ./one.sh, tasks: 2, walltime: 5}
    two: {command: echo, tasks: 8, walltime: 5}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    (tmp_path / "server").mkdir()
    made = ApiServer(tmp_path / "server")
    monkeypatch.setenv("EJB_SOCKET", str(made.socket))
    monkeypatch.delenv("EJB_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(PLAN)
    yield made
    made.close()


def ejb(*words: str) -> Any:
    return CliRunner().invoke(app, ["workflow", *words])


def test_a_plan_is_submitted_shown_and_accounted_for(server: ApiServer, tmp_path: Path) -> None:
    refused = ejb("submit", "plan.yaml")
    assert isinstance(refused.exception, EjbError) and "program './one.sh'" in refused.exception.sentence()
    assert json.loads(ejb("status", "--json").stdout) == {"workflows": []}, "nothing was sent"
    (tmp_path / "one.sh").touch()
    id = ejb("submit", "plan.yaml", "--quiet").stdout.strip()
    shown = ejb("status", id[:6]).stdout
    assert f"workflow {id} (two, mode default) is running" in shown and "one" in shown and "waiting" in shown
    assert id in ejb("status").stdout and "0/2" in ejb("status").stdout
    told = json.loads(ejb("report", "last", "--json").stdout)
    assert told["id"] == id and told["core_h"] == {"held": 0.0, "used": 0.0, "moves": 0.0, "waits": 0.0}
    assert "HELD" in ejb("report", id, "--svg", "held.svg").stdout
    assert ET.parse(tmp_path / "held.svg").getroot().tag.endswith("svg")
    again = ejb("retry", id)
    assert isinstance(again.exception, EjbError) and again.exception.code.value == "conflict"
    absent = ejb("cancel", "ffff0000")
    assert isinstance(absent.exception, EjbError) and absent.exception.code.value == "not-found"


def test_check_asks_the_site_where_it_is_told_to(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "one.sh").touch()
    assert "2 stages in 2 allocations" in ejb("check", "plan.yaml").stdout
    assert ejb("check", "plan.yaml", "--site").exit_code == 0
    gone = ejb("check", "no-plan.yaml")
    assert isinstance(gone.exception, EjbError)
    assert gone.exception.sentence() == "no-plan.yaml: cannot read the plan: No such file or directory"


def test_the_picture_has_a_bar_an_attempt() -> None:
    def attempt(stage: str, start_s: float | None, tasks: int, outcome: str) -> dict[str, object]:
        run_s = None if start_s is None else 10.0
        held = {"core_h": {"held": 0.5}}
        return {
            "stage": stage,
            "stages": [stage],
            "start_s": start_s,
            "run_s": run_s,
            "tasks": tasks,
            "outcome": outcome,
            **held,
        }

    attempts = [attempt("a<b", 100.0, 4, "completed"), attempt("c", 110.0, 8, "failed"), attempt("d", None, 8, "")]
    told = {"name": "n", "submit_s": 90.0, "turnaround_s": 30.0, "widest": 8, "saved_percent": 25.0}
    root = ET.fromstring(chart({**told, "core_h": {"held": 1.0}, "attempts": attempts}))
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.partition(":")[0] for title in titles] == ["a<b", "c"]
