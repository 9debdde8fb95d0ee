"""How the adapter and the command reach the server, and start it where none answers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from ejbd.errors import BatchError, SubmitOutcomeUnknown

PROTOCOL = 2  # of the server; an older one knows nothing of layouts
START_S = 20.0
CHANGE_WAIT_S = 20.0  # after which a call that waits for a change is answered without one
_PACKAGES = Path(__file__).resolve().parents[3]
_LONGEST_ANSWER = 2**30
_NOT_LISTENING = (FileNotFoundError, ConnectionRefusedError)


class Client:
    """Calls to the server of one embedded cluster. `nodes` and `processors` shape a cluster that has to be started.

    `options`: more of its server's own.
    """

    def __init__(
        self, directory: Path, nodes: int, processors: int, timeout_s: float, *, options: Sequence[str] = ()
    ) -> None:
        self._options = tuple(options)
        self._directory = directory
        self._nodes = nodes
        self._processors = processors
        self._timeout_s = timeout_s

    async def call(
        self, op: str, *, timeout_s: float | None = None, start: bool = True, **fields: Any
    ) -> dict[str, Any]:
        """One request and its answer. A server is started where none listens, unless `start` is false.

        Raises BatchError: transient where no answer comes in time, not where the server says no. A submission without
        an answer raises SubmitOutcomeUnknown.
        """
        line = json.dumps({"op": op, **fields}).encode() + b"\n"
        try:
            reader, writer = await asyncio.wait_for(self._connect(start), START_S + 5)
        except (OSError, TimeoutError) as error:
            raise BatchError(
                f"the embedded cluster in {self._directory} cannot be reached: {error}", transient=True
            ) from error
        try:
            answer = await asyncio.wait_for(_exchange(reader, writer, line), timeout_s or self._timeout_s)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            text = (
                f"the embedded cluster in {self._directory} did not answer to {op!r}: {error or type(error).__name__}"
            )
            raise SubmitOutcomeUnknown(text) if op == "submit" else BatchError(text, transient=True) from error
        finally:
            writer.close()
        if not answer.get("ok"):
            text = str(answer.get("error", "no reason was given"))
            raise BatchError(
                f"the embedded cluster refused: {text}", transient=bool(answer.get("transient")), stderr=text
            )
        return answer

    def wait_until_gone(self) -> None:
        """Until no server runs for the directory. BatchError where it does not end."""
        with open(self._directory / "server.lock") as lock:
            try:
                _lock(lock, time.monotonic() + START_S)
            except TimeoutError as error:
                raise BatchError(f"the server of {self._directory} does not end", transient=True) from error

    async def _connect(self, start: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with contextlib.suppress(*_NOT_LISTENING):
            return await self._open()
        if not start:
            raise ConnectionRefusedError("no server is running")
        await asyncio.to_thread(start_server, self._directory, self._nodes, self._processors, self._options)
        return await self._open()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with _short_path(self._directory) as path:
            return await asyncio.open_unix_connection(path, limit=_LONGEST_ANSWER)


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes) -> dict[str, Any]:
    writer.write(line)
    await writer.drain()
    answer = await reader.readuntil(b"\n")
    decoded = json.loads(answer)
    if not isinstance(decoded, dict):
        raise ValueError("the answer is not an object")
    return decoded


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """The socket by way of /proc: its own path may be longer than the 107 bytes that a socket address holds."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/socket"
    finally:
        os.close(fd)


def _listens(directory: Path) -> bool:
    with _short_path(directory) as path, socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except _NOT_LISTENING:
            return False
        except OSError:  # full backlog or slow: a server is there
            return True
        return True


def start_server(directory: Path, nodes: int, processors: int, options: Sequence[str] = ()) -> None:
    """Start a server in a session of its own and wait until it listens. Several callers at once start one.

    Raises BatchError where it refuses to start, TimeoutError where it does not listen in time.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    deadline = time.monotonic() + START_S
    with open(directory / "start.lock", "a") as lock:
        _lock(lock, deadline)
        if _listens(directory):
            return
        with open(directory / "server.log", "ab") as output:
            begin = output.tell()
            # Run by path, not from the caller's working directory; PYTHONPATH finds this very package.
            child = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "ejbd.batch.local.server", str(directory.absolute())),
                    *("--nodes", str(nodes), "--cpus", str(processors), *options),
                ],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, [str(_PACKAGES), os.environ.get("PYTHONPATH")])),
                },
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        while not _listens(directory):
            code = child.poll()
            if code:
                words = (directory / "server.log").read_bytes()[begin:].decode(errors="replace").strip()
                last = words.splitlines()[-1] if words else f"exit code {code}"
                raise BatchError(f"the embedded cluster cannot be started: {last}", transient=False, stderr=words)
            _pause(deadline)
    _forget(child)


def _lock(file: TextIO, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _pause(deadline)
        else:
            return


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"the server neither listens nor ends within {START_S:g} s")
    time.sleep(0.02)


_started: list[subprocess.Popen[bytes]] = []


def _forget(child: subprocess.Popen[bytes]) -> None:
    """Keep the handle of a server that outlives us, and collect those that have ended meanwhile (no zombies)."""
    _started[:] = [other for other in [*_started, child] if other.poll() is None]
