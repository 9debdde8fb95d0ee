"""Alert rules and the dashboard: they ask for figures that the daemon has, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ejbd.api.metrics import _Stored
from ejbd.manager.service.telemetry import Telemetry

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "ejb.rules.yml"
TESTS = DEPLOY / "prometheus" / "ejb.rules.test.yml"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "ejb.json").read_text())["panels"]
    return found


def figures() -> set[str]:
    """The series of a daemon, by its own collectors."""
    stored = object.__new__(_Stored)
    stored.jobs, stored.subjobs, stored.intents, stored.overheads = {}, {}, {}, {}
    stored.workers, stored.pauses, stored.pace = 0, [], None
    families = [*stored.collect(), *Telemetry({}).registry.collect()]
    return {family.name + suffix for family in families for suffix in SUFFIXES[family.type]}


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\bejb_\w+", expression))


def test_every_figure_that_is_asked_for_is_there() -> None:
    known = figures()
    told = [rule["expr"] for rule in rules()] + [one["expr"] for panel in panels() for one in panel["targets"]]
    wanted = set().union(*map(asked, told))
    assert len(wanted) > 10 and wanted - known == set()
    assert asked("rate(ejb_no_such_total[5m])") - known, "a wrong name would be seen"


def test_every_alert_is_made_to_fire_and_to_be_silent() -> None:
    well, trouble = yaml.safe_load(TESTS.read_text())["tests"]
    names = {rule["alert"] for rule in rules()}
    silent = {one["alertname"] for one in well["alert_rule_test"] if not one.get("exp_alerts")}
    firing = {one["alertname"] for one in trouble["alert_rule_test"] if one.get("exp_alerts")}
    assert silent == firing == names


def test_panels_do_not_lie_over_each_other() -> None:
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels()]
    assert len(set(places)) == len(places) and len({one["id"] for one in panels()}) == len(places)


def test_prometheus_itself_says_so() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here (Debian: prometheus)")
    for words in (["check", "rules", str(RULES)], ["test", "rules", str(TESTS)]):
        done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
