"""What becomes of a submission: the queue that it goes to, and whether it is made elastic."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ejbd.manager.jobspec import JobSpec


class AdmissionCode(StrEnum):
    """What made a job that could have been elastic a passed-through one, for programs."""

    SHORT_RUNS = "short_runs"  # runs like it are short beside what a start and an end cost, and it could start at once
    STOPPED = "stopped"  # elastic jobs of its queue have lately ended later than J0 could hope to


@dataclass(frozen=True, slots=True)
class Admission:
    """`spec` is the job as it is taken into `queue` (several with commas between, where it is passed through).

    `waits_for`: what EJB waits for before the batch system has it, as --dependency has it ("": nothing). `array`: the
    indices of elements that become jobs of EJB's one by one. None: it is one job, also as an array of the batch
    system's. `code`: "" where the reason has none.
    """

    spec: JobSpec
    queue: str
    elastic: bool
    engine: str
    why: str
    waits_for: str = ""
    array: str | None = None
    code: str = ""
