"""DMTCP's commands: where they are, which version they are of, and how they are called."""

from __future__ import annotations

import os
import re
import subprocess
import time
import zlib
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .base import EngineError, EpochContext

COMMANDS = ("dmtcp_launch", "dmtcp_restart", "dmtcp_command", "dmtcp_coordinator")
OLDEST = (5, 0)
"""Of the releases before, 4.2.0 writes no images at a blocking checkpoint and 2.6.0 crashes on current kernels."""

WHERE = "users install it from https://github.com/dmtcp/dmtcp (main branch)"

COMMAND_TIMEOUT_S = 20.0
PORT_FILE_TIMEOUT_S = 10.0

_sums: Dict[str, str] = {}
_found: Dict[str, Tuple[Optional["Tools"], str]] = {}


class Tools:
    """One installation. `version` is what it says of itself."""

    __slots__ = ("folder", "version")

    def __init__(self, folder: str, version: str) -> None:
        self.folder = folder
        self.version = version

    def path(self, command: str) -> str:
        return os.path.join(self.folder, command)

    @property
    def library(self) -> str:
        """The library that a plugin has to match."""
        return os.path.join(os.path.dirname(self.folder), "lib", "dmtcp", "libdmtcp.so")


def find_tools(path: Optional[str] = None) -> Tuple[Optional[Tools], str]:
    """The DMTCP of this node, or why there is none that can be used. Looked for once."""
    search = os.environ.get("PATH", os.defpath) if path is None else path
    if search not in _found:
        _found[search] = _look(search)
    return _found[search]


def tools() -> Tools:
    """Raises EngineError where there are none."""
    found, why = find_tools()
    if found is None:
        raise EngineError(why)
    return found


def library_sum() -> str:
    """What tells this DMTCP's library from any other build of it. Raises EngineError or OSError."""
    path = tools().library
    if path not in _sums:
        total = 0
        with open(path, "rb") as library:
            for chunk in iter(lambda: library.read(1 << 20), b""):
                total = zlib.crc32(chunk, total)
        _sums[path] = "%08x" % total
    return _sums[path]


def build_of_node() -> Optional[Dict[str, str]]:
    """What a plugin has to match on this node; None without DMTCP. `library` is empty where it cannot be read."""
    found, _why = find_tools()
    if found is None:
        return None
    try:
        library = library_sum()
    except OSError:
        library = ""
    return {"version": found.version, "library": library, "machine": os.uname().machine}


def _look(search: str) -> Tuple[Optional[Tools], str]:
    for folder in search.split(os.pathsep):
        launch = os.path.join(folder, "dmtcp_launch")
        if os.path.isfile(launch) and os.access(launch, os.X_OK):
            break
    else:
        return None, "dmtcp_launch is not on PATH on this node; " + WHERE
    folder = os.path.dirname(os.path.realpath(launch))
    missing = [name for name in COMMANDS if not os.access(os.path.join(folder, name), os.X_OK)]
    if missing:
        return None, "DMTCP in %s is not whole: %s is missing" % (folder, ", ".join(missing))
    try:
        said = subprocess.run(
            [launch, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError) as error:
        return None, "%s does not run: %s" % (launch, error)
    found = re.search(r"\b(\d+(?:\.\d+)+\S*)", said)
    if found is None:
        return None, "%s does not tell its version" % launch
    version = found.group(1)
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        needed = ".".join(str(number) for number in OLDEST)
        return None, "DMTCP %s in %s is too old: %s or later is needed; %s" % (version, folder, needed, WHERE)
    return Tools(folder, version), ""


def clean(env: Mapping[str, str]) -> Dict[str, str]:
    """An environment without what another DMTCP, around us, has left there."""
    return {name: value for name, value in env.items() if not name.startswith(("DMTCP_", "MTCP_"))}


class Status:
    """What `dmtcp_command -s` says."""

    __slots__ = ("peers", "running")

    def __init__(self, peers: int, running: bool) -> None:
        self.peers = peers
        self.running = running


def read_status(text: str) -> Optional[Status]:
    peers = re.search(r"NUM_PEERS=(\d+)", text)
    running = re.search(r"RUNNING=(\w+)", text)
    if peers is None or running is None:
        return None
    return Status(int(peers.group(1)), running.group(1).lower() == "yes")


class Commander:
    """Sends commands to one coordinator: one at a time, since two at once have hung one of them for good."""

    def __init__(self, epoch: EpochContext, host: str, port: int) -> None:
        self._epoch = epoch
        self._target = ["--coord-host", host, "--coord-port", str(port)]
        self._child: Any = None
        self._until = 0.0
        self._offset = 0
        self._log = os.path.join(epoch.folder, "dmtcp-command-%s.log" % epoch.node)

    @property
    def busy(self) -> bool:
        return self._child is not None

    def send(self, command: str, timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        """Begin one; `result` gets how it ended."""
        if self._child is not None:
            raise EngineError("a DMTCP command is under way already")
        try:
            self._offset = os.path.getsize(self._log)
        except OSError:
            self._offset = 0
        words: List[str] = [tools().path("dmtcp_command"), *self._target, command]
        self._child = self._epoch.run_tool("dmtcp-command", words, clean(os.environ), lambda _code: None)
        self._until = time.monotonic() + timeout_s

    def result(self) -> Optional[Tuple[int, str]]:
        """Exit code and output of the command that was sent, once it has ended. Only the code is to be trusted."""
        child = self._child
        if child is None:
            return None
        if child.code is None:
            if time.monotonic() > self._until:
                child.send_group(9)
            return None
        self._child = None
        try:
            with open(self._log, "rb") as log:
                log.seek(self._offset)
                text = log.read(65536).decode("utf-8", "replace")
        except OSError:
            text = ""
        return int(child.code), text
