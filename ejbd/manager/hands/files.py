"""Files in the spool of one user, made, read and deleted as that user: by the daemon itself, or by `ejb-as`."""

from __future__ import annotations

import base64
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import read_plain
from ejbd.identity.sessions import Answer, Helper


class Files(Protocol):
    """Paths are whole ones, below the spool. None of the calls waits for ever."""

    def folder(self, path: Path) -> None:
        """Make a folder (0700), and those above it. Raises EjbError (SPOOL)."""
        ...

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        """Write `data` so that `path` is either what it was or all of it. Raises EjbError (SPOOL)."""
        ...

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        """Up to `most` bytes of a regular file of the user's, and when it was last changed (epoch seconds).

        Raises OSError.
        """
        ...

    def link(self, path: Path, name: str) -> None:
        """Give a file a second name in its folder, which must not be there yet. Raises OSError."""
        ...

    def names(self, folder: Path) -> set[str]:
        """What is in a folder. Raises OSError."""
        ...

    def there(self, path: Path) -> bool:
        """Whether a file or a folder is there and can be read."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file, or a folder with all that is in it. What is not there, or cannot be deleted, stays so."""
        ...


Reads = Callable[[Path, int], tuple[bytes, float]]
"""As :meth:`Files.read`, in whichever user's spool."""


_PASSES = (errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)


@contextmanager
def spool_faults(path: Path, hint: str = "the daemon must own its spool") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise EjbError(
            Code.SPOOL,
            f"cannot write: {error.strerror}",
            where=str(path),
            transient=full or error.errno in _PASSES,
            hint="free space on the spool's file system" if full else hint,
        ) from error


class OwnFiles:
    """By the daemon itself, as its own user."""

    def folder(self, path: Path) -> None:
        with spool_faults(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        # A new file under a name that cannot be guessed: a FIFO put there would hold us up, a link lead us elsewhere.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with spool_faults(path):
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        data, found = read_plain(path, most, owner=os.geteuid())
        return data, found.st_mtime

    def link(self, path: Path, name: str) -> None:
        os.link(path, path.with_name(name))

    def names(self, folder: Path) -> set[str]:
        return {one.name for one in folder.iterdir()}

    def there(self, path: Path) -> bool:
        return path.exists()

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


OWN_FILES = OwnFiles()
HINT = "the spool must be the user's alone, mode 0700, in a folder that is the user's or root's"


class UsersFiles:
    """By ejb-as, as `user`, in that user's spool."""

    def __init__(self, helper: Helper, user: str) -> None:
        self._helper = helper
        self._user = user
        self._root = helper.spools.of(user)

    def folder(self, path: Path) -> None:
        inner = [] if path == self._root else [self._inner(path)]
        with self._faults(path):
            self._helper.ask(self._user, "prepare", folders=inner)

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        with self._faults(path):
            text = base64.b64encode(data).decode()
            self._helper.ask(self._user, "put", path=self._inner(path), data=text, mode=mode)

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        return self._helper.read(path, most)

    def link(self, path: Path, name: str) -> None:
        with self._as_os_error():
            self._helper.ask(self._user, "put", path=self._inner(path.with_name(name)), link=path.name)

    def names(self, folder: Path) -> set[str]:
        return set(self._asked(folder)["names"])

    def there(self, path: Path) -> bool:
        try:
            self._asked(path)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise EjbError(Code.SPOOL, f"cannot be seen: {error.strerror}", where=str(path), transient=True) from error
        return True

    def remove(self, path: Path) -> None:
        try:
            self._helper.ask(self._user, "remove", path=self._inner(path))
        except (OSError, EjbError):
            pass

    def _asked(self, path: Path) -> Answer:
        with self._as_os_error():
            return self._helper.ask(self._user, "read", path=self._inner(path))

    def _inner(self, path: Path) -> str:
        return str(path.relative_to(self._root))

    @contextmanager
    def _faults(self, path: Path) -> Iterator[None]:
        with spool_faults(path, HINT):
            try:
                yield
            except EjbError as error:
                again = error.transient
                raise EjbError(Code.SPOOL, error.message, where=str(path), hint=error.hint, transient=again) from error

    @contextmanager
    def _as_os_error(self) -> Iterator[None]:
        """What reads files is used to errors of the operating system."""
        try:
            yield
        except EjbError as error:
            raise OSError(errno.EIO if error.transient else errno.EPERM, error.sentence()) from error
