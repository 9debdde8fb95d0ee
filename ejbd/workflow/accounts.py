"""Core-hours and turnaround of a workflow: Eq. 1 to 7 of E-HPC (Fox et al. 2017, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ejbd.workflow.graph import groups
from ejbd.workflow.plan import Plan

HOUR_S = 3600.0
USUAL_MOVE_S = 6.0  # what it takes to come to an allocation, as the paper has it
_LITTLE_PERCENT = 10.0  # of core-hours saved, or of the run time that goes to moves: less, or more, is worth a word


@dataclass(frozen=True, slots=True)
class Held:
    """One allocation: `width` processors (n_i), `run_s` of work (t_i), `move_s` to get there (CR_i), `wait_s` in the
    queue (q_i); seconds."""

    width: int
    run_s: float
    move_s: float = 0.0
    wait_s: float = 0.0


def one_allocation_core_s(stages: Sequence[Held], width: int | None = None) -> float:
    """Eq. 1: core-seconds of all stages in turn in one allocation of `width` (without: the greatest of theirs)."""
    return (width or max(one.width for one in stages)) * sum(one.run_s for one in stages)


def staged_core_s(stages: Sequence[Held]) -> float:
    """Eq. 2: core-seconds where each stage has an allocation of its own. Waiting costs none."""
    return sum((one.run_s + one.move_s) * one.width for one in stages)


def lost_to_moves_core_s(stages: Sequence[Held]) -> float:
    """The left side of Eq. 3."""
    return sum(one.move_s * one.width for one in stages)


def gained_core_s(stages: Sequence[Held], width: int | None = None) -> float:
    """The right side of Eq. 3: what one allocation of `width` would have held beyond what its stages use."""
    wide = width or max(one.width for one in stages)
    return sum((wide - one.width) * one.run_s for one in stages)


def turnaround_s(stages: Sequence[Held]) -> float:
    """Eq. 5; Eq. 4 is that of one allocation."""
    return sum(one.run_s + one.move_s + one.wait_s for one in stages)


def faster(stages: Sequence[Held], whole_wait_s: float) -> bool:
    """Eq. 6: whether stages are done sooner than one allocation that waits `whole_wait_s` (q)."""
    return turnaround_s(stages) < sum(one.run_s for one in stages) + whole_wait_s


def waits_less(waits_s: Sequence[float], whole_wait_s: float) -> bool:
    """Eq. 7: the same where moves cost nothing."""
    return sum(waits_s) < whole_wait_s


def move_pays(done: float, rest_s: float, width: int, to: int, move_s: float) -> bool:
    """Whether one move to a greater width ends a run sooner. `done` of it is done, all of it takes `rest_s` at `width`.

    It scales perfectly: (1 - x) r (1 - n/n') > the cost of the move.
    """
    return (1.0 - done) * rest_s * (1.0 - width / to) > move_s


def doubt(plan: Plan) -> str:
    """Why stages of their own will hardly pay, by their walltimes; "" where they should, or share one allocation."""
    found = cost(plan, USUAL_MOVE_S)
    count, run_s = len(found["allocations"]), found["run_s"]
    if count < 2:
        return ""
    if found["saved_percent"] < _LITTLE_PERCENT:
        return (
            f"by its walltimes it saves {max(0.0, found['saved_percent']):.1f} % of the core-hours of one allocation "
            f"of {found['widest']} processors, and waits {count} times: its stages need nearly the same"
        )
    part = 100.0 * count * USUAL_MOVE_S / run_s
    if part > _LITTLE_PERCENT:
        return (
            f"its stages are short: to start {count} allocations takes about {count * USUAL_MOVE_S:.0f} s, "
            f"{part:.0f} % of its {run_s:.0f} s"
        )
    return ""


def cost(plan: Plan, move_s: float) -> dict[str, Any]:
    """What a plan costs by its walltimes, each of its allocations reached by a move of `move_s`, in core-hours.

    Stages follow each other, as in Eq. 1; a scattered one runs all of its elements at once.
    """
    allocations = [Held(group.width, group.walltime_s, move_s) for group in groups(plan)]
    single = [Held(stage.width, stage.walltime_s) for stage in plan.stages]
    whole, staged = one_allocation_core_s(single), staged_core_s(allocations)
    lost, gained = lost_to_moves_core_s(allocations), gained_core_s(allocations, plan.widest)
    return {
        "workflow": plan.name,
        "widest": plan.widest,
        "move_s": move_s,
        "one_allocation_core_h": round(whole / HOUR_S, 3),
        "staged_core_h": round(staged / HOUR_S, 3),
        "saved_percent": round(100.0 * (1.0 - staged / whole), 1),
        "lost_to_moves_core_h": round(lost / HOUR_S, 3),
        "gained_core_h": round(gained / HOUR_S, 3),
        "pays": lost < gained,
        "run_s": sum(one.run_s for one in single),
        "staged_s": sum(one.run_s + one.move_s for one in allocations),
        "allocations": [
            {
                "stages": [stage.name for stage in group.stages],
                "tasks": group.width,
                "walltime_s": group.walltime_s,
                "core_h": round(staged_core_s([held]) / HOUR_S, 3),
            }
            for group, held in zip(groups(plan), allocations, strict=True)
        ],
    }
