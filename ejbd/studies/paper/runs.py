"""The simulations behind the paper's tables and figures, one after the other, with how far all of them are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.sim import progress
from ejbd.sim.metrics import Outcome
from ejbd.sim.run import Policy, run
from ejbd.sim.targets import TargetRuns, run_targets
from ejbd.sim.workload import Workload
from ejbd.sim.world import World

EASY, EJB, TARGETS = 1.0, 4.0, 27.0  # what a job of the log costs in each, about: benchmarks/sim_speed.py
_MANY = 100  # simulations are to come, so that compiling is worth it unless the logs are small


class PaperRuns:
    """Plays, and tells how far it is. `total`: what all of it costs, in jobs times the costs above."""

    def __init__(self, total: float) -> None:
        self._total = max(total, 1.0)
        self._done = 0.0
        self._played: set[Policy | None] = set()

    def _again(self, policy: Policy | None) -> int:
        """The first of a kind is compiled only if it takes long itself: its number waits for no compiler."""
        if policy in self._played:
            return _MANY
        self._played.add(policy)
        return 1

    @contextmanager
    def _part(self, what: str, workload: Workload, cost: float) -> Iterator[None]:
        begin = self._done
        self._done = min(self._total, begin + cost * len(workload))
        with progress.part(what, begin / self._total, self._done / self._total):
            yield

    def easy(self, what: str, workload: Workload) -> Outcome:
        """The whole log under EASY."""
        with self._part(f"{what}, EASY", workload, EASY):
            return run(workload, Policy.EASY, again=self._again(Policy.EASY))

    def ejb(
        self,
        what: str,
        workload: Workload,
        min_processors: int,
        parameters: BundlingParameters | None = None,
        look: Callable[[World], None] | None = None,
    ) -> Outcome:
        """The whole log with all jobs of that width elastic. `look` is shown the world as it is played."""
        with self._part(f"{what}, all elastic", workload, EJB):
            return run(
                workload, Policy.EJB, parameters=parameters, min_processors=min_processors,
                again=self._again(Policy.EJB), look=look,
            )  # fmt: skip

    def targets(self, what: str, workload: Workload, baseline: Outcome, **words: Any) -> TargetRuns:
        """Every target of the log as the one elastic job."""
        with self._part(f"{what}, one elastic job a simulation", workload, TARGETS):
            return run_targets(workload, baseline=baseline, again=self._again(None), **words)
