"""The accounting files of PBS and Torque: `date;type;job;NAME=value ...`; a record E is of a job's end."""

from __future__ import annotations

import re

from ejbd.accounting.rows import Ending, Finished, OddLine, clock_seconds, sound, whole

_RECORD = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;([A-Za-z]);([^;]*);(.*)", re.DOTALL)
_WORD = re.compile(r"([A-Za-z_.]+)=(\"[^\"]*\"|\S*)")
_COUNT = re.compile(r"(\d+)(?::ppn=(\d+)|:ncpus=(\d+))?")
_KILLED = 256  # exit codes from here on are a signal's
_OVER_LIMIT = {-29, -11}  # OpenPBS and Torque: killed for its walltime


def is_pbs(line: str) -> bool:
    """Whether this is a line of such a file."""
    return _RECORD.match(line) is not None


def parse(line: str) -> Finished | None:
    """A job's end; None for other records. Raises OddLine."""
    record = _RECORD.match(line)
    if record is None:
        raise OddLine("torn: not date;type;job;...")
    kind, job, rest = record.groups()
    if kind != "E":
        return None
    words = dict(_WORD.findall(rest))
    try:
        user, start, end = words["user"], words["start"], words["end"]
    except KeyError as missing:
        raise OddLine(f"torn: no {missing.args[0]}") from None
    start_s, end_s = float(whole(start, "the start")), float(whole(end, "the end"))
    limit = words.get("Resource_List.walltime")
    requested = float(_walltime(limit, "the limit")) if limit else None
    used = words.get("resources_used.walltime")
    run_s = float(_walltime(used, "the run time")) if used else end_s - start_s
    status = words.get("Exit_status", "0")
    queued = words.get("qtime") or words.get("ctime") or ""
    return sound(
        Finished(
            job,
            user,
            words.get("jobname", "").strip('"'),
            words.get("queue", ""),
            _processors(words),
            int(nodes) if (nodes := words.get("Resource_List.nodect", "")).isdigit() else None,
            requested,
            float(queued) if queued.isdigit() else None,
            start_s,
            end_s,
            run_s,
            _ending(status, run_s, requested),
        )
    )


def _walltime(text: str, what: str) -> int:
    """Seconds of [[hours:]minutes:]seconds."""
    if text.isdigit():
        return int(text)
    return clock_seconds(text, what)


def _ending(status: str, run_s: float, requested_s: float | None) -> Ending:
    try:
        code = int(status)
    except ValueError:
        raise OddLine("an exit status that is no number") from None
    if code == 0:
        return Ending.COMPLETED
    if code in _OVER_LIMIT or (code >= _KILLED and requested_s is not None and run_s >= requested_s):
        return Ending.TIMEOUT
    return Ending.CANCELLED if code >= _KILLED or code < 0 else Ending.FAILED


def _processors(words: dict[str, str]) -> int:
    for name in ("Resource_List.ncpus", "resources_used.ncpus", "total_execution_slots"):
        if words.get(name, "").isdigit():
            return int(words[name])
    total = 0
    for part in (words.get("Resource_List.nodes") or words.get("Resource_List.select") or "").split("+"):
        found = _COUNT.match(part)
        if found:
            total += int(found[1]) * int(found[2] or found[3] or 1)
    return total
