"""A rank that hangs after its restart, as a real worker sees it: told once, by what the rank did before.

With commands that behave as DMTCP's, and with DMTCP itself where it is on PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.dmtcp_commands import install
from tests.fakes.manager_server import Json
from tests.fakes.wire_examples import REPORTS
from tests.fakes.worker_process import PROGRAM, World, eventually, world

RANKS = 2

# Counts, and waits for ever once it finds that it is to: that is found in a file, since nothing tells of a restart.
COUNTER = """
import os, signal, time
path = os.path.join(os.environ["STATE"], os.environ["EJB_RANK"])
count = 0
while not os.path.exists(path + ".hangs"):
    count += 1
    print("step", count, flush=True)
    time.sleep(0.01)
while True:
    signal.pause()
"""


def hasty(look_s: float, shortest_s: float) -> str:
    """A worker that looks more often than others, and waits for less."""
    times = f"ejb_worker.stillness.LOOK_S = {look_s}; ejb_worker.stillness.SHORTEST_S = {shortest_s}"
    return PROGRAM.replace("from", f"import ejb_worker.stillness; {times}; from", 1)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.dmtcp)])
def spool(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "fake":
        monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}:{os.environ['PATH']}")
    elif shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def there(spool: Path) -> Iterator[World]:
    with world(spool) as value:
        yield value


def run(there: World, epoch: int, restart: int | None = None) -> None:
    file = there.launch_file(sys.executable, "-c", COUNTER, size=RANKS, STATE=str(there.spool))
    payload = there.launch_payload(file, ranks=RANKS, epoch=epoch, engine="dmtcp", restart=restart)
    result = there.manager.run("launch", {**payload, "timeout_s": 60.0}, epoch=epoch, seconds=80)
    assert result["ok"], result


def count(there: World, rank: int, epoch: int) -> int:
    return there.rank_output(rank, epoch).count("step ")


def counting(there: World, ranks: tuple[int, ...], epoch: int) -> None:
    before = {rank: count(there, rank, epoch) for rank in ranks}
    eventually(lambda: all(count(there, rank, epoch) > number + 1 for rank, number in before.items()))


def moved(there: World, epoch: int) -> None:
    result = there.manager.run("checkpoint", {"epoch": epoch, "timeout_s": 60.0}, seconds=80)
    assert result["ok"], result


def known(there: World, epoch: int) -> Json:
    (file,) = (there.epoch_dir(epoch) / "checkpoint").glob("stillness-*.json")
    return dict(json.loads(file.read_text()))


def test_a_rank_that_hangs_after_its_restart_is_told_once_and_one_that_counts_is_not(there: World) -> None:
    """R hung after a move: it used no processor time, wrote nothing, and nobody was told."""
    there.start(program=hasty(0.2, 2.0))
    run(there, 1)
    counting(there, (0, 1), 1)
    moved(there, 1)
    assert known(there, 1).keys() == {"0", "1"}
    assert there.manager.of_kind("stuck") == [], "it got on until then"
    (there.spool / "1.hangs").touch()
    run(there, 2, 1)
    counting(there, (0,), 2)
    (told,) = there.manager.wait_for(lambda: there.manager.of_kind("stuck"))
    assert told.keys() == REPORTS["stuck"].keys()
    assert (told["epoch"], told["rank"]) == (2, 1) and told["seconds"] >= 2.0
    counting(there, (0,), 2)
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 1.0})["ok"]
    assert len(there.manager.of_kind("stuck")) == 1


def test_ranks_that_are_moved_before_the_first_look_at_them_are_known_all_the_same(there: World) -> None:
    """An application's first checkpoint comes early: ranks that hung after it were never told."""
    there.start(program=hasty(600.0, 60.0))
    run(there, 1)
    counting(there, (0, 1), 1)
    moved(there, 1)
    assert known(there, 1) == {"0": 0.0, "1": 0.0}
