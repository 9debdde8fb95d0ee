"""Real MPICH ranks, started by a worker without mpiexec and without DMTCP."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ejbd.manager.mpi import linked_mpi
from tests.fakes.manager_server import Json
from tests.fakes.mpi import build_loaded_rank, build_progress, build_rank, missing_mpich, mpi_payload
from tests.fakes.worker_process import World, alive, eventually, world

RANKS = 4
pytestmark = [pytest.mark.xdist_group("mpich")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := missing_mpich():
        pytest.skip(reason)
    return build_rank(tmp_path_factory.mktemp("mpi"))


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start()
        yield value


def launch(there: World, *argv: str) -> dict[int, int]:
    file = there.launch_file(*argv, size=RANKS)
    mpi = mpi_payload("127.0.0.1")
    # As the manager has it: without this MPICH 4.0.2 may wait for ever in MPI_Finalize.
    mpi["env"]["LD_PRELOAD"] = str(build_progress(there.spool))
    payload = {**there.launch_payload(file, ranks=RANKS, engine="none"), "mpi": mpi}
    result: Json = there.manager.run("launch", payload, epoch=1)
    assert result["ok"], result
    return {int(rank): pid for rank, pid in result["data"]["pids"].items()}


def record(there: World) -> list[Json]:
    path = there.epoch_dir(1) / "pmi" / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_start_allreduce_finalize(there: World, program: Path) -> None:
    launch(there, str(program), "3")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    for rank in range(RANKS):
        assert there.rank_output(rank).splitlines()[-1] == f"rank {rank} of {RANKS} ends, bad 0"
    eventually(lambda: record(there)[-1]["event"] == "done")
    assert record(there)[-1]["bad"] == {}


def test_an_mpi_that_was_loaded_out_of_sight_finalizes_too(there: World, tmp_path: Path) -> None:
    if reason := missing_mpich():
        pytest.skip(reason)
    launch(there, *build_loaded_rank(tmp_path), "3")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    eventually(lambda: record(there)[-1]["event"] == "done")
    assert record(there)[-1]["bad"] == {}


def test_an_abort_keeps_its_code(there: World, program: Path) -> None:
    launch(there, str(program), "1", "abort")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 7)


def test_a_crash_is_told_and_leaves_nobody_waiting(there: World, program: Path) -> None:
    pids = launch(there, str(program), "1", "crash")
    codes = there.exits(RANKS)
    assert codes[1] == 139
    assert 0 not in codes.values()
    first = there.manager.of_kind("rank-exit")[0]
    assert (first["rank"], first["code"]) == (1, 139), "what the others end with is a consequence"
    assert not any(alive(pid) for pid in pids.values())


def test_leaving_without_finalize_is_a_failure(there: World, program: Path) -> None:
    launch(there, str(program), "1", "leave")
    codes = there.exits(RANKS)
    assert codes[1] == 1
    assert 0 not in codes.values()
    there.manager.wait_for(lambda: [log for log in there.manager.of_kind("log") if "rank 1 left" in log["message"]])


def test_a_program_without_mpi_is_not_held_up(there: World) -> None:
    if reason := missing_mpich():
        pytest.skip(reason)
    launch(there, sys.executable, "-c", "print('no MPI here')")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)


def test_auto_sees_what_a_program_is_linked_with(program: Path, tmp_path: Path) -> None:
    launch_file = tmp_path / "launch.json"
    for argv, cwd, expected in (
        ([str(program)], "/", "mpich"),
        ([f"./{program.name}"], str(program.parent), "mpich"),
        (["sh"], "/", "none"),
        (["no-such-program"], "/", "none"),
    ):
        launch_file.write_text(json.dumps({"argv": argv, "cwd": cwd, "env": {"PATH": "/usr/bin:/bin"}, "size": 2}))
        assert linked_mpi(launch_file) == expected, argv
