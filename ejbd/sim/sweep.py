"""A grid of simulations over the cores of this machine, or as batch jobs; what has been done is not done again."""

from __future__ import annotations

import errno
import fcntl
import functools
import hashlib
import io
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self, TextIO

from ejbd.core import kernel as of_core
from ejbd.errors import Code, EjbError
from ejbd.sim import progress
from ejbd.sim.compiled import source_digest
from ejbd.sim.settings import Setting, Source, play_beside_easy, play_targets

_LOOK_AGAIN_S = 0.5


class Kind(StrEnum):
    """RUN: all jobs at once. TARGET: one elastic job a simulation."""

    RUN = "run"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation of the grid."""

    source: Source
    setting: Setting
    kind: Kind

    @property
    def key(self) -> str:
        """What this point's result is kept under: another content of the log, version, setting or kind has another."""
        source = replace(self.source, path=Path())
        setting = replace(self.setting, changed=())  # names of values, which say nothing new
        text = f"{_content(self.source.path, self.source.stamp)}|{source}|{setting}|{self.kind.value}|{_version()}"
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def play(self, again: float = 1) -> dict[str, Any]:
        """Simulate. `again`: how many points there are to play, this one among them."""
        if self.kind is Kind.TARGET:
            return play_targets(self.source, self.setting, again=again)[1]
        return play_beside_easy(self.source, self.setting, again=again)


@functools.lru_cache(maxsize=64)
def _content(path: Path, stamp: tuple[int, int]) -> str:
    try:
        with path.open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()
    except OSError as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read as a workload log: {error}") from error


@functools.cache
def _version() -> str:
    """Of all that a result depends on: the sources of the scheduler and of the simulator."""
    return source_digest(Path(of_core.__file__).parent, Path(__file__).parent)


def grid(sources: Sequence[Source], base: Setting, axes: Mapping[str, Sequence[str]], kind: Kind) -> Iterator[Point]:
    """Every combination of the axes' values on every log."""
    for source in sources:
        for values in itertools.product(*axes.values()):
            yield Point(source, base.having(dict(zip(axes, values, strict=True))), kind)


class Results:
    """What is in the folder by now, by key; every byte of it is read once.

    A line that was torn when a sweep was interrupted counts for nothing, so that its point is simulated again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._rows: dict[str, dict[str, Any]] = {}

    def read(self) -> dict[str, dict[str, Any]]:
        """All of them, those of other sweeps included."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for line in text.decode("utf-8", "replace").splitlines():
                try:
                    row = json.loads(line)
                    self._rows[row["key"]] = row
                except (ValueError, KeyError, TypeError):
                    continue
        return self._rows


def sweep(
    points: Sequence[Point], folder: Path, *, workers: int, part: tuple[int, int], tell: Callable[[int, int, str], None]
) -> list[dict[str, Any]]:
    """Simulate what is not in the folder yet, one result a line; all results in the order of the points.

    `part` is (k, n): only every n-th point from the k-th on. `tell` is called with (done, all, name). What another
    sweep of the same folder has in hand is waited for and not simulated twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mine = {point.key: point for point in list(points)[part[0] - 1 :: part[1]]}
    results = Results(folder)
    known = results.read()
    missing = {key: point for key, point in mine.items() if key not in known}
    tell(len(mine) - len(missing), len(mine), "")
    with Claims(folder / "claims") as claims, _appending(folder / f"results-{part[0]}-of-{part[1]}.jsonl") as out:

        def keep(key: str, result: dict[str, Any]) -> None:
            out.write(
                json.dumps({"key": key, "trace": missing[key].source.path.name, **result}, allow_nan=False) + "\n"
            )
            out.flush()
            claims.release(key)
            have(key)

        def have(key: str) -> None:
            point = missing.pop(key)
            tell(len(mine) - len(missing), len(mine), point.setting.name)

        def claim() -> str | None:
            """A point that no process has claimed; what others have done meanwhile is taken over."""
            for key in [key for key in missing if key not in claims.held]:
                if claims.take(key):
                    if key not in results.read():
                        return key
                    claims.release(key)
                    have(key)
            return None

        pool = None
        futures: dict[Future[dict[str, Any]], str] = {}
        try:
            while missing:
                while len(futures) < max(1, workers) and (key := claim()) is not None:
                    if workers <= 1 or (pool is None and not futures):
                        begin, whole = len(mine) - len(missing), len(mine)
                        with progress.part(f"simulation {begin + 1} of {whole}", begin / whole, (begin + 1) / whole):
                            result = missing[key].play(len(missing))
                        keep(key, result)  # the first one alone: what it compiles is there for all
                        pool = pool or (_pool(workers) if workers > 1 and missing else None)
                    elif pool is not None:
                        futures[pool.submit(missing[key].play, len(missing))] = key
                if futures:
                    for future in wait(futures, return_when=FIRST_COMPLETED).done:
                        keep(futures.pop(future), future.result())
                elif missing:
                    tell(len(mine) - len(missing), len(mine), "in the hands of another sweep")
                    time.sleep(_LOOK_AGAIN_S)
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)
    known = results.read()
    rows = [(point, known[point.key]) for point in list(points)[part[0] - 1 :: part[1]]]
    return [{**row, "trace": point.source.path.name, "setting": point.setting.name} for point, row in rows]


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"))


@contextmanager
def _appending(path: Path) -> Iterator[TextIO]:
    """The file, for whole lines: after a torn one at its end a new one is begun."""
    with path.open("ab+") as out:
        if out.tell():
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                out.write(b"\n")
        with io.TextIOWrapper(out, encoding="utf-8") as text:
            yield text


class Claims:
    """Which points are in hand: one byte of a file is locked for each, by whichever process has it.

    The kernel frees what a process held when it ends, however it ends. Where a file system has no locks every claim
    succeeds, and two sweeps at one time may do the same twice.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self.held: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *what: object) -> None:
        self._file.close()

    def take(self, key: str) -> bool:
        """Whether the point is ours now."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
        self.held.add(key)
        return True

    def release(self, key: str) -> None:
        """Give the point back."""
        self.held.discard(key)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(key))
        except OSError:
            pass


def _byte(key: str) -> int:
    return int(key[:15], 16)


def parse_part(text: str) -> tuple[int, int]:
    """`2/8` is the second of eight parts. Raises EjbError for anything else."""
    first, slash, last = text.partition("/")
    if slash and first.isdigit() and last.isdigit() and 1 <= int(first) <= int(last):
        return int(first), int(last)
    raise EjbError(Code.INVALID, f"{text!r} is not a part such as 2/8")


def submit(command: Sequence[str], folder: Path, parts: int, through: str) -> list[str]:
    """Submit the sweep in parts as batch jobs: one array with sbatch, or `ejb submit` for each part; what they said."""
    folder.mkdir(parents=True, exist_ok=True)
    line = shlex.join([sys.executable, "-m", "ejbd.cli.main", *command])
    said: list[str] = []
    if through == "sbatch":
        script = folder / "sweep.sh"
        text = (
            f'#!/bin/sh\n#SBATCH --ntasks=1 --job-name=ejb-sweep\nexec {line} --part "$SLURM_ARRAY_TASK_ID/{parts}"\n'
        )
        script.write_text(text, encoding="utf-8")
        said.append(_submitted(["sbatch", f"--array=1-{parts}", "--chdir", str(Path.cwd()), str(script)]))
        return said
    for part in range(1, parts + 1):
        script = folder / f"sweep-{part}.sh"
        text = f"#!/bin/sh\n#SBATCH --ntasks=1 --job-name=ejb-sweep-{part}\ncd {shlex.quote(str(Path.cwd()))}\n"
        script.write_text(f"{text}exec {line} --part {part}/{parts}\n", encoding="utf-8")
        said.append(_submitted([sys.executable, "-m", "ejbd.cli.main", "submit", str(script)]))
    return said


def _submitted(words: list[str]) -> str:
    try:
        result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EjbError(Code.BATCH_UNAVAILABLE, f"{words[0]} did not run: {error}") from error
    if result.returncode:
        raise EjbError(Code.BATCH_REFUSED, f"{words[0]} refused the sweep: {result.stderr.strip()}")
    return result.stdout.strip()
