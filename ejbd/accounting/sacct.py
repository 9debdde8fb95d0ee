"""What `sacct --parsable2` prints: a heading with the names of the fields, then a job or a step a line.

Wanted are JobIDRaw (or JobID), User, JobName, AllocCPUS (or NCPUS), ElapsedRaw (or Elapsed), TimelimitRaw (or
Timelimit), State, Start and End. Submit, Partition and AllocNodes (or NNodes) are taken where they are there. Without
a run time it is the time from Start to End; a caller that asks for no names needs no JobName. Steps are passed over.
"""

from __future__ import annotations

from collections.abc import Callable

from ejbd.accounting.rows import Finished, OddLine, clock_seconds, ending_of, local_time, sound, whole
from ejbd.errors import Code, EjbError

COMMAND = (
    "sacct -a -X --parsable2 --format=JobIDRaw,User,JobName,Partition,AllocCPUS,AllocNodes,ElapsedRaw,TimelimitRaw,"
    "State,Submit,Start,End -S 2024-01-01"
)
_NAMES = {
    "job": ("jobidraw", "jobid"),
    "user": ("user",),
    "name": ("jobname",),
    "processors": ("alloccpus", "ncpus"),
    "run": ("elapsedraw", "elapsed"),
    "limit": ("timelimitraw", "timelimit"),
    "state": ("state",),
    "start": ("start",),
    "end": ("end",),
}
_MORE = {"submit": ("submit",), "queue": ("partition",), "nodes": ("allocnodes", "nnodes")}

Parse = Callable[[str], Finished | None]


def is_heading(line: str) -> bool:
    """Whether this is the first line of such a file."""
    words = line.strip().lower().split("|")
    return "state" in words and ("jobid" in words or "jobidraw" in words)


def parser(heading: str, *, named: bool = True) -> Parse:
    """What reads the lines below this heading. `named`: jobs have to have names.

    Raises EjbError (INVALID) where a field is missing.
    """
    words = [word.strip().lower() for word in heading.rstrip("\n|").split("|")]
    at = {key: next((words.index(name) for name in names if name in words), -1) for key, names in _NAMES.items()}
    at |= {key: next((words.index(name) for name in names if name in words), -1) for key, names in _MORE.items()}
    needless = {"run"} if named else {"run", "name"}
    missing = [names[0] for key, names in _NAMES.items() if at[key] < 0 and key not in needless]
    if missing:
        raise EjbError(Code.INVALID, f"the heading has no {', '.join(missing)}", where="line 1", hint=COMMAND)
    count = len(words)
    raw_run, raw_limit = "elapsedraw" in words, "timelimitraw" in words
    job, user, name, processors = at["job"], at["user"], at["name"], at["processors"]
    ran, limit, state, begun, ended = at["run"], at["limit"], at["state"], at["start"], at["end"]
    submit, queue, nodes = at["submit"], at["queue"], at["nodes"]

    def parse(line: str) -> Finished | None:
        parts = line.split("|")
        if len(parts) != count and not (len(parts) == count + 1 and not parts[-1]):
            raise OddLine(f"torn: not {count} fields")
        if "." in parts[job]:
            return None  # a step
        run_s: float = 0.0
        if ran >= 0:
            run_s = whole(parts[ran], "the run time") if raw_run else clock_seconds(parts[ran], "the run time")
        ending = ending_of(parts[state])
        start_s, end_s = local_time(parts[begun]), local_time(parts[ended])
        if end_s is None:
            raise OddLine("has no end")
        if ran < 0 and start_s is not None:
            run_s = end_s - start_s
        asked = parts[limit]
        requested: float | None
        if asked in ("UNLIMITED", "Partition_Limit", "INVALID", ""):
            requested = None
        else:
            requested = whole(asked, "the limit") * 60.0 if raw_limit else clock_seconds(asked, "the limit")
        return sound(
            Finished(
                parts[job],
                parts[user],
                parts[name] if name >= 0 else "",
                parts[queue] if queue >= 0 else "",
                whole(parts[processors], "the number of processors"),
                whole(parts[nodes], "the number of nodes") if nodes >= 0 else None,
                requested,
                local_time(parts[submit]) if submit >= 0 else None,
                start_s,
                end_s,
                float(run_s),
                ending,
            )
        )

    return parse
