"""An ejbd that goes on in the background: started until it answers, and ended, with the embedded cluster if asked."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ejbd.client.client import Client
from ejbd.config import Settings
from ejbd.errors import Code, EjbError

START_S = 180.0  # a start takes 1 s on a quiet machine, and half a minute on a busy one
STOP_S = 40.0  # beyond the time within which a daemon ends by itself
CLUSTER_S = 120.0
LOG_NAME = "ejbd.log"


def start_in_background(settings: Settings, words: Sequence[str]) -> str:
    """Start `ejbd` with these options and return once it answers; a sentence for people.

    It is in a session of its own, so that no terminal ends it. What it says is added to a log file beside its state.
    Raises EjbError: CONFLICT where one answers already, UNREACHABLE with its last words where it ends, or does not
    answer in time.
    """
    sock, log = settings.socket_path, settings.state_dir / LOG_NAME
    daemon = Client(socket=str(sock))
    if is_answering(daemon):
        raise EjbError(Code.CONFLICT, "an ejbd answers already", where=str(sock), hint="`ejbd stop` ends it")
    settings.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    with log.open("ab") as sink:
        begin = sink.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "ejbd.daemon", *words],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while not is_answering(daemon):
        late = time.monotonic() > deadline
        if late or process.poll() is not None:
            if late:
                process.terminate()
            said = log.read_bytes()[begin:].decode(errors="replace").strip().splitlines()
            what = f"did not answer within {START_S:g} s" if late else "ended"
            last = said[-1] if said else "it said nothing"
            raise EjbError(Code.UNREACHABLE, f"ejbd {what}: {last.removeprefix('ejbd: ')}", where=str(log))
        time.sleep(0.1)
    return f"ejbd answers as process {process.pid}; its log is {log}; `ejbd stop` ends it"


def is_answering(daemon: Client) -> bool:
    """Whether a daemon answers there, be it well or not."""
    try:
        daemon.get("/v1/health")
    except EjbError as error:
        return error.code is not Code.UNREACHABLE
    return True


def stop_daemon(settings: Settings, *, with_cluster: bool) -> list[str]:
    """End the daemon that answers at the settings' socket, and the embedded cluster where asked; what was done.

    Raises EjbError: INVALID where there is no embedded cluster to end, UNREACHABLE where no daemon answers,
    CONFLICT where it does not end or is not this user's.
    """
    if with_cluster and settings.batch != "local":
        hint = "`ejbd stop` ends the daemon, and the jobs go on"
        raise EjbError(Code.INVALID, f"the batch system is {settings.batch}: only the embedded one ends", hint=hint)
    done = []
    process = _listening_process(settings.socket_path)
    if process is not None:
        _end_process(process, settings.socket_path)
        done.append(f"ejbd, process {process}, has ended{'' if with_cluster else '; its jobs go on'}")
    elif not with_cluster:
        raise EjbError(Code.UNREACHABLE, "no daemon answers", where=str(settings.socket_path))
    if with_cluster and settings.cluster_dir.exists():
        argv = [sys.executable, "-m", "ejbd.batch.local", "down", str(settings.cluster_dir)]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=CLUSTER_S, check=False)
        if ended.returncode:
            raise EjbError(Code.CONFLICT, f"the embedded cluster did not end: {ended.stderr.strip()[-200:]}")
        done.append("the embedded cluster has ended, and what ran there")
    return done


def _listening_process(path: Path) -> int | None:
    """The process that listens at a socket, as the kernel knows it; None where there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
            made.settimeout(5.0)
            made.connect(str(path))
            peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    except OSError:
        return None
    return int(struct.unpack("3i", peer)[0])


def _end_process(process: int, path: Path) -> None:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if not any(b"ejbd" in word for word in words):
            hint = "end it there, as with `systemctl stop ejbd`"
            raise EjbError(Code.CONFLICT, "a service manager holds the daemon's socket", where=str(path), hint=hint)
        os.kill(process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        while time.monotonic() < deadline:
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.1)
    except (ProcessLookupError, FileNotFoundError):
        return
    except PermissionError:
        raise EjbError(Code.CONFLICT, f"ejbd, process {process}, is another user's", where=str(path)) from None
    raise EjbError(Code.CONFLICT, f"ejbd, process {process}, did not end within {STOP_S:g} s", where=str(path))
