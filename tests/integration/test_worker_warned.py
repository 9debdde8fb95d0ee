"""The TERM of a batch system that is no end: who hears it, and how what does not hear it is ended all the same."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.worker_process import PATIENT, World, alive, eventually, world

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
        value.start("--warns", "yes", "--ending", str(tmp_path / "ending"))
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


def test_where_no_warning_is_to_be_expected_a_rank_and_what_it_starts_hear_every_term(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        there.start("--ending", str(tmp_path / "ending"))
        there.launch("bash", "-c", "trap 'exit 6' TERM; sleep 60 & kill $!; wait $!; echo $?; echo up; sleep 60 & wait")
        up(there)
        assert there.rank_output(0).split() == ["143", "up"]
        result = there.manager.run("stop", {"epoch": 1, "grace_s": 600})
        assert result["data"]["exits"] == {"0": 6}


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


TRAPS = "#!/bin/bash\ntrap 'echo heard; exit 0' TERM\necho up\nsleep 60 &\nwait\n"
LEAVES = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("up", flush=True)
time.sleep(60)
"""


def trapping(there: World) -> int:
    """The process id of a script that ends with 0 when it hears a TERM."""
    script = there.script(TRAPS)
    script["variables"] = {}
    pid = int(there.lead(script)["data"]["pid"])
    eventually(lambda: "up" in (there.job_dir / "script" / "1.out").read_text())
    return pid


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start("--warns", "yes", "--ending", str(tmp_path / "ending"), program=PATIENT)
        yield value


def signalled(there: World, *pids: int) -> None:
    """TERM as a batch system sends it: to `pids`, which end, and then to the worker."""
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(alive(pid) for pid in pids))
    there.worker.terminate()


def test_a_script_that_leaves_with_0_at_the_end_has_not_ended_by_itself(patient: World, tmp_path: Path) -> None:
    signalled(patient, trapping(patient))
    (tmp_path / "ending").touch()  # word of it comes last
    assert patient.worker.wait(30) == 143
    assert patient.manager.of_kind("script-exit") == []
    assert patient.manager.of_kind("leaving")[0]["reason"] == "ended by SIGTERM"


def test_ranks_that_leave_with_0_at_the_end_have_not_ended_by_themselves(patient: World, tmp_path: Path) -> None:
    pid = patient.launch(sys.executable, "-c", LEAVES)[0]
    up(patient)
    signalled(patient, pid)
    (tmp_path / "ending").touch()
    assert patient.worker.wait(30) == 143
    assert patient.manager.of_kind("rank-exit") == []
    assert patient.manager.of_kind("leaving")[0]["exits"] == {"1": {"0": 0}}


def test_what_leaves_with_0_after_a_mere_warning_is_told_after_it(patient: World) -> None:
    rank = patient.launch(sys.executable, "-c", LEAVES)[0]
    up(patient)
    signalled(patient, rank, trapping(patient))
    manager = patient.manager
    manager.wait_for(lambda: manager.of_kind("script-exit") and manager.of_kind("rank-exit"))
    kinds = [report["kind"] for report in manager.reports]
    told = [kind for kind in kinds if kind in ("warned", "rank-exit", "script-exit")]
    assert told[0] == "warned" and len(told) == 3
    assert [manager.of_kind(kind)[0]["code"] for kind in ("rank-exit", "script-exit")] == [0, 0]


def test_ends_are_told_in_their_order_though_the_first_is_held_for_longer(there: World) -> None:
    """Rank 0 is killed by a signal, which may be the end of all; rank 1 leaves after it."""
    pids = there.launch(sys.executable, "-c", LEAVES, ranks=2)
    for rank in pids:
        eventually(lambda rank=rank: "up" in there.rank_output(rank))  # type: ignore[misc]
    os.kill(pids[0], signal.SIGKILL)
    eventually(lambda: not alive(pids[0]))
    os.kill(pids[1], signal.SIGTERM)
    assert there.exits(2) == {0: 137, 1: 0}
    assert [report["rank"] for report in there.manager.of_kind("rank-exit")] == [0, 1]
