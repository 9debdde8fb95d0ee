"""Processes of the job that have lost their worker: found by a mark in their environment, and ended whole.

Ranks die with their worker, but what they have started themselves does not. A process that has made a session of
its own is in no group that is known. A worker that ends takes all of it along (it is their subreaper); one that
was killed cannot. So a shell that waits for its end looks for what is left, and the next placement on this node begins
only when nothing is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Optional, Sequence

MARK = "EJB_MARK"
PATIENCE_S = 5.0
_PAUSE_S = 0.02

# The shell costs a megabyte; a worker's Python would cost eight. Signals that end a job politely are not for it.
_WARDEN = 'trap "" HUP INT TERM; read -r word; [ "$word" = done ] || exec "$@"'


def mark(job_dir: str, env: Mapping[str, str], script_run: Optional[int] = None) -> str:
    """The value of MARK for a process with this environment; of a script (with the number of its run) or of a rank.

    The batch system's number is in it. A batch job that is submitted from within the job inherits the mark, is given a
    number of its own, and is no leftover.
    """
    value = "%s:%s" % (job_dir, env.get("SLURM_JOB_ID", ""))
    return value if script_run is None else "%s:%d" % (value, script_run)


def find(job_dir: str, spared: Optional[str] = None) -> List[int]:
    """The processes with the job's mark that no live worker of the job is an ancestor of.

    `spared`: the mark of the script that runs. Its launches beside EJB's own (`srun` itself) have ranks below the batch
    system's daemons, which are no leftovers. One file is read of each process that is not the job's: each launch on
    each node looks, on machines with thousands.
    """
    begins = os.fsencode("%s=%s:" % (MARK, job_dir))
    parents: Dict[int, int] = {}
    marked = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environ = _read(int(name), "environ")  # of one that is a zombie nothing is there
            if begins not in environ or not _is_marked(environ, job_dir, spared):
                continue
            if os.stat("/proc/" + name).st_uid == os.geteuid():
                marked.append(int(name))
        except OSError:
            continue  # another user's, or it has just ended
    return [pid for pid in marked if not _has_worker(pid, parents, job_dir)]


def kill(job_dir: str, spared: Optional[str] = None) -> List[int]:
    """KILL those that there are now. What they start meanwhile, and when they have gone, only another scan shows."""
    found = find(job_dir, spared)
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    return found


def end(job_dir: str, patience_s: float = PATIENCE_S) -> List[int]:
    """Until there are none; the ones that are left after `patience_s`."""
    until = time.monotonic() + patience_s
    while True:
        left = kill(job_dir)
        if not left or time.monotonic() > until:
            return left
        time.sleep(_PAUSE_S)


class Warden:
    """Ends what is left of the job on this node when this process has ended without saying goodbye."""

    def __init__(self, job_dir: str) -> None:
        self._job_dir = job_dir
        self._alive: Optional[int] = None
        self._shell: "Optional[subprocess.Popen[bytes]]" = None

    def begin(self) -> None:
        """Before the first process of the job is started here. Raises OSError."""
        if self._alive is not None:
            return
        reads, writes = os.pipe()
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _WARDEN, "ejb-warden", *_myself(), "sweep", "--job-dir", self._job_dir],
                stdin=reads,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(writes)
            raise
        finally:
            os.close(reads)
        self._alive = writes

    def close(self) -> None:
        """This process has ended all of them itself."""
        if self._alive is not None:
            try:
                os.write(self._alive, b"done\n")
            except OSError:
                pass
            os.close(self._alive)
            self._alive = None


def _myself() -> Sequence[str]:
    code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
    return [sys.executable or "python3", "-I", "-S", "-c", program, code]


def _is_marked(environ: bytes, job_dir: str, spared: Optional[str]) -> bool:
    env = {}
    for word in environ.split(b"\0"):
        name, _, value = word.partition(b"=")
        if name in (b"EJB_MARK", b"SLURM_JOB_ID"):
            env[os.fsdecode(name)] = os.fsdecode(value)
    found, of_ranks = env.get(MARK, ""), mark(job_dir, env)
    return found == of_ranks or (found.startswith(of_ranks + ":") and found != spared)


def _has_worker(pid: int, parents: Dict[int, int], job_dir: str) -> bool:
    """`parents` is filled with what had to be looked up."""
    folder = os.fsencode(os.path.join(job_dir, ""))
    seen = set()
    while pid not in seen:  # a number that is given out again while this looks might make a ring
        seen.add(pid)
        try:
            if pid not in parents:
                parents[pid] = _parent(pid)
            pid = parents[pid]
            if pid == 0:
                return False
            words = _read(pid, "cmdline").split(b"\0")
        except (OSError, IndexError, ValueError):
            return False
        if b"agent" in words and any(word.startswith(folder) for word in words):
            return True
    return False


def _parent(pid: int) -> int:
    # The command name may hold blanks and brackets: fields count from the last bracket.
    return int(_read(pid, "stat").rpartition(b")")[2].split()[1])


def _read(pid: int, name: str) -> bytes:
    file = os.open("/proc/%d/%s" % (pid, name), os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: List[bytes] = []
        while True:
            part = os.read(file, 65536)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(file)
