"""The lead's end of the shims: a unix socket that takes launches and answers with their end."""

from __future__ import annotations

import errno
import json
import os
import socket
from typing import Any, Callable, Dict, List, Optional, Sequence

from .attributes import Propagation, attributes_handed_on
from .files import make_dir, read_json, write_json
from .loop import Loop

_MOST_BYTES = 16 * 1024 * 1024

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_TRIES = 600
FULL_PAUSE_S = 1.0
"""A launch waits so long for a spool that is full: sbatch's script would not have noticed it."""


class _Shim:
    """A connected shim. `ordinal` once its launch is counted."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = b""
        self.ordinal: Optional[int] = None

    def send(self, message: Dict[str, Any]) -> None:
        try:
            self.connection.sendall(json.dumps(message).encode("ascii") + b"\n")
        except OSError:
            pass  # it is gone: its end-of-file is dealt with where it is read


class Launches:
    """Counts launches in the order in which the script asks for them, one at a time."""

    def __init__(
        self,
        *,
        path: str,
        job_dir: str,
        job: str,
        processors: int,
        tasks: int,
        threads: int,
        ended: Dict[int, int],
        streams: Dict[str, str],
        propagation: Optional[Propagation],
        loop: Loop,
        before_launch: Callable[[Callable[[], None]], None],
        on_launch: Callable[[int, int, str, bool, str, str], None],
        on_cancel: Callable[[int], None],
        on_refused: Callable[[str, str, str], None],
        on_plain: Callable[[str, str, str], None],
        log: Callable[[str], None],
    ) -> None:
        """`processors` are the job's, `tasks` the ranks of a launch that does not say, `threads` a rank's processors.

        `streams`: the script's own output files ("output", "error"): a shim that writes elsewhere was redirected."""
        self._job_dir = job_dir
        self._job = job
        self._processors = processors
        self._tasks = tasks
        self._threads = threads
        self._ended = dict(ended)
        self._streams = streams
        self._propagation = propagation
        self._loop = loop
        self._before_launch = before_launch
        self._on_launch = on_launch
        self._on_cancel = on_cancel
        self._on_refused = on_refused
        self._on_plain = on_plain
        self._log = log
        self._next = 0
        self._running: Optional[int] = None
        self._held: Optional[_Shim] = None  # its launch waits for room in the spool
        self._cancelled = False
        self._waiting: List[Any] = []
        self._shims: Dict[int, _Shim] = {}
        make_dir(os.path.join(job_dir, "launches"))  # the shims put there what ranks are to read
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(path)
        self._socket.listen(16)
        self._socket.setblocking(False)
        loop.on_readable(self._socket.fileno(), self._accept)

    def launch_ended(self, ordinal: int, code: int, say: Sequence[str] = ()) -> None:
        self._ended[ordinal] = code
        for shim in list(self._shims.values()):
            if shim.ordinal == ordinal:
                shim.send({"code": code, "say": list(say)})
                self._drop(shim)
        if self._running == ordinal:
            self._running = None
            self._cancelled = False
            if self._waiting:
                shim, request = self._waiting.pop(0)
                self._launch(shim, request)

    def close(self) -> None:
        for shim in list(self._shims.values()):
            self._drop(shim)
        self._loop.forget(self._socket.fileno())
        self._socket.close()

    def _accept(self) -> None:
        try:
            connection, _address = self._socket.accept()
        except OSError:
            return
        connection.settimeout(5.0)
        shim = _Shim(connection)
        self._shims[connection.fileno()] = shim
        self._loop.on_readable(connection.fileno(), lambda: self._receive(shim))

    def _receive(self, shim: _Shim) -> None:
        try:
            data = shim.connection.recv(65536)
        except OSError:
            data = b""
        shim.received += data
        if not data or len(shim.received) > _MOST_BYTES:
            self._gone(shim)
            return
        while b"\n" in shim.received:
            line, shim.received = shim.received.split(b"\n", 1)
            try:
                message = json.loads(line.decode("ascii"))
                self._message(shim, message)
            except (ValueError, KeyError, TypeError) as error:
                self._refuse(shim, "the request is not understood: %s" % error)
                return

    def _message(self, shim: _Shim, message: Dict[str, Any]) -> None:
        if message.get("cancel"):
            self._cancel(shim)
        elif "refused" in message or "plain" in message:
            tell = self._on_refused if "refused" in message else self._on_plain
            why = message["refused"] if "refused" in message else message["plain"]
            tell(str(message["shim"]), str(why), str(message.get("line") or ""))
            shim.send({})
            self._drop(shim)
        elif self._running is not None and self._cancelled:
            self._waiting.append((shim, message))
        else:
            self._launch(shim, message)

    def _launch(self, shim: _Shim, request: Dict[str, Any]) -> None:
        if self._running is not None or (self._held is not None and self._held is not shim):
            still = self._next if self._running is None else self._running
            self._launch_plainly(shim, "launch %d is still running: one launch at a time" % still)
            return
        size = self._tasks if request["size"] is None else int(request["size"])
        threads = int(request.get("threads") or 0)
        if size * max(1, threads) > self._processors:
            each = " of %d processors" % threads if threads > 1 else ""
            said = (size, each, self._job, self._processors)
            self._launch_plainly(shim, "%d ranks%s were asked for, but job %s has %d processors" % said)
            return
        ordinal = self._next
        folder = os.path.join(self._job_dir, "launches")
        launch = {"argv": request["argv"], "cwd": request["cwd"], "env": request["env"], "size": size}
        launch["together"], launch["launcher"] = bool(request.get("together", True)), str(request.get("shim", ""))
        if request.get("attributes"):
            asked, launcher = request.get("propagate"), str(request["shim"])
            launch["attributes"] = attributes_handed_on(launcher, request["attributes"], asked, self._propagation)
        for name in ("threads", "stdin", "told", "even", "dealt"):
            if request.get(name):
                launch[name] = request[name]
        # One rank a node, say, of a job that has whole nodes.
        if request.get("spread") or (size == self._tasks and size * self._threads < self._processors):
            launch["spread"] = True
        for stream, name in (("stdout", "out"), ("stderr", "err")):
            launch[stream] = self._route(request, stream, os.path.join(folder, "%d.%s" % (ordinal, name)))
        if request.get("same_file") and launch["stdout"] not in self._streams:
            launch["stderr"] = launch["stdout"]
        path = os.path.join(folder, "%d.json" % ordinal)
        try:
            launch = self._remember(path, launch, ordinal)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in FULL and self._wait_for_room(shim, request):
                return
            self._held = None
            self._launch_plainly(shim, "cannot write the launch down: %s" % error)
            return
        self._held = None
        self._next += 1
        shim.ordinal = ordinal
        files = {s: launch[s] for s in ("stdout", "stderr") if launch.get(s) not in ("output", "error", None)}
        shim.send({"ordinal": ordinal, "files": files})
        if ordinal in self._ended:
            shim.send({"code": self._ended[ordinal]})
            self._drop(shim)
            return
        self._running = ordinal
        # What the script wrote before the launch comes before what the ranks will write.
        together, time, size = bool(launch.get("together", True)), str(request.get("time") or ""), int(launch["size"])
        name = str((request.get("told") or {}).get("SLURM_JOB_NAME") or os.path.basename(str(launch["argv"][0])))[:255]
        self._before_launch(lambda: self._on_launch(ordinal, size, path, together, time, name))

    def _wait_for_room(self, shim: _Shim, request: Dict[str, Any]) -> bool:
        """Try the launch again a little later; False where that was done often enough."""
        tries = request["tries"] = int(request.get("tries", 0)) + 1
        if tries > FULL_TRIES:
            return False
        if tries == 1:
            self._log("a launch waits: no space is left in the spool")
        self._held = shim
        self._loop.call_later(FULL_PAUSE_S, lambda: self._launch(shim, request) if self._held is shim else None)
        return True

    def _route(self, request: Dict[str, Any], stream: str, own: str) -> str:
        """Which of the script's own files (`streams`) the shim writes to, else a file that the shim reads along."""
        for name, path in self._streams.items():
            try:
                status = os.stat(path)
            except OSError:
                continue
            if request["inodes"][stream] == [status.st_dev, status.st_ino]:
                return name
        return own

    def _remember(self, path: str, launch: Dict[str, Any], ordinal: int) -> Dict[str, Any]:
        """Write the launch file. One that an earlier run of a restartable script wrote stays: its ranks may run."""
        make_dir(os.path.dirname(path))
        if os.path.exists(path):
            before = read_json(path)
            if (before["argv"], before["size"]) != (launch["argv"], launch["size"]):
                self._log(
                    "launch %d is not what it was before the script was started again; it goes on as it was" % ordinal
                )
            return before
        write_json(path, launch)
        return launch

    def _launch_plainly(self, shim: _Shim, why: str) -> None:
        """The shim is to do without EJB, and tells how."""
        shim.send({"plain": why})
        self._drop(shim)

    def _refuse(self, shim: _Shim, sentence: str) -> None:
        shim.send({"refused": sentence})
        self._drop(shim)

    def _gone(self, shim: _Shim) -> None:
        self._waiting = [waiting for waiting in self._waiting if waiting[0] is not shim]
        self._drop(shim)
        self._cancel(shim)

    def _cancel(self, shim: _Shim) -> None:
        if shim.ordinal is not None and shim.ordinal == self._running and not self._cancelled:
            self._cancelled = True
            self._on_cancel(shim.ordinal)

    def _drop(self, shim: _Shim) -> None:
        if self._held is shim:
            self._held = None
        if self._shims.pop(shim.connection.fileno(), None) is not None:
            self._loop.forget(shim.connection.fileno())
            shim.connection.close()
