"""The order of stages, and which of them share an allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ejbd.workflow.plan import Plan, Stage


@dataclass(frozen=True, slots=True)
class Group:
    """Stages that run one after the other in one allocation. `needs`: the groups that have to end well before."""

    stages: tuple[Stage, ...]
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        """That of its first stage."""
        return self.stages[0].name

    @property
    def width(self) -> int:
        return self.stages[0].width

    @property
    def walltime_s(self) -> float:
        return sum(stage.walltime_s for stage in self.stages)

    @property
    def retries(self) -> int:
        return max(stage.retries for stage in self.stages)


def cycle_in(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """The stages of a cycle, each needed by the one before it; empty where there is none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def all_behind(needs: Mapping[str, Sequence[str]]) -> dict[str, set[str]]:
    """Of each stage all that have to end before it begins, directly or not. `needs` has no cycle."""
    found: dict[str, set[str]] = {}
    for stage in TopologicalSorter(needs).static_order():
        found[stage] = set(needs[stage]).union(*(found[need] for need in needs[stage]))
    return found


def in_order(plan: Plan) -> list[Stage]:
    """The stages, each behind those that it needs; else as they stand in the file."""
    left, done, found = list(plan.stages), set[str](), list[Stage]()
    while left:
        stage = next(stage for stage in left if done.issuperset(stage.needs))
        left.remove(stage)
        done.add(stage.name)
        found.append(stage)
    return found


def groups(plan: Plan) -> list[Group]:
    """The allocations that a plan asks for, in order.

    A stage goes into the allocation of the one before where it needs that alone, is all that needs it, and asks for the
    same (the stages are *bundled*: the paper's logical stages, section 3.6). A failure that does not end the rest would
    still end the stages behind it, which need it; so nothing else changes by it.
    """
    wanted_by: dict[str, list[str]] = {stage.name: [] for stage in plan.stages}
    for stage in plan.stages:
        for name in stage.needs:
            wanted_by[name].append(stage.name)
    chains: list[list[Stage]] = []
    chain_of: dict[str, list[Stage]] = {}
    for stage in in_order(plan):
        before = chain_of[stage.needs[0]] if len(stage.needs) == 1 else None
        joins = (
            plan.bundle
            and before is not None
            and before[-1].name == stage.needs[0]
            and wanted_by[stage.needs[0]] == [stage.name]
            and before[-1].needs_as(stage)
        )
        if joins and before is not None:
            before.append(stage)
        else:
            before = [stage]
            chains.append(before)
        chain_of[stage.name] = before
    return [
        Group(tuple(chain), tuple(dict.fromkeys(chain_of[name][0].name for name in chain[0].needs))) for chain in chains
    ]
