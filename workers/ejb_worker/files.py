"""Reading and writing the small files of the spool."""

from __future__ import annotations

import json
import os
from typing import Any, Dict


def read_json(path: str) -> Dict[str, Any]:
    """The object in a JSON file. Raises OSError, or ValueError with the path where it is not an object."""
    with open(path, encoding="utf-8") as file:
        try:
            value = json.load(file)
        except ValueError as error:
            raise ValueError("%s: not JSON: %s" % (path, error)) from None
    if not isinstance(value, dict):
        raise ValueError("%s: not a JSON object" % path)
    return value


def write_json(path: str, value: Any, *, sync: bool = False) -> None:
    """Replace `path` in one step, mode 0600. With `sync` it also survives a crash of the node."""
    replace(path, json.dumps(value, separators=(",", ":")).encode("ascii"), sync=sync)


def replace(path: str, data: bytes, *, sync: bool = False) -> None:
    """The same with bytes. Raises OSError, and leaves what was there."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(descriptor, data)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def make_dir(path: str) -> None:
    """A private folder, made with its missing parents."""
    os.makedirs(path, mode=0o700, exist_ok=True)


def check_room(folder: str) -> None:
    """Raises OSError where a small file cannot be written into this folder now: it is full, or gone."""
    path = os.path.join(folder, ".room-%s-%d" % (os.uname().nodename, os.getpid()))  # other workers try, too
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, b" " * 4096)
    finally:
        os.close(descriptor)
        os.unlink(path)
