"""Ranks of a real worker process: how they are started, what they see, how they end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.sites import small_file_system
from tests.fakes.manager_server import Json
from tests.fakes.worker_process import World, alive, eventually, world
from workers.ejb_worker.failures import LaunchError, code_of


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def test_exit_codes_are_told(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "case $EJB_RANK in 0) exit 0;; 1) exit 7;; 2) exit 85;; 3) kill -SEGV $$;; esac", ranks=4)
    assert there.exits(4) == {0: 0, 1: 7, 2: 85, 3: 139}


def test_an_end_by_kill_is_told_too(there: World) -> None:
    there.start()
    pids = there.launch("sleep", "60")
    os.kill(pids[0], 9)
    assert there.exits(1) == {0: 137}


def test_what_a_rank_sees(there: World) -> None:
    there.start()
    show = (
        "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.stdin.read(),"
        " sorted(os.listdir('/proc/self/fd')), os.getpgid(0) == os.getpid()]))"
    )
    there.launch_file()
    file = there.launch_file(sys.executable, "-c", show, size=4, MINE="x y", EJB_LAUNCH_SOCKET="/nowhere")
    result = there.manager.run("launch", there.launch_payload(file, ranks=4))
    assert result["ok"]
    there.exits(4)
    env, cwd, stdin, descriptors, leads_group = json.loads(there.rank_output(3))
    epoch_dir = there.epoch_dir(1)
    expected = {
        "EJB_JOB_ID": there.manager.job,
        "EJB_SUBJOB_ID": there.manager.subjob,
        "EJB_RANK": "3",
        "EJB_SIZE": "4",
        "EJB_EPOCH": "1",
        "EJB_NODE": "n1",
        "EJB_PROCESSOR": f"{there.manager.subjob}.n1.0",
        "EJB_CHECKPOINT_DIR": f"{epoch_dir}/checkpoint",
        "EJB_RENDEZVOUS": f"{epoch_dir}/rendezvous",
        "EJB_ADDRESS": "127.0.0.1",
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "4",
        "MINE": "x y",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "EJB_RESTART_DIR" not in env
    assert "EJB_LAUNCH_SOCKET" not in env
    assert cwd == str(there.spool)
    assert stdin == ""
    assert descriptors[:3] == ["0", "1", "2"]
    assert len(descriptors) == 4  # the fourth is the listing itself
    assert leads_group
    same = [json.loads(there.rank_output(rank))[0]["EJB_PROCESSOR_DIR"] for rank in range(4)]
    assert len(set(same)) == 1
    assert (epoch_dir / "output" / "3.out").stat().st_mode & 0o777 == 0o600


def test_a_launcher_has_the_last_word_on_what_it_tells_of_the_job(there: World) -> None:
    """`mpirun -np 1` of a job of 8 told its rank that the job had one task."""
    there.start()
    file = there.launch_file("sh", "-c", 'echo "$SLURM_NTASKS ${SLURM_NPROCS-unset} $SLURM_CPUS_PER_TASK"')
    told = {"SLURM_NTASKS": "8", "SLURM_NPROCS": None, "SLURM_CPUS_PER_TASK": "2"}
    file.write_text(json.dumps({**json.loads(file.read_text()), "told": told}))
    payload = {**there.launch_payload(file), "variables": {"SLURM_NTASKS": "1", "SLURM_CPUS_PER_TASK": "4"}}
    assert there.manager.run("launch", payload)["ok"]
    there.exits(1)
    assert there.rank_output(0) == "8 unset 2\n"


def test_sixteen_ranks_on_three_processors(there: World) -> None:
    there.start()
    pids = there.launch("sh", "-c", "echo $EJB_PROCESSOR", ranks=16)
    assert len(set(pids.values())) == 16
    assert there.exits(16) == dict.fromkeys(range(16), 0)
    assert sorted({there.rank_output(rank) for rank in range(16)}) == [
        f"{there.manager.subjob}.n1.{index}\n" for index in range(3)
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [(["no-such-program"], 127, "no-such-program"), (["/etc/passwd"], 126, "Permission denied"), ([], 1, "no program")],
)
def test_a_program_that_cannot_be_started(there: World, argv: list[str], code: int, words: str) -> None:
    there.start()
    result = there.manager.run("launch", there.launch_payload(there.launch_file(*argv), ranks=2))
    assert not result["ok"]
    assert words in result["error"]
    assert result["data"] == {"code": code}


@pytest.mark.parametrize(("number", "data"), [(errno.ENOSPC, {}), (errno.EAGAIN, {}), (errno.ENOEXEC, {"code": 1})])
def test_a_full_disk_is_not_the_programs_fault(number: int, data: Json) -> None:
    error = OSError(number, os.strerror(number))
    assert LaunchError(str(error), code_of(error)).data == data


def test_ranks_begin_once_the_spool_has_room(there: World) -> None:
    """A program that cannot print ends with a code of its own: Python's is 120, and the job had failed."""
    there.start()
    output = there.epoch_dir(1) / "output"
    output.parent.mkdir(parents=True)
    with small_file_system(output, "16k"):
        with contextlib.suppress(OSError):
            (output / "ballast").write_bytes(bytes(16384))
        file = there.launch_file(sys.executable, "-c", "print('said')")
        launched = there.manager.send("launch", there.launch_payload(file))
        time.sleep(1.0)
        assert not there.manager.of_kind("result"), "it waits"
        (output / "ballast").unlink()
        assert there.manager.result(launched)["ok"]
        assert (there.exits(1), there.rank_output(0)) == ({0: 0}, "said\n")


def test_a_working_directory_that_is_not_there(there: World) -> None:
    there.start()
    file = there.launch_file("true")
    file.write_text(json.dumps({**json.loads(file.read_text()), "cwd": "/no/such/folder"}))
    result = there.manager.run("launch", there.launch_payload(file))
    assert (result["ok"], result["data"]) == (False, {"code": 126})
    assert "/no/such/folder" in result["error"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spoil", ["not json", "[]", "{}"])
def test_a_launch_file_that_is_no_launch(there: World, spoil: str) -> None:
    there.start()
    file = there.launch_file("true")
    file.write_text(spoil)
    result = there.manager.run("launch", there.launch_payload(file))
    assert not result["ok"]
    assert result["error"]
    assert there.launch("true", epoch=2)  # and the worker goes on


def test_payloads_that_are_not_understood(there: World) -> None:
    there.start()
    wrong: Json = {"epoch": "x"}
    for kind, payload in [("launch", {}), ("checkpoint", wrong), ("dance", {}), ("lead", {"run": 1})]:
        result = there.manager.run(kind, payload)
        assert not result["ok"]
        assert kind in result["error"]


def test_stop_kills_what_ignores_term(there: World) -> None:
    there.start()
    stubborn = 'trap "" TERM; echo ready; while :; do sleep 1; done'
    mild = "echo ready; exec sleep 60"
    pids = there.launch("sh", "-c", f"if [ $EJB_RANK = 0 ]; then {stubborn}; else {mild}; fi", ranks=2)
    eventually(lambda: there.rank_output(0) and there.rank_output(1))
    result = there.manager.run("stop", {"epoch": 1, "grace_s": 0.3})
    assert (result["ok"], result["data"]) == (True, {"exits": {"0": 137, "1": 143}})
    assert not any(alive(pid) for pid in pids.values())
    again = there.manager.run("stop", {"epoch": 1, "grace_s": 0.3})
    assert (again["ok"], again["data"]) == (True, result["data"])
    assert there.manager.of_kind("rank-exit") == []


def test_stop_of_an_epoch_that_is_not_there(there: World) -> None:
    there.start()
    result = there.manager.run("stop", {"epoch": 9, "grace_s": 2})
    assert (result["ok"], result["data"]) == (True, {"exits": {}})


def test_children_of_a_rank_end_with_it(there: World) -> None:
    there.start()
    there.launch("sh", "-c", "sleep 61 & echo $!; exit 3")
    assert there.exits(1) == {0: 3}
    child = int(there.rank_output(0))
    eventually(lambda: not alive(child))


def test_bound_where_the_worker_has_as_many_cpus_as_processors(there: World) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    there.start(processors=len(cpus))
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    file = there.launch_file(sys.executable, "-c", show)
    payload = there.launch_payload(file)
    payload["ranks"] = [{"rank": index, "processor": index} for index in range(len(cpus))]
    assert there.manager.run("launch", payload)["ok"]
    there.exits(len(cpus))
    assert [there.rank_output(index) for index in range(len(cpus))] == [f"[{cpu}]\n" for cpu in cpus]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["other number", "binding none"])
def test_otherwise_not_bound(there: World, how: str) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if how == "binding none":
        file = there.manager.subjob_dir / "subjob.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "binding": "none"}))
    there.start(processors=len(cpus) + (how == "other number"))
    there.launch(sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
    there.exits(1)
    assert there.rank_output(0) == f"{cpus}\n"
