"""The catalogue of events is whole, written down, and what the manager writes (tests/fakes/live.py looks, too)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ejbd.wire.events import CATALOGUE, tables
from ejbd.wire.kinds import EventKind
from tests.fakes.told_events import faults

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"pydantic", "sqlalchemy", "httpx", "numpy"}
COLUMNS = {"job_id", "subjob_id"}  # of the row, not of its data


def test_every_kind_is_in_the_catalogue() -> None:
    assert list(CATALOGUE) == list(EventKind)
    assert all(told.meaning for told in CATALOGUE.values())


def test_the_document_is_the_catalogue() -> None:
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    assert text.endswith("\n\n" + tables()), "print it anew: python -m ejbd.wire.events"


def test_the_catalogue_is_light_to_import() -> None:
    code = "import sys, ejbd.wire.events, ejbd.wire.payloads\nprint(HEAVY & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {HEAVY}; {code}"], capture_output=True, text=True, check=True, timeout=180
    )
    assert done.stdout.strip() == "set()"


def calls() -> Iterator[tuple[str, str, set[str | None]]]:
    """Each call of add_event that names its kind: where, the kind, and the names that are given (None: and others)."""
    for path in sorted((ROOT / "ejbd").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "add_event(" not in text:  # parsing all of them takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "add_event"):
                continue
            kind = ast.unparse(node.args[1])
            if kind.startswith("EventKind."):
                names = {word.arg for word in node.keywords}
                yield f"{path.relative_to(ROOT)}:{node.lineno}", kind.removeprefix("EventKind."), names


def test_what_is_written_is_what_the_catalogue_has() -> None:
    wrong, seen = [], 0
    for where, kind, names in calls():
        data, seen = CATALOGUE[EventKind[kind]].data, seen + 1
        given = {name for name in names if name is not None} - COLUMNS
        if unknown := given - set(data.__annotations__):
            wrong.append(f"{where}: {kind} has no {unknown}")
        if None not in names and (missing := data.__required_keys__ - given):
            wrong.append(f"{where}: {kind} without {missing}")
    assert not wrong and seen > 10


def test_faults_are_seen() -> None:
    assert faults("clock.set", {"by_s": 1.5}) == []
    assert faults("clock.set", {}) == ["clock.set: by_s is missing"]
    assert faults("clock.set", {"by_s": 1.5, "why": ""}) == ["clock.set: why is not in the catalogue"]
    assert "by_s is 'x'" in faults("clock.set", {"by_s": "x"})[0]
