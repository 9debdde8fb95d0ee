"""How jobs end, as their callers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ejbd.wire.states import JobState

if TYPE_CHECKING:
    from ejbd.wire.payloads import JobDetail, JobView

# What stands for the exit code of a job that has none of its own.
_CODE_OF_STATE = {"completed": 0, "failed": 1, "timeout": 124, "cancelled": 125}


class Outcome(NamedTuple):
    """How a job ended. `seconds`: from its submission to its end."""

    job: str
    state: JobState
    exit_code: int
    reason: str
    seconds: float


class JobFailed(Exception):
    """A job ended, and not well: it failed, or its time was up. `outcome` has its exit code and its reason."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"job {outcome.job} {outcome.state}: {outcome.reason or f'exit code {outcome.exit_code}'}")
        self.outcome = outcome


def exit_code(job: JobView) -> int:
    """The exit code of a job that has ended: its own, where it has one."""
    code = job["exit_code"]
    if code is not None and (code != 0 or job["state"] == JobState.COMPLETED):
        return int(code) & 0xFF
    return _CODE_OF_STATE.get(job["state"], 1)


def outcome_of(job: JobView) -> Outcome:
    """The outcome of a job that has ended."""
    end_s = job["end_s"] if job["end_s"] is not None else job["submit_s"]
    state = JobState(job["state"])
    return Outcome(job["id"], state, exit_code(job), job["reason"], end_s - job["submit_s"])


def is_over(job: JobView) -> bool:
    """Whether a job has ended, as far as is known."""
    return JobState(job["state"]).over


def holds(job: JobDetail, places: int, base: int) -> bool:
    """Whether an evolving job with `base` places throughout holds so many now; a place may be several processors."""
    j0 = next((one["processors"] for one in job["subjobs"] if not one["ordinal"]), base)
    return bool(job["processors"] * base == places * j0)
