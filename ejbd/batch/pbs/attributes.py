"""The listings in which every attribute has a line: `qstat -Qf`, `qstat -Bf` and `pbs_rstat -F`, in both dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ejbd.batch.pbs import states

_HEAD = re.compile(r"(Queue|Server|Resv ID): (\S+)")
_LINE = re.compile(r"\s*([A-Za-z_][\w.]*) = (.*)", re.DOTALL)


def blocks(text: str) -> dict[str, dict[str, str]]:
    """What is listed, by its name: its attributes. A line that begins with a tab goes on with the one before."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    key = ""
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line.rstrip()):
            current, key = found.setdefault(head[2], {}), ""
        elif current is not None and line.startswith("\t") and key:
            current[key] += line.removeprefix("\t")
        elif current is not None and (match := _LINE.fullmatch(line)):
            key = match[1]
            current[key] = match[2]
        else:
            key = ""
    return {name: {key: value.strip() for key, value in each.items()} for name, each in found.items()}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue: what it takes, and what of the nodes it uses (`needs`: a property of Torque's).

    `destinations`: of a routing queue, the queues to which it may hand a job on, by itself or through others; it uses
    their nodes. `only_routed`: an execution queue that takes jobs from a routing queue alone. `default_walltime_s`: of
    a job that names none, where the queue itself says so.
    """

    name: str
    up: bool
    max_walltime_s: float | None
    needs: str = ""
    destinations: tuple[str, ...] = ()
    only_routed: bool = False
    default_walltime_s: float | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """What changes rarely: queues and the server's settings."""

    queues: tuple[QueueRow, ...] = ()
    default_queue: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def schedules(self) -> bool:
        """Whether the server asks its scheduler at all."""
        return self.settings.get("scheduling", "True") == "True"

    def default_walltime_s(self, queue: QueueRow, *, by_limit: bool) -> float | None:
        """What a job gets that names no walltime: the queue's default, the server's, or (`by_limit`, OpenPBS) the most
        that queue or server allow. A job that is routed gets that of its last queue; None where those differ."""
        if queue.destinations:
            found = {self.default_walltime_s(one, by_limit=by_limit) for one in self.behind(queue)}
            return found.pop() if len(found) == 1 else None
        server = walltime_in(self.settings, "resources_default.walltime")
        limits = (queue.max_walltime_s, walltime_in(self.settings, "resources_max.walltime")) if by_limit else ()
        return next((one for one in (queue.default_walltime_s, server, *limits) if one is not None), None)

    def behind(self, queue: QueueRow) -> tuple[QueueRow, ...]:
        """The execution queues in which a job submitted to this one may run: itself, or where it is routed to."""
        if not queue.destinations:
            return (queue,)
        return tuple(one for one in self.queues if one.name in queue.destinations)


def queues(text: str) -> tuple[QueueRow, ...]:
    """The execution and routing queues; those of reservations are left out, and routes that lead to no queue here."""
    found: list[QueueRow] = []
    routes: dict[str, list[str]] = {}
    for name, settings in blocks(text).items():
        if re.fullmatch(r"[RSM][0-9]+", name):
            continue
        if not settings.get("queue_type", "Execution").startswith("E"):
            routes[name] = [word.strip() for word in settings.get("route_destinations", "").split(",")]
        limit_s = walltime_in(settings, "resources_max.walltime")
        default_s = walltime_in(settings, "resources_default.walltime")
        up = settings.get("enabled") == "True" and settings.get("started") == "True"
        needs, only_routed = settings.get("resources_default.neednodes", ""), settings.get("from_route_only") == "True"
        row = QueueRow(name, up, limit_s, needs, only_routed=only_routed, default_walltime_s=default_s)
        found.append(row)
    rows = {row.name: row for row in found}
    whole = (_routed(row, routes, rows) if row.name in routes else row for row in found)
    return tuple(row for row in whole if row.name not in routes or row.destinations)


def walltime_in(settings: Mapping[str, str], name: str) -> float | None:
    """A length of time among settings (seconds); None where there is none that can be read."""
    try:
        return states.seconds(settings[name])
    except (KeyError, ValueError):
        return None


def _routed(row: QueueRow, routes: Mapping[str, Sequence[str]], rows: Mapping[str, QueueRow]) -> QueueRow:
    """A routing queue with what is behind it: open where one of them is, and with the longest limit of theirs."""
    met, ends, left = {row.name}, [], list(routes[row.name])
    while left:
        name = left.pop(0)
        if name in rows and name not in met:
            met.add(name)
            if name in routes:
                left = [*routes[name], *left]
            else:
                ends.append(rows[name])
    limits = [end.max_walltime_s for end in ends]
    longest = None if not limits or None in limits else max(limit for limit in limits if limit is not None)
    own = [limit for limit in (row.max_walltime_s, longest) if limit is not None]
    return replace(
        row,
        up=row.up and any(end.up for end in ends),
        max_walltime_s=min(own, default=None),
        destinations=tuple(end.name for end in ends),
    )


def server(text: str) -> dict[str, str]:
    """The settings of the (first) server; nothing where there is none."""
    return next(iter(blocks(text).values()), {})


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Nodes that are reserved, from when until when. `nodes`: processors by host."""

    name: str
    start_s: float
    end_s: float
    nodes: Mapping[str, int]
    owner: str = ""

    @property
    def what(self) -> str:
        """Maintenance bears a name of its own: M12 with OpenPBS (pbs_rsub --hosts), SYSTEM.0 with Maui (setres)."""
        return "maintenance" if re.match(r"M[0-9]|SYSTEM\b", self.name) else "reservation"


def reservations(text: str) -> tuple[list[ReservationRow], int]:
    """`pbs_rstat -F`: those that are confirmed or running, and the number of those that cannot be read."""
    found, unparsed = [], 0
    for name, settings in blocks(text).items():
        if settings.get("reserve_state", "") not in _KEPT:
            continue
        try:
            vnodes = states.exec_vnodes(settings.get("resv_nodes", ""))
            hosts: dict[str, int] = {}
            for vnode, processors in vnodes.items():
                host = states.vnode_host(vnode)
                hosts[host] = hosts.get(host, 0) + processors
            start, end = states.epoch_s(settings["reserve_start"]), states.epoch_s(settings["reserve_end"])
            found.append(ReservationRow(name, start, end, hosts, settings.get("Reserve_Owner", "").partition("@")[0]))
        except (KeyError, ValueError, OverflowError):
            unparsed += 1
    return found, unparsed


_KEPT = frozenset({"RESV_CONFIRMED", "RESV_RUNNING", "RESV_TIME_TO_RUN", "RESV_DEGRADED", "RESV_BEING_ALTERED"})
