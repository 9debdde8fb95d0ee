"""What workers leave in the node's temporary folder, and who takes it away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.worker_process import WORKERS
from workers.ejb_worker import nodefolder

LEAVE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from ejb_worker import nodefolder
nodefolder._ROOT = sys.argv[2]
print(os.path.dirname(nodefolder.NodeFolder("7.1", "n1").own))
print(nodefolder.Scratch("7", 3).path(), flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(nodefolder, "_ROOT", str(tmp_path))
    yield tmp_path


def left_by_a_killed_worker(root: Path, age_s: float) -> list[Path]:
    words = [sys.executable, "-I", "-S", "-c", LEAVE, str(WORKERS), str(root)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -9
    left = [Path(line) for line in done.stdout.splitlines()]
    assert len(left) == 2 and all(folder.is_dir() for folder in left)
    for folder in left:
        os.utime(folder, (time.time() - age_s,) * 2)
    return left


def test_the_next_worker_sweeps_what_a_killed_one_left_a_minute_ago(root: Path) -> None:
    """Its folder and that of the move under way: they stayed for ten minutes, and for good if no worker came."""
    left = left_by_a_killed_worker(root, 60)
    own = nodefolder.NodeFolder("8.1", "n1")
    assert not any(folder.exists() for folder in left)
    left = left_by_a_killed_worker(root, 60)
    own.remove()
    assert not list(root.iterdir()), "and one that leaves sweeps, too"


def test_nobodys_folder_is_swept_while_it_is_used_or_while_that_cannot_be_told(root: Path) -> None:
    left = left_by_a_killed_worker(root, 1)
    used = nodefolder.Scratch("9", 1)
    path = Path(used.path())
    os.utime(path, (time.time() - 3600,) * 2)
    elsewhere = left_by_a_killed_worker(root, 60)[0]
    for mark in elsewhere.glob("namespace-*"):
        mark.rename(elsewhere / "namespace-of-a-container")
    os.utime(elsewhere, (time.time() - 60,) * 2)
    for folder in left:
        if folder != elsewhere:
            os.utime(folder)
    nodefolder.NodeFolder("8.1", "n1")
    assert path.exists(), "a worker uses it"
    assert elsewhere.exists(), "a worker of another container may"
    assert all(folder.exists() for folder in left), "it may be so young that its worker is not in it yet"
