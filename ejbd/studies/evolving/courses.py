"""The rule by which jobs of a log are given profiles: logs have none.

A job evolves that was chosen by lot. It runs as long as in the log, and its width there is its peak, which it asked for
because it could not evolve. Its run time is cut into steps of a drawn number (2 to 10), in proportion to drawn lengths
(500 to 3600, as Klein & Perez draw them). A drawn step has the peak, each other one a width drawn from 1 to the peak.
The last step lasts to the end of the walltime, of which the job makes no use beyond its run time.
"""

from __future__ import annotations

import random
from typing import Any

from ejbd.core.evolving.profiles import Profile, Step
from ejbd.sim.workload import Workload

STEPS, LENGTHS = (2, 10), (500, 3600)


def courses(workload: Workload, chosen: Any, seed: int) -> list[Profile | None]:
    """A profile for each job that is chosen (flags), None for the others. A larger share has those of a smaller one."""
    jobs = workload.jobs
    return [
        course(float(run), float(walltime), int(processors), random.Random(f"{seed} {job}")) if evolves else None
        for job, run, walltime, processors, evolves in zip(
            jobs.id.tolist(), jobs.run, jobs.walltime, jobs.processors, chosen, strict=True
        )
    ]


def course(run_s: float, walltime_s: float, peak: int, dice: random.Random) -> Profile:
    """The profile of a job that runs so long; of whole seconds, and of one step where it runs for one second."""
    lengths = [dice.randint(*LENGTHS) for _ in range(dice.randint(*STEPS))]
    widths = [dice.randint(1, peak) for _ in lengths]
    widths[dice.randrange(len(widths))] = peak
    cuts, past = [0], 0
    for length in lengths:
        past += length
        cuts.append(int(run_s * past / sum(lengths)))
    steps = [
        Step(float(end - begin), width)
        for begin, end, width in zip(cuts, cuts[1:], widths, strict=False)
        if end > begin
    ]
    if not steps:
        return Profile((Step(walltime_s, peak),))
    before = sum(step.duration_s for step in steps[:-1])
    steps[-1] = Step(walltime_s - before, steps[-1].processors)
    return Profile(tuple(steps))
