"""Real Open MPI: one mpirun starts all ranks on one node, and under DMTCP all of it moves as a whole."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ejbd.manager.facts.placing.mpi import linked_with
from tests.fakes.hosts import hosts, missing_hosts
from tests.fakes.manager_server import Json
from tests.fakes.mpi import build_open_mpi_rank, open_mpi_launcher
from tests.fakes.worker_process import World, alive, eventually, world

RANKS = 4
pytestmark = [pytest.mark.xdist_group("mpich")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built, why = build_open_mpi_rank(tmp_path_factory.mktemp("openmpi"))
    if built is None:
        pytest.skip(why)
    return built


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        value.start()
        yield value


def launch(there: World, *argv: str, epoch: int = 1, engine: str = "none", restart: int | None = None) -> Json:
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # An allocation that is none of mpirun's business.
    file = there.launch_file(*argv, ordinal=0, size=RANKS, **env, SLURM_JOB_ID="1", SLURM_NNODES="7")
    payload: dict[str, Any] = {
        **there.launch_payload(file, ranks=RANKS, epoch=epoch, engine=engine, restart=restart),
        "launcher": open_mpi_launcher(RANKS),
        "timeout_s": 60.0,
    }
    if engine == "dmtcp":
        payload["dmtcp"] = {"plugin": None, "compress": False, "options": []}
    result: Json = there.manager.run("launch", payload, epoch=epoch)
    assert result["ok"], result
    return result


def members(there: World) -> list[psutil.Process]:
    """Without the worker's warden, which stays as long as the worker does."""
    found = []
    for process in psutil.Process(there.worker.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if alive(process.pid) and "ejb-warden" not in process.cmdline():
                found.append(process)
    return found


def names(there: World) -> set[str]:
    found = set()
    for process in members(there):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(process.name())
    return found


def test_without_dmtcp_all_ranks_run_under_one_mpirun(there: World, program: Path) -> None:
    launch(there, str(program), "3")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    assert sorted(line for line in there.rank_output(0).splitlines() if "ends" in line) == [
        f"rank {rank} of {RANKS} ends, bad 0" for rank in range(RANKS)
    ]


def test_ranks_talk_over_loopback_alone(there: World, program: Path) -> None:
    """No other node has this one's other addresses, and they may be gone here, too, when a checkpoint is restored."""
    launch(there, str(program), "100000")
    eventually(lambda: "step 10" in there.rank_output(0))
    ranks = [p for p in members(there) if p.name() == program.name]
    assert len(ranks) == RANKS
    peers = [c.raddr.ip for p in ranks for c in p.net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    assert len(peers) > RANKS and all(ip.startswith("127.") for ip in peers), peers


def test_ranks_behind_a_script_are_told_why_not_instead_of_being_rank_0_of_1(there: World, program: Path) -> None:
    """Nobody saw that it is Open MPI's. Its own refusal says srun; EJB adds what to do."""
    file = there.launch_file("sh", "-c", '"$@"', "sh", str(program), "3", size=RANKS)
    mpi: Json = {"env": {}, "nodes": ["127.0.0.1"], "preload": None}
    payload = {**there.launch_payload(file, ranks=RANKS, engine="none"), "mpi": mpi}
    assert there.manager.run("launch", payload, epoch=1)["ok"]
    codes = there.exits(RANKS)
    assert 0 not in codes.values(), codes
    errors = "".join(there.rank_output(rank, stream="err") for rank in range(RANKS))
    assert errors.count("ejb: Open MPI's ranks cannot be started one by one") == 1
    assert "Submit with --mpi openmpi" in errors
    assert not any("of 1" in there.rank_output(rank) for rank in range(RANKS))


def test_a_later_open_mpi_that_runs_alone_is_ended(there: World, program: Path) -> None:
    """One that does not refuse by itself (5 and later) is seen by what it has loaded."""
    script = 'unset SLURM_NODELIST SLURM_STEP_ID SLURM_STEPID; "$@"'
    file = there.launch_file("sh", "-c", script, "sh", str(program), "100000", size=RANKS)
    mpi: Json = {"env": {}, "nodes": ["127.0.0.1"], "preload": None}
    payload = {**there.launch_payload(file, ranks=RANKS, engine="none"), "mpi": mpi}
    assert there.manager.run("launch", payload, epoch=1)["ok"]
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 1)
    assert "ejb: Open MPI's ranks cannot be started one by one" in there.rank_output(0, stream="err")
    eventually(lambda: program.name not in names(there))  # who is killed may take its time


def test_an_abort_is_every_ranks_end(there: World, program: Path) -> None:
    launch(there, str(program), "1", "abort")
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 7)


def test_a_stop_leaves_nobody(there: World, program: Path) -> None:
    launch(there, str(program), "100000")
    eventually(lambda: "step 10" in there.rank_output(0))
    running = members(there)
    assert len(running) >= RANKS + 1
    assert there.manager.run("stop", {"epoch": 1, "grace_s": 0.5}, epoch=1)["ok"]
    eventually(lambda: not any(alive(p.pid) for p in running))


def test_the_worker_is_killed(there: World, program: Path) -> None:
    launch(there, str(program), "100000")
    eventually(lambda: "step 10" in there.rank_output(0))
    running = members(there)
    there.worker.kill()
    there.worker.wait()
    _gone, left = psutil.wait_procs(running, timeout=20)
    assert not left


def test_auto_sees_open_mpi(program: Path, tmp_path: Path) -> None:
    wrapper = tmp_path / "wrapper.sh"
    wrapper.write_text(f'#!/bin/bash\nulimit -c 0\nexec {program} "$@"\n')
    wrapper.chmod(0o755)
    found, name = str(program), program.name
    for argv in (
        [found],
        ["env", "A=b", found, "3"],
        ["nice", "-n", "5", f"./{name}"],
        ["bash", "-c", f"ulimit -c 0; ./{name} 3"],
        [str(wrapper)],
    ):
        assert linked_with(argv, str(program.parent), {"PATH": "/usr/bin:/bin"}) == "openmpi", argv
    assert linked_with(["python3", "x.py", "bash"], "/", {"PATH": "/usr/bin:/bin"}) == "none"


def moved(there: World, program: Path, epoch: int) -> None:
    """Checkpoint all of it and start it again."""
    result = there.manager.run("checkpoint", {"epoch": epoch, "timeout_s": 60.0}, epoch=epoch)
    assert result["ok"] and result["data"]["exits"] == {str(r): 85 for r in range(RANKS)}, result
    images = list((there.epoch_dir(epoch) / "checkpoint" / "rank-0").glob("*.dmtcp"))
    assert len(images) == RANKS + 1
    eventually(lambda: not members(there))
    launch(there, str(program), epoch=epoch + 1, engine="dmtcp", restart=epoch)


@pytest.fixture
def dmtcp() -> None:
    if shutil.which("dmtcp_launch") is None:
        pytest.skip("dmtcp_launch is not on PATH: users install DMTCP from https://github.com/dmtcp/dmtcp")


@pytest.mark.dmtcp
def test_under_dmtcp_it_moves_as_a_whole(there: World, program: Path, dmtcp: None) -> None:
    launch(there, str(program), "600", engine="dmtcp")
    for epoch in (1, 2):
        eventually(lambda epoch=epoch: "step" in there.rank_output(0, epoch), 60)  # type: ignore[misc]
        moved(there, program, epoch)
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    told = [line for epoch in (1, 2, 3) for line in there.rank_output(0, epoch).splitlines()]
    for rank in range(RANKS):
        assert told.count(f"rank {rank} of {RANKS} ends, bad 0") == 1
        steps = [int(line.split()[-1]) for line in told if line.startswith(f"rank {rank} of {RANKS} step")]
        assert steps == list(range(0, 600, 10))


@pytest.mark.dmtcp
def test_a_network_that_goes_away_is_nothing_to_it(there: World, program: Path, dmtcp: None) -> None:
    """An interface of the node's, another one than that to the network's hosts, is there at the start only."""
    if reason := missing_hosts():
        pytest.skip(reason)
    with hosts(1):
        launch(there, str(program), "300", engine="dmtcp")
        eventually(lambda: "step 10" in there.rank_output(0), 60)
    moved(there, program, 1)
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
