"""The standard input of a launch, kept where the ranks find it wherever they go."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Optional

from .launch_options import Mistake, Request, Usage

MOST_BYTES = 64 * 1024 * 1024
"""Of a pipe, or of a file that is copied. A larger regular file is read where it is."""


class NotKept(Usage):
    """What was read by now is in `stdin` (path, offset), and more is to come of standard input (`rest`)."""

    def __init__(self, sentence: str, path: str) -> None:
        super().__init__(sentence)
        self.stdin: Dict[str, Any] = {"path": path, "offset": 0, "rest": True}


def kept_input(request: Request) -> Optional[Dict[str, Any]]:
    """What the ranks read: `path`, `offset` and `ranks` (which of them: None is all). None: nothing.

    A file and a here-document are read to their end, as srun and mpirun do, and so is a pipe, before the ranks start.
    Raises Usage where that cannot be kept; NotKept where some of it was read.
    """
    if request.reader == "none":
        return None
    ranks = None if request.reader == "all" else [int(request.reader)] if request.reader.isdigit() else None
    if request.reader != "all" and ranks is None:
        return _of_file(os.path.join(request.cwd, request.reader))
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return None  # closed
    if stat.S_ISCHR(mode):
        return None  # /dev/null, or a terminal
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        raise Usage("standard input is neither a file nor a pipe: write it to a file and redirect that")
    if stat.S_ISREG(mode):
        offset = os.lseek(0, 0, os.SEEK_CUR)
        size = os.fstat(0).st_size - offset
        if size <= 0:
            return {"path": os.devnull, "offset": 0, "ranks": ranks}
        path = os.readlink("/proc/self/fd/0")
        if size > MOST_BYTES and os.path.isfile(path):
            os.lseek(0, 0, os.SEEK_END)
            return {"path": path, "offset": offset, "ranks": ranks}
    return {"path": _copied(), "offset": 0, "ranks": ranks}


def _of_file(path: str) -> Dict[str, Any]:
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        raise Mistake("the input file %s cannot be read" % path)
    return {"path": path, "offset": 0, "ranks": None}


def _copied() -> str:
    """A file in the job's folder with all that standard input holds."""
    folder = os.environ.get("EJB_LAUNCH_FOLDER", "")
    if not os.path.isdir(folder):
        raise Usage("there is no lead to launch from here: only the job's own script can launch")
    import tempfile  # for few launches: it takes as long to load as all the rest of a shim

    try:
        descriptor, path = tempfile.mkstemp(prefix="input-", dir=folder)
        with open(descriptor, "wb", buffering=0) as target:
            left = MOST_BYTES
            while True:
                data = os.read(0, 1 << 20)
                if not data:
                    return path
                left -= len(data)
                view = memoryview(data)
                while view:
                    view = view[target.write(view) :]
                if left < 0:
                    break
    except OSError as error:
        raise Usage("its standard input cannot be kept: %s" % error.strerror) from None
    sentence = "a pipe of more than %d MB cannot be kept: write it to a file and redirect that" % (MOST_BYTES >> 20)
    raise NotKept(sentence, path)
