"""Commands that documents show, taken from their code blocks: lines of a block whose first word is a program of ours.

A block is run (tests/integration/test_docs_run.py) unless `<!-- not run: REASON -->` stands above it. All that
`ejb` is asked is held against its options in any case (tests/unit/test_docs_commands.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = (
    r"ejb|ejbd|scripts/[\w-]+|python3?|pip|docker|sbatch|squeue|curl|sudo|su|install|systemctl|pytest|apt-get|git|"
    r"sacctmgr|journalctl|snakemake|nextflow|ln|mkdir|kill|\."
)
_COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{PROGRAMS})(?:\s+\S|$)")
_MARK = re.compile(r"<!-- not run: (\S.*\S) -->")


@dataclass(frozen=True)
class Block:
    """The commands of one code block, each on its first line's number; `why_not`: the reason, where it is marked."""

    page: str
    line: int
    why_not: str | None
    commands: tuple[tuple[int, str], ...]


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page that show a command."""
    found: list[Block] = []
    lines = [*page.read_text().splitlines(), "."]
    body: list[tuple[int, str]] = []
    why: str | None = None
    fenced = begins = False
    for number, line in enumerate(lines, 1):
        fence = line.startswith("```")
        code = fenced or (line.startswith("    ") and (begins or bool(body)))
        if fence:
            fenced = not fenced
        elif code or (body and not line.strip()):
            body.append((number, line if fenced else line[4:]))
            continue
        if body and not fenced:
            if commands := _commands(body):
                found.append(Block(str(page.relative_to(ROOT)), commands[0][0], why, tuple(commands)))
            body, why = [], None
        if mark := _MARK.fullmatch(line.strip()):
            why = mark[1]
        elif line.strip() and not fence:
            why = None
        begins = not line.strip() or bool(mark)
    return found


def _commands(body: list[tuple[int, str]]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    goes_on = False
    for number, line in body:
        if goes_on:
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.strip())
        elif _COMMAND.match(bare := line.removeprefix("$ ").rstrip()):
            found.append((number, bare))
        else:
            continue
        goes_on = found[-1][1].endswith("\\")
    return found


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]
