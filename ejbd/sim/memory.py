"""Memory as a bound of over-subscription: what a log says that a processor of each job needs, and what one has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ejbd.core.memory import NONE_FITS, ranks_by_memory
from ejbd.errors import Code, EjbError
from ejbd.sim.swf import Oddity
from ejbd.sim.workload import Workload
from ejbd.sim.world import IntArray
from ejbd.wire.sizes import SIZE_HINT, kilobytes

OFF = "off"


@dataclass(frozen=True, slots=True)
class Memory:
    """What a processor has, and what a job has asked for of each of its own where the log does not say (None: all that
    a processor has, as Slurm gives it without DefMemPerCPU). Kilobytes; `processor_kb` 0: memory bounds no job.
    """

    processor_kb: int = 0
    default_kb: int | None = None


NO_BOUND = Memory()


def memory_of(text: str, what: str, *, least_kb: int = 1) -> int:
    """Kilobytes of a processor, such as `512M`; 0 for `off`. Raises EjbError for what is no size."""
    if text == OFF:
        return 0
    found = kilobytes(text)
    if found is None or found < least_kb:
        raise EjbError(Code.INVALID, f"{text!r} is not a size of memory", where=what, hint=SIZE_HINT)
    return found


def bounded(workload: Workload, memory: Memory, omax: int) -> Workload:
    """The workload with `most_ranks` of each job, by core's rule: each processor has its own part of the memory.

    What was asked for (field 10) counts, else what was used (field 7), else the default. A job that needs more than a
    processor has stays in its own shape (0 ranks); that it ran so is what the log shows. Both are told as oddities.
    Raises EjbError where no row says anything of memory and there is no default.
    """
    if not memory.processor_kb:
        return workload
    asked, used = workload.memory_asked_kb, workload.memory_used_kb
    nothing = np.full(len(workload), -1, dtype=np.int64)
    asked, used = (nothing if column is None else column for column in (asked, used))
    if memory.default_kb is None and not ((asked > 0) | (used > 0)).any():
        what = f"no row of {workload.name} says what memory a job asked for or used (fields 10 and 7)"
        raise EjbError(Code.INVALID, what, hint="leave --memory out, or say what they ask for with --default-memory")
    default = memory.processor_kb if memory.default_kb is None else memory.default_kb
    needs = np.where(asked > 0, asked, np.where(used > 0, used, default))
    most = _most_ranks(needs, memory.processor_kb, omax)
    odd = list(workload.odd)
    unknown = "all that a processor has" if memory.default_kb is None else f"{memory.default_kb:,} KB a processor"
    for what, flags in (
        ("no memory requested: what was used is taken", (asked <= 0) & (used > 0)),
        (f"no memory known: {unknown} is taken", (asked <= 0) & (used <= 0)),
        (f"more memory than the {memory.processor_kb:,} KB of a processor: stays rigid", most == NONE_FITS),
    ):
        at = np.flatnonzero(flags)
        if at.size:
            lines = at + 1 if workload.lines is None else workload.lines[at]
            odd.append(Oddity(what, tuple(lines.tolist())))
    return replace(workload, jobs=workload.jobs._replace(most_ranks=most), odd=tuple(odd))


def _most_ranks(needs_kb: IntArray, processor_kb: int, omax: int) -> IntArray:
    sizes, place = np.unique(needs_kb, return_inverse=True)
    most = [ranks_by_memory(size, processor_kb, processor_kb, omax) for size in sizes.tolist()]
    found: IntArray = np.array(most, dtype=np.int64)[place]
    return found
