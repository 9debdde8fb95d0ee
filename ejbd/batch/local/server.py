"""The server process of an embedded cluster: `python -m ejbd.batch.local.server DIR --nodes 8 --cpus 4`.

It listens on `DIR/socket` for one JSON object a line and answers with one. It has no timer of its own: it wakes on
requests and on ends of jobs. TERM ends it and leaves its jobs running, as a restart of a batch system does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import math
import os
import pwd
import shlex
import signal
import socket
import sqlite3
import stat
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from ejbd.batch.local.client import CHANGE_WAIT_S, PROTOCOL
from ejbd.batch.local.cluster import Cluster, Refused
from ejbd.batch.local.folding import Pool
from ejbd.batch.local.jobs import Job
from ejbd.batch.local.nodes import Layout
from ejbd.core.view import BatchState

LONGEST_REQUEST = 64 * 2**20
LONGEST_SCRIPT = 4 * 2**20  # as Slurm's max_script_size
LONGEST_NAME = 32 * 2**10  # it becomes an environment variable, and the kernel takes 128 kB at most
# Relative: the kernel takes 107 bytes at most, and the directory is this process's working directory.
_SOCKET = Path("socket")

log = structlog.get_logger()


class Server:
    """Requests on one socket, carried out one at a time by one cluster."""

    def __init__(self, cluster: Cluster, stop: Callable[[], None]) -> None:
        self._cluster = cluster
        self._stop = stop

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            if _peer_uid(writer) not in (os.getuid(), 0):
                return
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:  # ValueError: a line longer than the limit
            log.warning("a connection was dropped", error=str(error))
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            operation = getattr(self, f"_do_{request['op']}", None)
            if operation is None:
                raise Refused(f"there is no operation {request['op']!r}")
            return {"ok": True, **await operation(request)}
        except Refused as error:
            return {"ok": False, "error": str(error), "transient": False}
        except (KeyError, TypeError, ValueError) as error:
            return {"ok": False, "error": f"the request cannot be read: {error!r}", "transient": False}
        except (OSError, sqlite3.Error) as error:
            log.error("a request failed", error=repr(error))
            return {"ok": False, "error": f"the embedded cluster cannot do this now: {error}", "transient": True}

    async def _do_hello(self, request: dict[str, Any]) -> dict[str, Any]:
        nodes = self._cluster.nodes
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "cluster": self._cluster.cluster,
            "nodes": len(nodes.free),
            "processors": nodes.processors,
        }

    async def _do_submit(self, request: dict[str, Any]) -> dict[str, Any]:
        job, spec = _checked(request)
        return {"id": str(self._cluster.submit(job, spec))}

    async def _do_check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Refuses what `submit` would."""
        self._cluster.check(_checked(request)[0])
        return {}

    async def _do_list(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._cluster.listing()

    async def _do_wait(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers once something has changed, or after a while without."""
        since = int(request["since"])
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._cluster.wait_for_change(since), CHANGE_WAIT_S)
        return {"version": self._cluster.version}

    async def _do_find(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"ids": self._cluster.find([str(name) for name in request["names"]])}

    async def _do_cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        self._cluster.cancel(_numbers(request["ids"]))
        return {}

    async def _do_signal(self, request: dict[str, Any]) -> dict[str, Any]:
        for id in _numbers([request["id"]]):
            self._cluster.signal(id, int(request["number"]), str(request["to"]))
        return {}

    async def _do_update(self, request: dict[str, Any]) -> dict[str, Any]:
        walltime, hold = request["walltime_s"], request["hold"]
        numbers = _numbers([request["id"]])
        if not numbers:
            raise Refused(f"{request['id']!r} is not a job id of the embedded cluster")
        self._cluster.update(
            numbers[0],
            walltime_s=None if walltime is None else _walltime(walltime),
            hold=None if hold is None else bool(hold),
            begin_in_s=None if request.get("begin_in_s") is None else _ahead(request["begin_in_s"]),
        )
        return {}

    async def _do_outcomes(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"jobs": self._cluster.outcomes(_numbers(request["ids"]))}

    async def _do_leave(self, request: dict[str, Any]) -> dict[str, Any]:
        self._stop()
        return {}

    async def _do_down(self, request: dict[str, Any]) -> dict[str, Any]:
        await self._cluster.shut_down()
        self._stop()
        return {}


def _checked(request: dict[str, Any]) -> tuple[Job, dict[str, Any]]:
    """A submission as a job and what it is to run. Refused where it can never be right."""
    name, script = str(request["name"]), str(request["script"])
    texts = {"name": name, "comment": str(request["comment"])}
    for what, text in texts.items():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise Refused(f"the job's {what} is not valid UTF-8") from None
        if size > LONGEST_NAME:
            raise Refused(f"the job's {what} has {size} bytes; {LONGEST_NAME} are the most")
    environment = {str(key): str(value) for key, value in request["environment"].items()}
    paths = [request["workdir"], request["output"], request["error"] or "", request["input"]]
    words = (name, script, *environment, *environment.values(), *paths, *request.get("args", ()))
    if any("\0" in text for text in words):
        raise Refused("the job's name, script, environment or a path contains a NUL character")
    first = script.split("\n", 1)[0]
    if not first.startswith("#!") or not first[2:].strip():
        raise Refused("the script does not begin with a line #!/path/of/an/interpreter")
    if len(script) > LONGEST_SCRIPT:
        raise Refused(f"the script has {len(script)} characters; {LONGEST_SCRIPT} are the most")
    processors = request["processors"]
    if not isinstance(processors, int) or processors < 1:
        raise Refused(f"a job needs at least 1 processor, not {processors}")
    job = Job(
        id=0,
        name=name,
        comment=texts["comment"],
        user=pwd.getpwuid(os.getuid()).pw_name,
        folds=bool(request.get("folds")) and processors > 1,
        moves=bool(request.get("moves")),
        processors=processors,
        walltime_s=_walltime(request["walltime_s"]),
        state=BatchState.HELD if request["hold"] else BatchState.PENDING,
        submit_s=time.time(),
        begin_s=time.time() + _ahead(request.get("begin_in_s", 0.0)),
        layout=Layout.from_json(request["layout"]),
        eligible_s=float(request["eligible_s"]),
    )
    spec = {
        "script": script,
        "environment": environment,
        "workdir": str(request["workdir"]),
        "output": str(request["output"]),
        "error": None if request["error"] is None else str(request["error"]),
        "umask": int(request["umask"]),
        "args": [str(word) for word in request.get("args", ())],
        "limits": {str(name): int(limit) for name, limit in request.get("limits", {}).items()},
        "input": str(request["input"]),
        "append": bool(request["append"]),
        "signal": request["signal"],
        "tells": request["tells"],
    }
    return job, spec


def _walltime(value: Any) -> float:
    seconds = float(value)
    if not 0 < seconds < 2**31:
        raise Refused(f"a walltime must be longer than 0 s and shorter than 68 years, not {seconds:g} s")
    return float(math.ceil(seconds))


def _ahead(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < 2**31:
        raise Refused(f"a job can begin in up to 68 years, not in {seconds:g} s")
    return seconds


def _numbers(ids: list[Any]) -> list[int]:
    """Job numbers; what is none cannot be a job's id here and is passed over."""
    return [int(id) for id in map(str, ids) if id.isascii() and id.isdecimal() and len(id) < 19]


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    connection = writer.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


def _make_launcher(directory: Path) -> None:
    """`bin/srun`, the launcher that jobs find on their PATH."""
    (directory / "bin").mkdir(exist_ok=True)
    command = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).with_name("srun.py"))])
    temporary = directory / "bin" / "srun.tmp"
    temporary.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    temporary.chmod(0o755)
    temporary.rename(directory / "bin" / "srun")


async def _run(directory: Path, options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    nodes, processors = options.nodes, options.cpus
    pool = Pool(options.until, options.drain) if options.folds else None
    cluster = Cluster(directory, nodes, processors, time.time, pool=pool, names=options.names.split())
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    _make_launcher(directory)
    (directory / "jobs").mkdir(exist_ok=True)
    cluster.adopt()
    _SOCKET.unlink(missing_ok=True)  # noqa: ASYNC240
    listening = await asyncio.start_unix_server(
        Server(cluster, stopped.set).serve, path=_SOCKET, limit=LONGEST_REQUEST, backlog=1024
    )
    _SOCKET.chmod(0o600)  # noqa: ASYNC240
    log.info("listening", directory=str(directory), nodes=nodes, processors=processors, cluster=cluster.cluster)
    await stopped.wait()
    await asyncio.sleep(0)  # the answer to `down` goes out first
    listening.close()
    _SOCKET.unlink(missing_ok=True)  # noqa: ASYNC240
    cluster.close()


def main() -> int:
    """0 also where a server runs for this directory already; 2 where it cannot be started."""
    parser = argparse.ArgumentParser(prog="python -m ejbd.batch.local.server", description="embedded cluster")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--cpus", type=int, default=4, help="processors of each node")
    parser.add_argument("--folds", action="store_true", help="a pool: FCFS-malleable in place of EASY")
    parser.add_argument("--names", default="", help="of the nodes, in one word")
    parser.add_argument("--until", type=float, default=math.inf, help="epoch seconds: the pool ends then")
    parser.add_argument("--drain", type=float, default=0.0, help="seconds before it in which only what ends starts")
    options = parser.parse_args()
    if options.nodes < 1 or options.cpus < 1:
        parser.error("a cluster needs at least one node of one processor")
    os.umask(0o077)
    directory: Path = options.directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if stat.S_IMODE(directory.stat().st_mode) & 0o077:
            directory.chmod(0o700)
        os.chdir(directory)
        lock = open("server.lock", "a")  # noqa: SIM115 held for the life of this process
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"a server for {directory} is running already")
            return 0
        asyncio.run(_run(directory, options))
    except (Refused, OSError, sqlite3.Error) as error:
        print(f"ejbd.batch.local.server: {directory}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
