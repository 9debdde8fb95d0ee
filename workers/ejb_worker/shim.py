"""What runs where the user's script says `srun`, `mpirun` or `mpiexec`.

It hands the launch to the lead, waits for its end, wherever the ranks move meanwhile, and returns its code. What EJB
cannot hold is launched as it would be without EJB (plain_launch.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence

from .attributes import parse_limits, read_own_attributes
from .launch_options import Mistake, Request, Usage, parse
from .shimfolder import LINE, without_shims
from .shiminput import NotKept, kept_input

_REFUSED = 2
_FOLLOW_S = 0.1
_CANCEL_PATIENCE_S = 60.0
_TELL_PATIENCE_S = 5.0


def main(name: str, words: Sequence[str]) -> int:
    stdin: Optional[Dict[str, Any]] = None
    try:
        request = parse(name, list(words), _read_environment())
        stdin = kept_input(request)
        return _Launch(name, request, stdin).run()
    except Mistake as problem:
        return _refuse(name, str(problem))
    except NotKept as problem:
        return _launch_plainly(name, words, str(problem), problem.stdin)
    except Usage as problem:
        return _launch_plainly(name, words, str(problem), stdin)


def _read_environment() -> Dict[str, str]:
    """As the script has it: without what Python sets for itself in a C locale (LC_CTYPE)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = (entry.partition(b"=") for entry in file.read().split(b"\0"))
    except OSError:
        return dict(os.environ)
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in entries if name and equals}


def _launch_plainly(name: str, words: Sequence[str], why: str, stdin: Optional[Dict[str, Any]]) -> int:
    """Become the launcher itself, for a launch that EJB cannot hold; refused only where there is none."""
    from . import plain_launch  # few launches need it

    program = plain_launch.find_launcher(name, os.environ)
    _tell(name, why, plain=program is not None)
    if program is None:
        return _refuse(name, why)
    sys.stderr.flush()
    try:
        plain_launch.launch_plainly(name, program, words, stdin)
    except OSError as error:
        return _refuse(name, "%s, and %s cannot be run: %s" % (why, program, error.strerror))


def _tell(name: str, sentence: str, *, plain: bool) -> None:
    """Have the lead know of a launch that is not EJB's: a script with a refused one must not pass for completed."""
    path = os.environ.get("EJB_LAUNCH_SOCKET")
    if not path:
        return
    message = {"plain" if plain else "refused": sentence, "shim": name, "line": os.environ.get(LINE, "")}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lead:
            lead.settimeout(_TELL_PATIENCE_S)
            lead.connect(path)
            lead.sendall(json.dumps(message).encode("ascii") + b"\n")
            lead.recv(1)  # taken: the script goes on, and may end, only now
    except OSError:
        pass


def _refuse(name: str, sentence: str) -> int:
    sys.stderr.write("%s: %s (EJB)\n" % (name, sentence))
    return _REFUSED


def _limits_asked_for(text: str) -> List[str]:
    try:
        return parse_limits(text)
    except ValueError:
        raise Mistake("--propagate=%s is not valid" % text) from None


def _mask_of(text: str, otherwise: int) -> int:
    try:
        return int(text, 8)
    except ValueError:
        return otherwise


class _Follower:
    """Copies a growing file to a descriptor: the output of a launch that the script redirected."""

    def __init__(self, path: str, descriptor: int) -> None:
        self._path = path
        self._target = descriptor
        self._offset = 0

    def copy(self) -> None:
        """What is there now. Raises BrokenPipeError where nothing reads any more."""
        try:
            with open(self._path, "rb") as source:
                source.seek(self._offset)
                while True:
                    data = source.read(65536)
                    if not data:
                        return
                    self._offset += len(data)
                    view = memoryview(data)
                    while view:
                        view = view[os.write(self._target, view) :]
        except FileNotFoundError:
            return


class _Launch:
    def __init__(self, name: str, request: Request, stdin: Optional[Dict[str, Any]]) -> None:
        self._name = name
        self._stdin = stdin
        self._request = request
        self._attributes = read_own_attributes()
        self._propagate = None if request.propagate is None else _limits_asked_for(request.propagate)
        self._told = dict(request.told)
        if name == "srun":
            own, mask = self._attributes["umask"], request.env.get("SLURM_UMASK", "")
            self._attributes["umask"] = umask = _mask_of(mask, own)
            self._told.update(SLURM_UMASK="0%03o" % umask, SLURM_PRIO_PROCESS=str(self._attributes["nice"]))
        self._signal = 0
        self._cancelled_s = 0.0
        self._received = b""
        self._followers: List[_Follower] = []

    def run(self) -> int:
        path = os.environ.get("EJB_LAUNCH_SOCKET")
        if not path:
            return _refuse(self._name, "there is no lead to launch from here: only the job's own script can launch")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lead:
            try:
                lead.connect(path)
                lead.sendall(self._message())
            except OSError as error:
                return _refuse(self._name, "the lead of this job does not answer: %s" % error.strerror)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(signum) != signal.SIG_IGN:
                    signal.signal(signum, self._interrupted)
            wake_read, wake_write = os.pipe()
            os.set_blocking(wake_write, False)
            signal.set_wakeup_fd(wake_write)
            return self._wait(lead, wake_read)

    def _message(self) -> bytes:
        request = self._request
        out, err = ([s.st_dev, s.st_ino] for s in (os.fstat(1), os.fstat(2)))
        message = {
            "shim": self._name,
            "line": os.environ.get(LINE, ""),
            "argv": request.argv,
            "cwd": request.cwd,
            "env": without_shims(request.env),
            "attributes": self._attributes,
            "propagate": self._propagate,
            "size": request.size,
            "threads": request.threads,
            "spread": request.spread,
            "even": request.even,
            "dealt": request.dealt,
            "told": self._told,
            "together": request.together,
            "time": request.time,
            "stdin": self._stdin,
            "inodes": {"stdout": out, "stderr": err},
            "same_file": out == err,
        }
        return json.dumps(message).encode("ascii") + b"\n"

    def _interrupted(self, signum: int, _frame: Any) -> None:
        if self._signal:
            os._exit(128 + signum)  # asked for twice
        self._signal = signum

    def _wait(self, lead: socket.socket, wake: int) -> int:
        code: Optional[int] = None
        while code is None:
            if self._signal and not self._cancelled_s:
                self._cancelled_s = time.monotonic()
                try:
                    lead.sendall(b'{"cancel": true}\n')
                except OSError:
                    return 128 + self._signal
            if self._cancelled_s and time.monotonic() - self._cancelled_s > _CANCEL_PATIENCE_S:
                break
            timeout = _FOLLOW_S if self._followers else (1.0 if self._cancelled_s else None)
            ready, _, _ = select.select([lead.fileno(), wake], [], [], timeout)
            if wake in ready:
                os.read(wake, 4096)
            if lead.fileno() in ready:
                code = self._read(lead)
            self._follow()
        if self._signal:
            return 128 + self._signal
        return code if code is not None else 1

    def _read(self, lead: socket.socket) -> Optional[int]:
        try:
            data = lead.recv(65536)
        except OSError:
            data = b""
        if not data and self._signal:
            return 128 + self._signal  # the whole job is being ended
        if not data:
            sys.stderr.write("%s: the lead of this job has ended (EJB)\n" % self._name)
            return 1
        self._received += data
        while b"\n" in self._received:
            line, self._received = self._received.split(b"\n", 1)
            answer = json.loads(line.decode("ascii"))
            if "refused" in answer:
                return _refuse(self._name, str(answer["refused"]))
            if "plain" in answer:
                raise Usage(str(answer["plain"]))
            if "files" in answer:
                self._start_following(answer["files"])
            if "code" in answer:
                self._follow()  # its ranks' last words come before ours
                for sentence in answer.get("say") or ():
                    sys.stderr.write("%s: error: %s (%s)\n" % (self._name, sentence, self._request.argv[0]))
                return int(answer["code"])
        return None

    def _start_following(self, files: Dict[str, str]) -> None:
        targets = {"stdout": 1, "stderr": 2}
        seen = set()
        for stream in ("stdout", "stderr"):
            path = files.get(stream)
            if path is not None and path not in seen:
                seen.add(path)
                self._followers.append(_Follower(path, targets[stream]))

    def _follow(self) -> None:
        for follower in list(self._followers):
            try:
                follower.copy()
            except BrokenPipeError:
                # As for any program: nothing reads, so the launch is not wanted any more.
                self._followers.remove(follower)
                self._signal = self._signal or signal.SIGPIPE
