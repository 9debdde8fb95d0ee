"""The live manager's log read again: its decisions made anew, and its jobs as a workload.

A log is what `ejb events --export` writes: a header, then every event, one JSON object a line. Decisions carry the
question that was asked, so that the core of this version, or the same core under other parameters, can answer again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ejbd.core.decision import Decision
from ejbd.core.policy import UnknownPolicy
from ejbd.core.question import Question
from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import known_policies
from ejbd.sim.replay_jobs import JobBook, LoggedJob
from ejbd.sim.swf import STANDARD

LOG_KIND = "ejb.log"
LOG_FORMAT = 1


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """One decision of the live manager: where it stands in the log, what was asked and what was answered."""

    line: int
    at_s: float
    job: str
    question: Question
    decision: Decision


@dataclass(frozen=True, slots=True)
class EventLog:
    """A log as far as the simulator needs it. `processors` are those of the largest queue, 0 where not known."""

    events: int
    processors: int
    decisions: tuple[LoggedDecision, ...]
    jobs: tuple[LoggedJob, ...]


def read_log(path: Path) -> EventLog:
    """Read an exported log; `-` is standard input. Raises EjbError that names the line which is torn or is no event."""
    try:
        text = sys.stdin.read() if str(path) == STANDARD else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EjbError(Code.INVALID, f"{path} cannot be read as a log: {error}") from None
    decisions: list[LoggedDecision] = []
    known_policies()
    book = JobBook()
    events = processors = 0
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            _refuse(path, number, f"is not one whole JSON object: {line[:40]!r}")
        if number == 1:
            processors = _read_header(path, row)
            continue
        try:
            found = _read_event(number, row, book)
        except UnknownPolicy as error:
            _refuse(path, number, f"was decided by a policy that is not here: {error}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            _refuse(path, number, f"is no event that this version can read: {error!r}")
        events += 1
        if found is not None:
            decisions.append(found)
    if not text.strip():
        _refuse(path, 1, "is missing: the file is empty")
    return EventLog(events, processors, tuple(decisions), book.jobs())


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    hint = "export it again: ejb events --export FILE"
    raise EjbError(Code.INVALID, f"line {number} of {path.name} {what}", where=f"{path}:{number}", hint=hint)


def _read_header(path: Path, row: Any) -> int:
    if not isinstance(row, dict) or row.get("kind") != LOG_KIND:
        _refuse(path, 1, "is not the header of an exported log")
    if row.get("format") != LOG_FORMAT:
        _refuse(path, 1, f"says format {row.get('format')}; this version reads format {LOG_FORMAT}")
    return max((int(queue["processors"]) for queue in row.get("queues", [])), default=0)


def _read_event(number: int, row: Mapping[str, Any], book: JobBook) -> LoggedDecision | None:
    kind, at_s, job, data = str(row["kind"]), float(row["at_s"]), row["job"], row["data"]
    if job is None:
        return None
    book.note(kind, at_s, job, data)
    if not kind.startswith("decision.") or "question" not in data:
        return None
    question = Question.from_json(data["question"])
    return LoggedDecision(number, at_s, job, question, Decision.from_json(data["decision"]))


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that would be another one now."""

    logged: LoggedDecision
    now: Decision

    def to_json(self) -> dict[str, Any]:
        then = self.logged.decision
        return {
            "line": self.logged.line,
            "job": self.logged.job,
            "at_s": self.logged.at_s,
            "situation": self.logged.question.situation.value,
            "then": {"kind": then.kind.value, "requests": _requests(then), "code": then.code, "reason": then.reason},
            "now": {
                "kind": self.now.kind.value,
                "requests": _requests(self.now),
                "code": self.now.code,
                "reason": self.now.reason,
            },
        }


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of asking again.

    `differing`: another thing would be done (kind, subjobs, what is given up). Of the others, `expecting_otherwise`
    would expect another completion, and `worded_otherwise` would give other reasons for the same.
    """

    decisions: int
    differing: tuple[Difference, ...]
    expecting_otherwise: int
    worded_otherwise: int
    kinds: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions,
            "same": self.decisions - len(self.differing),
            "differing": [difference.to_json() for difference in self.differing],
            "expecting_otherwise": self.expecting_otherwise,
            "worded_otherwise": self.worded_otherwise,
            "kinds": dict(self.kinds),
        }


def replay(log: EventLog, changes: Mapping[str, Any] | None = None) -> Replay:
    """Ask every question of a log again, with `changes` to the parameters that its policy has."""
    differing: list[Difference] = []
    expecting = worded = 0
    kinds: dict[str, int] = {}
    for logged in log.decisions:
        kinds[logged.decision.kind.value] = kinds.get(logged.decision.kind.value, 0) + 1
        question = logged.question
        mine = {key: value for key, value in (changes or {}).items() if hasattr(question.parameters, key)}
        if mine:
            question = replace(question, parameters=replace(question.parameters, **mine))
        now = question.answer()
        if _action(now) != _action(logged.decision):
            differing.append(Difference(logged, now))
        elif now.expected_completion_s != logged.decision.expected_completion_s:
            expecting += 1
        elif replace(now, **{name: getattr(logged.decision, name) for name in _MISSING}) != logged.decision:
            worded += 1
    return Replay(len(log.decisions), tuple(differing), expecting, worded, kinds)


_MISSING = ("timeline", "code")  # in logs of before


def _action(decision: Decision) -> tuple[Any, ...]:
    return decision.kind, decision.requests, decision.cancel


def _requests(decision: Decision) -> list[dict[str, Any]]:
    return [asdict(request) for request in decision.requests]
