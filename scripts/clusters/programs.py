"""The programs of a cluster: where they are, and how they are run and waited for."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from clusters.errors import ClusterError
from clusters.processes import MARK

INSTALL = (
    "apt-get install -y --no-install-recommends slurm-wlm slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins"
)
INSTALL_ACCT = "apt-get install -y --no-install-recommends slurmdbd slurm-wlm-mysql-plugin mariadb-server"
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin"


def program(name: str) -> str:
    path = shutil.which(name, path=SEARCH_PATH)
    if path is None:
        extra = name in ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")
        raise ClusterError(f"{name} is not installed; {INSTALL_ACCT if extra else INSTALL}", code=69)
    return path


def environment(directory: Path, daemon: bool = False) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SBATCH", "MUNGE"))}
    kept |= {"SLURM_CONF": str(directory / "slurm.conf"), "PATH": SEARCH_PATH, "LC_ALL": "C"}
    if daemon:
        kept[MARK] = str(directory)
        kept["MYSQL_UNIX_PORT"] = str(directory / "run" / "db.sock")  # slurmdbd has no setting for it
    return kept


def run(directory: Path, *argv: str, timeout: float = 15.0) -> str:
    """stdout of a client command, "" where it fails or hangs: a cluster that is coming up or half dead does both."""
    try:
        done = subprocess.run(
            [program(argv[0]), *argv[1:]],
            env=environment(directory),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def start(directory: Path, *argv: str, wait: bool = True) -> None:
    """Start a daemon. Its output goes to a file: a pipe would stay open as long as it lives."""
    with open(directory / "log" / "start.log", "ab") as log:
        process = subprocess.Popen(
            [program(argv[0]), *argv[1:]],
            env=environment(directory, daemon=True),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            start_new_session=True,
        )
    if wait and process.wait(timeout=30) != 0:
        raise ClusterError(f"{argv[0]} did not start (code {process.returncode}); {last_words(directory, argv[0])}")


def last_words(directory: Path, name: str) -> str:
    for file in (directory / "log" / f"{name}.log", directory / "log" / "start.log"):
        try:
            lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            continue
        for line in reversed(lines[-20:]):
            if "error" in line.lower() or "fatal" in line.lower():
                return f"{file} says: {line.strip()}"
    return f"see {directory / 'log'}"


def until(what: str, ready: Callable[[], bool], timeout: float, directory: Path, log: str) -> None:
    deadline = time.monotonic() + timeout
    pause = 0.02
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{what} within {timeout:g} s; {last_words(directory, log)}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.25)
