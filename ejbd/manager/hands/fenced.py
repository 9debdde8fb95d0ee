"""A spool that is written to only where that is right: as :mod:`ejbd.batch.fenced` has it for batch commands.

A daemon that stood still while another one took over would else write over what that one has written since: where
workers find the daemon, or the files of a subjob. And where the spool's file system is away, what is written lies on
the disk below.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from ejbd.errors import Code, EjbError
from ejbd.manager.hands.files import Files

Prove = Callable[[], None]
"""Returns where this daemon leads, and has its spool.

Raises EjbError: CONFLICT where another daemon leads, STORE where that is not known, SPOOL where the spool is away.
"""


def _trust(path: Path) -> None:
    """What is not known to be silent is asked."""


class FencedFiles:
    """The same files, but that each change is proved first. `answers` raises OSError where the spool does not."""

    def __init__(self, files: Files, prove: Prove, answers: Callable[[Path], None] = _trust) -> None:
        self._files = files
        self._prove = prove
        self._answers = answers

    def folder(self, path: Path) -> None:
        self._prove()
        self._files.folder(path)

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        self._prove()
        self._files.put(path, data, mode)

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        self._answers(path)
        return self._files.read(path, most)

    def link(self, path: Path, name: str) -> None:
        try:
            self._prove()
        except EjbError as error:
            raise OSError(errno.EIO, error.sentence()) from error
        self._files.link(path, name)

    def names(self, folder: Path) -> set[str]:
        self._answers(folder)
        return self._files.names(folder)

    def there(self, path: Path) -> bool:
        try:
            self._answers(path)
        except OSError as error:
            raise EjbError(Code.SPOOL, f"cannot be seen: {error.strerror}", where=str(path), transient=True) from error
        return self._files.there(path)

    def remove(self, path: Path) -> None:
        try:
            self._prove()
        except EjbError:
            return  # it stays, as what cannot be deleted does
        self._files.remove(path)
