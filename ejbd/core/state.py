"""One elastic job as a policy sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ejbd.core.shapes import UNLIMITED


@dataclass(frozen=True, slots=True)
class HeldSubjob:
    """A running subjob: its processors and its planned usable end (absolute seconds).

    An anchor holds the user's shell: it must stay until the application completes, so a plan that would have to drop
    it is no plan.
    """

    id: str
    processors: int
    end_s: float
    anchor: bool = False


@dataclass(frozen=True, slots=True)
class ElasticState:
    """One elastic job as a policy sees it, at the time that is passed beside it.

    `processes` is P, `requested_s` R, `work_s` W: full-speed seconds done by then. `subjobs` are those that hold ranks;
    none while the job waits (a job that lost its subjobs waits again and keeps its work). `stalled_until_s`: a
    move is under way and is expected to last until then. `on_placeholder`: J0 runs the application and is in
    `subjobs`. `node_limit`: the processes have to stay on one node, and of the nodes that are asked
    about the best has this many processors; None: they may be anywhere. `suspendable`: the job may go back to waiting
    with its work kept (not where the user's shell would be lost). `expected_left_s`: what earlier runs say is left
    (full-speed seconds), by which moves are weighed (:mod:`ejbd.core.bundling.weighing`); None: they are weighed by
    what is left of R. `alone`: no other job waits, so that this one may grow beyond P.
    """

    job: str
    processes: int
    requested_s: float
    work_s: float = 0.0
    subjobs: tuple[HeldSubjob, ...] = ()
    stalled_until_s: float | None = None
    on_placeholder: bool = False
    movable: bool = True
    node_limit: int | None = None
    suspendable: bool = True
    expected_left_s: float | None = None
    alone: bool = False

    @property
    def processors(self) -> int:
        """Processors held now."""
        return sum(subjob.processors for subjob in self.subjobs)

    def with_lasting_placeholder(self) -> ElasticState:
        """The same as if J0, which ends last of what is held, had no end: off J0 nothing is moved."""
        if not self.on_placeholder or not self.subjobs:
            return self
        j0 = max(self.subjobs, key=lambda held: held.end_s)
        return replace(self, subjobs=tuple(replace(s, end_s=UNLIMITED) if s is j0 else s for s in self.subjobs))

    @property
    def work_left_s(self) -> float:
        """Full-speed seconds still to do, by the requested walltime: R - W, never negative."""
        return max(0.0, self.requested_s - self.work_s)

    @property
    def weighed_left_s(self) -> float:
        """Full-speed seconds by which a move is weighed, :attr:`work_left_s` at most."""
        left_s = self.work_left_s
        return left_s if self.expected_left_s is None else min(left_s, max(0.0, self.expected_left_s))

    @property
    def by_earlier_runs(self) -> bool:
        """Whether a move is weighed by less than what is left of R."""
        return self.weighed_left_s < self.work_left_s
