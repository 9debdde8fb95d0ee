"""How much the workers of a subjob may leave in the database by what they report.

A job's own code can read its workers' secret, and so report whatever it likes. What is over the budget of its subjob,
or of its job, is dropped and counted. Memory has the counts: a daemon that was started again begins at 0.
"""

from __future__ import annotations

from typing import Any

from ejbd.manager.effects import Effects, KeepIn, tell
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.memory import Reported
from ejbd.store.models import Subjob
from ejbd.wire.kinds import EventKind

SUBJOB_BYTES = 2 << 20  # at once, and besides:
BYTES_PER_S = 16.0  # for each second that it has run: a row a minute
JOB_BYTES = 16 << 20  # for all subjobs of a job
ROW_BYTES = 1024  # a row without its text
MOST_RESULT_BYTES = 256 << 10  # of one answer to an operation
MOST_LAUNCHES = 100_000  # of a job: each has rows of its own


def reserve_report(world: JobWorld, subjob: Subjob, text: str = "") -> Effects[bool]:
    """Whether a report may leave a row with this text; where it may not, it is counted as dropped.

    Event `worker.log` says so at the first, the tenth, the hundredth, ... report that is dropped.
    """
    size = ROW_BYTES + len(text.encode(errors="replace"))
    bounds = {
        subjob.id: SUBJOB_BYTES + _refill_bytes(world, subjob.start_s),
        world.job.id: JOB_BYTES + _refill_bytes(world, world.job.start_s),
    }
    known = {id: world.ctx.memory.reported.get(id, Reported()) for id in bounds}
    if all(known[id].bytes + size <= most for id, most in bounds.items()):
        for id, one in known.items():
            yield KeepIn("reported", id, Reported(one.bytes + size, one.dropped))
        return True
    used = known[subjob.id]
    dropped = used.dropped + 1
    yield KeepIn("reported", subjob.id, Reported(used.bytes, dropped))
    if str(dropped).strip("0") == "1":
        message = f"its workers have reported more than is kept of one subjob; dropped so far: {dropped}"
        yield tell(
            EventKind.WORKER_LOG, job_id=world.job.id, subjob_id=subjob.id, node="", level="warning", message=message
        )
    return False


def _refill_bytes(world: JobWorld, start_s: float | None) -> float:
    return 0.0 if start_s is None else BYTES_PER_S * max(0.0, world.ctx.now - start_s)


def text_of(report: dict[str, Any]) -> str | None:
    """What a report of this kind leaves in a row of its own; None: it leaves none, or is bounded otherwise."""
    kind = report["kind"]
    if kind in ("log", "launch-refused", "coordinator-lost"):
        return "".join(str(report.get(name, "")) for name in ("message", "name", "reason"))
    if kind == "stuck" or (kind == "rank-exit" and report.get("memory")):
        return ""
    if kind == "sample" and (report.get("obstacle") or report.get("passed")):
        return str(report.get("obstacle", ""))
    return None
