"""The plan of one elastic job: what it holds, when it is to shrink, and when it will be done.

A plan is walked along the planned ends of the subjobs held (Liu & Weissman, SC'15, sections 2.2 and 3.2.2). Before the
end e of a subjob that ends earlier than the application there is a migration over [e - lambda, e] off that subjob and
off every other one that ends before e + lambda; nothing progresses meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from ejbd.core.shapes import UNLIMITED


@dataclass(frozen=True, slots=True)
class BundlingParameters:
    """What a queue's policy may use.

    `omax`: the highest degree of over-subscription. `lambda_s`: what one migration stalls the application, in seconds.
    `delta`: the penalty factor of over-subscription (Eq. 2). `processor_quantum`: subjobs come in multiples of this.
    `walltime_quantum_s`: so do their walltimes. `max_walltime_s`: the longest walltime that the queue takes; a slot
    that lasts that long is as good as one without an end.
    """

    omax: int = 8
    lambda_s: float = 120.0
    delta: float = 1.0
    processor_quantum: int = 1
    walltime_quantum_s: float = 1.0
    max_walltime_s: float = UNLIMITED


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
    none while the job waits (a job that lost its subjobs waits again and keeps its work). `stalled_until_s`: a migration
    is under way and is expected to last until then. `on_placeholder`: J0 runs the application and is in `subjobs`.
    """

    job: str
    processes: int
    requested_s: float
    work_s: float = 0.0
    subjobs: tuple[HeldSubjob, ...] = ()
    stalled_until_s: float | None = None
    on_placeholder: bool = False

    @property
    def processors(self) -> int:
        """Processors held now."""
        return sum(subjob.processors for subjob in self.subjobs)

    @property
    def work_left_s(self) -> float:
        """Full-speed seconds still to do, by the requested walltime: R - W, never negative."""
        return max(0.0, self.requested_s - self.work_s)


@dataclass(frozen=True, slots=True)
class Shrink:
    """The next move off subjobs that end: it must begin at `begin_s` to be over by `end_s`.

    `leaves` are left in that move; `stays` carry the application on. `stays` is empty where nothing could: there
    `reason` says why, and the application has to be checkpointed by `end_s` and go back to waiting.
    """

    begin_s: float
    end_s: float
    leaves: tuple[str, ...]
    stays: tuple[str, ...]
    reason: str
