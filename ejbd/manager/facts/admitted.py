"""What becomes of a submission: the queue that it goes to, and whether it is made elastic."""

from __future__ import annotations

from dataclasses import dataclass

from ejbd.manager.jobspec import JobSpec


@dataclass(frozen=True, slots=True)
class Admission:
    """`spec` is the job as it is taken into `queue` (several with commas between, where it is passed through).

    `waits_for`: what EJB waits for before the batch system has it, as --dependency has it ("": nothing). `array`: the
    indices of elements that become jobs of EJB's one by one. None: it is one job, also as an array of the batch
    system's.
    """

    spec: JobSpec
    queue: str
    elastic: bool
    engine: str
    why: str
    waits_for: str = ""
    array: str | None = None
