"""`ejb doctor --build-plugin` and `--mpi` where something is missing: one sentence each, with how to mend it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ejbd.config import Settings
from ejbd.doctor import mpicheck, plugin
from ejbd.doctor.checks import examine_moving
from ejbd.errors import EjbError
from tests.fakes.mpi import missing_mpich

ROOT = Path(__file__).resolve().parents[2]
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS = 0x20000
pytestmark = [pytest.mark.xdist_group("mpich")]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH to put commands on."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def doctor(folder: Path, *options: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `ejb doctor`, and its findings by subject."""
    config = folder / "ejbd.toml"
    config.write_text(f'state_dir = "{folder}/state"\nspool = "{folder}/spool"\n')
    words = [sys.executable, "-m", "ejbd.cli.main", "doctor", "--json", "--config", str(config), *options]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, {f["subject"]: f for f in json.loads(done.stdout)["findings"]}


def sentence(found: dict[str, Any]) -> str:
    assert not found["good"] and "\n" not in found["text"], found
    return str(found["text"])


def test_without_a_compiler(tmp_path: Path, tools: Path) -> None:
    code, found = doctor(tmp_path, "--build-plugin", "--mpi", PATH=str(tools))
    assert code != 0
    assert sentence(found["library for MPI ranks"]) == (
        "there is no C compiler on PATH to build libejbprogress.so (Debian: apt-get install gcc)"
    )
    assert sentence(found["MPI"]) == (
        "no mpicc is on PATH, so nothing was tried (Debian: apt-get install libmpich-dev)"
    )
    assert sentence(found["DMTCP plugin"]).startswith("dmtcp_launch is not on PATH, so there is no plugin to build (")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("said", "means", "mend"),
    [
        ("r.c:1:10: fatal error: mpi.h: No such file or directory", "MPI's headers are missing", "libmpich-dev"),
        ("p.h:2:10: fatal error: dlfcn.h: No such file or directory", "library's headers are missing", "libc6-dev"),
        ("/usr/bin/ld: cannot find crt1.o: No such file", "library's headers are missing", "libc6-dev"),
        ("mpicc: 3: gcc: not found", "there is no C compiler behind it", "apt-get install gcc"),
        ("cc: fatal error: Cannot create temporary file in /tmp/", "nowhere to put its own files", "set TMPDIR"),
        ("something: error: else", "cannot compile rank.c: something: error: else", "mend the compiler"),
    ],
)
def test_a_compiler_that_is_not_whole(tmp_path: Path, tools: Path, said: str, means: str, mend: str) -> None:
    for name in ("cc", "mpicc"):
        command(tools, name, f"echo '{said}' >&2; exit 1")
    with pytest.raises(EjbError) as mpi:
        mpicheck.check(None)
    assert mpi.value.sentence().startswith(f"{tools}/mpicc cannot compile rank.c")
    assert means in mpi.value.sentence() and mend in mpi.value.sentence()
    with pytest.raises(EjbError) as library:
        plugin.build_progress(tmp_path / "spool")
    assert mend in library.value.sentence() and "\n" not in library.value.sentence()
    assert list((tmp_path / "spool" / "dmtcp").iterdir()) == []


def test_a_compiler_that_does_not_run(tmp_path: Path, tools: Path) -> None:
    (tools / "cc").write_bytes(b"\x7fELF not for this machine")
    (tools / "cc").chmod(0o755)
    with pytest.raises(EjbError, match="cc does not run: Exec format error"):
        plugin.build_progress(tmp_path)


def test_mpicc_is_open_mpis_by_debians_alternatives(tools: Path) -> None:
    command(tools, "mpicc", 'while [ "$1" != -o ]; do shift; done; echo libmpi.so.40 > "$2"')
    with pytest.raises(EjbError) as found:
        mpicheck.check(None)
    assert (
        "mpicc is not of the MPICH family, so nothing was tried: ranks of Open MPI are started by its own mpirun"
        in (found.value.sentence())
    )
    assert "libmpich-dev, which has mpicc.mpich" in found.value.sentence()


def test_mpicc_is_open_mpis_and_mpich_is_there_by_its_own_name(tmp_path: Path, tools: Path) -> None:
    command(tools, "mpicc", 'while [ "$1" != -o ]; do shift; done; echo libmpi.so.40 > "$2"')
    command(tools, "mpicc.mpich", 'while [ "$1" != -o ]; do shift; done; echo libmpich.so.12 > "$2"')
    program, why = mpicheck.build_moved_rank(tmp_path)
    assert (program, why) == (tmp_path / "moved-rank", "")


def as_a_read_only_mount(spool: Path) -> None:
    mounts = ctypes.CDLL(None, use_errno=True)
    place = str(spool).encode()
    mounts.unshare(CLONE_NEWNS)
    mounts.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    mounts.mount(place, place, None, MS_BIND, None)
    if mounts.mount(place, place, None, MS_BIND | MS_REMOUNT | MS_RDONLY, None) != 0:
        raise OSError(ctypes.get_errno(), "nothing can be mounted here")


def as_a_user_without_rights(spool: Path) -> None:
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    else:
        spool.chmod(0o500)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("become", "why"),
    [(as_a_read_only_mount, "Read-only file system"), (as_a_user_without_rights, "Permission denied")],
    ids=["a read-only spool", "a user without rights"],
)
def test_a_spool_that_nothing_can_be_put_in(tmp_path: Path, become: Callable[[Path], None], why: str) -> None:
    spool, answer = tmp_path / "spool", tmp_path / "answer"
    spool.mkdir(mode=0o755)
    if become is as_a_read_only_mount and os.geteuid() != 0:
        pytest.skip("only root can mount")
    with answer.open("w") as file:
        child = os.fork()
        if child == 0:  # what it becomes ends with it
            try:
                become(spool)
                found = examine_moving(Settings(spool=spool), build_plugin=True, mpi=False)
                json.dump([f.to_json() for f in found], file)
                file.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    told = sentence(json.loads(answer.read_text())[0])
    assert told.endswith(
        f"nothing can be put there: {why} (run it as the daemon's user, with spool = a folder that this user can write)"
    )
    assert told.startswith(f"{spool}/dmtcp: ") and list(spool.iterdir()) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 0", "does not tell its version"),
        ("echo dmtcp_launch 5.0", "DMTCP is not whole: this is missing (make install in DMTCP)"),
    ],
)
def test_a_dmtcp_that_is_not_whole(tmp_path: Path, tools: Path, script: str, why: str) -> None:
    command(tools, "dmtcp_launch", script)
    with pytest.raises(EjbError) as found:
        plugin.build(tmp_path / "spool")
    assert why in found.value.sentence()


def test_a_dmtcp_without_its_headers(tmp_path: Path, tools: Path) -> None:
    command(tools, "dmtcp_launch", "echo dmtcp_launch 5.0")
    (tmp_path / "lib" / "dmtcp").mkdir(parents=True)
    (tmp_path / "lib" / "dmtcp" / "libdmtcp.so").touch()
    command(tools, "cc", "echo 'pending.h:18:10: fatal error: dmtcp.h: No such file or directory' >&2; exit 1")
    with pytest.raises(EjbError) as found:
        plugin.build(tmp_path / "spool")
    assert "DMTCP's headers are missing (install DMTCP whole" in found.value.sentence()


@pytest.mark.nightly("test_mpich_ranks.py has ring after ring; the next one tells of a hang")
def test_mpi_ranks_are_tried_often_enough_to_see_what_hangs_now_and_then(tmp_path: Path) -> None:
    """Needs no DMTCP: the library that keeps MPI_Finalize from hanging is built, and forty rings come to their end."""
    if reason := missing_mpich():
        pytest.skip(reason)
    code, found = doctor(tmp_path, "--mpi")
    assert (tmp_path / "spool" / "dmtcp" / plugin.PROGRESS).exists()
    assert code == 0, found
    assert "20 of 20 rings of 4 ranks, and 20 of 20 over TCP alone" in found["MPI"]["text"]


def test_a_hang_in_finalize_is_told_with_what_cures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing_mpich():
        pytest.skip(reason)
    endless = mpicheck.SOURCE.replace("MPI_Finalize();", "MPI_Finalize(); while (sum) pause();")
    monkeypatch.setattr(mpicheck, "SOURCE", endless)
    monkeypatch.setattr(mpicheck, "PATIENCE_S", 5.0)
    good, text = mpicheck.check(None)
    assert not good
    assert "ring 1 of 20: the ranks hang in MPI_Finalize: not through after 5 s" in text
    assert "ejb doctor --build-plugin builds what cures it" in text
