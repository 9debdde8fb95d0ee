"""A grid of simulations over the cores of this machine, or as batch jobs; what has been done is not done again."""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.sim.settings import Setting, Source, play, play_targets


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
        """What this point's result is kept under: another log, setting or kind has another."""
        stat = self.source.path.stat()
        text = f"{self.source}|{stat.st_size}|{self.setting}|{self.kind.value}"
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def play(self) -> dict[str, Any]:
        """Simulate."""
        if self.kind is Kind.TARGET:
            return play_targets(self.source, self.setting)
        return {"setting": self.setting.name, **play(self.source, self.setting)[2]}


def grid(sources: Sequence[Source], base: Setting, axes: Mapping[str, Sequence[str]], kind: Kind) -> Iterator[Point]:
    """Every combination of the axes' values on every log."""
    for source in sources:
        for values in itertools.product(*axes.values()):
            yield Point(source, base.having(dict(zip(axes, values, strict=True))), kind)


def done(folder: Path) -> dict[str, dict[str, Any]]:
    """Results by their keys. A line that was torn when a sweep was interrupted is simulated again."""
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                results[row["key"]] = row
            except (ValueError, KeyError, TypeError):
                continue
    return results


def sweep(
    points: Sequence[Point], folder: Path, *, workers: int, part: tuple[int, int], tell: Callable[[int, int, str], None]
) -> list[dict[str, Any]]:
    """Simulate what is not in the folder yet, one result a line; all results in the order of the points.

    `part` is (k, n): only every n-th point from the k-th on. `tell` is called with (done, all, name).
    """
    folder.mkdir(parents=True, exist_ok=True)
    mine = list(points)[part[0] - 1 :: part[1]]
    known = done(folder)
    missing = [point for point in mine if point.key not in known]
    total, finished = len(mine), len(mine) - len(missing)
    tell(finished, total, "")
    file = folder / f"results-{part[0]}-of-{part[1]}.jsonl"
    with file.open("a", encoding="utf-8") as out:

        def keep(point: Point, result: dict[str, Any]) -> None:
            nonlocal finished
            row = {"key": point.key, "trace": point.source.path.name, **result}
            out.write(json.dumps(row) + "\n")
            out.flush()
            known[point.key] = row
            finished += 1
            tell(finished, total, point.setting.name)

        if workers <= 1 or len(missing) <= 1:
            for point in missing:
                keep(point, point.play())
        else:
            keep(missing[0], missing[0].play())  # alone, so that the kernels are compiled once
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                futures = {pool.submit(point.play): point for point in missing[1:]}
                for future in as_completed(futures):
                    keep(futures[future], future.result())
    return [known[point.key] for point in mine]


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
