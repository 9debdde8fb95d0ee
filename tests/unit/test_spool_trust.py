"""A spool that somebody else made, or can write in, is not used; a worker that was changed there is not started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ejbd.batch.base import WorkerScript
from ejbd.batch.starter import worker_words
from ejbd.config import Settings
from ejbd.doctor.checks import _spool as look_at_spool
from ejbd.errors import Code, EjbError
from ejbd.files.paths import distrusted
from ejbd.manager.hands.spool import Spool
from tests.fakes.worker_process import World, world

NOBODY = 65534


def _fill(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "jobs").mkdir(mode=0o700)


def _world_writable(base: Path) -> Path:
    _fill(base / "spool")
    (base / "spool").chmod(0o777)
    return base / "spool"


def _sticky_itself(base: Path) -> Path:
    _fill(base / "spool")
    (base / "spool").chmod(0o1777)
    return base / "spool"


def _jobs_writable(base: Path) -> Path:
    _fill(base / "spool")
    (base / "spool" / "jobs").chmod(0o777)
    return base / "spool"


def _address_writable(base: Path) -> Path:
    _fill(base / "spool")
    (base / "spool" / "manager.json").write_text("{}")
    (base / "spool" / "manager.json").chmod(0o666)
    return base / "spool"


def _parent_writable(base: Path) -> Path:
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    _fill(base / "open" / "spool")
    return base / "open" / "spool"


def _behind_a_link_in_an_open_folder(base: Path) -> Path:
    _fill(base / "spool")
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    (base / "open" / "link").symlink_to(base / "spool")
    return base / "open" / "link"


def _through_an_open_folder(base: Path) -> Path:
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    _fill(base / "open" / "spool")
    (base / "link").symlink_to(base / "open" / "spool")
    return base / "link"


def _a_file(base: Path) -> Path:
    (base / "spool").write_text("")
    return base / "spool"


OPEN: list[Callable[[Path], Path]] = [
    _world_writable,
    _sticky_itself,
    _jobs_writable,
    _address_writable,
    _parent_writable,
    _behind_a_link_in_an_open_folder,
    _through_an_open_folder,
    _a_file,
]


@pytest.mark.parametrize("make", OPEN)
def test_a_spool_in_which_others_can_write_is_refused(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    with pytest.raises(EjbError) as caught:
        Spool(path).prepare()
    assert caught.value.code is Code.SPOOL
    if make is not _a_file:
        assert "others may write" in caught.value.message and caught.value.hint
    told = look_at_spool(Settings(state_dir=tmp_path, spool=path))
    assert not told.good


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to somebody else")
@pytest.mark.parametrize("level", ["spool", "parent", "jobs", "link"])
def test_a_spool_that_somebody_else_made_is_refused(tmp_path: Path, level: str) -> None:
    (tmp_path / "parent").mkdir()
    path = tmp_path / "parent" / "spool"
    _fill(path)
    named = {"spool": path, "parent": path.parent, "jobs": path / "jobs", "link": tmp_path / "link"}
    (tmp_path / "link").symlink_to(path)
    os.chown(named[level], NOBODY, NOBODY, follow_symlinks=False)
    wanted = tmp_path / "link" if level == "link" else path
    with pytest.raises(EjbError) as caught:
        Spool(wanted).prepare()
    assert "belongs to" in caught.value.message
    assert not look_at_spool(Settings(state_dir=tmp_path, spool=wanted)).good


def test_a_spool_of_ones_own_in_a_sticky_folder_or_behind_a_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    Spool(tmp_path / "tmp" / "deep" / "spool").prepare()
    (tmp_path / "link").symlink_to(tmp_path / "tmp" / "deep")
    Spool(tmp_path / "link" / "spool").prepare()
    assert look_at_spool(Settings(state_dir=tmp_path, spool=tmp_path / "link" / "spool")).good
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    with pytest.raises(OSError, match="links"):
        distrusted(tmp_path / "ring" / "spool")


def test_a_worker_that_was_replaced_in_the_spool_is_put_right_at_the_next_start(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.prepare()
    path = spool.install_worker()
    good = path.read_bytes()
    path.write_bytes(b"#!/bin/sh\nid\n")
    assert spool.install_worker() == path and path.read_bytes() == good


def started(archive: Path, subjob_dir: Path) -> list[str]:
    request = WorkerScript(python=sys.executable, worker=archive, subjob_dir=subjob_dir, exit_file=subjob_dir / "exit")
    return [*worker_words(request), "--node", "n1", "--processors", "2"]


def test_a_worker_that_was_changed_after_the_submission_is_not_started(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.prepare()
    path = spool.install_worker()
    path.write_bytes(path.read_bytes() + b"\n")
    done = subprocess.run(started(path, tmp_path), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 71
    assert "is not what the daemon put there" in done.stderr and "Traceback" not in done.stderr


def test_what_runs_is_what_was_looked_at_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    """The file is replaced while the worker runs: neither it nor its shims read it again."""
    with world(tmp_path) as there:
        _run_replaced(there)


def _run_replaced(there: World) -> None:
    path = Spool(there.spool).install_worker()
    there.manager.start()
    there.process = subprocess.Popen([*started(path, there.manager.subjob_dir), "--grace-s", "0.5"])
    there.manager.wait_for(lambda: there.manager.registrations)
    path.unlink()
    path.write_text("raise SystemExit('mallory')\n")
    script = there.script("#!/bin/bash\nsrun -n 1 echo from the copy\nexit $?\n")
    assert there.lead(script, processors=2)["ok"]
    there.manager.wait_for(lambda: there.manager.of_kind("launch"))
    file = Path(there.manager.of_kind("launch")[0]["file"])
    assert there.manager.run("launch", there.launch_payload(file))["ok"]
    there.exits(1)
    assert there.manager.run("drain", {"epoch": 1})["ok"]
    assert there.manager.run("launch-ended", {"ordinal": 0, "code": 0})["ok"]
    there.manager.wait_for(lambda: there.manager.of_kind("script-exit"))
    assert there.manager.of_kind("script-exit")[0]["code"] == 0
    assert there.collected() == "from the copy\n"
