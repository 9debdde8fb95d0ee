"""The logs of the paper in a folder, by the names that the Parallel Workloads Archive has for them."""

from __future__ import annotations

from pathlib import Path

from ejbd.errors import Code, EjbError
from ejbd.studies.paper.printed import TRACES, PaperTrace

ARCHIVE = "they are in the Parallel Workloads Archive, https://www.cs.huji.ac.il/labs/parallel/workload/"


def logs_in(folder: Path, *, every: bool = False) -> list[tuple[PaperTrace, Path]]:
    """Those of the paper's logs that are in a folder. Raises EjbError where none is, or with `every` one is missing."""
    found = []
    for known in TRACES:
        paths = sorted(path for path in folder.glob(f"{known.file}*") if ".swf" in path.name)
        found += [(known, path) for path in paths[:1]]
    if not found or (every and len(found) < len(TRACES)):
        raise EjbError(Code.INVALID, f"{folder} has none of the logs {missing_logs(folder)}", hint=ARCHIVE)
    return found


def missing_logs(folder: Path | None) -> str:
    """The names of those of the paper's logs that are not in a folder (None: of all), a comma apart; "": none is."""
    there = [path.name for path in folder.glob("*.swf*")] if folder is not None else []
    return ", ".join(f"{one.file}*.swf" for one in TRACES if not any(name.startswith(one.file) for name in there))
