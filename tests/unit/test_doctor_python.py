"""The worker's Python, as `ejb doctor` looks at it: too old, broken, or behind a wrapper that is slow to start."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from ejbd.doctor.checks import examine_python


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_a_wrapper_that_is_slow_to_start_is_told_with_what_it_wraps(tmp_path: Path) -> None:
    found = examine_python(program(tmp_path / "python3", f'sleep 3; exec {shlex.quote(sys.executable)} "$@"'))
    assert found.good
    assert f"it is a wrapper of {sys.executable} and starts " in found.text


@pytest.mark.parametrize(
    ("text", "said"),
    [("echo 3.6 /usr/bin/python3; exit 1", "is 3.6; workers need 3.8"), ("exit 3", "is broken; workers need 3.8")],
)
def test_one_that_is_too_old_or_broken_is_bad(tmp_path: Path, text: str, said: str) -> None:
    found = examine_python(program(tmp_path / "python3", text))
    assert not found.good and said in found.text


def test_one_that_is_not_there_is_bad(tmp_path: Path) -> None:
    found = examine_python(str(tmp_path / "python3"))
    assert not found.good and "set worker_python" in found.text
