"""The commands of the documents, run on one embedded cluster: those of each page in their order.

A block that is not run says why (`<!-- not run: REASON -->`; tests/docs_commands.py takes them out of the pages).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.cli.own_daemon import own_daemon
from tests.docs_commands import PAGES, ROOT, blocks

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docs-commands")]

BOUND_S = 120.0
SETTINGS = """poll_s = 1.0
[queues.batch]
elasticity = "on"
"""
WORDS = {"LOG": "small.swf", "DIR": "out", "--jobs 2000": "--jobs 200", "/home/ada": ".", "n[1-3]": "n[7-8]"}
"""What a reader puts in, and what would take long here."""
HERE = {page: [block for block in blocks(page) if not block.why_not] for page in PAGES}
HERE = {page: found for page, found in HERE.items() if found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a reader stands: the examples, programs that end at once, a plan, a log; and a daemon that answers."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "examples").mkdir()
    for name in ("heat.py", "heat.sbatch"):
        text = (ROOT / "examples" / name).read_text().replace("--steps 1000 --pace 20ms", "--steps 50 --pace 1ms")
        (folder / "examples" / name).write_text(text)
    for name in ("app", "prog", "heat", "script.sh", "heat.sh"):
        (folder / name).write_text("#!/bin/sh\nexit 0\n")
        (folder / name).chmod(0o755)
    plan = "workflow:\n  stages:\n    one: {command: 'sleep 60', tasks: 1, walltime: 00:05:00}\n"
    (folder / "plan.yaml").write_text(plan)
    try:
        with own_daemon(folder, SETTINGS, {}):
            for words in (("sim", "generate", "small.swf", "--jobs", "200", "--procs", "64", "--load", "0.8"),):
                assert run(folder, "ejb " + " ".join(words)).returncode == 0
            yield folder
    finally:  # once the daemon is gone, which would start the embedded cluster again
        subprocess.run(
            [sys.executable, "-m", "ejbd.batch.local", "down", str(folder / "state" / "cluster")],
            timeout=BOUND_S,
            check=False,
        )


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "EJB_SOCKET": str(folder / "state" / "ejbd.sock"),
        "XDG_STATE_HOME": str(folder / "home"),
    }
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def as_here(command: str, folder: Path) -> str | None:
    """The command with a reader's words put in; None for the daemon, which runs already."""
    if re.match(r"ejbd( --config \S+)? --detach|ejbd stop", command):
        return None
    for word, here in WORDS.items():
        command = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", here, command)
    return command.replace("~/.local/state/ejbd/ejbd.sock", str(folder / "state" / "ejbd.sock"))


def pages() -> Iterator[Any]:
    for page in HERE:
        name = str(page.relative_to(ROOT))
        pasted = name in ("README.md", "docs/start-scientist.md")
        there_too = [pytest.mark.nightly("acceptance/test_readme.py pastes them")] if pasted else []
        yield pytest.param(page, id=name, marks=there_too)


@pytest.mark.parametrize("page", list(pages()))
def test_the_commands_of_a_page(page: Path, folder: Path) -> None:
    for block in HERE[page]:
        for line, command in block.commands:
            typed = as_here(command, folder)
            if typed is not None:
                done = run(folder, typed)
                told = f"{block.page}:{line}: {command}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
                assert done.returncode == 0, told
