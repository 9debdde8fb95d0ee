"""The TERM of a batch system that is no end: who hears it, and how what does not hear it is ended all the same."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.worker_process import World, alive, eventually, world

PLAIN = ("import time; print('up', flush=True); time.sleep(60)",)
HANDLES = """
import signal, sys, time
def heard(*_):
    print("heard", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, heard)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start("--ending", str(tmp_path / "ending"))
        yield value


def up(there: World, epoch: int = 1) -> None:
    eventually(lambda: "up" in there.rank_output(0, epoch))


def test_a_rank_that_can_be_checkpointed_does_not_hear_it_and_ends_at_once_when_it_is_told_to(there: World) -> None:
    pid = there.launch(sys.executable, "-c", *PLAIN)[0]
    up(there)
    os.kill(pid, signal.SIGTERM)  # as the batch system does, to all that runs in the job
    there.worker.terminate()
    there.manager.wait_for(lambda: there.manager.of_kind("warned"))
    assert alive(pid) and there.manager.of_kind("rank-exit") == []
    # A grace of ten minutes: what has no handler is given none.
    result = there.manager.run("stop", {"epoch": 1, "grace_s": 600})
    assert result["data"]["exits"] == {"0": 143} and not alive(pid)


def test_a_rank_with_a_handler_of_its_own_hears_both(there: World) -> None:
    there.launch(sys.executable, "-c", HANDLES)
    up(there)
    result = there.manager.run("stop", {"epoch": 1, "grace_s": 600})
    assert result["data"]["exits"] == {"0": 5} and "heard" in there.rank_output(0)
    pid = there.launch(sys.executable, "-c", HANDLES, epoch=2)[0]
    up(there, 2)
    os.kill(pid, signal.SIGTERM)
    assert there.exits(1) == {0: 5}


def test_ranks_that_cannot_be_checkpointed_hear_it_as_without_ejb(there: World) -> None:
    pid = there.launch(sys.executable, "-c", *PLAIN, engine="none")[0]
    up(there)
    there.worker.terminate()
    os.kill(pid, signal.SIGTERM)
    assert there.exits(1) == {0: 143}
    kinds = [report["kind"] for report in there.manager.reports if report["kind"] in ("warned", "rank-exit")]
    assert kinds == ["warned", "rank-exit"], "the cause is told before what came of it"


def test_a_script_that_it_ends_has_not_ended_by_itself(there: World) -> None:
    script = there.script("#!/bin/bash\necho up\nsleep 60\n")
    script["variables"] = {}
    pid = there.lead(script)["data"]["pid"]
    eventually(lambda: "up" in (there.job_dir / "script" / "1.out").read_text())
    there.worker.terminate()
    os.killpg(pid, signal.SIGTERM)
    assert there.worker.wait(30) == 143
    assert there.manager.of_kind("script-exit") == []
    assert there.manager.of_kind("leaving")[0]["reason"] == "the batch system's warning ended the script"
