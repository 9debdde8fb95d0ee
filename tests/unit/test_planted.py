"""The faults of benchmarks/planted.py can be planted: the text of each stands once in the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MUTANTS = Path(__file__).resolve().parents[2] / "benchmarks" / "mutants.py"


def test_every_fault_can_be_planted() -> None:
    done = subprocess.run([sys.executable, MUTANTS, "--list"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
