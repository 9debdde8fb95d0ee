"""The scheduler of section 4.3, event by event: rounds of reservations, backfilled, and speculative runs in gaps.

A job that fails goes into the next round. Jobs are visited round by round, of one round those with the most
processors x request first; the first that does not fit has a reservation, and others may go ahead that do not delay it
(EASY). Small jobs have no reservation: they are taken whenever they fit. Where reservations are kept to their end, what
a run leaves of one is a gap. Jobs go into it if their request fits it, and speculatively one that asks for more.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ejbd.core.easy import ActiveJob, QueuedJob, easy_pass
from ejbd.core.speculation.backfill import Candidate, choose
from ejbd.studies.speculative.laws import Tabulated

_HAIR = 1e-6


@dataclass(slots=True)
class StochasticJob:
    """A job that runs for `run_s`, and asks for `sequence_s` one after the other. `law` None: a small one, exact."""

    processors: int
    run_s: float
    sequence_s: tuple[float, ...]
    law: Tabulated | None = None
    submit_s: float = 0.0
    round: int = 0
    tried_s: float = 0.0
    end_s: float = math.inf  # of the reservation in which it succeeds
    used_s: float = 0.0
    attempts: int = 0
    windows: set[float] = field(default_factory=set)

    @property
    def asked_s(self) -> float:
        """The walltime that it asks for now."""
        return self.sequence_s[min(self.round, len(self.sequence_s) - 1)]


@dataclass(frozen=True, slots=True)
class Played:
    """`utilisation`: work of use over processors x makespan. `response_s`: of the large jobs; `all_response_s` of all.
    `failed`: reservations; `speculative`: runs in gaps, of which `hits` came to their end."""

    utilisation: float
    response_s: float
    all_response_s: float
    makespan_s: float
    failed: int
    speculative: int
    hits: int


def play(
    large: Sequence[StochasticJob],
    processors: int,
    *,
    small: Sequence[StochasticJob] = (),
    speculative: bool = False,
    kept: bool = True,
    gaps: bool = True,
) -> Played:
    """Play all jobs to their end.

    `kept`: a reservation is held to its end (small jobs alone may use what a run leaves of it), as the paper's footnote
    1 reckons; otherwise its processors are free as soon as the run ends, as on today's batch systems.
    `gaps`: what a run leaves of a reservation that is kept is for other large jobs, too.
    """
    return _Rounds(list(large), list(small), processors, speculative, kept, gaps).play()


_LARGE_ENDS, _RUN_ENDS, _SMALL_ENDS, _COMES = range(4)


class _Rounds:
    def __init__(
        self,
        large: list[StochasticJob],
        small: list[StochasticJob],
        processors: int,
        speculative: bool,
        kept: bool,
        gaps: bool,
    ) -> None:
        self.large, self.small, self.total = large, small, processors
        self.speculative, self.kept, self.gaps = speculative, kept, gaps and kept
        self.free = processors
        self.now = 0.0
        self.events: list[tuple[float, int, int, int]] = []
        self.waiting: set[int] = set()
        self.waiting_small: list[int] = []
        self.active: dict[int, tuple[int, float, bool]] = {}  # large: processors, planned end, speculative
        self.lent: dict[int, list[tuple[float, int]]] = {}  # large ones in gaps: (the gap's end, processors) each
        self.small_active: dict[int, tuple[int, float]] = {}
        self.left_over: list[list[float]] = []  # [until, processors] of reservations after their run has ended
        self.failed = self.attempts = self.hits = 0

    def play(self) -> Played:
        for number, job in enumerate(self.large):
            heapq.heappush(self.events, (job.submit_s, _COMES, 0, number))
        for number, job in enumerate(self.small):
            heapq.heappush(self.events, (job.submit_s, _COMES, 1, number))
        while self.events:
            self.now = self.events[0][0]
            while self.events and self.events[0][0] <= self.now + _HAIR:
                self._take(*heapq.heappop(self.events)[1:])
            self._schedule()
        return self._result()

    def _take(self, kind: int, which: int, number: int) -> None:
        if kind == _COMES:
            if which:
                self.waiting_small.append(number)
            else:
                self.waiting.add(number)
        elif kind == _SMALL_ENDS:
            processors, lent = self.small_active.pop(number)
            if lent == 0.0:
                self.free += processors
            else:
                self._give_back(lent, processors)
        elif kind == _RUN_ENDS:
            processors, until, _ = self.active[number]
            for end, part in self.lent.get(number, [(until, processors)]):
                self._give_back(min(end, until), part)
        else:
            self._large_ends(number)

    def _give_back(self, until: float, processors: int) -> None:
        if until > self.now + _HAIR:
            self.left_over.append([until, processors])

    def _large_ends(self, number: int) -> None:
        job = self.large[number]
        processors, _, speculative = self.active.pop(number)
        if number in self.lent:
            for until, part in self.lent.pop(number):
                self._give_back(until, part)
        else:
            self.free += processors
        walltime = job.used_s
        if job.run_s <= walltime + _HAIR:
            job.end_s = self.now
            self.hits += speculative
            return
        job.tried_s = max(job.tried_s, walltime)
        self.failed += 1
        if not speculative:
            job.round += 1
        self.waiting.add(number)

    def _schedule(self) -> None:
        self.left_over = [piece for piece in self.left_over if piece[0] > self.now + _HAIR and piece[1] > 0]
        order = sorted(
            self.waiting, key=lambda n: (self.large[n].round, -self.large[n].processors * self.large[n].asked_s, n)
        )
        queue = [QueuedJob(str(n), self.large[n].processors, self.large[n].asked_s) for n in order]
        active = [ActiveJob(str(n), held, end) for n, (held, end, _) in self.active.items() if n not in self.lent]
        active += [
            ActiveJob("small", held, self.now + self._small_left(n))
            for n, (held, lent) in self.small_active.items()
            if lent == 0.0
        ]
        found = easy_pass(queue, active, self.free, self.now)
        for id in found.starts:
            self._start(int(id), self.large[int(id)].asked_s, False)
        shadow = math.inf if found.shadow_s is None else found.shadow_s
        extra = found.extra
        if self.gaps and self.left_over:
            self._fill_gaps(order)
        if self.waiting_small:
            extra = self._start_small(shadow, extra)
        if self.speculative and found.head is not None and self.free > 0:
            self._speculate(shadow, int(found.head))

    def _small_left(self, number: int) -> float:
        return max(0.0, self.small[number].end_s - self.now)

    def _start(self, number: int, walltime: float, speculative: bool) -> None:
        job = self.large[number]
        self.waiting.discard(number)
        self.free -= job.processors
        done = min(job.run_s, walltime)
        until = self.now + walltime
        job.used_s = walltime
        job.attempts += 1
        self.active[number] = (job.processors, until, speculative)
        if self.kept:
            heapq.heappush(self.events, (until, _LARGE_ENDS, 0, number))
            if job.run_s < walltime:
                heapq.heappush(self.events, (self.now + done, _RUN_ENDS, 0, number))
        else:
            heapq.heappush(self.events, (self.now + done, _LARGE_ENDS, 0, number))

    def _fill_gaps(self, order: list[int]) -> None:
        """Jobs go into what reservations leave over: those that fit by their turn, then the job that uses it best."""
        for number in order:
            job = self.large[number]
            if number in self.waiting:
                self._borrow(number, job.asked_s, False)
        while self.speculative:
            best: tuple[float, int, float] | None = None
            for until in {piece[0] for piece in self.left_over if piece[1] > 0}:
                processors = int(sum(piece[1] for piece in self.left_over if piece[0] >= until))
                found = choose(self._candidates(processors, until), processors, until - self.now)
                if found is not None and (best is None or found.utilisation > best[0]):
                    best = (found.utilisation, int(found.job), until)
            if best is None:
                return
            self.attempts += 1
            self.large[best[1]].windows.add(best[2])
            self._borrow(best[1], best[2] - self.now, True)

    def _borrow(self, number: int, walltime: float, speculative: bool) -> None:
        """Start a job in gaps that last long enough, the shortest of them first, if they are wide enough together."""
        job = self.large[number]
        pieces = sorted(piece for piece in self.left_over if piece[0] >= self.now + walltime - _HAIR and piece[1] > 0)
        if sum(piece[1] for piece in pieces) < job.processors:
            return
        taken: list[tuple[float, int]] = []
        wanted = job.processors
        for piece in pieces:
            part = min(wanted, int(piece[1]))
            if part > 0:
                piece[1] -= part
                wanted -= part
                taken.append((piece[0], part))
        self.free += job.processors  # which _start takes away
        self.lent[number] = taken
        self._start(number, walltime, speculative)

    def _candidates(self, processors: int, window: float, head: int = -1) -> list[Candidate]:
        """Those that may try a gap, of equals in law and past the widest."""
        widest: dict[tuple[str, float], int] = {}
        for number in sorted(self.waiting):
            job = self.large[number]
            if number == head or job.law is None or job.processors > processors or window in job.windows:
                continue
            key = (job.law.words(), job.tried_s)
            if key not in widest or job.processors > self.large[widest[key]].processors:
                widest[key] = number
        jobs = [(number, self.large[number]) for number in widest.values()]
        return [Candidate(str(n), job.processors, job.law, job.tried_s) for n, job in jobs if job.law is not None]

    def _start_small(self, shadow: float, extra: int) -> int:
        """Small jobs: first into what reservations leave over, then onto free processors without delaying the head."""
        rest = []
        for number in self.waiting_small:
            job = self.small[number]
            piece = next((p for p in self.left_over if p[1] >= job.processors and p[0] >= self.now + job.run_s), None)
            if piece is not None:
                piece[1] -= job.processors
                self._run_small(number, piece[0])
            elif job.processors <= self.free and (self.now + job.run_s <= shadow or job.processors <= extra):
                if self.now + job.run_s > shadow:
                    extra -= job.processors
                self.free -= job.processors
                self._run_small(number, 0.0)
            else:
                rest.append(number)
        self.waiting_small = rest
        return extra

    def _run_small(self, number: int, lent: float) -> None:
        job = self.small[number]
        job.end_s = self.now + job.run_s
        self.small_active[number] = (job.processors, lent)
        heapq.heappush(self.events, (job.end_s, _SMALL_ENDS, 1, number))

    def _speculate(self, shadow: float, head: int) -> None:
        """A job that asks for more than the gap goes into it, where its run is expected to use it best."""
        while self.free > 0 and shadow < math.inf:
            candidates = self._candidates(self.free, shadow, head)
            found = choose(candidates, self.free, shadow - self.now)
            if found is None:
                return
            self.attempts += 1
            self.large[int(found.job)].windows.add(shadow)
            self._start(int(found.job), shadow - self.now, True)

    def _result(self) -> Played:
        large_end = max(job.end_s for job in self.large)
        ends = [job.end_s for job in self.small]
        makespan = max([large_end, *ends])
        work = sum(job.processors * job.run_s for job in (*self.large, *self.small))
        response = [job.end_s - job.submit_s for job in self.large]
        every = response + [job.end_s - job.submit_s for job in self.small]
        return Played(
            work / (self.total * makespan), sum(response) / len(response), sum(every) / len(every), makespan,
            self.failed, self.attempts, self.hits,
        )  # fmt: skip
