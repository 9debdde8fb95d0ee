"""The daemon's end of `ejb-as`: sessions that each act for one user, kept for a burst of that user's work."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ejbd.errors import Code, EjbError
from ejbd.identity.settings import HelperSettings
from ejbd.identity.spools import SpoolPattern

PATIENCE_S = 10.0  # for an answer about files; batch commands have their own time-outs
KEPT_S = 15.0  # a session without work is ended; ejb-as itself would do it after a minute
LASTS_S = 60.0  # then the account is looked at anew: it may have expired, or have other groups
IDLE_EACH = 2  # sessions that may have no work, for each that may have some; ejb-as takes up to 256 in all
LOOK_AGAIN_S = 0.02  # whether one of a user's threads has come free
MOST_REQUESTS = 5000  # of a session; ejb-as takes twice as many
SILENT_S = (15.0, 60.0, 300.0)  # a user is not asked for so long where its sessions do not answer
_ONCE = frozenset({"submit"})  # what must not be asked again where the answer was lost
Answer = dict[str, Any]


class NoAnswer(EjbError):
    """The session broke before the answer came: what was asked for may have been done. `in_time`: it broke by itself,
    and was not given up for its silence."""

    def __init__(self, user: str, verb: str, why: str, *, in_time: bool = True) -> None:
        self.in_time = in_time
        message = f"the answer of ejb-as for {user} ({verb}) did not come: {why}"
        super().__init__(Code.INTERNAL, message, transient=True, hint="its lines in syslog say more")


class UsersSessionsAway(EjbError):
    """What is amiss with one user's sessions alone, which that user can stop: nothing was done."""

    def __init__(self, user: str, why: str) -> None:
        hint = f"look at the processes of {user} on the daemon's machine, and at the file system of the spool"
        super().__init__(Code.INTERNAL, f"ejb-as does nothing for {user} now: {why}", transient=True, hint=hint)


def not_reached(why: str) -> EjbError:
    """Nothing was done, since there is no session."""
    hint = "systemctl status ejb-as.socket, or `helper` in the configuration; `ejb doctor` tries it"
    return EjbError(Code.INTERNAL, f"ejb-as cannot be reached: {why}", transient=True, hint=hint)


@dataclass(slots=True)
class _Session:
    end: socket.socket
    answers: BinaryIO
    child: subprocess.Popen[bytes] | None = None
    requests: int = 0
    used_s: float = field(default_factory=time.monotonic)
    begun_s: float = field(default_factory=time.monotonic)

    def is_over(self, now: float) -> bool:
        return now - self.used_s >= KEPT_S or now - self.begun_s >= LASTS_S

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Answer:
        """One request, one answer. Raises OSError or ValueError where there is no whole answer."""
        self.requests += 1
        self.end.settimeout(timeout_s)
        self.end.sendall(json.dumps(request).encode() + b"\n")
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the session has ended")
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise ValueError("it is no object")
        self.used_s = time.monotonic()
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.answers.close()
            self.end.close()
        if self.child is not None:
            threading.Thread(target=self.child.wait, name="ejb-as-end", daemon=True).start()


@dataclass(slots=True)
class _Trouble:
    """Answers of one user's sessions that did not come in time, in a row, and until when it is not asked."""

    times: int = 0
    until_s: float = 0.0


class Helper:
    """`command` (nothing: `socket_path`) leads to ejb-as. Blocking and asynchronous calls; from any thread.

    A session runs as its user, and so that user can stop or kill it. One user has a quarter of the sessions at most,
    and a user is not asked for a while where its sessions do not answer, so that no other user waits for that one.
    """

    def __init__(
        self, socket_path: Path, command: Sequence[str], spool: str, sessions: int = 16, systems: Collection[str] = ()
    ) -> None:
        """`systems`: one of these has to be the batch system that ejb-as knows (none: whichever it is)."""
        self.spools = SpoolPattern(spool)
        self._socket_path = socket_path
        self._command = list(command)
        self._systems = systems
        self._room = threading.BoundedSemaphore(sessions)
        self._most_idle = IDLE_EACH * sessions
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Session]] = {}
        self._of_user = max(1, sessions // 4)
        self._at_work: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()  # threads of the event loop's requests, by user
        self._changed = threading.Condition(self._lock)
        self._silent: dict[str, _Trouble] = {}
        self._threads = ThreadPoolExecutor(sessions, thread_name_prefix="ejb-as")

    @classmethod
    def made(cls, settings: HelperSettings, systems: Collection[str] = ()) -> Helper:
        return cls(settings.socket, settings.command, settings.spool, settings.sessions, systems)

    def ask(self, user: str, verb: str, *, answer_s: float = PATIENCE_S, **fields: Any) -> Answer:
        """What ejb-as answers, within `answer_s`.

        Raises EjbError where it refuses (FORBIDDEN) or is not reached (INTERNAL, nothing was done), NoAnswer where that
        is not known, UsersSessionsAway where this user's sessions are in trouble (nothing was done), and OSError where
        the operating system refused the user.
        """
        with self._share_of(user, answer_s):
            if not self._room.acquire(timeout=answer_s):
                raise not_reached("all its sessions are at work")
            try:
                answer = self._answer(user, verb, {"verb": verb, **fields}, answer_s)
            finally:
                self._room.release()
        if answer.get("ok") is True:
            return answer
        if isinstance(number := answer.get("errno"), int):
            raise OSError(number, str(answer.get("error")), str(fields.get("path", "")))
        raise EjbError(Code.FORBIDDEN, f"ejb-as does not do this for {user}: {answer.get('error')}")

    def read(self, path: Path, most: int, user: str | None = None, offset: int = 0) -> tuple[bytes, float]:
        """Up to `most` bytes of a file from `offset` on, and when it was last changed (epoch seconds).

        Of the user that has this spool; with `user`, of any file that this user may read. Raises OSError.
        """
        inner = str(path)
        if user is None:
            user = self.spools.user_at(path)
            if user is None:
                raise FileNotFoundError(errno.ENOENT, "in no user's spool", str(path))
            inner = str(path.relative_to(self.spools.of(user)))
        try:
            answer = self.ask(user, "read", path=inner, most=most, offset=offset)
        except EjbError as error:
            raise OSError(errno.EIO if error.transient else errno.EPERM, error.message, str(path)) from error
        if "data" not in answer:
            raise IsADirectoryError(errno.EISDIR, "a folder", str(path))
        return base64.b64decode(answer["data"]), float(answer["mtime"])

    async def asked(self, user: str, verb: str, *, answer_s: float, **fields: Any) -> Answer:
        """:meth:`ask` for the event loop. What is under way when the caller is cancelled goes on to its end.

        A user has as many threads as sessions: further requests for that user wait for one here.
        """
        until_s = time.monotonic() + answer_s
        while not self._has_thread(user):
            if time.monotonic() >= until_s:
                raise UsersSessionsAway(user, f"all {self._of_user} sessions that it may have are at work")
            await asyncio.sleep(LOOK_AGAIN_S)
        work = self._threads.submit(partial(self.ask, user, verb, answer_s=answer_s, **fields))
        work.add_done_callback(lambda _: self._thread_ends(user))
        return await asyncio.wrap_future(work)

    def _has_thread(self, user: str) -> bool:
        with self._lock:
            if self._asked[user] >= self._of_user:
                return False
            self._asked[user] += 1
            return True

    def _thread_ends(self, user: str) -> None:
        with self._lock:
            self._asked[user] -= 1
            if not self._asked[user]:
                del self._asked[user]

    def examined(self) -> tuple[str, bool, str]:
        """A check for `ejb doctor`: it answers, and refuses to act for root."""
        try:
            self.ask("root", "prepare")
        except EjbError as error:
            good = error.code is Code.FORBIDDEN
            return "ejb-as", good, "it answers, and refuses root" if good else error.sentence()
        except OSError as error:
            return "ejb-as", False, f"it acts for root ({error.strerror}): install the one of this version"
        return "ejb-as", False, "it acts for root: install the one of this version"

    def close(self) -> None:
        """End the sessions that have no work."""
        with self._lock:
            idle, self._idle = [one for some in self._idle.values() for one in some], {}
        for session in idle:
            session.close()
        self._threads.shutdown(wait=False)

    @contextlib.contextmanager
    def _share_of(self, user: str, timeout_s: float) -> Iterator[None]:
        """One of the sessions that this user may have. Raises UsersSessionsAway."""
        with self._changed:
            trouble = self._silent.get(user)
            if trouble is not None and (left_s := trouble.until_s - time.monotonic()) > 0:
                raise UsersSessionsAway(user, f"its sessions did not answer in time; tried again in {left_s:.0f} s")
            if not self._changed.wait_for(lambda: self._at_work[user] < self._of_user, timeout_s):
                raise UsersSessionsAway(user, f"all {self._of_user} sessions that it may have are at work")
            self._at_work[user] += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work[user] -= 1
                if not self._at_work[user]:
                    del self._at_work[user]
                self._changed.notify_all()

    def _was_silent(self, user: str) -> None:
        with self._lock:
            now = time.monotonic()
            self._silent = {name: one for name, one in self._silent.items() if now - one.until_s < SILENT_S[-1]}
            trouble = self._silent.setdefault(user, _Trouble())
            if now >= trouble.until_s:  # of several that were under way together the first counts
                trouble.until_s = now + SILENT_S[min(trouble.times, len(SILENT_S) - 1)]
                trouble.times += 1

    def _answer(self, user: str, verb: str, request: Mapping[str, Any], timeout_s: float) -> Answer:
        kept = self._kept(user)
        if kept is not None:
            try:
                return self._answer_in(kept, user, verb, request, timeout_s)
            except NoAnswer as error:
                if verb in _ONCE or not error.in_time:
                    raise
        return self._answer_in(self._begun(user, timeout_s), user, verb, request, timeout_s)

    def _answer_in(
        self, session: _Session, user: str, verb: str, request: Mapping[str, Any], timeout_s: float
    ) -> Answer:
        try:
            answer = session.ask(request, timeout_s)
        except (OSError, ValueError) as error:
            session.close()
            if silent := isinstance(error, TimeoutError):
                self._was_silent(user)
            raise NoAnswer(user, verb, str(error), in_time=not silent) from None
        if user in self._silent:
            with self._lock:
                self._silent.pop(user, None)
        if session.requests < MOST_REQUESTS:
            with self._lock:
                self._idle.setdefault(user, []).append(session)
                over = self._beyond()
        else:
            over = [session]
        for one in over:
            one.close()
        return answer

    def _beyond(self) -> list[_Session]:
        """Of more sessions without work than may be kept those that have had none for the longest; they are kept no
        more. Where hundreds of users come at once, each would else hold a process for `KEPT_S`."""
        idle = sorted((one.used_s, name) for name, some in self._idle.items() for one in some)
        found = []
        for _, name in idle[: max(0, len(idle) - self._most_idle)]:
            found.append(self._idle[name].pop(0))
            if not self._idle[name]:
                del self._idle[name]
        return found

    def _kept(self, user: str) -> _Session | None:
        """A session of this user's; those of all users that have had no work for long are ended."""
        now, over, found = time.monotonic(), [], None
        with self._lock:
            for name, sessions in list(self._idle.items()):
                over += [one for one in sessions if one.is_over(now)]
                fresh = [one for one in sessions if not one.is_over(now)]
                if name == user and fresh:
                    found = fresh.pop()
                self._idle[name] = fresh
                if not fresh:
                    del self._idle[name]
        for session in over:
            session.close()
        return found

    def _begun(self, user: str, timeout_s: float) -> _Session:
        try:
            session = self._connected(timeout_s)
        except OSError as error:
            raise not_reached(error.strerror or str(error)) from None
        try:
            answer = session.ask({"user": user}, timeout_s)
        except TimeoutError:
            session.close()
            self._was_silent(user)
            raise UsersSessionsAway(user, "a new session did not answer in time") from None
        except (OSError, ValueError) as error:
            session.close()
            raise not_reached(str(error)) from None
        if answer.get("ok") is not True:
            session.close()
            raise EjbError(Code.FORBIDDEN, f"ejb-as does not act for {user}: {answer.get('error')}")
        if answer.get("spool") != str(self.spools.of(user)):
            session.close()
            hint = "`spool` in [helper] and in ejb-as.json must say the same"
            raise EjbError(Code.CONFLICT, f"ejb-as has another spool for {user}: {answer.get('spool')}", hint=hint)
        if self._systems and (system := answer.get("batch", "slurm")) not in self._systems:
            session.close()
            hint = f"`batch` in ejb-as.json must be {' or '.join(self._systems)}"
            raise EjbError(Code.CONFLICT, f"ejb-as acts at another batch system: {system}", hint=hint)
        return session

    def _connected(self, timeout_s: float) -> _Session:
        if not self._command:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                end.settimeout(timeout_s)
                end.connect(str(self._socket_path))
            except OSError:
                end.close()
                raise
            return _Session(end, end.makefile("rb"))
        end, other = socket.socketpair()
        try:
            pipe = other.fileno()
            silent, plain = subprocess.DEVNULL, {"PATH": os.defpath}
            child = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=silent, env=plain)
        except OSError:
            end.close()
            raise
        finally:
            other.close()
        return _Session(end, end.makefile("rb"), child)
