"""Reading what users may have put there: reports, exit files, launches, programs, outputs.

A job runs as its user and may leave anything in the place of a file. It may be a FIFO without a writer, a link to
/dev/zero, ten sparse terabytes, a folder, or a file system that never answers. So all that is read from where jobs can
write goes through here. It is opened without waiting, has to be a regular file of the right owner, and is read no
further than is wanted. A thread of its own reads it, and is left alone where it does not come back.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

PATIENCE_S = 10.0
MOST_STUCK = 32  # threads that wait for file systems which do not answer
IDLE_S = 10.0  # that a thread waits for another look

OF_ONE = MOST_STUCK // 4  # of them, that one user's files may keep; further looks at that user's files wait
WAIT_S = 0.02  # between two tries to have one of these

AT_ONCE = 8  # users for which files are read side by side

T = TypeVar("T")
_stuck = threading.BoundedSemaphore(MOST_STUCK)
_of_users: Counter[str] = Counter()  # threads at work, by user
_counting = threading.Lock()
_idle: deque[SimpleQueue[Callable[[], None]]] = deque()  # threads with nothing to do, the latest last
os.register_at_fork(after_in_child=_idle.clear)  # none of them is in a child


class NotPlain(OSError):
    """Something else than a regular file."""


class NotTheirs(OSError):
    """A file of another owner."""


def read_plain(
    path: Path | str, most: int, *, owner: int | None = None, offset: int = 0, follow: bool = False
) -> tuple[bytes, os.stat_result]:
    """Up to `most` bytes of a regular file from `offset` on, and what the file is.

    `owner`: the user id it must belong to (None: any). `follow`: whether the last part of the path may be a link.
    Raises OSError (NotPlain, NotTheirs, FileNotFoundError, ...). Never waits for the other end of anything.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket, or a device without a driver
            raise NotPlain(error.errno, "not a regular file", str(path)) from None
        raise
    except ValueError:
        raise NotPlain(errno.EINVAL, "not the name of a file", repr(path)) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotPlain(errno.EINVAL, "not a regular file", str(path))
        if owner is not None and found.st_uid != owner:
            raise NotTheirs(errno.EPERM, "a file of another user", str(path))
        parts: list[bytes] = []
        left = most
        while left > 0 and (part := os.pread(descriptor, min(left, 1 << 20), offset)):
            parts.append(part)
            offset += len(part)
            left -= len(part)
        return b"".join(parts), found
    finally:
        os.close(descriptor)


def within(work: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `work` returns, from a thread of its own. Raises TimeoutError where it does not come back in time."""
    try:
        return begin_apart(work).result(patience_s)
    except FutureTimeout:
        raise TimeoutError(errno.ETIMEDOUT, "the file system does not answer") from None


async def apart(work: Callable[[], T], patience_s: float = PATIENCE_S, user: str = "") -> T:
    """:func:`within` for the event loop, which goes on meanwhile. `user`: the one with the files ("": not known)."""
    until_s = time.monotonic() + patience_s
    while not _has_share(user):
        if time.monotonic() >= until_s:
            raise TimeoutError(errno.ETIMEDOUT, f"the files of {user} do not come")
        await asyncio.sleep(WAIT_S)
    return await asyncio.wait_for(asyncio.wrap_future(_begin(work, user)), max(0.0, until_s - time.monotonic()))


async def each_apart(works: Iterable[tuple[str, Callable[[], T]]]) -> list[T | None]:
    """What each returns, side by side, some at a time, beside its user; None of what does not come back in time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(user: str, work: Callable[[], T]) -> T | None:
        async with turns:
            try:
                return await apart(work, user=user)
            except TimeoutError:
                return None

    return list(await asyncio.gather(*(one(user, work) for user, work in works)))


def begin_apart(work: Callable[[], T]) -> Future[T]:
    """Begin `work` in a thread that counts for no user. Raises TimeoutError where too many threads are stuck."""
    _has_share("")
    return _begin(work, "")


def _has_share(user: str) -> bool:
    """Whether there is a thread for one more look at this user's files, which is counted then."""
    with _counting:
        if user and _of_users[user] >= OF_ONE:
            return False
        _of_users[user] += 1
        return True


def _give_back(user: str) -> None:
    with _counting:
        _of_users[user] -= 1
        if not _of_users[user]:
            del _of_users[user]


def _begin(work: Callable[[], T], user: str) -> Future[T]:
    """In a thread that is not waited for at the end of the process, as those of an executor are."""
    room = _stuck
    if not room.acquire(blocking=False):
        _give_back(user)
        raise TimeoutError(errno.ETIMEDOUT, "too many file systems do not answer")
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            _answer(future, error=error)
        else:
            _answer(future, result=result)
        finally:
            room.release()
            _give_back(user)

    try:
        todo = _idle.pop()
    except IndexError:
        todo = SimpleQueue()
        threading.Thread(target=_serve, args=(todo,), name="user-files", daemon=True).start()
    todo.put(run)
    return future


def _serve(todo: SimpleQueue[Callable[[], None]]) -> None:
    """A thread is kept for the next look: the start of one stops the event loop until the new one has run."""
    while True:
        try:
            run = todo.get(timeout=IDLE_S)
        except Empty:
            try:
                _idle.remove(todo)
            except ValueError:
                continue  # it was just taken: there is work in a moment
            return
        run()
        _idle.append(todo)


def _answer(future: Future[T], *, result: T | None = None, error: BaseException | None = None) -> None:
    if not future.set_running_or_notify_cancel():
        return  # the caller has given it up
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]
