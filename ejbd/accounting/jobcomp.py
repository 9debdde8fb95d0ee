"""The file of Slurm's jobcomp/filetxt: NAME=value words, a job a line."""

from __future__ import annotations

import re

from ejbd.accounting.rows import Finished, OddLine, ending_of, local_time, sound, whole

_WORD = re.compile(r"([A-Za-z_]+)=(.*?)(?= [A-Za-z_]+=|\s*$)")


def is_jobcomp(line: str) -> bool:
    """Whether this is a line of such a file."""
    return line.startswith("JobId=")


def parse(line: str) -> Finished | None:
    """A job. Raises OddLine."""
    words = dict(_WORD.findall(line))
    try:
        job, user, state, start, end, processors = (
            words[name] for name in ("JobId", "UserId", "JobState", "StartTime", "EndTime", "ProcCnt")
        )
    except KeyError as missing:
        raise OddLine(f"torn: no {missing.args[0]}") from None
    ending = ending_of(state)
    start_s, end_s = local_time(start), local_time(end)
    if end_s is None:
        raise OddLine("has no end")
    limit = words.get("TimeLimit", "")
    nodes = words.get("NodeCnt", "")
    return sound(
        Finished(
            job,
            user.partition("(")[0],
            words.get("Name", ""),
            words.get("Partition", ""),
            whole(processors, "the number of processors"),
            int(nodes) if nodes.isdigit() else None,
            float(limit) * 60.0 if limit.isdigit() else None,
            local_time(words.get("SubmitTime", "")),
            start_s,
            end_s,
            end_s - start_s if start_s is not None else 0.0,
            ending,
        )
    )
