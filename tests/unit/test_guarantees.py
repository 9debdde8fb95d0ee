"""Every test that docs/guarantees.md and docs/threat-model.md name is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()
THREATS = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z]+/test_\w+\.py)::(\w+)`", GUARANTEES + THREATS)))


@functools.cache  # a file is named many times
def names_in(file: Path) -> set[str]:
    defined = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, defined)}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_a_guarantee_is_shown_by_is_there(file: str, name: str) -> None:
    assert (ROOT / "tests" / file).exists() and name in names_in(ROOT / "tests" / file)


def test_each_attacker_has_a_test_that_shows_it() -> None:
    rows = [line for line in THREATS.partition("## Attackers")[2].splitlines() if line.startswith("| ")]
    rows = [row for row in rows if "---" not in row and not row.rstrip(" |").endswith("shown by")]
    assert len(rows) > 8 and [row for row in rows if not re.search(r"`[a-z]+/test_\w+\.py::\w+`", row)] == []


def test_each_guarantee_names_one() -> None:
    rows = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.rstrip(" |").endswith("shown by")]
    assert len(rows) > 20 and len(NAMED) > 20
    assert [row for row in rows if not re.search(r"`[a-z]+/test_\w+\.py::\w+`", row)] == []
