"""What Maui and Moab say: `showbf` (room for backfilling), `showres -n` (planned starts, standing reservations).

Maui's daemon writes times in its own time zone and without the year, so that what counts are the lengths of time
beside them. The header's time of day says how old the answer is. A scheduler that has lost its resource manager goes on
repeating the last thing that it knew.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ejbd.batch.pbs import states
from ejbd.batch.pbs.openpbs import Unreadable

UNBOUNDED = float("inf")

_HEADER = re.compile(
    r"backfill window \(user: '.*' group: '.*' partition: \S+\) (?P<at>\w{3} \w{3} +\d+ [\d:]{8})", re.I
)
_PARTITION = re.compile(r"partition \S+:", re.I)
_ROW = re.compile(
    r"(?P<count>[0-9]{1,9}) (?P<unit>procs?|nodes?|tasks?) available "
    r"(?P<length>for +(?P<time>[0-9:]+)|with no time ?limit|indefinitely)",
    re.I,
)
_NONE = re.compile(r"no (procs|nodes|tasks) available", re.I)
_NODE_LINE = re.compile(r"node \S+ (is unavailable|is blocked|does not meet|is available).*", re.I)


@dataclass(frozen=True, slots=True)
class Room:
    """So many processors can be used for so long from `at` on (UNBOUNDED: no end is known); rows nest."""

    processors: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Showbf:
    """A whole answer. `at`: the scheduler's own clock, as it wrote it; "" where it says nothing (Moab's table)."""

    rooms: tuple[Room, ...]
    at: str = ""


def showbf(text: str, node_processors: int = 1) -> Showbf:
    """Maui's rows or Moab's table, the widest room first. Where rows count nodes, one has `node_processors`.

    Raises Unreadable for anything that is neither: what is not known opens no window.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0].lower().split()[0] == "partition" and "nodes" in lines[0].lower().split():
        return Showbf(_ordered(_table(lines)))
    if not lines or (header := _HEADER.fullmatch(lines[0])) is None:
        raise Unreadable(f"{text.strip()[:60]!r} is no answer of showbf")
    rooms: list[Room] = []
    for line in lines[1:]:
        bare = line.removeprefix("<").removesuffix(">").strip()
        if row := _ROW.fullmatch(bare):
            count = int(row["count"]) * (node_processors if row["unit"].lower().startswith("node") else 1)
            try:
                rooms.append(Room(count, states.seconds(row["time"]) if row["time"] else UNBOUNDED))
            except ValueError:
                raise Unreadable(f"showbf says {line[:60]!r}, which is not known here") from None
        elif not (_NONE.fullmatch(bare) or _PARTITION.fullmatch(bare) or _NODE_LINE.fullmatch(bare)):
            raise Unreadable(f"showbf says {line[:60]!r}, which is not known here")
    return Showbf(_ordered(rooms), header["at"])


_COLUMNS = {
    "partition": "partition",
    "tasks": "procs",
    "procs": "procs",
    "nodes": "nodes",
    "duration": "duration",
    "startoffset": "offset",
    "startdate": "date",
}


def _table(lines: Sequence[str]) -> list[Room]:
    """By the words of its header, in any order. The partition ALL counts where it is listed: others are parts of it."""
    columns = [_COLUMNS.get(word.lower()) for word in lines[0].split()]
    if None in columns or not {"procs", "duration", "offset"} <= set(columns):
        raise Unreadable(f"showbf has columns {lines[0][:60]!r}, which is not known here")
    rows: list[tuple[str, Room]] = []
    for line in lines[1:]:
        words = line.split()
        while words and re.fullmatch(r"[A-Za-z]+=\S*", words[-1]):
            words.pop()
        if not words or set("".join(words)) <= {"-"}:
            continue
        if len(words) != len(columns):
            raise Unreadable(f"showbf says {line[:60]!r}, which has other columns than its header")
        row = dict(zip(columns, words, strict=True))
        try:
            duration, offset = _length(row["duration"]), _length(row["offset"])
            if offset == UNBOUNDED and duration == 0:  # seen with the two headings exchanged
                duration, offset = offset, duration
            processors = int(row["procs"])
        except (KeyError, ValueError):
            raise Unreadable(f"showbf says {line[:60]!r}, which is not known here") from None
        if offset == 0:
            rows.append((str(row.get("partition", "")), Room(processors, duration)))
    whole = [room for name, room in rows if name == "ALL"]
    return whole or [room for _, room in rows]


def _length(text: str) -> float:
    return UNBOUNDED if text.upper() == "INFINITY" else states.seconds(text)


def _ordered(rooms: Sequence[Room]) -> tuple[Room, ...]:
    """The widest first, and each next one longer; what another contains is left out."""
    found: list[Room] = []
    for room in sorted(rooms, key=lambda room: (-room.processors, -room.duration_s)):
        if room.processors > 0 and (not found or room.duration_s > found[-1].duration_s):
            found.append(room)
    return tuple(found)


def age_s(at: str, now_s: float) -> float:
    """How far a header's time (`Sat Nov 21 06:52:10`) is from now, taken as this machine's local time or as UTC.

    Raises ValueError for what is no time.
    """
    wanted = " ".join(at.split()[1:])
    ages = []
    for seconds_of in (calendar.timegm, time.mktime):
        year = datetime.fromtimestamp(now_s, UTC).year
        for candidate in (year, year - 1, year + 1):
            try:
                when = time.strptime(f"{candidate} {wanted}", "%Y %b %d %H:%M:%S")
            except ValueError:
                continue  # 29 February
            ages.append(abs(now_s - seconds_of(when)))
    if not ages:
        raise ValueError(f"{at[:30]!r} is no time")
    return min(ages)


@dataclass(frozen=True, slots=True)
class Hold:
    """A plan for a node's processors: for a job by its number, or (`standing`) kept by the site."""

    node: str
    name: str
    processors: int
    start_in_s: float
    duration_s: float
    standing: bool
    running: bool


_SHOWRES_HEAD = re.compile(r"reservations on (?P<at>\w{3} \w{3} +\d+ [\d:]{8})", re.I)
_SHOWRES_ROW = re.compile(
    r"(?P<node>\S+) +(?P<type>\S+) +(?P<name>\S+) +(?P<state>\S+) +(?P<task>[0-9]{1,9}) +"
    r"(?P<start>-?[0-9:]+|-?INFINITY) +(?P<duration>[0-9:]+|INFINITY) +\w{3} \w{3} +\d+ [\d:]{8}",
    re.I,
)


def showres(text: str) -> tuple[list[Hold], str, int]:
    """`showres -n`: what is planned on each node, the scheduler's own clock, and the number of rows not read.

    Raises Unreadable where it is another answer.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at, found, unparsed = "", [], 0
    for line in lines:
        if head := _SHOWRES_HEAD.fullmatch(line):
            at = head["at"]
        elif not at:
            raise Unreadable(f"{text.strip()[:60]!r} is no answer of showres")
        elif row := _SHOWRES_ROW.fullmatch(line):
            try:
                start = row["start"].removeprefix("-")
                offset = UNBOUNDED if start.upper() == "INFINITY" else states.seconds(start)
                found.append(
                    Hold(
                        node=row["node"],
                        name=row["name"],
                        processors=int(row["task"]),
                        start_in_s=-offset if row["start"].startswith("-") else offset,
                        duration_s=_length(row["duration"]),
                        standing=row["type"].lower() != "job",
                        running=row["state"].lower() in ("running", "starting"),
                    )
                )
            except ValueError:
                unparsed += 1
        elif not (line.lower().startswith("nodename ") or line.lower().endswith("nodes reserved")):
            unparsed += 1
    if not at:
        raise Unreadable(f"{text.strip()[:60]!r} is no answer of showres")
    return found, at, unparsed


def starts(holds: Sequence[Hold], now_s: float) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Planned starts of waiting jobs by their numbers, and on which nodes."""
    found: dict[str, tuple[float, tuple[str, ...]]] = {}
    for hold in holds:
        if not hold.standing and not hold.running and hold.start_in_s < UNBOUNDED:
            number = states.number_of(hold.name)
            start, nodes = found.get(number, (now_s + hold.start_in_s, ()))
            found[number] = (min(start, now_s + hold.start_in_s), (*nodes, hold.node))
    return found
