"""`squeue` and `sinfo`, the two commands of a poll.

Job names, node reasons and the like are free text of other people and may hold any character. Fields are therefore
kept apart by a separator that is drawn anew for each call: nobody can have put it into a name beforehand, so that a
name can neither hide a row nor forge one.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ejbd.batch.base import tag_in
from ejbd.batch.slurm import states
from ejbd.core.view import BatchJobView, BatchState, NodeView, QueueView
from ejbd.core.walltime import parse_listed_walltime

_JOB_ID = re.compile(r"[0-9]+([_+][0-9]+|_\[[^\]\n]*\])?", re.ASCII)


def new_separator() -> str:
    """Letters only behind the bar: Slurm would read a digit as a field's width."""
    return "|" + "".join(secrets.choice("bcdfghjkmnpqrstvwxyz") for _ in range(10)) + "|"


def rows(text: str, separator: str, fields: int) -> Iterator[list[str] | None]:
    """The rows of a listing in which every field ends with the separator; None for what is no whole row."""
    at = 0
    pieces = text.split(separator)
    while at + fields < len(pieces):
        row = pieces[at : at + fields]
        # The line break that ended the row before is at the head of this one's first field.
        head = row[0]
        if at and not head.startswith("\n"):
            yield None
            return
        yield [head.removeprefix("\n"), *row[1:]]
        at += fields
    rest = separator.join(pieces[at:])
    if rest.strip("\n"):
        yield None


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of a listing, with what only sorting and looking up need."""

    view: BatchJobView
    uid: int
    priority: int


@dataclass(frozen=True, slots=True)
class Squeue:
    """All jobs, those that ended lately included, with exit codes. `ids` and `user` narrow it down."""

    separator: str
    ids: tuple[str, ...] = ()
    user: str = ""
    timeout_s: float = 20.0

    FIELDS = (
        *("JobArrayID", "State", "UserName", "UserID", "Partition", "NumCPUs", "NumNodes", "TimeLimit", "SubmitTime"),
        *("StartTime", "EndTime", "PriorityLong", "NodeList", "SchedNodes", "exit_code", "Reason", "Name", "Comment"),
    )

    def argv(self) -> list[str]:
        narrowed = []
        if self.ids:
            narrowed.append("--jobs=" + ",".join(self.ids))
        if self.user:
            narrowed.append("--user=" + self.user)
        columns = ",".join(f"{name}:{self.separator}" for name in self.FIELDS)
        return ["squeue", "--noheader", "--states=all", *narrowed, f"--Format={columns}"]

    def parse(self, text: str, now_s: float) -> tuple[list[JobRow], int]:
        """The jobs, and the number of rows that could not be read. `now_s`: only later planned starts count."""
        found, unparsed, own_uid = [], 0, os.geteuid()
        for row in rows(text, self.separator, len(self.FIELDS)):
            try:
                if row is None:
                    raise ValueError("torn row")
                found.append(_job(dict(zip(self.FIELDS, row, strict=True)), now_s, own_uid))
            except ValueError:
                unparsed += 1
        return found, unparsed


OVERDUE_S = 60.0  # twice Slurm's own interval between two looks at the whole queue
NEVER_S = 365 * 86400.0  # a start that lies further ahead is a lock on a job that stands by, or Slurm's word for never
WAITS_FOR_ROOM = ("None", "Priority", "Resources", "")


def _job(row: dict[str, str], now_s: float, own_uid: int) -> JobRow:
    id, reason = row["JobArrayID"].strip(), row["Reason"].strip()
    if not _JOB_ID.fullmatch(id):
        raise ValueError(f"{id!r} is not a job id")
    state = states.job_state(row["State"], reason)
    waiting = state in (BatchState.PENDING, BatchState.HELD)
    start = states.epoch_s(row["StartTime"])
    end = states.epoch_s(row["EndTime"])
    # A start that is due stays planned until it happens, or turns out to be forgotten.
    due = start is not None and now_s - OVERDUE_S < start < now_s + NEVER_S
    # Around nodes that do not answer Slurm plans for a time far ahead, and they may answer again in a second.
    away = "UnavailableNodes" in reason
    planned = start if state is BatchState.PENDING and due and not away else None
    view = BatchJobView(
        id=id,
        name=row["Name"],
        user=row["UserName"],
        queue=row["Partition"],
        state=state,
        processors=states.count(row["NumCPUs"]),
        walltime_s=parse_listed_walltime(row["TimeLimit"]),
        submit_s=states.epoch_s(row["SubmitTime"]),
        start_s=None if waiting else start,
        end_s=None if waiting else end,
        nodes=() if waiting else states.hosts(row["NodeList"]),
        planned_start_s=planned,
        planned_nodes=states.hosts(row["SchedNodes"]) if planned is not None else (),
        exit_code=states.exit_code(row["exit_code"]) if state.ended else None,
        reason="" if reason == "None" else reason,
        blocked=state is BatchState.PENDING and reason not in WAITS_FOR_ROOM,
        tag=tag_in(row["Comment"]),
        foreign=int(row["UserID"]) != own_uid,
    )
    return JobRow(view, int(row["UserID"]), int(row["PriorityLong"]))


def in_order(jobs: Sequence[JobRow], tiers: dict[str, int]) -> tuple[BatchJobView, ...]:
    """The views, pending jobs in the order in which Slurm considers them: partition tier, priority, age."""

    def key(row: JobRow) -> tuple[int, int, int]:
        tier = max((tiers.get(name, 0) for name in row.view.queue.split(",")), default=0)
        return -tier, -row.priority, int(row.view.id.partition("_")[0].partition("+")[0])

    return tuple(row.view for row in sorted(jobs, key=key))


@dataclass(frozen=True, slots=True)
class Sinfo:
    """Every node once a partition, with the partition's own settings. `whole_nodes`: select/linear sites."""

    separator: str
    whole_nodes: bool = False
    timeout_s: float = 20.0

    FIELDS = (
        *("NodeList", "Partition", "Available", "Time", "OverSubscribe", "CPUsState", "Threads", "PriorityTier"),
        *("StateLong", "Memory", "AllocMem", "features_act", "Gres", "GresUsed"),
    )

    def argv(self) -> list[str]:
        columns = ",".join(f"{name}:{self.separator}" for name in self.FIELDS)
        return ["sinfo", "--noheader", "--Node", f"--Format={columns}"]

    def parse(self, text: str) -> NodeListing:
        nodes: dict[str, _Node] = {}
        queues: dict[str, _Queue] = {}
        unparsed = 0
        for row in rows(text, self.separator, len(self.FIELDS)):
            try:
                if row is None:
                    raise ValueError("torn row")
                _node(dict(zip(self.FIELDS, row, strict=True)), nodes, queues, self.whole_nodes)
            except ValueError:
                unparsed += 1
        return NodeListing(
            nodes=tuple(
                NodeView(
                    name,
                    node.processors,
                    node.free,
                    node.usable,
                    tuple(node.queues),
                    node.state,
                    memory_mb=node.memory_mb,
                    free_memory_mb=node.free_memory_mb if node.usable else 0,
                    features=node.features,
                    gres=node.gres,
                )
                for name, node in nodes.items()
            ),
            queues=tuple(
                QueueView(name, queue.up, queue.max_walltime_s, queue.quantum, queue.total, queue.default)
                for name, queue in queues.items()
            ),
            tiers={name: queue.tier for name, queue in queues.items()},
            unparsed=unparsed,
        )


@dataclass(frozen=True, slots=True)
class NodeListing:
    """What one sinfo shows. `tiers`: queue -> PriorityTier."""

    nodes: tuple[NodeView, ...]
    queues: tuple[QueueView, ...]
    tiers: dict[str, int]
    unparsed: int


@dataclass(slots=True)
class _Node:
    processors: int
    free: int
    usable: bool
    state: str
    queues: list[str]
    memory_mb: int
    free_memory_mb: int
    features: tuple[str, ...]
    gres: tuple[tuple[str, int, int], ...]


@dataclass(slots=True)
class _Queue:
    up: bool
    max_walltime_s: float | None
    default: bool
    tier: int
    quantum: int = 1
    total: int = 0


_IN_BRACKETS = re.compile(r"\([^)]*\)")


def gres_of(configured: str, used: str) -> tuple[tuple[str, int, int], ...]:
    """`gpu:tesla:2(S:0),gpu:kepler:2` and what is used of them: name, all, free; types of one name together."""
    every, busy = _gres_counts(configured), _gres_counts(used)
    return tuple((name, count, max(0, count - busy.get(name, 0))) for name, count in every.items())


def _gres_counts(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in _IN_BRACKETS.sub("", text).split(","):
        name, *rest = word.strip().split(":")
        if name and name != "(null)" and (rest or name.isidentifier()):
            count = int(rest[-1]) if rest and rest[-1].isascii() and rest[-1].isdigit() else 1
            found[name] = found.get(name, 0) + count
    return found


def _megabytes(text: str) -> int:
    """0 where it cannot be read: a node is not left out for its memory."""
    try:
        return states.count(text)
    except ValueError:
        return 0


def _node(row: dict[str, str], nodes: dict[str, _Node], queues: dict[str, _Queue], whole_nodes: bool) -> None:
    name, state = row["NodeList"].strip(), row["StateLong"].strip()
    partition = row["Partition"].strip()
    if not name:
        raise ValueError("a node without a name")
    queue_name = partition.removesuffix("*")
    _, idle, _, total = (states.count(part) for part in row["CPUsState"].split("/"))
    threads, tier = states.count(row["Threads"]), int(row["PriorityTier"])
    limit = parse_listed_walltime(row["Time"])
    usable = states.node_usable(state)
    exclusive = whole_nodes or row["OverSubscribe"].strip().upper().startswith("EXCLUSIVE")
    node = nodes.get(name)
    if node is None:
        memory_mb, allocated_mb = _megabytes(row["Memory"]), _megabytes(row["AllocMem"])
        features = tuple(word for word in row["features_act"].strip().split(",") if word and word != "(null)")
        gres = gres_of(row["Gres"], row["GresUsed"])
        free_mb = max(0, memory_mb - allocated_mb)
        node = _Node(total, idle if usable else 0, usable, state, [], memory_mb, free_mb, features, gres)
        nodes[name] = node
    node.queues.append(queue_name)
    queue = queues.setdefault(
        queue_name, _Queue(row["Available"].strip() == "up", limit, partition.endswith("*"), tier)
    )
    # A core is the least that is given out, and it has `threads` processors.
    queue.quantum = max(queue.quantum, total if exclusive else threads)
    queue.total += total
