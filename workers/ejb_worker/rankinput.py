"""What ranks read on standard input: a file of the launch, from where the last placement had come to."""

from __future__ import annotations

import glob
import os
from typing import Any, Dict, Optional

from .files import read_json, write_json


class RankInput:
    """The input of one placement's ranks on this node. A rank shares its file's offset with the worker, which can so
    tell where it stood when it is gone."""

    def __init__(self, launch: Dict[str, Any], folder: str, node: str, restart_dir: Optional[str]) -> None:
        self._given: Optional[Dict[str, Any]] = launch.get("stdin")
        self._file = os.path.join(folder, "input-%s.json" % node)
        self._open: Dict[int, int] = {}
        self._before: Dict[str, int] = {}
        if self._given is not None and restart_dir is not None:
            for path in glob.glob(os.path.join(glob.escape(os.path.dirname(restart_dir)), "input-*.json")):
                self._before.update({str(rank): int(at) for rank, at in read_json(path).items()})

    def descriptor(self, rank: int) -> Optional[int]:
        """What the rank is to have as its standard input; None is nothing. Raises OSError."""
        if self._given is None or (self._given["ranks"] is not None and rank not in self._given["ranks"]):
            return None
        descriptor = os.open(str(self._given["path"]), os.O_RDONLY | os.O_CLOEXEC)
        self._open[rank] = descriptor
        if self._given["path"] != os.devnull:
            os.lseek(descriptor, self._before.get(str(rank), int(self._given["offset"])), os.SEEK_SET)
        return descriptor

    def stopped(self) -> None:
        """The ranks are checkpointed: remember how far they have read. Raises OSError."""
        if self._open:
            at = {str(rank): os.lseek(descriptor, 0, os.SEEK_CUR) for rank, descriptor in self._open.items()}
            write_json(self._file, at)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open = {}
