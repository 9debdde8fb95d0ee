"""Checkpoints of a real worker process, engines `application` and `none`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.sites import small_file_system
from tests.fakes.worker_process import World, alive, eventually, world
from workers.ejb_worker.engines.application import rank_of

# Counts up; on SIGUSR1 it writes its count as the protocol says and ends with 85.
COUNTER = """
import os, signal, sys, time
rank, folder = os.environ["EJB_RANK"], os.environ["EJB_CHECKPOINT_DIR"]
asked = []
time.sleep(float(os.environ.get("SLOW_START", "0")))
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
count = 0
if "EJB_RESTART_DIR" in os.environ:
    count = int(open(os.path.join(os.environ["EJB_RESTART_DIR"], "rank-" + rank + ".txt")).read())
print("at", count, flush=True)
while not asked:
    count += 1
    time.sleep(0.01)
assert len(asked) == 1
path = os.path.join(folder, "rank-" + rank + ".txt")
with open(path + ".tmp", "w") as file:
    file.write(str(count))
    file.flush()
    os.fsync(file.fileno())
os.rename(path + ".tmp", path)
print("left at", count, flush=True)
sys.exit(85)
"""

IGNORANT = "trap : USR1; echo ready; while :; do sleep 0.1; done"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def test_checkpoint_and_restart(there: World) -> None:
    there.start()
    there.launch(sys.executable, "-c", COUNTER, ranks=3)
    eventually(lambda: all(there.rank_output(rank) for rank in range(3)))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})
    assert result["ok"], result
    assert result["data"]["exits"] == {"0": 85, "1": 85, "2": 85}
    sizes = {rank: len(there.rank_output(rank).split()[-1]) for rank in range(3)}
    assert result["data"]["bytes"] == {str(rank): size for rank, size in sizes.items()}
    assert result["data"]["seconds"] >= 0
    there.launch(sys.executable, "-c", COUNTER, ranks=3, epoch=2, restart=1)
    eventually(lambda: all(there.rank_output(rank, 2) for rank in range(3)))
    for rank in range(3):
        assert there.rank_output(rank, 2).split()[1] == there.rank_output(rank).split()[-1]
    assert there.manager.of_kind("rank-exit") == []


def test_asked_before_the_program_is_ready(there: World) -> None:
    """SIGUSR1 kills a program that has not installed its handler: the worker waits for it."""
    there.start()
    file = there.launch_file(sys.executable, "-c", COUNTER, size=2, SLOW_START="0.5")
    launched = there.manager.send("launch", there.launch_payload(file, ranks=2))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})
    assert there.manager.result(launched)["ok"]
    assert result["ok"], result
    assert result["data"]["exits"] == {"0": 85, "1": 85}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("program", "sentence"),
    [(IGNORANT, "still running: 0, 1"), ("echo ready; exec sleep 60", "do not catch SIGUSR1: 0, 1")],
)
def test_a_time_out_leaves_the_ranks_running(there: World, program: str, sentence: str) -> None:
    there.start()
    pids = there.launch("sh", "-c", program, ranks=2)
    eventually(lambda: all(there.rank_output(rank) for rank in range(2)))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 0.3})
    assert not result["ok"]
    assert sentence in result["error"]
    assert result["data"]["exits"] == {}
    assert all(alive(pid) for pid in pids.values())
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0.2})["ok"]


# Writes for 2 s, and then is through; its second rank is through at once.
SLOW = """
import os, signal, sys, time
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
print("ready", flush=True)
while not asked:
    time.sleep(0.01)
path = os.path.join(os.environ["EJB_CHECKPOINT_DIR"], "rank-" + os.environ["EJB_RANK"] + ".txt")
with open(path + ".tmp", "wb") as file:
    for _ in range(40 if os.environ["EJB_RANK"] == "0" else 1):
        time.sleep(float(sys.argv[1]))
        file.write(bytes(1000))
        file.flush()
os.rename(path + ".tmp", path)
sys.exit(85)
"""


def test_a_checkpoint_that_grows_is_late_and_no_failure(there: World) -> None:
    """How long the first one of a large application takes is not known: all that it had done was lost by a time-out."""
    there.start()
    there.launch(sys.executable, "-c", SLOW, "0.05", ranks=2)
    eventually(lambda: all(there.rank_output(rank) for rank in range(2)))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 0.5})
    assert result["ok"] and result["data"]["bytes"] == {"0": 40_000, "1": 1000}, result
    assert result["data"]["seconds"] > 1.5


def test_a_checkpoint_that_grows_no_more_has_failed(there: World) -> None:
    there.start()
    there.launch(sys.executable, "-c", SLOW, "30", ranks=2)
    eventually(lambda: all(there.rank_output(rank) for rank in range(2)))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 0.5}, seconds=10)
    assert not result["ok"] and "still running: 0, 1" in result["error"]


def test_ranks_are_not_asked_while_the_spool_is_full(there: World) -> None:
    """They might go on without a word, and the job would stand still until it is too late."""
    there.start()
    there.launch(sys.executable, "-c", COUNTER)
    eventually(lambda: there.rank_output(0))
    checkpoint = there.epoch_dir(1) / "checkpoint"
    checkpoint.rmdir()
    with small_file_system(checkpoint, "16k"):
        with contextlib.suppress(OSError):
            (checkpoint / "ballast").write_bytes(bytes(16384))
        result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 60})
        assert not result["ok"] and "No space left on device" in result["error"], result
        assert result["data"]["exits"] == {}
        (checkpoint / "ballast").unlink()
        assert there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})["ok"]


def test_a_rank_that_checkpoints_too_late_is_told(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "trap 'sleep 1; exit 85' USR1; echo ready; while :; do sleep 0.1; done")
    eventually(lambda: there.rank_output(0))
    assert not there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 0.2})["ok"]
    assert there.exits(1) == {0: 85}


def test_an_unfinished_file_does_not_count(there: World) -> None:
    there.start()
    write = "echo x > $EJB_CHECKPOINT_DIR/rank-$EJB_RANK.bin.tmp"
    program = f"trap '{write}; exit 85' USR1; echo ready; while :; do sleep 0.1; done"
    there.launch("sh", "-c", program)
    eventually(lambda: there.rank_output(0))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})
    assert not result["ok"]
    assert "rank-0.bin.tmp" in result["error"]
    assert result["data"]["exits"] == {"0": 85}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("code", "words"), [(0, "had finished"), (3, "without a checkpoint")])
def test_ranks_that_end_otherwise(there: World, code: int, words: str) -> None:
    there.start()
    there.launch("sh", "-c", f"trap 'exit {code}' USR1; echo ready; while :; do sleep 0.1; done")
    eventually(lambda: there.rank_output(0))
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})
    assert not result["ok"]
    assert words in result["error"]
    assert result["data"]["exits"] == {"0": code}
    assert there.manager.of_kind("rank-exit") == []


def test_stop_ends_a_checkpoint(there: World) -> None:
    there.start()
    there.launch("sh", "-c", IGNORANT)
    eventually(lambda: there.rank_output(0))
    checkpoint = there.manager.send("checkpoint", {"epoch": 1, "timeout_s": 60})
    again = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 60})
    assert "already" in again["error"]
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0.2})["ok"]
    assert "stopped" in there.manager.result(checkpoint)["error"]


def test_an_epoch_that_is_not_there(there: World) -> None:
    there.start()
    result = there.manager.run("checkpoint", {"epoch": 4, "timeout_s": 60})
    assert not result["ok"]
    assert "epoch 4" in result["error"]


def test_engine_none(there: World) -> None:
    there.start()
    there.launch("sleep", "60", engine="none")
    result = there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 60})
    assert (result["ok"], result["error"]) == (False, "engine none cannot checkpoint")
    file = there.launch_file("true")
    for payload, words in [
        (there.launch_payload(file, epoch=2, engine="none", restart=1), "cannot restart"),
        (there.launch_payload(file, epoch=3, engine="magic"), "engine magic is not known"),
        (there.launch_payload(file, epoch=4, restart=7), "checkpoint to restart from is not there"),
    ]:
        refused = there.manager.run("launch", payload)
        assert not refused["ok"]
        assert words in refused["error"]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("3", 3),
        ("3.npy", 3),
        ("3.h5", 3),
        ("rank-3.bin", 3),
        ("rank3.bin.tmp", 3),
        ("step-1200.rank_12.bin", 12),
        ("heat2d.0003.tmp", 3),
        ("state.bin", None),
        ("v2state", None),
    ],
)
def test_whose_file_it_is(name: str, rank: int | None) -> None:
    assert rank_of(name) == rank


TELLS = """
trap 'exit 85' USR1
echo 1 10 > "$EJB_PROGRESS"
until [ -e "$0" ]; do sleep 0.05; done
echo 2 10 > "$EJB_PROGRESS"
echo told
while [ "$(cat "$0")" != end ]; do sleep 0.05; done
"""
"""Tells of its first step, of the second when a file appears, and ends when that says so."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["checkpoint", "end"])
def test_what_ranks_told_last_is_known_before_they_stop(there: World, how: str) -> None:
    there.start()
    sign = there.spool / "sign"
    there.launch("sh", "-c", TELLS, str(sign))
    there.manager.wait_for(lambda: there.manager.of_kind("sample"))
    sign.write_text("on")
    eventually(lambda: there.rank_output(0))
    if how == "checkpoint":
        assert there.manager.run("checkpoint", {"epoch": 1, "timeout_s": 20})["ok"]
    else:
        sign.write_text("end")
        assert there.exits(1) == {0: 0}
    told = [(r["done"], r["total"]) for r in there.manager.of_kind("sample") if r["done"] is not None]
    assert told == [(1.0, 10.0), (2.0, 10.0)]
    assert there.manager.reports[-1]["kind"] == ("result" if how == "checkpoint" else "rank-exit"), "and after it"


# Every rank sums its share of 0..239; on SIGUSR1 it writes which are left to it, and its sum so far. One that goes on
# takes its part of what all files say, whatever number of ranks wrote them.
SHARED_OUT = """
import glob, json, os, signal, sys, time
rank, size, folder = int(os.environ["EJB_RANK"]), int(os.environ["EJB_SIZE"]), os.environ["EJB_CHECKPOINT_DIR"]
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
left, total = list(range(240)), 0
if "EJB_RESTART_DIR" in os.environ:
    found = [json.load(open(path)) for path in glob.glob(os.path.join(os.environ["EJB_RESTART_DIR"], "rank-*.json"))]
    left = sorted(one for told in found for one in told["left"])
    total = sum(told["total"] for told in found) if rank == 0 else 0
left = left[rank::size]
print("of", size, "has", len(left), flush=True)
while left and not asked:
    total += left.pop(0)
    time.sleep(float(os.environ["PACE"]))
if asked:
    path = os.path.join(folder, "rank-%d.json" % rank)
    with open(path + ".tmp", "w") as file:
        json.dump({"left": left, "total": total}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    sys.exit(85)
print("sum", total, flush=True)
"""


def test_an_application_goes_on_with_another_number_of_ranks(there: World) -> None:
    """2, then 3, then 1: the checkpoint is of all ranks, and each epoch has a size of its own."""
    there.start()

    def started(epoch: int, ranks: int, pace_s: str) -> None:
        file = there.launch_file(sys.executable, "-c", SHARED_OUT, size=ranks, PACE=pace_s)
        payload = there.launch_payload(file, ranks=ranks, epoch=epoch, restart=epoch - 1 or None)
        assert there.manager.run("launch", payload, epoch=epoch)["ok"]
        eventually(lambda: all(there.rank_output(rank, epoch) for rank in range(ranks)))

    for epoch, ranks in ((1, 2), (2, 3)):
        started(epoch, ranks, "0.5")
        result = there.manager.run("checkpoint", {"epoch": epoch, "timeout_s": 20})
        assert result["ok"], result
        assert result["data"]["exits"] == {str(rank): 85 for rank in range(ranks)}
        assert all(there.rank_output(rank, epoch).startswith(f"of {ranks} has") for rank in range(ranks))
    started(3, 1, "0")
    eventually(lambda: "sum" in there.rank_output(0, 3))
    assert there.rank_output(0, 3).split()[-1] == str(sum(range(240))), "nothing twice, and nothing left out"
    assert there.exits(1) == {0: 0}
