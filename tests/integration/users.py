"""Real users for tests that run as root: made with useradd, each with a home and a place for a spool, and deleted."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("alice", "bob", "mallory")


def missing_users() -> str:
    """Why no users can be made here; "" where they can."""
    if os.geteuid() != 0:
        return "real users can be made by root alone"
    lacking = [name for name in ("useradd", "userdel", "usermod", "getent") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


@dataclass(frozen=True, slots=True)
class People:
    """`folder` is root's, and others may look into it; each user's home is in it. Names end in this process's number,
    so that test runs beside this one have users of their own."""

    folder: Path
    alice: str
    bob: str
    mallory: str
    service: str

    @property
    def spool(self) -> str:
        return f"{self.folder}/%u/.ejb"

    def home(self, user: str) -> Path:
        return self.folder / user


@contextmanager
def people() -> Iterator[People]:
    folder = Path(tempfile.mkdtemp(prefix="ejb-users-"))
    folder.chmod(0o755)
    mark = f"-{os.getpid()}"
    users = [name + mark for name in NAMES]
    service = f"ejb{mark}"
    try:
        for user in users:
            _shadow("useradd", "--no-create-home", "--home-dir", str(folder / user), "--shell", "/bin/bash", user)
        _shadow("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", service)
        for user in (*users, service):
            found = pwd.getpwnam(user)
            home = folder / user
            home.mkdir(mode=0o700)
            os.chown(home, found.pw_uid, found.pw_gid)
        alice, bob, mallory = users
        yield People(folder, alice, bob, mallory, service)
    finally:
        for user in (*users, service):
            _shadow("userdel", "--force", user, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def skip_in_closed_folder() -> None:
    """Where the checkout is closed to other users (root's home), the service user cannot read the worker's sources."""
    for folder in Path(__file__).resolve().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            pytest.skip(f"{folder} is closed to other users, whom this test's daemon is to act for")


def change(user: str, *options: str) -> None:
    """usermod."""
    _shadow("usermod", *options, user)


def _shadow(*argv: str, check: bool = True) -> None:
    """Other test runs hold the lock on /etc/passwd for moments."""
    for _ in range(50):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode == 0 or "lock" not in done.stderr:
            break
        time.sleep(0.2)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")


def as_user(user: str, argv: Sequence[str], timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """Run something as that user, with that user's groups."""
    found = pwd.getpwnam(user)
    return subprocess.run(
        argv, user=found.pw_uid, group=found.pw_gid, extra_groups=os.getgrouplist(user, found.pw_gid), text=True,
        capture_output=True, timeout=timeout_s, check=False, cwd="/", env={"PATH": os.defpath, "HOME": found.pw_dir},
    )  # fmt: skip
