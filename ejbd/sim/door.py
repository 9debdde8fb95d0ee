"""The simulator from Python: load a log, play a policy, a policy of one's own among them, and get arrays or a frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.core.decision import Decision
from ejbd.core.parameters import Parameters
from ejbd.core.question import Question
from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import BUNDLING
from ejbd.sim.choosing import Choice
from ejbd.sim.metrics import Means, Outcome, idle_while_queued, makespan, means, utilization
from ejbd.sim.own import half_life_of, run_own, run_policy
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.settings import Source
from ejbd.sim.settings import load as load_source
from ejbd.sim.workload import RowRule, Workload
from ejbd.sim.world import FloatArray


def load(
    path: str | Path, *, processors: int | None = None, rows: str = RowRule.ARCHIVE.value, limit: int | None = None
) -> Workload:
    """Read a workload log (SWF; plain, .gz or .xz).

    `processors`: the cluster's; without, MaxProcs of the header. `rows`: `archive` or `pyss` (docs/simulator.md); what
    it changed or left out is in the workload's `odd`. `limit`: the first rows only. Raises EjbError for what is no log.
    """
    return load_source(Source(Path(path), processors, RowRule(rows), limit))


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the jobs, as arrays in the order of submission; seconds."""

    workload: Workload
    outcome: Outcome

    @property
    def submit(self) -> FloatArray:
        return self.workload.jobs.submit

    @property
    def start(self) -> FloatArray:
        return self.outcome.start

    @property
    def end(self) -> FloatArray:
        return self.outcome.end

    @property
    def wait(self) -> FloatArray:
        return self.outcome.start - self.workload.jobs.submit

    @property
    def turnaround(self) -> FloatArray:
        return self.outcome.end - self.workload.jobs.submit

    @property
    def elastic(self) -> Any:
        """Flags: jobs that did not start in their own shape."""
        return self.outcome.elastic != 0

    def means(self, chosen: Any = None) -> Means:
        """Means over the jobs that `chosen` flags; without, over all."""
        return means(self.workload.jobs, self.outcome, slice(None) if chosen is None else chosen)

    def figures(self) -> dict[str, float]:
        """The cluster's: makespan (s), utilization (0 to 1), processors idle on average while a job waits."""
        jobs = self.workload.jobs
        return {
            "makespan_s": makespan(jobs, self.outcome),
            "utilization": utilization(jobs, self.outcome, self.workload.processors),
            "idle_procs_while_queued": idle_while_queued(self.outcome),
        }

    def columns(self) -> dict[str, Any]:
        """A column for each thing that is known of a job: the log's number and user, its shape, and its fate."""
        jobs, outcome = self.workload.jobs, self.outcome
        users = np.full(len(self.workload), -1) if self.workload.users is None else self.workload.users
        return {
            "job": jobs.id,
            "user": users,
            "processors": jobs.processors,
            "submit_s": jobs.submit,
            "walltime_s": jobs.walltime,
            "run_s": jobs.run,
            "start_s": outcome.start,
            "end_s": outcome.end,
            "wait_s": self.wait,
            "turnaround_s": self.turnaround,
            "elastic": self.elastic,
            "subjobs": outcome.subjobs,
            "migrations": outcome.moves,
            "processor_seconds": outcome.used,
        }

    def frame(self) -> Any:
        """The columns as a pandas DataFrame. Raises EjbError where there is no pandas."""
        try:
            import pandas
        except ImportError as error:
            hint = "pip install pandas, or take columns(), which are arrays"
            raise EjbError(Code.UNSUPPORTED, "a data frame needs pandas", hint=hint) from error
        return pandas.DataFrame(self.columns())


def play(
    workload: Workload,
    policy: str | Callable[[Question], Decision] = "ejb",
    *,
    ties: str = "paper",
    choice: Choice | None = None,
    candidates: Any = None,
    parameters: Parameters | None = None,
    checking: bool = False,
) -> Result:
    """Simulate every job to its end.

    `policy`: `easy`, `conservative`, `fcfs`, `ejb`, another policy by its name (docs/policies.md), or a function of
    one's own that is asked a :class:`Question` about an elastic job whenever EJB would be, and answers by a
    :class:`Decision`; `question.answer()` is EJB's. `choice` says which jobs may become elastic (without: all of 8
    processors and more), or `candidates`, flags in the order of submission. `ties`, `parameters`: docs/simulator.md.
    `checking` looks at the invariants after every event.

    Raises EjbError for a policy that is not known, and for an answer that cannot be carried out.
    """
    if candidates is None:
        candidates = (choice or Choice()).flags(workload)
    elif len(candidates) != len(workload):
        raise EjbError(Code.INVALID, f"{len(candidates)} flags for {len(workload)} jobs")
    try:
        order = Ties[ties.upper()]
        known = None if callable(policy) or policy.upper() not in Policy.__members__ else Policy[policy.upper()]
    except KeyError as error:
        hint = "policies are easy, conservative, fcfs, ejb or a function; ties are paper, pyss, batch"
        raise EjbError(Code.INVALID, f"{str(error).lower()} is not known", hint=hint) from None
    fair = parameters is not None and half_life_of(parameters) > 0 and known in (None, Policy.EJB)
    if isinstance(policy, str) and (fair or (known is None and policy != BUNDLING)):
        policy = BUNDLING if known is Policy.EJB else policy
        named = run_policy(
            workload, policy, candidates=candidates, ties=order, parameters=parameters, checking=checking
        )  # fmt: skip
        return Result(workload, named)
    known = Policy.EJB if policy == BUNDLING else known
    if known is None:
        assert callable(policy)
        own = run_own(
            workload, policy, candidates=candidates, ties=order, parameters=parameters, checking=checking
        )  # fmt: skip
        return Result(workload, own)
    outcome = run(workload, known, ties=order, parameters=parameters, candidates=candidates, checking=checking)
    return Result(workload, outcome)
