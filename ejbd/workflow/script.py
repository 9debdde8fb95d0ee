"""The batch script of an allocation: its stages one after the other, in bash."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ejbd.workflow.plan import Stage

FOLDER = ".ejb-workflow"
"""In the directory of the workflow: when stages that share an allocation began and ended, and the word to begin."""
NOT_YET = 75
"""The exit code of what was queued ahead and has lingered in vain (EX_TEMPFAIL)."""
NOT_THERE = 76
"""The exit code of a stage that followed what it needs in the batch system, and has not found an input."""
_INDEX = "${SLURM_ARRAY_TASK_ID:-${PBS_ARRAY_INDEX:-${PBS_ARRAYID:-0}}}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage that ran in an allocation with others; epoch seconds. `end_s`, `code` None: it has not ended."""

    stage: str
    begin_s: float
    end_s: float | None = None
    code: int | None = None


def marks_file(workflow: str, stage: str, attempt: int) -> str:
    return f"{FOLDER}/{workflow}/{stage}.{attempt}"


def go_file(workflow: str, stage: str, attempt: int) -> str:
    """What lets a script begin that was queued ahead."""
    return marks_file(workflow, stage, attempt) + ".go"


def script_of(
    workflow: str, stages: Sequence[Stage], attempt: int, linger_s: float | None = None, follows: bool = False
) -> str:
    """The script that runs these stages. `linger_s`: it is queued ahead, and waits so long for the word to begin.

    `follows`: the batch system begins it, and it looks for its inputs by itself.
    """
    lines = ["#!/bin/bash", f"export EJB_WORKFLOW={shlex.quote(workflow)} EJB_ATTEMPT={attempt}"]
    name = stages[0].name
    if linger_s is not None:
        lines += [
            f"ejb_go={shlex.quote(go_file(workflow, name, attempt))}",
            f"ejb_until=$((SECONDS + {max(1, round(linger_s))}))",
            'until [ -e "$ejb_go" ]; do',
            f'    [ "$SECONDS" -lt "$ejb_until" ] || exit {NOT_YET}',
            "    sleep 1",
            "done",
        ]
    for pattern in stages[0].inputs if follows else ():
        said = shlex.quote(f"ejb: input {pattern!r} of stage {name} is not there")
        lines.append(f"compgen -G {shlex.quote(pattern)} >/dev/null || {{ echo {said} >&2; exit {NOT_THERE}; }}")
    if len(stages) == 1:
        return "\n".join([*lines, *_before(stages[0]), stages[0].command, ""])
    marks = marks_file(workflow, name, attempt)
    lines += [f"ejb_marks={shlex.quote(marks)}", f"mkdir -p {shlex.quote(marks.rpartition('/')[0])}"]
    for stage in stages:
        lines += [
            f'echo "{stage.name} begin $(date +%s)" >> "$ejb_marks"',
            "(",
            *_before(stage),
            stage.command,
            ")",
            "ejb_code=$?",
            f'echo "{stage.name} end $(date +%s) $ejb_code" >> "$ejb_marks"',
            '[ "$ejb_code" -eq 0 ] || exit "$ejb_code"',
        ]
    return "\n".join([*lines, ""])


def _before(stage: Stage) -> list[str]:
    lines = [f"export EJB_STAGE={shlex.quote(stage.name)} EJB_STAGE_TASKS={stage.tasks}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in stage.env.items()]
    if stage.elements:
        lines += [
            f"ejb_values=({' '.join(map(shlex.quote, stage.elements))})",
            f'export EJB_SCATTER_INDEX="{_INDEX}"',
            'export EJB_SCATTER="${ejb_values[$EJB_SCATTER_INDEX]}"',
        ]
    return lines


def read_marks(text: str) -> list[Mark]:
    """What such a file says, a mark a stage, the latest of each; lines that say something else are passed over."""
    found: dict[str, Mark] = {}
    for line in text.splitlines():
        words = line.split()
        try:
            if len(words) == 3 and words[1] == "begin":
                found[words[0]] = Mark(words[0], float(words[2]))
            elif len(words) == 4 and words[1] == "end" and words[0] in found:
                mark = found[words[0]]
                found[words[0]] = Mark(mark.stage, mark.begin_s, float(words[2]), int(words[3]))
        except ValueError:
            continue
    return list(found.values())
