"""A real worker gives ranks that run other processors: every thread is bound, what is started meanwhile as well."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.manager_server import Json
from tests.fakes.worker_process import World, eventually, world
from workers.ejb_worker import resizing

CPUS = sorted(os.sched_getaffinity(0))
PACED = Path(__file__).resolve().parents[2] / "examples" / "paced.c"
needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="ranks are bound where there are two CPUs")


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def places(*processors: int) -> list[Json]:
    return [{"rank": rank, "processor": processor} for rank, processor in enumerate(processors)]


def resized(there: World, *processors: int, epoch: int = 1) -> Json:
    return there.manager.run("resize", {"epoch": epoch, "ranks": places(*processors)}, epoch=epoch)


BUSY = """
import os, subprocess, sys, threading, time
def again():
    while True:
        thread = threading.Thread(target=time.sleep, args=(0.01,))
        thread.start()
        child = subprocess.Popen(["sleep", "0.01"])
        thread.join(); child.wait()
kept = subprocess.Popen(["sleep", "60"])
for _ in range(3):
    threading.Thread(target=again, daemon=True).start()
print(kept.pid, flush=True)
time.sleep(60)
"""


@needs_two
def test_every_thread_and_child_is_bound_while_the_rank_starts_others(there: World) -> None:
    there.start(processors=len(CPUS))
    pids = there.launch(sys.executable, "-c", BUSY, ranks=2)
    eventually(lambda: there.rank_output(0) and there.rank_output(1))
    kept = [int(there.rank_output(rank)) for rank in (0, 1)]
    for processors in ((0, 0), (1, 0), (1, 1), (0, 1)):
        result = resized(there, *processors)
        assert result["ok"], result
        bound = {rank: result["data"]["cpus"][str(rank)] for rank in (0, 1)}
        assert all(len(cpus) == 1 for cpus in bound.values())
        assert (bound[0] == bound[1]) == (processors[0] == processors[1])
        assert result["data"]["threads"] >= 4
        for rank in (0, 1):
            assert sorted(os.sched_getaffinity(kept[rank])) == bound[rank], "its child is bound as well"
            tasks = Path(f"/proc/{pids[rank]}/task")
            for task in [int(path.name) for path in tasks.iterdir()]:
                try:
                    assert sorted(os.sched_getaffinity(task)) == bound[rank]
                except ProcessLookupError:
                    pass  # it has ended meanwhile


def test_what_cannot_be_changes_nothing(there: World) -> None:
    there.start()
    there.launch("sh", "-c", 'cat "$EJB_PROCESSOR_FILE"; exec sleep 60', ranks=2)
    before = eventually(lambda: there.rank_output(1))
    for ranks, why in (
        ([{"rank": 5, "processor": 0}], "rank 5 does not run on this worker"),
        ([{"rank": 0, "processor": 0}, {"rank": 1, "processor": 3}], "rank 1 cannot have processor 3 of 3"),
    ):
        result = there.manager.run("resize", {"epoch": 1, "ranks": ranks}, epoch=1)
        assert (result["ok"], result["error"], result["data"]) == (False, why, {})
    assert resized(there, 0, epoch=7)["error"] == "epoch 7 is not on this worker"
    assert before.strip().endswith(".n1.1")
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 2}, epoch=1)["ok"]
    assert not resized(there, 0, 0)["ok"], "none of them runs any more"


def test_processors_that_another_subjob_lends_are_behind_its_own(there: World) -> None:
    there.start()  # of three processors, which is not bound
    there.launch("sleep", "60", ranks=2)
    payload = {"epoch": 1, "ranks": places(3, 4)}
    assert "cannot have processor" in there.manager.run("resize", payload, epoch=1)["error"]
    assert there.manager.run("resize", {**payload, "lent": 2}, epoch=1)["ok"]


@needs_two
def test_a_worker_that_binds_its_ranks_takes_nothing_that_is_lent(there: World) -> None:
    there.start(processors=len(CPUS))
    there.launch("sleep", "60", ranks=1)
    result = there.manager.run("resize", {"epoch": 1, "ranks": places(len(CPUS)), "lent": 1}, epoch=1)
    assert (result["ok"], result["error"]) == (False, f"ranks are bound to the {len(CPUS)} CPUs of this subjob")


def test_a_worker_that_does_not_answer_answers_once(there: World) -> None:
    """Stopped, it takes the operation up when it goes on; delivered again meanwhile, it is carried out once."""
    worker = there.start()
    there.launch("sleep", "60", ranks=2)
    worker.send_signal(signal.SIGSTOP)
    seq = there.manager.send("resize", {"epoch": 1, "ranks": places(0, 0)}, epoch=1)
    worker.send_signal(signal.SIGCONT)
    first = there.manager.result(seq)
    assert first["ok"]
    there.manager.deliver_again()
    assert resized(there, 1, 1)["ok"]
    assert there.manager.result(seq) == first


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (apt-get install gcc)")
def test_paced_ranks_are_folded_and_unfolded_and_compute_the_same(there: World, tmp_path: Path) -> None:
    """Sixteen ranks on 16 virtual processors, on 8, and on 16 again: they read which processor they have."""
    program = tmp_path / "paced"
    subprocess.run(["cc", "-O2", "-o", str(program), str(PACED)], check=True, timeout=120)
    words = [str(program), "--steps", "100", "--pace", "20ms", "--result", str(tmp_path / "result")]
    said = subprocess.run([*words[:3], "--expect", "16"], capture_output=True, text=True, check=True, timeout=99).stdout
    there.start(processors=16)
    payload = there.launch_payload(there.launch_file(*words, size=16), ranks=16)
    launched = there.manager.run("launch", {**payload, "ranks": places(*range(16))}, epoch=1)
    pids = list(launched["data"]["pids"].values())

    def locks() -> int:
        found = set()
        for pid in pids:
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = str(descriptor.readlink())
                except FileNotFoundError:
                    continue  # it is between two processors
                if target.endswith(".lock"):
                    found.add(target)
        return len(found)

    assert eventually(lambda: locks() == 16)
    assert resized(there, *(rank // 2 for rank in range(16)))["ok"]
    assert eventually(lambda: locks() == 8), "two of them hold a processor in turn"
    assert resized(there, *range(16))["ok"]
    assert eventually(lambda: locks() == 16)
    assert there.exits(16) == dict.fromkeys(range(16), 0)
    assert (tmp_path / "result").read_text() == said


def test_neighbours_are_in_one_socket(tmp_path: Path) -> None:
    """CPUs are often numbered the other way: 0, 2, 4 in one socket, 1, 3, 5 in the other."""
    for cpu in range(6):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{cpu % 2}\n")
        (folder / "core_id").write_text(f"{cpu // 2}\n")
    assert resizing.in_order(range(7), str(tmp_path)) == [0, 2, 4, 1, 3, 5, 6]


def test_a_rank_that_starts_others_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []

    def look(_pid: int) -> list[int]:
        """A process more at each look, bound elsewhere."""
        children.append(subprocess.Popen(["sleep", "30"]))
        return [children[-1].pid]

    monkeypatch.setattr(resizing, "LOOKS", 3)
    try:
        with pytest.raises(resizing.ResizeError, match="faster than they can be bound"):
            resizing.bind(1, CPUS[:1] if len(CPUS) > 1 else [CPUS[0], CPUS[0] + 1], look)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert json.dumps(resizing.read_back(os.getpid())) == json.dumps(CPUS)
