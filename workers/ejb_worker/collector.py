"""The lead's collector: the one writer of the job's output.

It has a thread of its own, so that a slow file system holds up nothing else.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Callable, Dict, List, Optional, Tuple

from .files import read_json
from .journal import Journal, Piece, SinkError, Superseded

_CHUNK = 256 * 1024  # a line longer than this is taken in pieces
_BATCH = 1024 * 1024
_SHORTEST_S = 0.1
_LONGEST_S = 2.0
_LINE_PATIENCE_S = 10.0
"""How long others wait for the end of a rank's line of more than a chunk that does not get on."""
PATIENCE_S = 40.0
"""How long the last of an epoch, of the script or of the job is tried again where a disk is full or gone. The manager
waits longer for the job's end."""

# A name that leads nowhere, or to where this user may not write: as with sbatch the job fails before it begins.
_HOPELESS = frozenset(
    (
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENXIO,
    )
)

Done = Callable[[str], None]
_Last = Tuple[Optional[int], Optional[int], bool]  # an epoch and a run of the script that have ended; was it moved?
_NOTHING: _Last = (None, None, False)


class _File:
    """A source file with its size at the beginning of a pass. `final`: its process has ended.

    `moved`: what wrote it goes on elsewhere, maybe in the middle of a line. `whole`: its lines are taken whole, since
    others write beside it; a script's are not.
    """

    __slots__ = ("final", "moved", "offset", "path", "sink", "size", "whole")

    def __init__(
        self, path: str, sink: str, offset: int, size: int, *, final: bool, moved: bool = False, whole: bool = True
    ) -> None:
        self.path = path
        self.sink = sink
        self.offset = offset
        self.size = size
        self.final = final
        self.moved = moved
        self.whole = whole


class Output:
    """Collects into `output` (and `error`, if it is another file). Not thread-safe; raises OSError, Superseded."""

    def __init__(
        self, job_dir: str, output: str, error: Optional[str], *, owner: str, truncate: bool, run: int = 0
    ) -> None:
        self._job_dir = job_dir
        self._targets = {"output": output, "error": error or output}
        self._journal = Journal(job_dir, owner)
        self._run = run
        self._routes: Dict[str, Dict[str, str]] = {}
        # By sink: the file in the middle of a line of which it ends, and when that was taken last.
        self._unended: Dict[str, Tuple[str, float]] = {}
        self._open = {} if self._journal.take_over() else dict.fromkeys(self._targets.values(), truncate)

    def collect(
        self, *, final_epoch: Optional[int] = None, final_run: Optional[int] = None, moved: bool = False
    ) -> int:
        """Take everything that is there now; the number of bytes taken. Files named final end with their last byte.

        `moved`: the launch of the final epoch goes on in another one.
        """
        while self._open:
            path, truncate = next(iter(self._open.items()))
            self._journal.begin(path, truncate=truncate)
            del self._open[path]
        self._journal.finish_batch()
        taken = self._take(self._script_files(final_run))
        if final_run is not None:
            self._close("script/%d" % final_run)
        epochs = [epoch for epoch in self._epochs() if "epochs/%d" % epoch not in self._journal.done]
        launched = [epoch for epoch in epochs if self._route(epoch) is not None]
        for epoch in epochs:
            # Where a later placement was launched, no rank of an earlier one is left.
            left = any(later > epoch for later in launched)
            final = epoch == final_epoch or left
            if final or epoch in launched:
                taken += self._take(self._epoch_files(epoch, final, moved=left or moved))
            if final:
                self._close("epochs/%d" % epoch)
        return taken

    def take_back(self, first: int) -> None:
        """The launch of the epochs from `first` on begins anew: what they printed is taken off the job's output."""
        self._journal.take_back(first, self._targets.values())

    def _take(self, files: List[_File]) -> int:
        taken = 0
        for tails in (False, True):  # a last line without newline comes behind all that are whole
            left = sorted(files, key=lambda file: not self._is_unended(file))
            while True:
                batch = self._batch(left, tails)
                if not batch:
                    break
                self._journal.append(batch)
                taken += sum(len(piece.data) for piece in batch)
        return taken

    def close(self) -> None:
        self._journal.close()

    def _close(self, name: str) -> None:
        if name not in self._journal.done:
            self._journal.done.append(name)
        for path in [path for path in self._journal.offsets if path.startswith((name + "/", name + "."))]:
            del self._journal.offsets[path]
        self._routes.pop(name, None)
        self._journal.save()

    def _script_files(self, final_run: Optional[int]) -> List[_File]:
        files = []
        for run, stream, name in self._listing("script"):
            if "script/%d" % run not in self._journal.done:
                before = run < self._run  # it was started again, and so had ended
                final = before or run == final_run
                files.append(
                    self._file("script/" + name, self._targets[stream], final=final, moved=before, whole=False)
                )
        return files

    def _epoch_files(self, epoch: int, final: bool, *, moved: bool) -> List[_File]:
        route = self._route(epoch) or self._targets
        folder = "epochs/%d/output" % epoch
        return [
            self._file("%s/%s" % (folder, name), route[stream], final=final, moved=moved)
            for _rank, stream, name in self._listing(folder)
        ]

    def _file(self, path: str, sink: str, *, final: bool, moved: bool = False, whole: bool = True) -> _File:
        size = self._size(path, fresh=final)
        return _File(path, sink, self._journal.offsets.get(path, 0), size, final=final, moved=moved, whole=whole)

    def _listing(self, folder: str) -> List[Tuple[int, str, str]]:
        """The files `<number>.out` and `<number>.err` in numeric order as (number, stream, name)."""
        try:
            names = os.listdir(os.path.join(self._job_dir, folder))
        except FileNotFoundError:
            return []
        streams = {".out": "output", ".err": "error"}
        parts = [(os.path.splitext(name), name) for name in names]
        return sorted((int(n), streams[e], name) for (n, e), name in parts if n.isdigit() and e in streams)

    def _epochs(self) -> List[int]:
        try:
            names = os.listdir(os.path.join(self._job_dir, "epochs"))
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def _route(self, epoch: int) -> Optional[Dict[str, str]]:
        """Where an epoch's streams go: a launch that the script redirected has files of its own.

        None while this node does not see the launch yet (a shared file system may show the files in any order).
        """
        folder = "epochs/%d" % epoch
        route = self._routes.get(folder)
        if route is None:
            try:
                launch = read_json(os.path.join(self._job_dir, folder, "launch.json"))
            except FileNotFoundError:
                return None
            route = {}
            for stream, key in (("output", "stdout"), ("error", "stderr")):
                named = str(launch.get(key) or stream)
                route[stream] = self._targets.get(named, named)
            self._routes[folder] = route
        return route

    def _size(self, path: str, *, fresh: bool) -> int:
        full = os.path.join(self._job_dir, path)
        if not fresh:
            return os.stat(full).st_size
        # Opening asks the file server; a mere stat may answer from this node's cache.
        descriptor = os.open(full, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def _batch(self, files: List[_File], tails: bool) -> List[Piece]:
        """At most about 1 MB, taking turns among the files. A file that has no more is taken off the list.

        `tails`: of what has ended, with a last line that is not whole.
        """
        batch: List[Piece] = []
        size = 0
        open_lines: Dict[str, str] = {}
        while files and size < _BATCH:
            file = files.pop(0)
            piece = self._piece(file, open_lines, tails)
            if piece is not None:
                files.insert(0 if self._is_unended(file) else len(files), file)
                batch.append(piece)
                size += len(piece.data)
            elif not file.final and self._is_unended(file):
                files[:] = [other for other in files if other.sink != file.sink]  # till the line is at its end
        return batch

    def _is_unended(self, file: _File) -> bool:
        """Whether its sink ends in the middle of a line of this file, of which more is to come."""
        path, taken_s = self._unended.get(file.sink, ("", 0.0))
        return path == file.path and time.monotonic() - taken_s < _LINE_PATIENCE_S

    def _piece(self, file: _File, open_lines: Dict[str, str], tails: bool) -> Optional[Piece]:
        """The next whole lines of a file, or None. `open_lines`: the file with a last line that was cut, by sink.

        As with srun, nothing stands between a last line without newline and what comes behind it. A rank that was moved
        goes on with its line, and all others do so, too: only there each has a line of its own.
        """
        length = min(_CHUNK, file.size - file.offset)
        if length <= 0:
            return None
        with open(os.path.join(self._job_dir, file.path), "rb") as source:
            source.seek(file.offset)
            data = source.read(length)
        last = (tails or not file.whole) and file.final and file.offset + len(data) >= file.size
        if file.whole and not last:
            whole = data[: data.rfind(b"\n") + 1]
            if not whole and len(data) < _CHUNK and not self._is_unended(file):
                return None
            data = whole or data
        if not data:
            return None
        ended = last or not file.whole or data.endswith(b"\n")
        if not ended:
            self._unended[file.sink] = (file.path, time.monotonic())
        elif self._unended.get(file.sink, ("", 0.0))[0] == file.path:
            del self._unended[file.sink]
        before = open_lines.get(file.sink)
        if before is None:
            before = self._journal.cut_line(file.sink)
        newline = before not in ("", file.path)
        cut = last and file.moved and not data.endswith(b"\n")
        open_lines[file.sink] = file.path if cut else ""
        piece = Piece(file.sink, file.path, file.offset, file.offset + len(data), newline, data, cut)
        file.offset = piece.end
        return piece


class Collector:
    """The thread around `Output`. Requests are answered in order through `call_soon` with "" or a sentence."""

    def __init__(
        self, make: Callable[[], Output], *, call_soon: Callable[[Callable[[], None]], None], log: Callable[[str], None]
    ) -> None:
        self._make = make
        self._call_soon = call_soon
        self._log = log
        self._condition = threading.Condition()
        self._requests: List[Tuple[_Last, Done, bool]] = []
        self._take_back: Dict[int, int] = {}  # final epoch -> the first one of its launch
        self._unfinished: List[_Last] = []  # last ones that could not be taken
        self._closing = False
        self.own_trouble = False  # whether what it met last was met with EJB's own files, not with the user's
        self._ended = ""
        self._errno = 0
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def open(self, done: Done) -> None:
        """Make the output files, then call `done`: with a sentence only where waiting would not help."""
        self.flush(lambda error: done(error if self._hopeless() else ""))

    def _hopeless(self) -> bool:
        return self._errno in _HOPELESS and not self.own_trouble

    def flush(
        self,
        done: Done,
        *,
        final_epoch: Optional[int] = None,
        final_run: Optional[int] = None,
        moved: bool = False,
        take_back: Optional[int] = None,
    ) -> None:
        """Take what is there now, then call `done`. `take_back`: of the final epoch's launch, from that epoch on."""
        with self._condition:
            if final_epoch is not None and take_back is not None:
                self._take_back[final_epoch] = take_back
            if not self._ended:
                last = (final_epoch, final_run, moved)
                self._requests.append((last, done, last != _NOTHING))
                self._condition.notify()
                return
        self._answer(done, self._ended)

    def close(self, done: Done) -> None:
        """One last pass, then no more."""
        with self._condition:
            self._closing = True
            if not self._ended:
                self._requests.append((_NOTHING, done, True))
                self._condition.notify()
                return
        self._answer(done, self._ended)

    def _run(self) -> None:
        output: Optional[Output] = None
        pause = 0.0  # the output file is there as soon as the job is
        troubled = ""
        since_s = 0.0  # since when there has been trouble
        while True:
            with self._condition:
                if not self._requests:
                    self._condition.wait(pause)
                request = self._requests.pop(0) if self._requests else None
                closing = self._closing and not self._requests
            error = ""
            taken = 0
            try:
                if output is None:
                    output = self._make()
                while self._unfinished:
                    epoch, run, moved = self._unfinished[0]
                    taken += output.collect(final_epoch=epoch, final_run=run, moved=moved)
                    del self._unfinished[0]
                epoch, run, moved = _NOTHING if request is None else request[0]
                taken += output.collect(final_epoch=epoch, final_run=run, moved=moved)
                first = self._take_back.pop(epoch, None) if epoch is not None else None
                if first is not None:
                    output.take_back(first)
            except Superseded:
                error = "another worker has become the lead and collects the output"
                closing = True
            except OSError as problem:
                self._errno, self.own_trouble = problem.errno or 0, not isinstance(problem, SinkError)
                what = "write the output %s" % problem.filename if problem.filename else "collect the output"
                error = "cannot %s: %s" % (what, problem.strerror or problem)
            except (ValueError, KeyError, TypeError) as problem:
                error = "cannot collect the output: %s" % problem
            else:
                self._errno, self.own_trouble = 0, False
            if error and error != troubled:
                self._log(error)
            if error and not troubled:
                since_s = time.monotonic()
            troubled = error
            pause = _SHORTEST_S if taken else min(_LONGEST_S, max(_SHORTEST_S, pause * 2))
            passing = error and self._errno and not self._hopeless() and time.monotonic() - since_s < PATIENCE_S
            if passing and request is not None and request[2]:
                with self._condition:
                    self._requests.insert(0, request)
                time.sleep(_LONGEST_S / 4)
                continue
            if error and request is not None and request[0] != _NOTHING:
                self._unfinished.append(request[0])
            if request is not None:
                self._answer(request[1], error)
            if closing:
                with self._condition:
                    self._ended = error or "the output is not collected here any more"
                    left, self._requests = self._requests, []
                for _last, done, _insists in left:
                    self._answer(done, error)
                break
        if output is not None:
            output.close()

    def _answer(self, done: Done, error: str) -> None:
        self._call_soon(lambda: done(error))
