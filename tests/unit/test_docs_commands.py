"""Whatever `ejb` is asked in a document is what it takes, in blocks that are not run, too."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from ejbd.cli.app import app
from tests import docs_commands
from tests.docs_commands import all_blocks, blocks

COMMANDS: Any = typer.main.get_command(app)
ASKED = [(block.page, *one) for block in all_blocks() for one in block.commands if one[1].startswith("ejb ")]


def refused(words: list[str]) -> str:
    """What `ejb` would not take of these words: a command or an option; empty where it takes them."""
    command = COMMANDS
    while commands := getattr(command, "commands", None):
        name = next((word for word in words if not word.startswith("-")), "")
        if name not in commands:
            return f"no command {name}"
        words, command = words[words.index(name) + 1 :], commands[name]
    known = {spelling for one in command.params for spelling in (*one.opts, *one.secondary_opts)}
    for word in words[: words.index("--") if "--" in words else None]:
        spelling = word.partition("=")[0]
        if spelling.startswith("--") and spelling not in known | {"--help"}:
            return f"no option {spelling}"
    return ""


def words_of(command: str) -> list[str]:
    """As a shell has them, of a form the optional parts, too, and of choices the first."""
    command = re.split(r" && | \| | > | & *$", command)[0]
    command = re.sub(r" \[((?:-|NAME|FILE).*?)\](?=\s|$|\])", r" \1", command)
    return [word.strip("[]") for word in shlex.split(command, comments=True)][1:]


@pytest.mark.parametrize(("page", "line", "command"), ASKED, ids=[f"{page}:{line}" for page, line, _ in ASKED])
def test_options_that_documents_show_are_there(page: str, line: int, command: str) -> None:
    assert refused(words_of(command)) == ""


def test_the_documents_show_commands() -> None:
    assert len(ASKED) > 80


def test_a_wrong_option_is_found() -> None:
    assert refused(words_of("ejb sim run small.swf --sizes 3")) == "no option --sizes"
    assert refused(words_of("ejb frobnicate --sizes")) == "no command frobnicate"
    assert refused(words_of("ejb sim fit --limit 1|2 [--compact] [--jsn]  # a form")) == "no option --jsn"


PAGE = """One:

    ejb status \\
      --json
    said

Two:

<!-- not run: hours -->

    $ ejb demo

Three:

    ejbd &
"""


def test_marks_and_lines_that_go_on_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(docs_commands, "ROOT", page.parent)
        found = blocks(page)
    assert [(one.why_not, one.commands[0][1]) for one in found] == [
        (None, "ejb status --json"),
        ("hours", "ejb demo"),
        (None, "ejbd &"),
    ]
