"""A spool that only the daemon that leads writes to: as :mod:`ejbd.batch.fenced` has it for batch commands.

A daemon that stood still while another one took over would else write over what that one has written since: where
workers find the daemon, or the files of a subjob.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from ejbd.errors import EjbError
from ejbd.manager.hands.files import Files

Prove = Callable[[], None]
"""Returns where this daemon leads. Raises EjbError: CONFLICT where another one does, STORE where that is not known."""


class FencedFiles:
    """The same files, but that each change is made only by the daemon that leads."""

    def __init__(self, files: Files, prove: Prove) -> None:
        self._files = files
        self._prove = prove

    def folder(self, path: Path) -> None:
        self._prove()
        self._files.folder(path)

    def put(self, path: Path, data: bytes, mode: int = 0o600) -> None:
        self._prove()
        self._files.put(path, data, mode)

    def read(self, path: Path, most: int) -> tuple[bytes, float]:
        return self._files.read(path, most)

    def link(self, path: Path, name: str) -> None:
        try:
            self._prove()
        except EjbError as error:
            raise OSError(errno.EPERM, error.sentence()) from error
        self._files.link(path, name)

    def names(self, folder: Path) -> set[str]:
        return self._files.names(folder)

    def there(self, path: Path) -> bool:
        return self._files.there(path)

    def remove(self, path: Path) -> None:
        try:
            self._prove()
        except EjbError:
            return  # it stays, as what cannot be deleted does
        self._files.remove(path)
