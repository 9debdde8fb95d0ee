"""What CONTRIBUTING.md promises of the repository itself: read from its files."""

from __future__ import annotations

import functools
import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WIDTH = 120
SKIPPED = {
    ".venv",
    ".git",
    "__pycache__",
    "build",
    "dist",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
}


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout, without what is made there."""
    found: list[Path] = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if name not in SKIPPED and not name.endswith(".egg-info")]
        found.extend(Path(folder, name) for name in names)
    return tuple(sorted(found))


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    if path.suffix:
        return False
    with path.open("rb") as file:
        return re.match(rb"#!.*python", file.readline()) is not None


def test_everything_that_is_python_is_typed() -> None:
    typed = [ROOT / name for name in PROJECT["tool"]["mypy"]["files"]]
    left_out = [
        str(path.relative_to(ROOT))
        for path in files()
        if is_python(path) and not any(path == where or where in path.parents for where in typed)
    ]
    assert left_out == []


def test_everything_that_is_python_is_linted() -> None:
    ruff = PROJECT["tool"]["ruff"]
    assert ruff["extend-exclude"] == [".venv"], "ruff reads every .py but what setup makes"
    nameless = [str(path.relative_to(ROOT)) for path in files() if is_python(path) and path.suffix != ".py"]
    assert nameless == ruff["extend-include"]


def test_the_version_is_written_down_once() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ejbd.__version__"}


def test_the_licence_has_its_spdx_name() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"


@pytest.mark.parametrize(
    "path", [path for path in files() if path.suffix == ".md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_lines_of_prose_are_no_longer_than_they_may_be(path: Path) -> None:
    long = []
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        free = fenced or line.startswith("    ") or line.lstrip().startswith("|") or " " not in line.strip()
        if len(line) > WIDTH and not free:
            long.append(number)
    assert long == []


def test_every_document_that_is_linked_to_is_there() -> None:
    missing = []
    for path in files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target and not (path.parent / target).exists():
                missing.append(f"{path.relative_to(ROOT)}: {target}")
    assert missing == []


def test_every_file_that_the_documents_name_is_there() -> None:
    rooms = "ejbd|workers|tests|scripts|docs|examples|benchmarks|deploy"
    missing = []
    for path in files():
        if path.suffix != ".md":
            continue
        for name in re.findall(rf"`((?:{rooms})/[\w./-]+)", path.read_text(encoding="utf-8")):
            if not (ROOT / name.rstrip(".")).exists():
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
