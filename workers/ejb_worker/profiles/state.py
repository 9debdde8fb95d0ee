"""The state of an application: copied before a resume at another width, put back where that fails.

A resume that fails may have changed the checkpoint that it began from. A copy shares its blocks with the original where
the file system can (reflink); a hard link is never made, since most programs write into the files that are there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import List, Optional, Sequence

_FICLONE = 0x40049409  # linux/fs.h


def state_files(folder: Path, patterns: Sequence[str]) -> List[Path]:
    """What of the state is there: files and folders, without those that lie in another of them."""
    found = sorted({path for pattern in patterns if pattern for path in folder.glob(pattern)})
    return [path for path in found if not any(other in path.parents for other in found)]


def state_size(folder: Path, patterns: Sequence[str]) -> int:
    """Bytes of the state."""
    size = 0
    for path in state_files(folder, patterns):
        inside = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
        size += sum(one.stat().st_size for one in inside)
    return size


def newest(paths: Sequence[Path]) -> Optional[Path]:
    """The file that was written last."""
    return max((path for path in paths if path.is_file()), key=lambda path: path.stat().st_mtime_ns, default=None)


def copy_state(folder: Path, patterns: Sequence[str], to: Path) -> int:
    """Copy the state to a folder of its own; how many bytes it has. Whole, or not at all: raises OSError, and then
    nothing is left of the copy (a full disk must not make the state's own next write fail)."""
    begun = to.with_name(f"{to.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    size = 0
    try:
        begun.mkdir(parents=True)
        for path in state_files(folder, patterns):
            size += _copy(path, begun / path.relative_to(folder))
        shutil.rmtree(to, ignore_errors=True)
        begun.rename(to)
    except OSError:
        shutil.rmtree(begun, ignore_errors=True)
        raise
    return size


def put_back(folder: Path, patterns: Sequence[str], copy: Path) -> None:
    """Make the state what it was when it was copied: what has come since goes. Raises OSError; the copy stays."""
    for path in state_files(folder, patterns):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in sorted(copy.iterdir()):
        _copy(path, folder / path.name)


def _copy(source: Path, target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(os.readlink(str(source)))
        return 0
    if source.is_dir():
        target.mkdir(exist_ok=True)
        return sum(_copy(path, target / path.name) for path in sorted(source.iterdir()))
    with source.open("rb") as read, target.open("wb") as written:
        try:
            fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        os.fsync(written.fileno())
    shutil.copystat(source, target)
    return source.stat().st_size
