"""The `dmtcp` engine of a real worker process, driven by commands that behave as DMTCP's and go wrong as told."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.dmtcp_commands import install, set_faults
from tests.fakes.manager_server import Json
from tests.fakes.wire_examples import REPORTS
from tests.fakes.worker_process import World, eventually, world
from workers.ejb_worker.attributes import attributes_of
from workers.ejb_worker.engines.compression import Speeds, chosen

# Counts in a file of its own: a program that is started again goes on there.
COUNTER = """
import os, time
path = os.path.join(os.environ["STATE"], os.environ["EJB_RANK"])
count = int(open(path).read() or 0) if os.path.exists(path) else 0
print("from", count, flush=True)
while not os.path.exists(path + ".end"):
    count += 1
    with open(path + ".new", "w") as file:
        file.write(str(count))
    os.replace(path + ".new", path)
    time.sleep(0.05)
print("to", count, flush=True)
"""
RANKS = 2


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    target = install(tmp_path / "dmtcp")
    monkeypatch.setenv("PATH", f"{target}:{os.environ['PATH']}")
    return target


@pytest.fixture
def there(tmp_path: Path, bin: Path) -> Iterator[World]:
    spool = tmp_path / "spool"
    spool.mkdir()
    with world(spool) as value:
        value.start()
        yield value


def launch(
    there: World, epoch: int = 1, restart: int | None = None, attributes: Json | None = None, **more: Any
) -> Json:
    file = there.launch_file(sys.executable, "-c", COUNTER, size=RANKS, STATE=str(there.spool))
    file.write_text(json.dumps({**json.loads(file.read_text()), "attributes": attributes or {}}))
    payload = there.launch_payload(file, ranks=RANKS, epoch=epoch, engine="dmtcp", restart=restart)
    return there.manager.run("launch", {**payload, "timeout_s": 20.0, **more}, epoch=epoch)


def started(there: World, epoch: int = 1, restart: int | None = None) -> None:
    result = launch(there, epoch, restart)
    assert result["ok"], json.dumps(result)  # pytest shortens what is no string
    eventually(lambda: all(there.rank_output(rank, epoch) for rank in range(RANKS)))


def checkpoint(there: World, epoch: int = 1, timeout_s: float = 20.0) -> Json:
    return there.manager.run("checkpoint", {"epoch": epoch, "timeout_s": timeout_s}, seconds=40)


def coordinators(there: World) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(there.worker.pid).children(recursive=True):
        try:
            if "dmtcp_coordinator" in process.cmdline():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def test_offered_where_it_is_installed(there: World) -> None:
    assert there.manager.registrations[0]["engines"] == ["application", "dmtcp", "profile", "none"]


def test_moves(there: World) -> None:
    started(there)
    for epoch in (1, 2):
        result = checkpoint(there, epoch)
        assert result["ok"], json.dumps(result)  # pytest shortens what is no string
        assert result["data"]["exits"] == {str(rank): 85 for rank in range(RANKS)}
        assert all(size > 0 for size in result["data"]["bytes"].values())
        eventually(lambda: not coordinators(there))  # an epoch's coordinator ends with it
        folder = there.epoch_dir(epoch) / "checkpoint"
        manifests = [json.loads(path.read_text()) for path in folder.glob("manifest-*.json")]
        assert [sorted(m["members"]) for m in manifests] == [[f"rank-{rank}" for rank in range(RANKS)]]
        for path in folder.glob("*/*.dmtcp"):
            assert path.stat().st_mode & 0o077 == 0
        started(there, epoch + 1, epoch)
    for rank in range(RANKS):
        assert int(there.rank_output(rank, 3).split()[1]) >= int(there.rank_output(rank, 2).split()[1]) > 0
        (there.spool / f"{rank}.end").touch()
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    assert there.manager.of_kind("coordinator-lost") == []


def test_ranks_come_back_with_the_umask_and_the_niceness_that_they_had(there: World) -> None:
    """DMTCP leaves them as they are in what it restarts: what a program wrote from then on was open to others."""
    pids = launch(there, attributes={"umask": 0o077})["data"]["pids"]
    eventually(lambda: all(there.rank_output(rank) for rank in range(RANKS)))
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, pids["1"], nice + 3)
    assert checkpoint(there)["ok"]
    pids = launch(there, 2, 1, attributes={"umask": 0o022})["data"]["pids"]
    found = [attributes_of(pids[str(rank)]) for rank in range(RANKS)]
    assert found == [{"umask": 0o077, "nice": nice}, {"umask": 0o077, "nice": min(nice + 3, 19)}]


def test_ranks_that_may_open_too_few_files_for_dmtcp_run_without_it(there: World) -> None:
    result = launch(there, attributes={"limits": {"nofile": [300, None]}})
    assert result["ok"], json.dumps(result)
    eventually(lambda: all(there.rank_output(rank) for rank in range(RANKS)))
    for pid in result["data"]["pids"].values():
        assert not any("dmtcp" in word for word in psutil.Process(pid).cmdline())
    refused = checkpoint(there)
    why = "each rank may have no more than 300 files open, and DMTCP needs 1024 to bring it back"
    assert (refused["ok"], refused["error"]) == (False, why)
    for rank in range(RANKS):
        (there.spool / f"{rank}.end").touch()
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)


def test_the_processes_that_a_rank_has_started_write_their_images_to_the_end(there: World, bin: Path) -> None:
    """They were killed with their rank's process group as soon as the rank itself had stopped."""
    started(there)
    set_faults(bin, **{"rank-1": "child"})
    result = checkpoint(there)
    assert result["ok"], json.dumps(result)  # pytest shortens what is no string
    images = [path.name for path in (there.epoch_dir(1) / "checkpoint" / "rank-1").iterdir()]
    assert len(images) == 2 and all(name.endswith(".dmtcp") for name in images), images
    manifest = json.loads(next((there.epoch_dir(1) / "checkpoint").glob("manifest-*.json")).read_text())
    assert sorted(entry["image"] for entry in manifest["members"]["rank-1"]) == sorted(images)


@pytest.mark.nightly("the one before has processes that a rank has started")
def test_a_process_that_came_and_went_does_not_spoil_the_checkpoint(there: World, bin: Path) -> None:
    """It was counted before the checkpoint and has left no image: the ranks were killed after the time-out."""
    started(there)
    set_faults(bin, **{"rank-1": "brief child"})
    result = checkpoint(there)
    assert result["ok"], json.dumps(result)  # pytest shortens what is no string


def test_ranks_that_all_hang_at_a_checkpoint_are_told_as_killed_by_it(there: World, bin: Path) -> None:
    """Nobody had ended yet when it was told: the job failed with 137, as if its program had been killed."""
    started(there)
    set_faults(bin, **{f"rank-{rank}": "hang" for rank in range(RANKS)})
    result = checkpoint(there, timeout_s=3.0)
    assert (result["ok"], result["error"]) == (False, "no checkpoint in time")
    assert (result["data"]["exits"], result["data"]["killed"]) == ({}, list(range(RANKS)))
    eventually(lambda: not coordinators(there))
    assert there.manager.of_kind("rank-exit") == [], "no end of theirs"


WITH_A_TERMINAL = COUNTER.replace("import os, time", "import os, pty, time; pty.openpty()")


def test_ranks_that_could_not_be_brought_back_are_not_checkpointed(there: World) -> None:
    """They were killed at the checkpoint, or came back with something gone."""
    file = there.launch_file(sys.executable, "-c", WITH_A_TERMINAL, size=RANKS, STATE=str(there.spool))
    payload = there.launch_payload(file, ranks=RANKS, engine="dmtcp")
    assert there.manager.run("launch", {**payload, "timeout_s": 20.0}, epoch=1)["ok"]
    eventually(lambda: all(there.rank_output(rank) for rank in range(RANKS)))
    result = checkpoint(there)
    why = "rank 0 has a pseudo-terminal of its own, which DMTCP does not bring back"
    assert (result["ok"], result["error"], result["data"]["exits"]) == (False, why, {})
    assert any(report["obstacle"] == why for report in there.manager.of_kind("sample"))
    for rank in range(RANKS):
        (there.spool / f"{rank}.end").touch()
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)


def test_an_end_is_not_taken_for_a_stop(there: World) -> None:
    started(there)
    for rank in range(RANKS):
        (there.spool / f"{rank}.end").touch()
    assert there.exits(RANKS) == dict.fromkeys(range(RANKS), 0)
    result = checkpoint(there)
    assert not result["ok"]
    assert result["data"]["exits"] == dict.fromkeys(map(str, range(RANKS)), 0)


def test_one_that_ended_leaves_the_others_running(there: World) -> None:
    started(there)
    (there.spool / "1.end").touch()
    there.exits(1)
    result = checkpoint(there)
    assert not result["ok"] and result["data"]["exits"] == {"1": 0}
    assert result["error"] == "ranks had finished: 1"


def test_a_refusal_leaves_everything_running(there: World, bin: Path) -> None:
    started(there)
    set_faults(bin, refuse=True)
    result = checkpoint(there)
    assert not result["ok"] and result["data"]["exits"] == {}
    assert result["error"] == "the coordinator refused the checkpoint (exit code 2)"
    set_faults(bin)
    assert checkpoint(there)["ok"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"rank-1": "temp"}, "only 1 of 2 ranks here have written an image"),
        ({"rank-1": "none"}, "only 1 of 2 ranks here have written an image"),
        ({"rank-1": "die"}, "ranks ended without a checkpoint: rank 1 with 99"),
        ({"coordinator": "die"}, "ranks ended without a checkpoint"),
        ({"rank-1": "hang"}, "no checkpoint in time"),
    ],
)
def test_a_checkpoint_that_breaks_counts_for_nothing(there: World, bin: Path, fault: Json, sentence: str) -> None:
    started(there)
    set_faults(bin, **fault)
    result = checkpoint(there, timeout_s=3.0 if sentence == "no checkpoint in time" else 30.0)
    assert not result["ok"] and sentence in result["error"], result
    assert not list((there.epoch_dir(1) / "checkpoint").glob("manifest-*"))
    # Nobody is left who could write into a later placement's world, and nobody counts as finished.
    eventually(lambda: there.manager.run("stop", {"epoch": 1, "grace_s": 1.0})["ok"])
    assert 0 not in result["data"]["exits"].values() and 85 not in result["data"]["exits"].values()
    set_faults(bin)
    started(there, 2)


def test_the_coordinator_is_killed(there: World) -> None:
    started(there)
    coordinators(there)[0].kill()
    assert set(there.exits(RANKS).values()) == {99}
    told = there.manager.of_kind("coordinator-lost")
    assert told[0].keys() == REPORTS["coordinator-lost"].keys()
    assert [(report["epoch"], report["reason"]) for report in told] == [
        (1, "the DMTCP coordinator ended with code 137")
    ]
    said = {report["message"] for report in there.manager.of_kind("log")}
    assert {f"DMTCP has ended rank {rank}: ASSERT at dmtcpmessagetypes.cpp:81" for rank in range(RANKS)} == {
        text.split(": messageMagic")[0] for text in said
    }


def test_a_coordinator_that_is_not_needed_any_more_is_not_told_as_lost(there: World) -> None:
    started(there)
    assert checkpoint(there)["ok"]
    assert launch(there, epoch=2, restart=1)["ok"]
    assert there.manager.run("stop", {"epoch": 2, "grace_s": 1.0})["ok"]
    eventually(lambda: not coordinators(there))
    assert there.manager.of_kind("coordinator-lost") == []


def test_a_rank_is_killed(there: World) -> None:
    result = launch(there)
    os.kill(result["data"]["pids"]["1"], signal.SIGKILL)
    assert there.exits(1) == {1: 137}


def test_images_and_manifests_are_the_users_alone_and_without_being_asked_nothing_is_summed(there: World) -> None:
    started(there)
    assert checkpoint(there)["ok"]
    folder = there.epoch_dir(1) / "checkpoint"
    found = list(folder.rglob("*"))
    assert [f for f in found if f.name.startswith("manifest-")] and [f for f in found if f.suffix == ".dmtcp"]
    modes = {str(f.relative_to(folder)): f.stat().st_mode & 0o777 for f in [folder, *found]}
    assert modes == {str(f.relative_to(folder)): 0o700 if f.is_dir() else 0o600 for f in [folder, *found]}
    assert not any("sha256" in entry for images in manifest_of(there, 1)["members"].values() for entry in images)
    assert manifest_of(there, 1)["compress"] == {"on": False, "asked": "off"}


def manifest_of(there: World, epoch: int) -> Json:
    return dict(json.loads(next((there.epoch_dir(epoch) / "checkpoint").glob("manifest-*.json")).read_text()))


def test_a_wrong_checksum_spoils_a_checkpoint(there: World) -> None:
    asked: Json = {"plugin": None, "compress": False, "checksum": True, "options": []}
    assert launch(there, dmtcp=asked)["ok"]
    eventually(lambda: "from" in there.rank_output(0))
    assert checkpoint(there)["ok"]
    image = next((there.epoch_dir(1) / "checkpoint" / "rank-1").glob("*.dmtcp"))
    written = image.read_bytes()
    sums = [entry["sha256"] for images in manifest_of(there, 1)["members"].values() for entry in images]
    assert len(sums) == RANKS and hashlib.sha256(written).hexdigest() in sums
    image.write_bytes(written[:-1] + b" ")  # of the same size
    result = launch(there, 2, 1, dmtcp=asked)
    assert not result["ok"] and result["data"] == {"spoiled": True} and "has another checksum" in result["error"]
    image.write_bytes(written)
    assert launch(there, 3, 1, dmtcp=asked)["ok"]


def test_compression_is_chosen_by_measured_speeds(there: World) -> None:
    asked: Json = {"plugin": None, "compress": "auto", "options": []}
    assert launch(there, dmtcp=asked)["ok"]
    eventually(lambda: "from" in there.rank_output(0))
    assert checkpoint(there)["ok"]
    choice = manifest_of(there, 1)["compress"]
    assert choice["asked"] == "auto" and choice["processors"] == RANKS
    assert choice["write_mb_s"] > 0 and choice["gzip_mb_s"] > 0 and 0 < choice["ratio"] < 1
    launched = [line for line in (there.spool.parent / "dmtcp" / "bin" / "launched").read_text().splitlines() if line]
    assert set(launched) == {"--gzip" if choice["on"] else "--no-gzip"}
    assert not list(there.epoch_dir(1).glob(".speed-*"))
    # What was launched so goes on so.
    assert launch(there, 2, 1, dmtcp={**asked, "compress": True})["ok"]
    eventually(lambda: "from" in there.rank_output(0, 2))
    assert checkpoint(there, 2)["ok"] and manifest_of(there, 2)["compress"] == choice


@pytest.mark.parametrize(
    ("write", "gzip", "ratio", "processors", "pays"),
    [
        (1e9, 6e7, 0.25, 2, False),  # a fast disk
        (1e7, 6e7, 0.25, 1, True),  # a slow network file system
        (1e8, 6e7, 0.25, 1, False),  # one gzip is slower than that
        (1e8, 6e7, 0.25, 4, True),  # four are not
        (1e7, 6e7, 1.0, 8, False),  # nothing to be gained
    ],
)
def test_when_compressing_pays(write: float, gzip: float, ratio: float, processors: int, pays: bool) -> None:
    assert Speeds(write, gzip, ratio).pays(processors) is pays


def test_a_spool_that_cannot_be_tried_is_not_compressed_to(tmp_path: Path) -> None:
    choice = chosen(str(tmp_path / "missing"), 2)
    assert choice["on"] is False and choice["why"].startswith("the spool's speed was not measured: ")


def test_a_manifest_that_cannot_be_written_is_no_end_of_the_application(there: World) -> None:
    started(there)
    folder = there.epoch_dir(1) / "checkpoint"
    (folder / f"manifest-{there.manager.registrations[0]['node']}-{there.worker.pid}.json").mkdir()
    result = checkpoint(there)
    assert not result["ok"] and "the checkpoint cannot be written down" in result["error"]
    assert result["data"]["killed"] == list(range(RANKS)), "they were stopped, and have not finished"


def spoiled(there: World, how: str) -> None:
    folder = there.epoch_dir(1) / "checkpoint"
    image = next((folder / "rank-1").glob("*.dmtcp"))
    manifest = next(folder.glob("manifest-*.json"))
    content = json.loads(manifest.read_text())
    if how == "withheld":
        image.unlink()
    elif how == "truncated":
        image.write_bytes(image.read_bytes()[:-5])
    elif how == "unlisted":
        del content["members"]["rank-1"]
    else:
        content["dmtcp"] = "5.1"
    manifest.write_text(json.dumps(content))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("withheld", "the image of rank-1 cannot be read"),
        ("truncated", "the image of rank-1 is not as it was written"),
        ("unlisted", "the checkpoint is not whole: rank 1 is missing"),
        ("another version", "the checkpoint is of DMTCP 5.1, but this node has 5.0"),
    ],
)
def test_a_spoiled_checkpoint_is_not_begun_with(there: World, how: str, sentence: str) -> None:
    started(there)
    assert checkpoint(there)["ok"]
    spoiled(there, how)
    result = launch(there, 2, 1)
    assert not result["ok"] and sentence in result["error"], result
    assert "code" not in result["data"], "it is not the program's fault: another placement may do"
    eventually(lambda: not coordinators(there))


def test_a_restart_that_never_completes(there: World) -> None:
    """One image says that there are more processes than come back."""
    started(there)
    assert checkpoint(there)["ok"]
    image = next((there.epoch_dir(1) / "checkpoint" / "rank-1").glob("*.dmtcp"))
    text = image.read_text().replace('"peers": 2', '"peers": 3')
    image.write_text(text)
    result = launch(there, 2, 1, timeout_s=2.0)
    assert not result["ok"] and "was not up in time" in result["error"]
    eventually(lambda: not coordinators(there))
    image.write_text(text.replace('"peers": 3', '"peers": 2'))
    started(there, 3, 1)


@pytest.mark.nightly("test_worker_ranks.py has programs that cannot be started")
def test_a_program_that_is_not_there(there: World) -> None:
    file = there.launch_file("no-such-program", size=1)
    result = there.manager.run("launch", there.launch_payload(file, engine="dmtcp"))
    assert not result["ok"] and result["data"] == {"code": 127}


def test_a_program_is_looked_for_in_the_folder_where_it_begins(there: World) -> None:
    """`srun ./app` ended with 127: it was looked for where the worker is."""
    (there.spool / "app").write_text("#!/bin/sh\necho here\n")
    (there.spool / "app").chmod(0o755)
    file = there.launch_file("./app", size=1)
    result = there.manager.run("launch", there.launch_payload(file, engine="dmtcp"))
    assert result["ok"], json.dumps(result)  # pytest shortens what is no string
    assert there.exits(1) == {0: 0}


def test_a_plugin_that_does_not_match(there: World, tmp_path: Path) -> None:
    plugin = there.spool / "libejbmove.so"
    library = tmp_path / "dmtcp" / "lib" / "dmtcp" / "libdmtcp.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"what is installed")
    Path(f"{plugin}.json").write_text(json.dumps({"version": "4.9", "library": "00000000", "machine": "x"}))
    result = launch(there, dmtcp={"plugin": str(plugin), "compress": False, "options": []})
    assert not result["ok"]
    assert "the DMTCP plugin was built for DMTCP 4.9, which is not the one on this node (5.0 in " in result["error"]


def test_a_library_that_the_node_cannot_load(there: World) -> None:
    library = there.spool / "libejbcalls.so"
    library.write_bytes(b"of another machine")
    result = launch(there, dmtcp={"calls": str(library), "plugin": None, "compress": False, "options": []})
    assert not result["ok"] and "EJB's library for DMTCP cannot be used on this node: " in result["error"]


@pytest.mark.nightly("test_worker_end.py has ranks, and what they have started, that end with a killed worker")
def test_the_worker_is_killed(there: World) -> None:
    started(there)
    family = psutil.Process(there.worker.pid).children(recursive=True)
    there.worker.kill()
    there.worker.wait()
    _gone, left = psutil.wait_procs(family, timeout=20)
    assert not left


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("version", "offered"), [("4.2.0", False), ("2.6.0", False), ("5.0.0-rc1", True), ("unknown", False)]
)
def test_versions(tmp_path: Path, bin: Path, version: str, offered: bool) -> None:
    set_faults(bin, version=version)
    spool = tmp_path / "spool"
    spool.mkdir()
    with world(spool) as there:
        there.start()
        assert ("dmtcp" in there.manager.registrations[0]["engines"]) is offered
        if not offered:
            result = launch(there)
            assert (not result["ok"] and "DMTCP" in result["error"]) or "version" in result["error"]


def test_without_dmtcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with world(tmp_path) as there:
        there.start()
        assert "dmtcp" not in there.manager.registrations[0]["engines"]
        result = launch(there)
        assert not result["ok"]
        assert result["error"].startswith("dmtcp_launch is not on PATH on this node; users install it from https://")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small file system")
def test_a_full_spool_stops_the_checkpoint_and_not_the_application(tmp_path: Path, bin: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(spool)], check=False)
    if mounted.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        with world(spool) as there:
            there.start()
            started(there)
            result = checkpoint(there)
            assert not result["ok"] and result["data"]["exits"] == {}
            assert result["error"].startswith("the spool has ") and "a checkpoint needs about" in result["error"]
            assert not there.manager.of_kind("rank-exit")
    finally:
        subprocess.run(["umount", "-l", str(spool)], check=False)
