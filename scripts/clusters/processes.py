"""The live processes of a cluster, found in /proc by the mark in their environment, and their end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from clusters.errors import ClusterError

# In the daemons' environment only, so that `down` never takes a user's shell that exported SLURM_CONF for one of them.
MARK = "EJB_CLUSTER_DIR"
CLIENTS = ("srun", "salloc", "sattach", "sbatch")


def read_process(pid: int) -> tuple[dict[str, str], list[str], int, str] | None:
    """Environment, argument list, parent and name of a live process; None where it is gone, a zombie or not ours."""
    try:
        base = Path("/proc") / str(pid)
        stat = (base / "stat").read_text(errors="replace")
        name, _, rest = stat.partition("(")[2].rpartition(")")
        state, parent = rest.split()[:2]
        if state in "ZX":
            return None
        environ = (base / "environ").read_bytes().decode(errors="replace").split("\0")
        words = (base / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except (OSError, ValueError):
        return None
    return dict(item.split("=", 1) for item in environ if "=" in item), words, int(parent), name


def snapshot() -> dict[int, tuple[dict[str, str], list[str], int, str]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := read_process(int(entry.name))) is not None:
            found[int(entry.name)] = process
    return found


def _works_in(pid: int, directory: Path) -> bool:
    """Whether its folder is below this one, as slurmstepd's: the title of a newer one has overwritten its variables."""
    try:
        folder = str(Path(f"/proc/{pid}/cwd").readlink()).removesuffix(" (deleted)")
    except OSError:
        return False
    return folder.startswith(f"{directory}/")


def cluster_processes(directory: Path) -> dict[int, list[str]]:
    """Live processes of this cluster, pid -> argument list: daemons, steps, jobs, and everything that they started."""
    conf = str(directory / "slurm.conf")
    processes = snapshot()
    ours = set()
    for pid, (environ, _, _, name) in processes.items():
        marked = environ.get(MARK) == str(directory)
        inside = environ.get("SLURM_CONF") == conf and ("SLURM_JOB_ID" in environ or name in CLIENTS)
        own = name.startswith("slurm") and (environ.get("SLURM_CONF") == conf or _works_in(pid, directory))
        if marked or inside or own:
            ours.add(pid)
    grown = True
    while grown:
        children = {pid for pid, process in processes.items() if process[2] in ours} - ours
        ours |= children
        grown = bool(children)
    myself = os.getpid()
    while myself in processes:  # never this script, nor what called it
        ours.discard(myself)
        myself = processes[myself][2]
    return {pid: processes[pid][1] for pid in ours}


def daemons(directory: Path) -> dict[str, int]:
    """Name -> pid of the cluster's daemons that live; a slurmd is called by its node."""
    found = {}
    for pid, words in sorted(cluster_processes(directory).items()):
        program = Path(words[0]).name if words else ""
        if program == "slurmd" and "-N" in words:
            found[words[words.index("-N") + 1]] = pid
        elif program in ("munged", "slurmctld", "slurmdbd", "mariadbd", "mysqld"):
            found["mariadbd" if program == "mysqld" else program] = pid
    return found


def end_processes(directory: Path, patience_s: float = 3.0) -> None:
    """TERM, then KILL, until no process of this cluster is left. Pid files alone would leak steps and late daemons."""
    for number, limit in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        deadline = time.monotonic() + limit
        told: set[int] = set()
        while left := cluster_processes(directory):
            # A TERM once each; a KILL again and again, since steps may still start others.
            for pid in set(left) - (told if number == signal.SIGTERM else set()):
                try:
                    os.kill(pid, number)
                except (ProcessLookupError, PermissionError):
                    pass
                told.add(pid)
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return
    pids = " ".join(map(str, sorted(cluster_processes(directory))))
    if pids:
        raise ClusterError(f"these processes of {directory} could not be ended: {pids}")
