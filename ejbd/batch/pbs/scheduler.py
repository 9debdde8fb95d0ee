"""What the scheduler plans, learnt piece by piece: at most one command a poll is spent on it.

Maui and Moab are asked in turns: `showbf`, then `showres -n`. `showbf` hides what is free for longer on parts of nodes:
it is asked again with `-d`, until a row has no end. An answer with an old header, and none at all, count as no room: a
scheduler that is away starts nothing anyway. Without such a scheduler OpenPBS's own reservations (`pbs_rstat`) are
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ejbd.batch.pbs import attributes, maui, states
from ejbd.batch.pbs.attributes import ReservationRow
from ejbd.batch.pbs.openpbs import Unreadable
from ejbd.core.view import BatchJobView, BatchState, Offer

STALE_S = 300.0
"""Maui sees its resource manager every half minute or so; a header older than this means that one is away."""
RESERVATIONS_S = 30.0
SLACK_S = 3.0
_MOST_STEPS = 6


@dataclass(slots=True)
class Maui:
    """The turns of asking Maui (or Moab), and what was learnt in them."""

    node_processors: int = 1
    _rooms: list[tuple[int, float | None]] = field(default_factory=list)  # processors, end
    _climbing: list[tuple[int, float | None]] = field(default_factory=list)
    _next_s: float | None = None  # the length that showbf is asked for next
    _steps: int = 0
    _plans: bool = False  # it is the turn of showres
    starts: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    standing: list[ReservationRow] = field(default_factory=list)
    trouble: str = "it has not been asked yet"

    def argv(self) -> list[str]:
        """What to ask now."""
        if self._plans:
            return ["showres", "-n"]
        return ["showbf"] if self._next_s is None else ["showbf", "-d", states.formatted(self._next_s)]

    def heard(self, text: str, now_s: float) -> None:
        """Its answer. Raises Unreadable for one that says nothing, old ones included."""
        if self._plans:
            self._heard_plans(text, now_s)
        else:
            self._heard_room(text, now_s)
        self.trouble = ""

    def failed(self, why: str) -> None:
        """It did not answer, or nothing that counts: there is no room until it does again."""
        self._rooms, self._climbing, self._next_s, self._plans, self._steps = [], [], None, False, 0
        self.trouble = why

    def offers(self) -> tuple[Offer, ...]:
        """The room that it has, the widest first.

        It gives lengths in whole seconds, and in another answer than what ends them: an end is that of the plan that it
        almost meets.
        """
        known = [start for start, _ in self.starts.values()] + [one.start_s for one in self.standing]

        def met(end: float | None) -> float | None:
            return next((start for start in known if end is not None and abs(start - end) <= SLACK_S), end)

        return tuple(Offer(processors, met(end)) for processors, end in self._rooms)

    def _heard_room(self, text: str, now_s: float) -> None:
        found = maui.showbf(text, self.node_processors)
        _young(found.at, now_s)
        rows = [(r.processors, None if r.duration_s == maui.UNBOUNDED else now_s + r.duration_s) for r in found.rooms]
        first = self._next_s is None
        self._climbing = rows if first else [*self._climbing, *rows]
        bounded = [room.duration_s for room in found.rooms]
        self._steps = 0 if first else self._steps + 1
        if bounded and bounded[-1] < maui.UNBOUNDED and self._steps < _MOST_STEPS:
            self._next_s = bounded[-1] + 1
            if first and not self._rooms:
                self._rooms = list(self._climbing)
            return
        self._rooms, self._next_s, self._plans = list(self._climbing), None, True

    def _heard_plans(self, text: str, now_s: float) -> None:
        holds, at, _ = maui.showres(text)
        _young(at, now_s)
        self.starts = maui.starts(holds, now_s)
        together: dict[tuple[str, float, float], dict[str, int]] = {}
        for one in holds:
            if one.standing and one.start_in_s < maui.UNBOUNDED:
                key = (one.name, now_s + one.start_in_s, now_s + one.start_in_s + one.duration_s)
                # Its task is one of the site's making: `setres` keeps whole nodes, a task each.
                together.setdefault(key, {})[one.node] = max(one.processors, self.node_processors)
        self.standing = [ReservationRow(name, start, end, nodes) for (name, start, end), nodes in together.items()]
        self._plans = False


def _young(at: str, now_s: float) -> None:
    if at:
        try:
            age = maui.age_s(at, now_s)
        except ValueError as error:
            raise Unreadable(str(error)) from None
        if age > STALE_S:
            raise Unreadable(f"it says what it knew {age:.0f} s ago: its resource manager is away")


def planned(job: BatchJobView, starts: dict[str, tuple[float, tuple[str, ...]]], now_s: float) -> BatchJobView:
    """The job with the start that Maui means to give it."""
    found = starts.get(states.number_of(job.id))
    if found is None or job.state is not BatchState.PENDING:
        return job
    return replace(job, planned_start_s=max(found[0], now_s), planned_nodes=tuple(dict.fromkeys(found[1])))


def in_order(jobs: Sequence[BatchJobView]) -> tuple[BatchJobView, ...]:
    """Waiting jobs by their planned starts, then by their numbers: the order of the scheduler as far as it is known."""

    def key(job: BatchJobView) -> tuple[float, int]:
        start = float("inf") if job.planned_start_s is None else job.planned_start_s
        number = states.number_of(job.id).partition("[")[0]
        return (start if job.state is BatchState.PENDING else 0.0, int(number))

    return tuple(sorted(jobs, key=key))


def openpbs_reservations(text: str) -> list[ReservationRow]:
    """Those that `pbs_rstat -F` confirms."""
    return attributes.reservations(text)[0]
