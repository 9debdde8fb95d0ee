"""How a worker ends, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.worker_process import World, alive, eventually, worker_command, world

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def test_ranks_end_with_a_killed_worker(there: World) -> None:
    there.start()
    pids = there.launch(sys.executable, "-c", "import time; time.sleep(60)", ranks=4)
    there.worker.kill()
    eventually(lambda: not any(alive(pid) for pid in pids.values()))


def test_told_to_leave(there: World) -> None:
    there.start()
    pids = there.launch("sh", "-c", STUBBORN, ranks=2)
    eventually(lambda: there.rank_output(1))
    folders = processor_folders(pids[0])
    assert there.manager.run("exit", {})["ok"]
    assert there.worker.wait(20) == 0
    assert not any(alive(pid) for pid in pids.values())
    assert there.manager.of_kind("rank-exit") == []
    assert there.manager.of_kind("leaving") == []
    assert not any(folder.exists() for folder in folders)


def processor_folders(pid: int) -> list[Path]:
    env = dict(word.split("=", 1) for word in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in word)
    folder = Path(env["EJB_PROCESSOR_DIR"])
    assert folder.is_dir()
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    return [folder, folder.parent]


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_by_the_batch_system(there: World, signum: int, code: int) -> None:
    there.start()
    pids = there.launch("sh", "-c", f"if [ $EJB_RANK = 0 ]; then {STUBBORN}; fi; echo ready; exec sleep 60", ranks=2)
    eventually(lambda: there.rank_output(0) and there.rank_output(1))
    there.worker.send_signal(signum)
    assert there.worker.wait(20) == code
    assert not any(alive(pid) for pid in pids.values())
    leaving = there.manager.of_kind("leaving")
    assert [report["exits"] for report in leaving] == [{"1": {"0": 137, "1": 143}}]
    assert signal.Signals(signum).name in leaving[0]["reason"]


def test_a_job_that_ends_as_a_whole_is_no_failure_of_its_ranks(there: World) -> None:
    """Batch systems signal every process of a job: ranks may be gone before the worker has seen its own signal."""
    there.start()
    pids = there.launch("sleep", "60", ranks=2)
    for pid in pids.values():
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not any(alive(pid) for pid in pids.values()))
    there.worker.terminate()
    assert there.worker.wait(20) == 143
    assert there.manager.of_kind("rank-exit") == []
    assert there.manager.of_kind("leaving")[0]["exits"] == {"1": {"0": 143, "1": 143}}


def test_hang_up_means_nothing(there: World) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    there.worker.send_signal(signal.SIGHUP)
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 0})["ok"]
    assert alive(pids[0])


def test_a_worker_ends_with_its_parent(there: World) -> None:
    there.manager.start()
    command = worker_command(there.manager.subjob_dir, "--processors", "2")
    program = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", program, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        there.manager.wait_for(lambda: there.manager.registrations)
        pids = there.launch("sleep", "60", ranks=2)
        assert alive(worker)
    finally:
        parent.kill()
        parent.communicate()
    eventually(lambda: not alive(worker) and not any(alive(pid) for pid in pids.values()))
    assert "parent" in there.manager.of_kind("leaving")[0]["reason"]


def test_orphans_of_ranks_end_with_the_worker(there: World) -> None:
    """A process that left its rank's group (setsid) is still the worker's to end."""
    there.start()
    there.launch("sh", "-c", "setsid sh -c 'echo $$; exec sleep 60' & sleep 0.3; exit 0")
    assert there.exits(1) == {0: 0}
    orphan = int(there.rank_output(0))
    assert alive(orphan)
    assert there.manager.run("exit", {})["ok"]
    assert there.worker.wait(20) == 0
    assert not alive(orphan)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "agent, shim or pmi is missing"),
        (["agent"], "--subjob-dir is missing"),
        (["agent", "--subjob-dir"], "needs a value"),
        (["agent", "--subjob-dir=x", "--processors", "0"], "at least 1"),
        (["agent", "--subjob-dir=x", "--processors", "many"], "many"),
        (["agent", "--subjob-dir=x", "--speed", "9"], "unknown option --speed"),
        (["agent", "--subjob-dir=/no/such"], "/no/such/subjob.json"),
    ],
)
def test_usage(there: World, words: list[str], sentence: str) -> None:
    command = worker_command(there.manager.subjob_dir)
    command = [*command[: command.index("agent")], *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("change", [{"protocol": 2}, {"token": None}, "[]"])
def test_a_subjob_file_that_is_not_ours(there: World, change: dict[str, object] | str) -> None:
    file = there.manager.subjob_dir / "subjob.json"
    if isinstance(change, str):
        file.write_text(change)
    else:
        content = {**json.loads(file.read_text()), **change}
        file.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    command = worker_command(there.manager.subjob_dir)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 2
    assert "subjob.json" in ended.stderr
    assert "Traceback" not in ended.stderr
