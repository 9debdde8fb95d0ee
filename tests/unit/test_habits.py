"""What CONTRIBUTING.md promises of the repository itself: read from its files.

Run as a program, `python tests/unit/test_habits.py` counts the words of persons by room, and prints the ten longest
sentences of the documents.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WIDTH = 120
SKIPPED = {
    "rename",
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

PERSONS_WORDS = {
    *("who", "whoever", "whom", "whose", "whosever", "nobody", "somebody", "anybody", "everybody"),
    *("someone", "anyone", "everyone", "himself", "herself", "he", "she", "him", "his", "her", "hers"),
}
PERSONS = re.compile(rf"(?<![A-Za-z])({'|'.join(PERSONS_WORDS)})(?![A-Za-z])", re.IGNORECASE)
"""Things act: "a waiting job", "the daemon", "an operator" say what these leave open."""
CLEAN = (
    *("README.md", "CONTRIBUTING.md", "benchmarks", "deploy", "docs", "examples", "scripts", "workers"),
    *(
        "ejbd/accounting",
        "ejbd/api",
        "ejbd/batch",
        "ejbd/cli",
        "ejbd/client",
        "ejbd/config",
        "ejbd/core",
        "ejbd/doctor",
    ),
    *("ejbd/files", "ejbd/identity", "ejbd/log", "ejbd/manager", "ejbd/options", "ejbd/plugins", "ejbd/profiles"),
    *("ejbd/release", "ejbd/sim", "ejbd/store"),
    *("ejbd/studies", "ejbd/web", "ejbd/wire", "ejbd/workflow"),
    *("ejbd/__init__.py", "ejbd/daemon.py", "ejbd/errors.py"),
)
"""Rooms that are free of these words: a room that becomes so is added here."""
ALLOWED = (
    (r"[`\"'.]whose\b|\bwhose(?=[:=])", "a column, a field of events and REST, a label of Prometheus"),
    (r"`[^`\n]*`", "names of tests, files and fields"),
    (r"\b(whose_is|_nobody_knows|_somebody_fits|anybody_(stands|waits))\b", "functions of ejbd/manager"),
    (r"\"(nobody|somebody)_fits\"", "codes of decisions, which stores and clients keep"),
    (r"\b(to|kept)\.who\b|^    who: str$", "the user that a promise of room is for, in ejbd/manager"),
)
"""Text that is passed over, and why."""
PROSE = {".c", ".h", ".md", ".py", ".sbatch", ".sh", ".toml"}
SENTENCE_WORDS = 25
CELL_WORDS = 40


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


def in_clean_rooms() -> list[Path]:
    """Prose and code of the rooms that are held to the words."""
    return [
        path for path in files() if path.suffix in PROSE and any(path.is_relative_to(ROOT / room) for room in CLEAN)
    ]


def persons_in(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if PERSONS_WORDS.isdisjoint(re.findall("[a-z]+", text.lower())):
        return []
    for pattern, _ in ALLOWED:
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return [
        f"{path.relative_to(ROOT)}:{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in PERSONS.finditer(line)
    ]


def test_no_sentence_leaves_open_what_acts() -> None:
    assert [one for path in in_clean_rooms() for one in persons_in(path)] == []


def test_rooms_and_files_that_are_named_here_are_there() -> None:
    assert [name for name in CLEAN if not (ROOT / name).exists()] == []


def paragraphs(text: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is a cell of a table; headings and code are passed over."""
    parts: list[str] = []
    start, fenced = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        item = re.match(r"([-*]|\d+\.) ", bare)
        fence = bare.startswith("```")
        apart = fence or fenced or not bare or bare.startswith(("#", "|")) or (line.startswith("    ") and not parts)
        if parts and (apart or item):
            yield start, " ".join(parts), False
            parts = []
        fenced ^= fence
        if apart:
            if bare.startswith("|") and not fenced and not re.fullmatch(r"[|\s:-]+", bare):
                yield from ((number, cell.strip(), True) for cell in re.split(r"(?<!\\)\|", bare.strip("|")))
            continue
        start = start if parts else number
        parts.append(bare[item.end() :] if item else bare)


def words_of(text: str) -> list[str]:
    """A link counts by its text, and what stands in backticks as one word."""
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)).replace("**", "")
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!?])[)\"*]*\s+(?=[A-Z0-9\"(*`\[])", text)


def documents() -> list[Path]:
    return [path for path in in_clean_rooms() if path.suffix == ".md"]


def by_length() -> list[tuple[int, str, str]]:
    """Words, place and text of every sentence of the documents, the longest first."""
    found = []
    for path in documents():
        for line, paragraph, _ in paragraphs(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(ROOT)}:{line}"
            found += [(len(words_of(one)), place, one) for one in sentences(paragraph)]
    return sorted(found, reverse=True)


def test_a_sentence_of_the_documents_has_one_idea() -> None:
    assert [one for one in by_length() if one[0] > SENTENCE_WORDS] == []


def test_a_cell_of_a_table_is_taken_in_at_once() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for path in documents()
        for line, text, cell in paragraphs(path.read_text(encoding="utf-8"))
        if cell and len(words_of(text)) > CELL_WORDS
    ] == []


if __name__ == "__main__":
    for room in sorted(CLEAN):
        prose = [path for path in files() if path.suffix in PROSE and path.is_relative_to(ROOT / room)]
        print(f"{sum(len(persons_in(path)) for path in prose):5} {room}")
    for count, where, sentence in by_length()[:10]:
        print(f"{count:5} {where}: {sentence}")
