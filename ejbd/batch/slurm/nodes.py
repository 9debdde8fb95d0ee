"""`scontrol` about nodes and partitions, the other command of a poll.

`sinfo` has the same, but compares each of its rows with all others. That is 12 s of CPU time and more for 5,000 nodes
in 6 partitions, where `scontrol` takes 0.05 s. Both questions go to one scontrol, on its standard input: it says what
it is asked (`scontrol: show nodes`) between its answers. For the nodes scontrol asks the controller for all partitions,
too, and squeue does the same. What partitions are like seldom changes. So that is not asked a third time in each poll.

A line is `Name=value Name=value …`. What is read of a node stands before all that people write freely (Reason, Comment,
Extra, which may hold blanks, `|` and `=`). So of two fields of one name the first is the real one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from ejbd.batch.slurm import states
from ejbd.batch.slurm.sharing import Sharing
from ejbd.core.view import NodeView, QueueView
from ejbd.core.walltime import parse_listed_walltime

_LINE = re.compile(r"[^\n]+")
_PROMPT = "scontrol: "
_NODE = re.compile(
    r" (CPUAlloc|CPUEfctv|CPUTot|ActiveFeatures|Gres|GresUsed|RealMemory|AllocMem|State|ThreadsPerCore|Partitions)"
    r"=([^ ]*)"
)
_PARTITION = re.compile(
    r" (Default|DefaultTime|Exclusive|MaxTime|OverSubscribe|PriorityTier|State)=([^ ]*)(?= )"
)  # no free text in it; what nothing follows may have been torn


@dataclass(frozen=True, slots=True)
class NodeListing:
    """What one reading of the nodes shows. `tiers`: queue -> PriorityTier.

    `partitions`: their lines, as they were told. `untold`: partitions of nodes of which nothing was told.
    """

    nodes: tuple[NodeView, ...]
    queues: tuple[QueueView, ...]
    tiers: dict[str, int]
    unparsed: int
    partitions: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShowNodes:
    """Every node and every partition that this user may see. `whole_nodes`: select/linear sites.

    `partitions`: their lines of an earlier listing, where they are not asked for again.
    """

    whole_nodes: bool = False
    timeout_s: float = 20.0
    partitions: tuple[str, ...] = ()

    # The line editor that scontrol may be linked with is to add nothing of its own.
    environment: ClassVar[Mapping[str, str]] = {"TERM": "dumb", "INPUTRC": "/dev/null"}

    def argv(self) -> list[str]:
        return ["scontrol", "--oneliner", "--details"]  # details: devices in use

    @property
    def stdin(self) -> str:
        return "show nodes\n" if self.partitions else "show nodes\nshow partitions\n"

    def parse(self, text: str) -> NodeListing:
        """What was listed, with the number of lines that could not be read. The text is read in place, line by line."""
        nodes: list[NodeView] = []
        queues: dict[str, _Queue] = {}
        unparsed = 0
        partitions: list[str] = []
        may_go_on = False  # a comment may hold line breaks, which are printed as they are
        for found in _LINE.finditer(text):
            line = found[0].rstrip()
            while line.startswith(_PROMPT):
                line = line.removeprefix(_PROMPT)
            try:
                kind, _, name = line[: line.find(" ")].partition("=")
                if kind == "NodeName":
                    node, threads = _node(name, line)
                    nodes.append(node)
                    _count(node, threads, queues)
                    may_go_on = " Comment=" in line or " Extra=" in line
                elif kind == "PartitionName":
                    _partition(name, line, queues)
                    partitions.append(line)
                    may_go_on = False
                elif not may_go_on and line not in ("", _PROMPT.rstrip(), "show nodes", "show partitions"):
                    raise ValueError("neither a node nor a partition")
            except ValueError:
                unparsed += 1
        for line in self.partitions:
            _partition(line[: line.find(" ")].partition("=")[2], line, queues)
        untold = tuple(queue.name for queue in queues.values() if not queue.told)
        return NodeListing(
            # As everywhere in Slurm, a node in no partition cannot be used.
            nodes=tuple(node for node in nodes if node.queues),
            queues=tuple(queue.view(self.whole_nodes) for queue in queues.values() if queue.told),
            tiers={queue.name: queue.tier for queue in queues.values()},
            unparsed=unparsed + len(untold),
            partitions=self.partitions or tuple(partitions),
            untold=untold,
        )


@dataclass(slots=True)
class _Queue:
    """A partition: what its nodes have in common, and, once it is `told`, its own settings."""

    name: str
    total: int = 0
    widest: int = 0  # processors of the node with the most
    threads: int = 1
    told: bool = False
    up: bool = False
    exclusive: bool = False
    sharing: int = 1
    default: bool = False
    tier: int = 0
    max_walltime_s: float | None = None
    default_walltime_s: float | None = None

    def view(self, whole_nodes: bool) -> QueueView:
        # A core is the least that is given out, and it has `threads` processors.
        quantum = max(1, self.threads, self.widest if whole_nodes or self.exclusive else 1)
        default_s = self.default_walltime_s or self.max_walltime_s  # as Slurm has it
        return QueueView(
            self.name,
            self.up,
            self.max_walltime_s,
            quantum,
            self.total,
            self.default,
            default_walltime_s=default_s,
            jobs_a_processor=self.sharing,
        )


def _fields(pattern: re.Pattern[str], line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pattern.findall(line):
        found.setdefault(name, value)
    return found


def _needed(fields: dict[str, str], name: str) -> str:
    if not (value := fields.get(name, "")):
        raise ValueError(f"no {name} is told")
    return value


def _node(name: str, line: str) -> tuple[NodeView, int]:
    """A node, and the threads of one of its cores. Raises ValueError."""
    fields = _fields(_NODE, line)
    state = _needed(fields, "State")
    usable = states.node_usable(state)
    # CPUEfctv (22.05 and later) is without what the site keeps for itself (CoreSpecCount, CpuSpecList).
    total = states.count(fields.get("CPUEfctv") or _needed(fields, "CPUTot"))
    idle = max(0, total - states.count(_needed(fields, "CPUAlloc")))
    memory_mb, allocated_mb = (_megabytes(fields.get(name, "")) for name in ("RealMemory", "AllocMem"))
    node = NodeView(
        name,
        total,
        idle if usable else 0,
        usable,
        _words(fields.get("Partitions", "")),
        state.lower(),
        memory_mb=memory_mb,
        free_memory_mb=max(0, memory_mb - allocated_mb) if usable else 0,
        features=_words(fields.get("ActiveFeatures", "")),
        gres=gres_of(fields.get("Gres", ""), fields.get("GresUsed", "")),
    )
    return node, states.count(_needed(fields, "ThreadsPerCore"))


@lru_cache(maxsize=1024)  # thousands of nodes have few combinations of partitions and features
def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word not in ("", "(null)"))


def _count(node: NodeView, threads: int, queues: dict[str, _Queue]) -> None:
    for name in node.queues:
        queue = queues.get(name)
        if queue is None:
            queue = queues[name] = _Queue(name)
        queue.total += node.processors
        if node.processors > queue.widest:
            queue.widest = node.processors
        if threads > queue.threads:
            queue.threads = threads


def _partition(name: str, line: str, queues: dict[str, _Queue]) -> None:
    """Raises ValueError."""
    fields = _fields(_PARTITION, line)
    up = _needed(fields, "State") == "UP"
    limit, tier = parse_listed_walltime(_needed(fields, "MaxTime")), int(_needed(fields, "PriorityTier"))
    queue = queues.setdefault(name, _Queue(name))
    queue.told, queue.up, queue.max_walltime_s, queue.tier = True, up, limit, tier
    queue.default = fields.get("Default") == "YES"
    queue.default_walltime_s = parse_listed_walltime(fields.get("DefaultTime", ""))
    queue.sharing = Sharing(name, fields.get("OverSubscribe", "NO")).jobs
    # Since 26.05 a word of its own tells it; TOPO gives out whole blocks of nodes.
    queue.exclusive = fields.get("OverSubscribe") == "EXCLUSIVE" or fields.get("Exclusive") in ("NODE", "TOPO")


_IN_BRACKETS = re.compile(r"\([^)]*\)")


def gres_of(configured: str, used: str) -> tuple[tuple[str, int, int], ...]:
    """`gpu:tesla:2(S:0),gpu:kepler:2` and what is used of them: name, all, free; types of one name together."""
    if configured in ("", "(null)"):
        return ()
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
