"""A job and a node as either dialect lists them: attributes in, values of the view out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from ejbd.batch.base import tag_in
from ejbd.batch.pbs import states
from ejbd.batch.pbs.states import Dialect
from ejbd.core.view import BatchJobView, BatchState

_TAG_FOLDER = "/dev/null/"

_LONGEST_NAME = 15
"""Every version takes a name of that length."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def tag_path(tag: str) -> str:
    """The file for errors that a job of EJB's names (`qsub -e`), by which it is found again, whatever it is called.

    Nothing is written there, since its errors go where its output does (`-j oe`), and nothing could. What a job submits
    itself does not inherit it, as it would a variable (`qsub -V`).
    """
    return _TAG_FOLDER + quote(tag, safe="")


def tag_of(error_path: str) -> str:
    """The tag that :func:`tag_path` wrote, from `HOST:PATH` of a job's errors; "" where there is none."""
    path = error_path.partition(":")[2]
    return unquote(path.removeprefix(_TAG_FOLDER)) if path.startswith(_TAG_FOLDER) else ""


def job_name(tag: str, longest: int = _LONGEST_NAME) -> str:
    """The tag as a name that PBS takes: the tag itself where it is one, otherwise what is left of it that is."""
    if len(tag) <= longest and _PLAIN.fullmatch(tag):
        return tag
    left = re.sub(r"[^A-Za-z0-9._-]+", "_", tag, flags=re.ASCII).strip("._-")[:longest]
    return left or "ejb"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is listed of one job: its plain attributes, and those that have parts of their own."""

    id: str
    plain: Mapping[str, str]
    asked: Mapping[str, str]  # Resource_List
    estimated: Mapping[str, str]
    used: Mapping[str, str] = field(default_factory=dict)  # resources_used


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a listing. `shares`: processors by host; `server_id`: as the server knows it."""

    view: BatchJobView
    shares: Mapping[str, int]
    why: str = ""
    waits_for: tuple[str, ...] = ()  # jobs by their ids


def job_row(dialect: Dialect, job: Attributes, own_user: str | None, now_s: float) -> JobRow:
    """`own_user`: None where the jobs of all users are served. Raises ValueError for what no job is."""
    if not states.is_job_id(job.id):
        raise ValueError(f"{job.id[:40]!r} is not a job id")
    letter = job.plain.get("job_state", "")
    if not letter:
        raise ValueError(f"job {job.id} has no state")
    owner = job.plain.get("euser") or job.plain.get("Job_Owner", "").partition("@")[0]
    name = job.plain.get("Job_Name", "")
    tag = tag_of(job.plain.get("Error_Path", ""))
    if tag and name == job_name(tag):
        name = tag
    shares = states.exec_hosts(job.plain.get("exec_host", ""))
    ended = states.has_ended(dialect, letter)
    depends = "after" in job.plain.get("depend", "")
    state, blocked = states.living_state(letter, hold=job.plain.get("Hold_Types", ""), depends=depends)
    if letter == "B" and _QUEUED.search(job.plain.get("array_state_count", "")):
        state = BatchState.PENDING  # something of the array waits: the array stands for that
    code, why = None, ""
    if ended:
        status = job.plain.get("Exit_status") or job.plain.get("exit_status")
        substate = job.plain.get("substate", "")
        began = job.plain.get("session_id") != "0"
        state, code, why = states.end_of(dialect, states.exit_status(status) if status else None, substate, began)
        blocked = False
    walltime = job.asked.get("walltime")
    walltime_s = states.seconds(walltime) if walltime else None
    start_s = _time(job.plain, "stime", "start_time")
    end_s = None
    if ended:
        end_s = _time(job.plain, "obittime", "comp_time", "mtime")
        start_s = start_s if start_s is not None else None
    elif state.holds_processors and start_s is not None and walltime_s is not None:
        end_s = start_s + walltime_s + _stopped_s(job.used.get("walltime"), state, now_s - start_s)
    waiting = state in (BatchState.PENDING, BatchState.HELD)
    planned_s, planned_nodes = None, ()
    if state is BatchState.PENDING and (start := job.estimated.get("start_time")) is not None:
        # What it says goes stale once the job has started, and may be overdue for a cycle of the scheduler.
        planned_s = max(states.epoch_s(start), now_s) if _epoch_or_zero(start) > now_s - OVERDUE_S else None
        if planned_s is not None:
            hosts = (states.vnode_host(v) for v in states.exec_vnodes(job.estimated.get("exec_vnode", "")))
            planned_nodes = tuple(dict.fromkeys(hosts))  # type: ignore[assignment]
    processors = sum(shares.values()) if shares and not waiting else asked_processors(job.asked)
    view = BatchJobView(
        id=job.id,
        name=name,
        user=owner,
        queue=job.plain.get("queue", ""),
        state=state,
        processors=processors,
        walltime_s=walltime_s,
        submit_s=_time(job.plain, "ctime"),
        start_s=None if waiting else start_s,
        end_s=end_s,
        nodes=() if waiting else tuple(shares),
        planned_start_s=planned_s,
        planned_nodes=planned_nodes,
        exit_code=code,
        reason=job.plain.get("comment", "").strip() if waiting else "",
        blocked=blocked,
        tag=tag_in(tag),
        foreign=owner == "root" if own_user is None else owner != own_user,
    )
    return JobRow(view, shares, why, tuple(_waits_for(job.plain.get("depend", ""))))


def _waits_for(text: str) -> Iterator[str]:
    """`afterok:12.head@head:13.head@head,beforeany:9.head@head` -> the jobs that it waits for, not those that wait."""
    for condition in text.split(","):
        kind, *others = condition.strip().split(":")
        if kind.startswith("after"):
            yield from (other.partition("@")[0] for other in others)


_QUEUED = re.compile(r"\bQueued:[1-9]", re.ASCII)
OVERDUE_S = 60.0
_USED_LATE_S = 180.0
"""A mom reports at least that often how much of its walltime a job has used."""


def _stopped_s(used: str | None, state: BatchState, since_start_s: float) -> float:
    """For how long a job has been suspended so far: that does not count as walltime. Never more than it was."""
    if used is None:
        return 0.0
    missing_s = since_start_s - states.seconds(used)
    if state is BatchState.SUSPENDED:
        return max(0.0, missing_s)
    return missing_s - _USED_LATE_S if missing_s > 2 * _USED_LATE_S else 0.0


def asked_processors(asked: Mapping[str, str]) -> int:
    """What a job asks for: OpenPBS counts it itself; Torque has `nodes=2:ppn=4+1:ppn=2` or `procs=5`; else one.

    Raises ValueError for what is no number.
    """
    if "ncpus" in asked and "nodes" not in asked:
        return states.slots(asked["ncpus"]) if not asked["ncpus"].isdigit() else int(asked["ncpus"][:9])
    if "procs" in asked:
        return int(asked["procs"][:9])
    if "nodes" in asked:
        return sum(count * ppn for count, ppn, _ in node_groups(asked["nodes"]))
    return int(asked.get("ncpus", "1")[:9])


def node_groups(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    """`2:ppn=4+n7:ppn=2:gpu` as (nodes, processors a node, names and properties). Raises ValueError."""
    found = []
    for group in text.partition("#")[0].split("+"):
        head, *rest = group.strip().split(":")
        count, properties = (int(head), []) if re.fullmatch(r"[0-9]{1,6}", head, re.ASCII) else (1, [head])
        ppn = 1
        for word in rest:
            if word.startswith("ppn="):
                if not re.fullmatch(r"[0-9]{1,6}", word[4:], re.ASCII):
                    raise ValueError(f"{group[:40]!r} is no group of nodes")
                ppn = int(word[4:])
            else:
                properties.append(word)
        if not head:
            raise ValueError(f"{text[:40]!r} is no list of nodes")
        found.append((count, ppn, tuple(properties)))
    return found


def _time(plain: Mapping[str, str], *names: str) -> float | None:
    text = next((plain[name] for name in names if plain.get(name)), None)
    return None if text is None else states.epoch_s(text)


def _epoch_or_zero(text: str) -> float:
    try:
        return states.epoch_s(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A host: what it has, what of it is given out, and whether it takes more now.

    `bound_to`: the one queue that it serves, where it serves one; `properties`: what a queue may ask of it.
    `memory_mb` and `taken_mb`: what of its memory there is for jobs, and what they have asked for (0 and 0: not known).
    """

    name: str
    processors: int
    taken: int
    state: str
    usable: bool
    exclusive: bool = False
    bound_to: str = ""
    properties: tuple[str, ...] = ()
    memory_mb: int = 0
    taken_mb: int = 0
    elements: tuple[str, ...] = ()  # of arrays, those that run there (OpenPBS)

    @property
    def free(self) -> int:
        return max(0, self.processors - self.taken) if self.usable else 0

    @property
    def free_memory_mb(self) -> int:
        return max(0, self.memory_mb - self.taken_mb) if self.usable else 0


# A node in any other of its words takes no job now.
_USABLE = frozenset({"free", "job-busy", "job-exclusive", "job-sharing", "resv-exclusive", "reserve", "time-shared"})
_FULL = frozenset({"job-exclusive", "resv-exclusive", "job-sharing", "reserve", "busy"})


def node_usable(text: str) -> bool:
    """Whether a node in this state, of one or several words, takes further jobs. What is not known is not usable."""
    words = [word.strip() for word in text.split(",")]
    return all(word in _USABLE for word in words)


def node_full(text: str) -> bool:
    """Whether nothing of it is given out now, whatever its numbers say."""
    return any(word.strip() in _FULL for word in text.split(","))
