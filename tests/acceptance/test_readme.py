"""The README's commands, word by word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.config import Settings
from tests.docs_commands import blocks

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def block(after: str) -> list[str]:
    """The lines of the first block of code behind some words."""
    text = (ROOT / "README.md").read_text().partition(after)[2]
    found = re.search(r"\n\n((?:    .*\n|\n)+)", text)
    assert found is not None, after
    return [line[4:] for line in found[1].rstrip().splitlines()]


def test_the_configuration_is_one() -> None:
    settings = Settings.model_validate(tomllib.loads("\n".join(block("A minimal `ejbd.toml`"))))
    assert settings.batch == "slurm"


@pytest.fixture
def clone() -> Iterator[Path]:
    """With a short path, for the daemon's socket."""
    with tempfile.TemporaryDirectory(prefix="ejb-readme-") as folder:
        yield Path(folder)


@pytest.fixture
def environment(clone: Path) -> Iterator[dict[str, str]]:
    """Of a user in the clone, on a machine so slow that the daemon takes seconds before it does anything."""
    shutil.copytree(ROOT / "examples", clone / "examples")
    batch = clone / "examples" / "heat.sbatch"
    batch.write_text(batch.read_text().replace("--steps 1000 --pace 20ms", "--steps 50 --pace 1ms"))
    (clone / "slow").mkdir()
    slowly = "import sys, time\ntime.sleep(2.0 * ('ejbd.daemon' in sys.orig_argv))\n"
    (clone / "slow" / "sitecustomize.py").write_text(slowly)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("EJB_", "EJBD_"))}
    env |= {"PATH": f"{BIN}:{os.environ['PATH']}", "XDG_STATE_HOME": str(clone / "state")}
    env |= {"PYTHONPATH": str(clone / "slow")}
    try:
        yield env
    finally:
        words = ["ejbd", "stop", "--cluster"]
        subprocess.run(words, cwd=clone, env=env, capture_output=True, timeout=120, check=False)


def paste(text: str, clone: Path, env: dict[str, str]) -> str:
    """What a shell prints that is given a whole block; none of its lines fails."""
    done = subprocess.run(
        ["sh", "-ec", text], cwd=clone, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    return done.stdout


def test_the_readme_is_pasted_as_it_stands(clone: Path, environment: dict[str, str]) -> None:
    """On the embedded cluster. `ejb submit examples/heat.sbatch` ended with "can't open file heat.py"."""
    (clone / "ejbd.toml").write_text("poll_s = 0.5\n[local]\nnodes = 4\nprocessors_per_node = 4\n")
    app = clone / "app"
    app.write_text("#!/bin/sh\nexit 0\n")
    app.chmod(0o755)
    lines = block("## Use it")
    assert len(lines) >= 7
    said = paste("\n".join(lines), clone, environment)
    heat = re.findall(r"^Submitted job (\w+)$", said, re.M)[0]
    paste(f"ejb wait {heat}; ejb status {heat} | grep completed", clone, environment)
    assert (clone / "heat.svg").exists()


def test_the_scientists_page_is_pasted_as_it_stands(clone: Path, environment: dict[str, str]) -> None:
    """`ejbd &` and the next line at once: "no daemon answers". And nothing of the embedded cluster lives on."""
    page = ROOT / "docs" / "start-scientist.md"
    text = page.read_text().splitlines()
    pasted = [found for found in blocks(page) if not found.why_not]
    assert [found.commands[0][1].partition("  ")[0] for found in pasted] == [
        "ejbd --detach", "ejb submit --dry-run examples/heat.sbatch", "ejb submit -n 4 -t 10 -- /bin/hostname",
        "ejbd stop --cluster",
    ]  # fmt: skip
    for found in pasted:
        first, last = found.commands[0][0], found.commands[-1][0]
        said = paste("\n".join(line.strip() for line in text[first - 1 : last]), clone, environment)
    assert "the embedded cluster has ended" in said
    state = clone / "state" / "ejbd"
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(state).encode() in _words_of(path)]
    assert not alive


def _words_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
