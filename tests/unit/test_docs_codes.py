"""Every error code has its anchor in docs/troubleshooting.md, and each sentence that a user sees names its code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ejbd.api.problems import problem
from ejbd.cli.output import Mode, Output
from ejbd.errors import EXIT_CODE, HTTP_STATUS, Code, EjbError

DOCS = Path(__file__).resolve().parents[2] / "docs"
CODES = sorted(code.value for code in Code)


def test_each_code_has_its_anchor_and_each_anchor_its_code() -> None:
    headings = re.findall(r"^## `([^`]+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted(headings) == CODES


def test_the_table_has_each_code_with_its_status_exit_code_and_anchor() -> None:
    rows = re.findall(
        r"^\| \[`([a-z-]+)`\]\(troubleshooting\.md#([a-z-]+)\) \| (\d*) ?\| (\d+) \|",
        (DOCS / "errors.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(row[0] for row in rows) == CODES
    for name, anchor, status, exit_code in rows:
        code = Code(name)
        assert anchor == name and int(exit_code) == EXIT_CODE[code]
        assert status == ("" if code is Code.UNREACHABLE else str(HTTP_STATUS[code]))


@pytest.mark.parametrize("code", list(Code))
def test_a_sentence_names_its_code(code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    error = EjbError(code, "it cannot be", hint="do otherwise", where="line 3")
    assert Output(Mode.HUMAN).failure(error) == EXIT_CODE[code]
    assert capsys.readouterr().err == f"ejb: line 3: it cannot be (do otherwise) [{code.value}]\n"
    assert f'"type":"urn:ejb:error:{code.value}"'.encode() in problem(error).body


SAID = re.findall(r"\*([^*\n]+)\*", (DOCS / "troubleshooting.md").read_text())


@pytest.mark.parametrize("sentence", SAID)
def test_messages_that_the_page_quotes_stand_in_the_code(sentence: str) -> None:
    pieces = [piece.strip() for piece in sentence.split("...") if len(piece.strip()) > 6]
    assert _found(pieces), f"no message of the code holds {pieces}"


def _found(pieces: list[str]) -> bool:
    return all(any(piece in text for text in _SOURCES) for piece in pieces)


def _plain(text: str) -> str:
    """Literals that go on in the next line as one, without what is filled in."""
    return re.sub(r'"\s*f?"', "", text)


_SOURCES = [_plain(path.read_text()) for path in (DOCS.parent / "ejbd").rglob("*.py")]
