"""The cluster over time as an SVG picture: nodes from top to bottom, hours from left to right.

Two levels of detail. With few nodes each has a lane, and each job a bar in it, which names it. With many, a lane stands
for a group of nodes, and shows how much of the group is held for what, in some hundred columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from unicodedata import bidirectional

import numpy as np

from ejbd.api.cluster import BarKind, BarView, ClusterPicture
from ejbd.wire.hostlists import unfold
from ejbd.wire.visible import visible

LANES = 60  # beyond so many nodes they are grouped
COLUMNS = 160
LEFT, WIDTH, TOP = 96.0, 1100.0, 24.0
_LANE, _GAP = 15.0, 2.0
_STEPS_S = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
CLASSES = ("mine", "elastic", "other", "j0", "planned", "reservation")
"""In the order in which they are put on each other, from the ground up."""


@lru_cache(16_384)
def _names_in(nodes: str) -> tuple[str, ...]:
    """Kept, as they are folded; empty for what is no list of nodes."""
    try:
        return tuple(unfold(nodes))
    except ValueError:
        return ()


@dataclass(frozen=True, slots=True)
class Lane:
    """One node, or nodes beside each other: `first` to `last` (not included) of the order."""

    name: str
    first: int
    last: int

    @property
    def group(self) -> bool:
        return self.last - self.first > 1


@dataclass(slots=True)
class Nodes:
    """The nodes in their order. What has one does not change it."""

    names: list[str] = field(default_factory=list)
    processors: list[int] = field(default_factory=list)
    usable: list[bool] = field(default_factory=list)
    at: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, picture: ClusterPicture) -> Nodes:
        return _nodes_of(tuple((one.nodes, one.processors, one.usable) for one in picture.nodes))

    def lanes(self, first: int, last: int) -> list[Lane]:
        """Lanes of the nodes from `first` to `last`, 60 at most."""
        each = max(1, math.ceil((last - first) / LANES))
        found = []
        for at in range(first, last, each):
            end = min(last, at + each)
            name = self.names[at] if end - at == 1 else f"{self.names[at]} – {self.names[end - 1]}"
            found.append(Lane(name, at, end))
        return found


@lru_cache(4)
def _nodes_of(alike: tuple[tuple[str, int, bool], ...]) -> Nodes:
    """Kept: nodes come and go far less often than pictures."""
    found = Nodes()
    for nodes, processors, usable in alike:
        for name in _names_in(nodes):
            found.at[name] = len(found.names)
            found.names.append(name)
            found.processors.append(processors)
            found.usable.append(usable)
    return found


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when (epoch seconds), and what is now."""

    start_s: float
    end_s: float
    now_s: float

    def x(self, at_s: float) -> float:
        share = (min(max(at_s, self.start_s), self.end_s) - self.start_s) / (self.end_s - self.start_s)
        return round(LEFT + share * (WIDTH - LEFT), 1)


def css_class(bar: BarView) -> str:
    """Its colour: one's own elastic jobs have another than those of others."""
    return "mine" if bar.kind is BarKind.ELASTIC and bar.mine else bar.kind.value


def gantt(
    picture: ClusterPicture,
    nodes: Nodes,
    lanes: Sequence[Lane],
    span: Span,
    zoom: str,
    above: tuple[str, float] = ("", 0.0),
) -> str:
    """The picture. `zoom`: the address of a group's own picture, with `{first}` and `{last}` in it.

    `above`: what is drawn between the axis and the nodes, from `TOP` down, and how high it is.
    """
    strips, high = above
    height = TOP + high + len(lanes) * (_LANE + _GAP) + 6
    detailed = all(not lane.group for lane in lanes)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="gantt" viewBox="0 0 {WIDTH:g} {height:g}" '
        f'width="{WIDTH:g}" height="{height:g}" role="group" aria-labelledby="gantt-title">',
        f'<title id="gantt-title">{len(nodes.names)} nodes over time; the table below has the same in words</title>',
        *_grid(span, height),
        strips,
        f'<g transform="translate(0 {high:g})">' if high else "<g>",
        *_names(lanes, nodes, zoom),
        *(_bars(picture, nodes, lanes, span) if detailed else _density(picture, nodes, lanes, span)),
        "</g>",
        f'<path class="nowline" d="M{span.x(span.now_s)} {TOP - 6:g}V{height:g}"/>',
        "</svg>",
    ]
    return "\n".join(parts)


def _y(lane: int) -> float:
    return TOP + lane * (_LANE + _GAP)


def _grid(span: Span, height: float) -> Iterator[str]:
    length = span.end_s - span.start_s
    step = next((step for step in _STEPS_S if length / step <= 12), _STEPS_S[-1])
    at = math.ceil(span.start_s / step) * step
    while at <= span.end_s:
        x = span.x(at)
        when = datetime.fromtimestamp(at, UTC)
        day = ' data-day="1"' if step >= 21600 or when.hour == 0 else ""
        words = when.strftime("%a %d %H:%M" if day else "%H:%M")
        yield f'<line class="tick" x1="{x}" y1="{TOP - 6:g}" x2="{x}" y2="{height:g}"/>'
        anchor = "middle" if x < WIDTH - 40 else "end"  # a label at the edge would be cut
        yield f'<text class="dim" x="{x}" y="12" text-anchor="{anchor}" data-at="{at:.0f}"{day}>{words}</text>'
        at += step


def _names(lanes: Sequence[Lane], nodes: Nodes, zoom: str) -> Iterator[str]:
    for index, lane in enumerate(lanes):
        y = _y(index)
        down = not any(nodes.usable[lane.first : lane.last])
        words = visible(lane.name)
        shown = escape(words if len(words) <= 15 else words[:14] + "…")
        text = (
            f'<text x="0" y="{y + 11:g}">{shown}<title>{escape(words)}{" (not usable)" if down else ""}</title></text>'
        )
        if lane.group:
            address = escape(zoom.format(first=lane.first, last=lane.last), quote=True)
            text = f'<a href="{address}" aria-label="{escape(words, quote=True)}">{text}</a>'
        yield text
        kind = "down" if down else "lane"
        yield f'<rect class="{kind}" x="{LEFT:g}" y="{y:g}" width="{WIDTH - LEFT:g}" height="{_LANE:g}"/>'


def _places(bar: BarView, nodes: Nodes) -> list[int]:
    if not bar.nodes:
        return []
    return [nodes.at[name] for name in _names_in(bar.nodes) if name in nodes.at]


def within(bar: BarView, span: Span) -> tuple[float, float] | None:
    """The part of a bar that is in the picture."""
    start_s, end_s = max(bar.start_s, span.start_s), min(span.end_s if bar.end_s is None else bar.end_s, span.end_s)
    return (start_s, end_s) if end_s > start_s else None


def _share(bar: BarView, places: Sequence[int], nodes: Nodes) -> float:
    """Of each of its nodes: the batch system tells a job's processors altogether."""
    whole = sum(nodes.processors[at] for at in places) or 1
    return 1.0 if bar.processors == 0 else min(1.0, bar.processors / whole)


def _bars(picture: ClusterPicture, nodes: Nodes, lanes: Sequence[Lane], span: Span) -> Iterator[str]:
    """Each job in the lanes of its nodes, as high as its share of them; what overlaps is put below each other."""
    lane_of = {lane.first: index for index, lane in enumerate(lanes)}
    taken: dict[int, list[tuple[float, float, float, float]]] = {}
    for bar in sorted(picture.bars, key=lambda one: (CLASSES.index(css_class(one)), one.start_s)):
        when = within(bar, span)
        if when is None:
            continue
        places = _places(bar, nodes)
        share = _share(bar, places, nodes)
        shapes = []
        for place in places:
            index = lane_of.get(place)
            if index is None:
                continue
            top = free_place(taken.setdefault(index, []), when, share)
            y, high = _y(index) + top * _LANE, max(1.5, share * _LANE)
            x = span.x(when[0])
            wide = max(1.0, span.x(when[1]) - x)
            shapes.append(f"M{x:g} {y:.1f}h{wide:.1f}v{min(high, _LANE):.1f}h-{wide:.1f}z")
        if shapes:
            past = " past" if bar.end_s is not None and bar.end_s <= span.now_s else ""
            title = f"<title>{escape(about(bar))}</title>"
            drawn = f'<path class="bar {css_class(bar)}{past}" d="{"".join(shapes)}">{title}</path>'
            yield linked(bar, drawn)


def linked(bar: BarView, drawn: str) -> str:
    """What is drawn for a bar leads to the page of its job, where it has one. The table below has the same link."""
    if not bar.job or bar.kind not in (BarKind.ELASTIC, BarKind.J0):
        return drawn
    address = f"/web/jobs/{escape(bar.job, quote=True)}"
    return f'<a href="{address}" tabindex="-1" aria-hidden="true">{drawn}</a>'


def free_place(taken: list[tuple[float, float, float, float]], when: tuple[float, float], share: float) -> float:
    """The highest place of a lane that is free meanwhile, 0 to 1; its foot where there is none."""
    beside = [(top, foot) for start, end, top, foot in taken if start < when[1] and end > when[0]]
    for top in sorted({0.0, *(foot for _, foot in beside)}):
        foot = top + share
        if foot > 1.001:
            break
        if not any(other < foot - 1e-9 and below > top + 1e-9 for other, below in beside):
            taken.append((*when, top, foot))
            return top
    return max(0.0, 1.0 - share)


def _density(picture: ClusterPicture, nodes: Nodes, lanes: Sequence[Lane], span: Span) -> Iterator[str]:
    """How much of each group is held for what, column by column; one path for each colour."""
    group_of = np.full(len(nodes.names), -1)
    for index, lane in enumerate(lanes):
        group_of[lane.first : lane.last] = index
    processors = np.asarray(nodes.processors, dtype=float)
    whole = np.array([max(1.0, processors[lane.first : lane.last].sum()) for lane in lanes])
    column_s = (span.end_s - span.start_s) / COLUMNS
    held = np.zeros((len(CLASSES), len(lanes), COLUMNS))
    for bar in picture.bars:
        when = within(bar, span)
        places = _places(bar, nodes) if when is not None else []
        if when is None or not places:
            continue
        groups = group_of[places]
        inside = groups >= 0
        weights = processors[places][inside] * _share(bar, places, nodes)
        by_lane = np.bincount(groups[inside], weights, minlength=len(lanes))
        first = int((when[0] - span.start_s) / column_s)
        last = min(COLUMNS, max(first + 1, math.ceil((when[1] - span.start_s) / column_s - 0.5)))
        lanes_of = np.flatnonzero(by_lane)
        held[CLASSES.index(css_class(bar)), lanes_of, first:last] += by_lane[lanes_of, None]
    high = np.minimum(np.cumsum(held, axis=0) / whole[None, :, None], 1.0) * _LANE
    high = np.round(high)  # to whole pixels: columns that look the same are one piece
    below = np.concatenate([np.zeros((1, *high.shape[1:])), high[:-1]])
    wide = (WIDTH - LEFT) / COLUMNS
    for at, name in enumerate(CLASSES):
        pieces: list[str] = []
        for row in np.flatnonzero((high[at] > below[at]).any(axis=1)):
            tops, feet = high[at, row], below[at, row]
            edges = np.flatnonzero((np.diff(tops) != 0) | (np.diff(feet) != 0)) + 1
            for start, end in zip([0, *edges], [*edges, COLUMNS], strict=True):
                if tops[start] > feet[start]:
                    x, y, w = LEFT + start * wide, _y(int(row)) + _LANE - tops[start], (end - start) * wide
                    pieces.append(f"M{x:.1f} {y:g}h{w:.1f}v{tops[start] - feet[start]:g}h-{w:.1f}z")
        if pieces:
            yield f'<path class="{name}" d="{"".join(pieces)}"/>'


WORDS = {
    BarKind.ELASTIC: "elastic job",
    BarKind.J0: "J0 is to start",
    BarKind.OTHER: "batch job",
    BarKind.PLANNED: "batch job is to start",
    BarKind.RESERVATION: "reservation",
}


def about(bar: BarView) -> str:
    """A bar in words."""
    words = [WORDS[bar.kind], bar.job, _apart(visible(bar.name)), f"of {visible(bar.user)}" if bar.user else ""]
    if bar.processors:
        words.append(f"{bar.processors} processors")
    if bar.degree > 1:
        words.append(f"degree {bar.degree}")
    return " ".join(word for word in words if word)


def _apart(name: str) -> str:
    """One that is read from right to left turns around nothing but itself."""
    return f"\u2068{name}\u2069" if any(bidirectional(c) in ("R", "AL") for c in name) else name
