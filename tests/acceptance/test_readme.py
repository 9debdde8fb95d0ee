"""The README's commands, word by word."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.config import Settings
from tests.fakes.daemon import until

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


def test_every_command_works_from_the_clone(clone: Path) -> None:
    """On the embedded cluster. `ejb submit examples/heat.sbatch` ended with "can't open file heat.py"."""
    shutil.copytree(ROOT / "examples", clone / "examples")
    batch = clone / "examples" / "heat.sbatch"
    batch.write_text(batch.read_text().replace("--steps 1000 --pace 20ms", "--steps 50 --pace 1ms"))
    (clone / "ejbd.toml").write_text("poll_s = 0.5\n[local]\nnodes = 4\nprocessors_per_node = 4\n")
    app = clone / "app"
    app.write_text("#!/bin/sh\nexit 0\n")
    app.chmod(0o755)
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "XDG_STATE_HOME": str(clone / "state")}
    env = {name: value for name, value in env.items() if not name.startswith("EJB_")}
    first, *others = [line.partition("   #")[0].strip() for line in block("## Use it")]
    assert first.endswith(" &"), first
    with (clone / "ejbd.log").open("wb") as log:
        daemon = subprocess.Popen(first.removesuffix(" &").split(), cwd=clone, env=env, stdout=log, stderr=log)
    try:
        socket = clone / "state" / "ejbd" / "ejbd.sock"
        until(lambda: socket.exists() or daemon.poll() is not None, "the daemon did not come up", 60)
        assert daemon.poll() is None, (clone / "ejbd.log").read_text()
        assert len(others) >= 6

        def run(line: str) -> str:
            done = subprocess.run(
                ["sh", "-c", line], cwd=clone, env=env, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            return done.stdout

        said = {line: run(line) for line in others}
        heat = said["ejb submit examples/heat.sbatch"].split()[-1]
        run(f"ejb wait {heat}")
        assert "completed" in run(f"ejb status {heat}")
        assert (clone / "heat.svg").exists()
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        cluster = clone / "state" / "ejbd" / "cluster"
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(cluster)]
        subprocess.run(down, env=env, capture_output=True, timeout=60, check=False)
