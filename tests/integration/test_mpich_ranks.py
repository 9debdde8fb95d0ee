"""Real MPICH ranks, started by a worker without mpiexec and without DMTCP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ejbd.manager.facts.placing.mpi import linked_mpi
from tests.fakes.manager_server import Json
from tests.fakes.mpi import build_loaded_rank, build_progress, build_rank, missing_mpich
from tests.fakes.worker_process import World, alive, eventually, world
from tests.nightly import everything

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


def launch(there: World, *argv: str, **environment: str) -> dict[int, int]:
    there.launch_file(*argv, ordinal=0, size=RANKS, **environment)
    # As the manager has it where the library was built and the nodes are connected by TCP alone.
    return launch_with(there, env={"UCX_TLS": "tcp,self"}, preload=str(build_progress(there.spool)))


def launch_with(there: World, *, epoch: int = 1, env: dict[str, str], preload: str | None) -> dict[int, int]:
    mpi = {"env": env, "nodes": ["127.0.0.1"], "preload": preload}
    file = there.job_dir / "launches" / "0.json"
    payload = {**there.launch_payload(file, ranks=RANKS, epoch=epoch, engine="none"), "mpi": mpi}
    result: Json = there.manager.run("launch", payload, epoch=epoch)
    assert result["ok"], result
    return {int(rank): pid for rank, pid in result["data"]["pids"].items()}


def record(there: World) -> list[Json]:
    path = there.epoch_dir(1) / "pmi" / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def all_end_well(there: World) -> None:
    """What the ranks said is told where one did not."""
    codes = there.exits(RANKS)
    assert codes == dict.fromkeys(range(RANKS), 0), "\n".join(there.rank_output(rank) for rank in range(RANKS))


def servers(there: World) -> list[psutil.Process]:
    children = psutil.Process(there.worker.pid).children()
    return [p for p in children if alive(p.pid) and "pmi" in Path(f"/proc/{p.pid}/cmdline").read_text().split("\0")]


def test_start_allreduce_finalize(there: World, program: Path) -> None:
    launch(there, str(program), "3")
    all_end_well(there)
    for rank in range(RANKS):
        assert there.rank_output(rank).splitlines()[-1] == f"rank {rank} of {RANKS} ends, bad 0"
    eventually(lambda: record(there)[-1]["event"] == "done")
    assert record(there)[-1]["bad"] == {}


def test_an_mpi_that_was_loaded_out_of_sight_finalizes_too(there: World, tmp_path: Path) -> None:
    if reason := missing_mpich():
        pytest.skip(reason)
    launch(there, *build_loaded_rank(tmp_path), "3")
    all_end_well(there)
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
    # Who notices first, the server or another rank, is by chance.
    told = ("rank 1 left without MPI_Finalize", "misses another rank")
    logs = there.manager.wait_for(lambda: [log["message"] for log in there.manager.of_kind("log")])
    assert any(words in message for words in told for message in logs), logs


def test_a_program_without_mpi_has_no_server_to_wait_for(there: World, program: Path) -> None:
    launch(there, "sh", "-c", "echo $LD_PRELOAD; exec sleep 600")
    eventually(lambda: there.rank_output(RANKS - 1))
    assert servers(there) == []
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0.5}, epoch=1)["ok"]
    assert not (there.epoch_dir(1) / "pmi" / "events.jsonl").exists()
    there.launch_file(str(program), "100000", size=RANKS)
    launch_with(there, epoch=2, env={}, preload=None)
    eventually(lambda: there.rank_output(0, 2))
    assert len(servers(there)) == 1, "where somebody asks, there is one"
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 0.5}, epoch=2)["ok"]
    eventually(lambda: not servers(there))


WRAPPER = """#!/bin/sh
# What stands around programs: limits, modules, a rank's own folder.
echo "wrapped $PMI_RANK of $PMI_SIZE"
export OMP_NUM_THREADS=1
"$@"
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ["./wrapper.sh"],
        ["bash", "-c", '"$0" "$@"'],
        ["env", "A=b"],
        ["nice", "-n", "1"],
        [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"],
        ["unshare", "--map-root-user", "--mount", "--fork"],
    ],
    ids=["a script", "bash -c", "env", "nice", "python", "a container"],
)
def test_mpi_behind_something_else_is_not_rank_0_of_1(there: World, program: Path, words: list[str]) -> None:
    (there.spool / "wrapper.sh").write_text(WRAPPER)
    (there.spool / "wrapper.sh").chmod(0o755)
    if words[0] == "unshare" and subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces can be made here")
    stale = {"PMI_FD": "7", "PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0"}
    if words[0] == "unshare":
        # Ranks in user namespaces of their own may not open one another's files by /proc. UCX over TCP is no way round
        # it: such ranks hang now and then, under MPICH's own mpiexec as well.
        own = {"UCX_TLS": "posix,self", "UCX_POSIX_USE_PROC_LINK": "n"}
        there.launch_file(*words, str(program), "3", ordinal=0, size=RANKS, **stale, **own)
        launch_with(there, env={}, preload=None)
    else:  # by TCP, since a machine that runs other tests may have no shared memory left
        launch(there, *words, str(program), "3", **stale)
    all_end_well(there)
    for rank in range(RANKS):
        said = there.rank_output(rank).splitlines()
        assert said[-1] == f"rank {rank} of {RANKS} ends, bad 0"
        assert said[0] in (f"wrapped {rank} of {RANKS}", f"rank {rank} of {RANKS} step 0")


def test_ranks_whose_environment_was_cleared_are_ended_and_the_user_is_told(there: World, program: Path) -> None:
    there.launch_file("env", "-i", str(program), "100000", size=RANKS)
    launch_with(there, env={}, preload=None)
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 1)
    assert "without PMI_PORT and PMI_ID, and each would be rank 0 of 1" in there.rank_output(0, stream="err")


def test_a_preload_of_the_users_own_stays(there: World, program: Path) -> None:
    (there.spool / "own").mkdir()
    own = build_progress(there.spool / "own")
    there.launch_file("sh", "-c", "echo $LD_PRELOAD", size=RANKS, LD_PRELOAD=str(own))
    ours = str(build_progress(there.spool))
    launch_with(there, env={}, preload=ours)
    there.exits(RANKS)
    assert there.rank_output(0).split() == [ours, str(own)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("built", [False, True], ids=["without the library", "with the library"])
def test_ring_after_ring_comes_to_its_end(there: World, program: Path, built: bool) -> None:
    """Ranks of one node, as EJB starts them: the profile's TCP, which can hang in MPI_Finalize, is for moves alone.

    By default a few; the nightly run has as many as show what hangs now and then.
    """
    times = 20 if everything() else 4
    preload = str(build_progress(there.spool)) if built else None
    there.launch_file(str(program), "2", size=RANKS)
    for epoch in range(1, times + 1):
        launch_with(there, epoch=epoch, env={}, preload=preload)
        there.exits(epoch * RANKS)
    codes = {(report["epoch"], report["rank"]): report["code"] for report in there.manager.of_kind("rank-exit")}
    assert codes == {(epoch, rank): 0 for epoch in range(1, times + 1) for rank in range(RANKS)}


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
