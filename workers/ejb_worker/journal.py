"""Appending to the output exactly once: what is about to be appended is written down before it is appended.

`output.json` holds the state *before* a batch and the batch itself (ranges of files that never change once written).
The next writer finds by comparing how much of the batch reached the output, and appends the rest. No byte is lost or
doubled, wherever the writer was killed. The output is truncated only where a launch begins anew, as a batch system does
with the output of a job that it runs again.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .files import read_json, write_all, write_json

_LOCK_PATIENCE_S = 10.0


class Superseded(Exception):
    """Another collector has taken over."""


class SinkError(OSError):
    """The user's own output file cannot be written; every other OSError here is of the files that EJB itself keeps."""


class Piece:
    """`path[start:end]` (path below the job's folder) goes to the file `sink`, after a newline if `newline`.

    `cut`: it ends in the middle of a line, and what comes from another file is to begin a new one.
    """

    __slots__ = ("cut", "data", "end", "newline", "path", "sink", "start")

    def __init__(
        self, sink: str, path: str, start: int, end: int, newline: bool, data: bytes, cut: bool = False
    ) -> None:
        self.sink = sink
        self.path = path
        self.start = start
        self.end = end
        self.newline = newline
        self.data = data
        self.cut = cut

    def content(self) -> bytes:
        return b"\n" + self.data if self.newline else self.data


class Journal:
    """One writer's view. `offsets`: bytes taken of each file; `done`: epochs and runs (folder names) taken completely.

    `sinks`: for each output file `[size before the batch, name of the file whose last line was cut, or ""]`.
    """

    def __init__(self, job_dir: str, owner: str) -> None:
        self._job_dir = job_dir
        self._owner = owner
        self._path = os.path.join(job_dir, "output.json")
        self._lock = os.open(os.path.join(job_dir, "output.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.offsets: Dict[str, int] = {}
        self.done: List[str] = []
        self.sinks: Dict[str, List[Any]] = {}
        self._of_epochs: Dict[str, List[List[int]]] = {}  # sink -> [epoch, where its first piece went, bytes of it]
        self._batch: List[Piece] = []

    def take_over(self) -> bool:
        """Become the one writer and load what the last one wrote down. False if there was none before."""
        with _Locked(self._lock):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, self._owner.encode("ascii"), 0)
            try:
                saved = read_json(self._path)
            except FileNotFoundError:
                return False
            self.offsets = dict(saved["offsets"])
            self.done = list(saved["done"])
            self.sinks = {sink: list(state) for sink, state in saved["sinks"].items()}
            self._of_epochs = {sink: list(them) for sink, them in (saved.get("epochs") or {}).items()}
            for sink, path, start, end, newline, *cut in saved["batch"]:  # an older worker does not say whether it cut
                data = self._read(path, start, end)
                if data is not None:
                    self._batch.append(Piece(sink, path, start, end, newline, data, any(cut)))
                else:
                    self.offsets[path] = end  # the epoch's folder is gone: there is nothing to compare with
            return True

    def begin(self, sink: str, *, truncate: bool) -> None:
        """Make the output file. Truncated only where no journal says that something was appended to it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if truncate else 0)
        with _OfSink(sink):
            os.close(os.open(sink, flags, 0o644))

    def cut_line(self, sink: str) -> str:
        return str(self.sinks[sink][1]) if sink in self.sinks else ""

    def append(self, batch: List[Piece]) -> None:
        """Write the batch down, then append it. After an OSError call `finish_batch` until it succeeds."""
        self.finish_batch()
        with _Locked(self._lock):
            self._check_owner()
            for piece in batch:
                if piece.sink not in self.sinks:
                    self.sinks[piece.sink] = [0, ""]
                with _OfSink(piece.sink):
                    self.sinks[piece.sink][0] = _size(piece.sink)
            self._save(batch)
            self._batch = batch
            self._complete()

    def finish_batch(self) -> None:
        """Append what is written down but not appended yet. Raises OSError (full disk), Superseded."""
        if self._batch:
            with _Locked(self._lock):
                self._check_owner()
                self._complete()

    def save(self) -> None:
        """Write the state down with nothing pending: what it names may be deleted from now on."""
        self.finish_batch()
        with _Locked(self._lock):
            self._check_owner()
            self._save([])

    def take_back(self, first: int, sinks: Iterable[str]) -> None:
        """Cut off what the epochs from `first` on have had appended to these files, where nothing else came since."""
        self.finish_batch()
        with _Locked(self._lock):
            self._check_owner()
            for sink in dict.fromkeys(sinks):
                theirs = [one for one in self._of_epochs.get(sink, []) if one[0] >= first]
                self._of_epochs[sink] = [one for one in self._of_epochs.get(sink, []) if one[0] < first]
                start = min((at for _epoch, at, _count in theirs), default=0)
                with _OfSink(sink):
                    if theirs and os.path.isfile(sink) and _size(sink) == start + sum(one[2] for one in theirs):
                        os.truncate(sink, start)
                        self.sinks[sink] = [start, ""]
            self._save([])

    def close(self) -> None:
        os.close(self._lock)

    def _check_owner(self) -> None:
        if os.pread(self._lock, 200, 0) != self._owner.encode("ascii"):
            raise Superseded()

    def _save(self, batch: List[Piece]) -> None:
        state = {
            "version": 1,
            "owner": self._owner,
            "offsets": self.offsets,
            "done": self.done,
            "sinks": self.sinks,
            "epochs": self._of_epochs,
            "batch": [[p.sink, p.path, p.start, p.end, p.newline, p.cut] for p in batch],
        }
        write_json(self._path, state, sync=True)

    def _complete(self) -> None:
        for sink in dict.fromkeys(piece.sink for piece in self._batch):
            data = b"".join(piece.content() for piece in self._batch if piece.sink == sink)
            with _OfSink(sink):
                self._append(sink, int(self.sinks[sink][0]), data)
        at = {sink: int(state[0]) for sink, state in self.sinks.items()}
        for piece in self._batch:
            self.offsets[piece.path] = piece.end
            self.sinks[piece.sink][1] = piece.path if piece.cut else ""
            folder, _, rest = piece.path.partition("/")
            if folder == "epochs":
                self._count(piece.sink, int(rest.partition("/")[0]), at[piece.sink], len(piece.content()))
            at[piece.sink] += len(piece.content())
        self._batch = []

    def _count(self, sink: str, epoch: int, at: int, count: int) -> None:
        known = self._of_epochs.setdefault(sink, [])
        one = next((one for one in known if one[0] == epoch), None)
        if one is None:
            known.append([epoch, at, count])
        else:
            one[2] += count

    def _append(self, sink: str, before: int, data: bytes) -> None:
        descriptor = os.open(sink, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            there = min(max(0, size - before), len(data))
            # Bytes that are there already are ours only if they are the same: users may have touched the file.
            if there and os.pread(descriptor, there, before) != data[:there]:
                there = 0
            write_all(descriptor, data[there:])
            if os.path.isfile(sink):
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, path: str, start: int, end: int) -> Optional[bytes]:
        try:
            with open(os.path.join(self._job_dir, path), "rb") as file:
                file.seek(start)
                data = file.read(end - start)
        except FileNotFoundError:
            return None
        return data if len(data) == end - start else None


class _Locked:
    """The lock between the collectors of one job; done without where the file system has none."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = False

    def __enter__(self) -> None:
        until = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held = True
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
            except OSError:
                return

    def __exit__(self, *_ignored: "Tuple[Any, ...]") -> None:
        if self._held:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class _OfSink:
    """Tells an error of the user's file from one of EJB's own."""

    def __init__(self, sink: str) -> None:
        self._sink = sink

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: Optional[BaseException], _trace: object) -> None:
        if isinstance(error, OSError):
            raise SinkError(error.errno, error.strerror or str(error), self._sink) from error


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
