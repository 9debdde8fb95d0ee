"""What the files of a workflow say. They are its user's: looked at apart, never in a transaction."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from ejbd.files.userfiles import read_plain
from ejbd.manager.facts.flows.standing import Standing
from ejbd.store.models import WorkflowStage
from ejbd.workflow.graph import Group
from ejbd.workflow.script import Mark, marks_file, read_marks

MOST_BYTES = 1 << 20
MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be looked at: the marks of attempts that have ended, and the files of groups that are ready."""

    cwd: str
    marks: tuple[tuple[str, str], ...]  # allocation, file
    groups: tuple[tuple[Group, bool], ...]  # and whether all that it needs had nothing to do


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found, by allocation: its marks; how many of its first stages have nothing to do; what is missing."""

    marks: dict[str, list[Mark]]
    current: dict[str, int]
    missing: dict[str, str]


def question(found: Standing, ended: list[WorkflowStage], ready: list[WorkflowStage]) -> Question:
    cwd = str(found.workflow.surroundings["cwd"])
    marks = tuple(
        (stage.name, marks_file(stage.workflow_id, stage.name, stage.attempt))
        for stage in ended
        if len(found.groups[stage.name].stages) > 1
    )
    chosen = []
    for stage in ready:
        group = found.groups[stage.name]
        idle = all(found.stages[need].state == "skipped" for need in group.needs)
        chosen.append((group, idle and stage.attempt == 0))
    return Question(cwd, marks, tuple(chosen))


def look(asked: Question) -> Looked:
    """Read what is asked; for a thread of its own (ejbd.files.userfiles.apart)."""
    found = Looked({}, {}, {})
    for name, path in asked.marks:
        found.marks[name] = marks_in(asked.cwd, path)
    for group, idle in asked.groups:
        at = 0
        for stage in group.stages:
            missing = next((one for one in stage.inputs if at == 0 and not _times(asked.cwd, (one,))), "")
            if missing:
                found.missing[group.name] = f"input {missing!r} of stage {stage.name} is not there"
            if not idle or missing or not stage.outputs or not _newer(asked.cwd, stage.inputs, stage.outputs):
                break
            at += 1
        found.current[group.name] = at
    return found


def marks_in(cwd: str, path: str) -> list[Mark]:
    with contextlib.suppress(OSError):
        data, _ = read_plain(os.path.join(cwd, path), MOST_BYTES)  # noqa: PTH118
        return read_marks(data.decode(errors="replace"))
    return []


def _newer(cwd: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bool:
    """Whether every output is there and no older than any input."""
    if not all(_times(cwd, (one,)) for one in outputs):
        return False
    read = _times(cwd, inputs)
    return not read or max(read) <= min(_times(cwd, outputs))


def _times(cwd: str, patterns: tuple[str, ...]) -> list[float]:
    return list(itertools.islice(_all_times(cwd, patterns), MOST_FILES))


def _all_times(cwd: str, patterns: tuple[str, ...]) -> Iterator[float]:
    for pattern in patterns:
        for name in glob.iglob(pattern, root_dir=cwd):  # noqa: PTH207
            with contextlib.suppress(OSError):
                yield os.stat(os.path.join(cwd, name)).st_mtime  # noqa: PTH116, PTH118
