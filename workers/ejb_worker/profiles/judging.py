"""How an application has ended: finished, stopped with its state written, or failed. Pure, by what was seen of it.

An exit code alone never says finished: four of six applications return 0 when they are told to stop early, and one
returns 1 with a good checkpoint. So a line, a file or the last time reached decides, of what was written since the
launch. A stop is judged by its checkpoint, also where the process had to be killed after the grace.
"""

from __future__ import annotations

import re
from typing import Any, Collection, Mapping, NamedTuple, Optional, Tuple

from .filling import filled

FINISHED, STOPPED, FAILED = "finished", "stopped", "failed"
"""What becomes of an application."""


class Seen(NamedTuple):
    """What was seen of an application that has ended.

    `code`: its exit code, negative by a signal. `texts`: what was written to each log since the launch. `newer`: files
    that were written since. `asked`: it had been told to stop. `killed`: it was killed after the grace.
    """

    code: int
    texts: Mapping[str, str]
    newer: Collection[str] = ()
    asked: bool = False
    killed: bool = False


class Judged(NamedTuple):
    """The verdict, and why in a few words."""

    verdict: str
    why: str


def judge(profile: Any, seen: Seen, values: Mapping[str, str]) -> Judged:
    """What became of it. What shows both ends has finished: it was over before it heard that it should stop."""
    finished = _is(profile.finished, seen, values, killed=False)
    if not finished:
        return Judged(FINISHED, _by(profile.finished))
    stopped = _is(profile.stopped, seen, values, killed=seen.killed)
    if not stopped and (seen.asked or not profile.stopped.code_alone):
        return Judged(STOPPED, _by(profile.stopped))
    code = f"signal {-seen.code}" if seen.code < 0 else f"code {seen.code}"
    lately = " after the grace" if seen.killed else ""
    return Judged(FAILED, f"it ended with {code}{lately}: not finished, {finished}; not stopped, {stopped}")


def _by(end: Any) -> str:
    if end.line:
        return f"by the line {end.line!r}"
    if end.last:
        return f"by the last {end.last!r}"
    return f"by the file {end.file}" if end.file else "by its exit code"


def _is(end: Any, seen: Seen, values: Mapping[str, str], *, killed: bool) -> str:
    """What is missing of that end, or ""."""
    if not killed and seen.code not in end.codes:
        return f"the code is {seen.code}"
    if killed and not (end.line or end.file or end.last):
        return "it was killed"
    text = seen.texts.get(filled(end.log, values), "")
    if end.line and not re.search(end.line, text, re.MULTILINE):
        return f"no line {end.line!r} since the launch"
    if end.without and re.search(end.without, text, re.MULTILINE):
        return f"a line {end.without!r}"
    if end.file and filled(end.file, values) not in seen.newer:
        return f"{filled(end.file, values)} was not written since the launch"
    return _time(end, text, values) if end.last else ""


def _time(end: Any, text: str, values: Mapping[str, str]) -> str:
    last = last_number(end.last, text)
    if last is None:
        return f"no {end.last!r} since the launch"
    bound = _number(filled(end.reaches or end.below, values))
    if bound is None:
        return f"{filled(end.reaches or end.below, values)} is no number"
    reached = last >= bound - 1e-9 * abs(bound)
    if reached == bool(end.reaches):
        return ""
    return f"{last:g} {'is not below' if end.below else 'does not reach'} {bound:g}"


def last_number(pattern: str, text: str) -> Optional[float]:
    """The last number that a pattern finds: its last group that took part."""
    last = None
    for match in re.finditer(pattern, text, re.MULTILINE):
        groups = [group for group in match.groups() if group is not None] or [match[0]]
        found = _number(groups[-1])
        last = last if found is None else found
    return last


def _number(text: str) -> Optional[float]:
    try:
        return float(text.replace("D", "E").replace("d", "e"))
    except ValueError:
        return None


def how_far(progress: Any, texts: Mapping[str, str], values: Mapping[str, str]) -> Tuple[float, Optional[float]]:
    """The steps that are done, as far as the log says, and how many there are to be (None: it does not say)."""
    text = texts.get(filled(progress.log, values), "")
    total = last_number(progress.total, text) if progress.total else None
    return last_number(progress.line, text) or 0.0, total
