"""`.ci/run` on stand-ins of the suite and the containers: both run at once, what fails is told, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.fakes.daemon import until

RUN = Path(__file__).resolve().parents[2] / ".ci" / "run"
PATIENCE_S = 60


def place(folder: Path, **scripts: str) -> Path:
    for name, text in scripts.items():
        path = folder / "scripts" / name.replace("_", "-")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
    (folder / ".ci").mkdir()
    return Path(shutil.copy(RUN, folder / ".ci" / "run"))


@pytest.mark.parametrize(("suite", "containers", "code"), [(0, 0, 0), (0, 1, 1), (3, 1, 3)])
def test_both_run_at_once_and_the_containers_are_told_last(
    tmp_path: Path, suite: int, containers: int, code: int
) -> None:
    meet = "meet() { touch $1; until [ -e $2 ]; do sleep 0.05; done; }; meet"
    run = place(
        tmp_path,
        test=f"{meet} a b; echo 5 passed in 1s; exit {suite}",
        compose_test=f"{meet} b a; echo compose-test: WRONG: a node; exit {containers}",
    )
    done = subprocess.run([run], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done
    assert done.stdout.splitlines() == [
        "5 passed in 1s",
        "compose-test: WRONG: a node",
        f"ci: the suite ended with {suite}: 5 passed in 1s",
    ]
    assert ("ended with 1: compose-test: WRONG: a node" in done.stderr) == bool(containers)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_where_it_is_told_to_stop_or_killed(tmp_path: Path, how: signal.Signals) -> None:
    run = place(
        tmp_path,
        test="echo $$ >suite; sleep 60",
        compose_test="trap 'echo down >down; exit 1' TERM; echo >up; for i in {1..600}; do sleep 0.1; done",
    )
    process = subprocess.Popen([run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    suite = tmp_path / "suite"
    try:
        until(lambda: (tmp_path / "up").exists() and suite.exists() and bool(suite.read_text()), "not up", PATIENCE_S)
        process.send_signal(how)
        assert process.wait(PATIENCE_S) == (143 if how == signal.SIGTERM else -how)
        until((tmp_path / "down").exists, "the containers were left", PATIENCE_S)
        until(lambda: not runs(int(suite.read_text())), "the suite was left", PATIENCE_S)
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int(suite.read_text()), signal.SIGKILL)
        process.kill()
