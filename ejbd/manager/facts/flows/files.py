"""What the files of a workflow say. They are its user's: looked at as that user and apart, never in a transaction."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from ejbd.errors import Code, EjbError
from ejbd.manager.facts.flows.standing import Standing
from ejbd.manager.hands.hands import Hands
from ejbd.store.models import WorkflowStage
from ejbd.workflow.graph import Group
from ejbd.workflow.script import Mark, marks_file, read_marks

MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be looked at: the marks of attempts that have ended, and the files of groups that are ready."""

    user: str
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
    return Question(found.workflow.user, cwd, marks, tuple(chosen))


def look(asked: Question, hands: Hands) -> Looked:
    """Read what is asked; for a thread of its own (ejbd.files.userfiles.apart). Raises OSError, EjbError."""
    found = Looked({}, {}, {})
    for name, path in asked.marks:
        found.marks[name] = _marks_in(asked, path, hands)
    for group, idle in asked.groups:
        at = 0
        for stage in group.stages:
            try:
                inputs = hands.find_files(asked.user, asked.cwd, stage.inputs)
                if at == 0 and (missing := [one for one, (n, _, _) in zip(stage.inputs, inputs, strict=True) if not n]):
                    found.missing[group.name] = f"input {missing[0]!r} of stage {stage.name} is not there"
                    break
                if not idle or not stage.outputs:
                    break
                outputs = hands.find_files(asked.user, asked.cwd, stage.outputs)
            except EjbError as error:
                if error.code is not Code.TOO_LARGE:
                    raise
                found.missing[group.name] = f"the files of stage {stage.name} are not looked at: {error.message}"
                break
            newest = max((last for n, _, last in inputs if n), default=0.0)
            if not all(n and newest <= first for n, first, _ in outputs):
                break
            at += 1
        found.current[group.name] = at
    return found


def _marks_in(asked: Question, path: str, hands: Hands) -> list[Mark]:
    try:
        data = hands.read_file(asked.user, Path(asked.cwd, path), MOST_BYTES)
    except OSError as error:
        if error.errno in (errno.EIO, errno.ETIMEDOUT):
            raise  # it may be there
        return []
    return read_marks(data.decode(errors="replace"))
