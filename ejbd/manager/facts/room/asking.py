"""Asking a policy about a job: as it is at a poll, or as it would be if it were submitted now."""

from __future__ import annotations

from dataclasses import replace

from ejbd.core.decision import Decision
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.room.slots import usable_slots
from ejbd.core.shapes import BackfillSlot
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.room.windows import Room, margins


def ask(world: JobWorld, situation: Situation, room: Room) -> Question:
    """What the policy is asked about this job now, with the slots that it may use of what there is room for."""
    return _asked(world, situation, room.allowed(world).windows.slots())


def asked_of_start(world: JobWorld) -> Question:
    """What the policy is asked about a job when J0 runs: it needs no slots."""
    return _asked(world, Situation.PLACEHOLDER_STARTED, ())


def answered(world: JobWorld, situation: Situation, room: Room) -> tuple[Question, Decision]:
    """As :func:`ask`, and the answer: with no more subjobs than the limits of its account leave.

    Where two slots would need more of them, it is asked again about the longer one. What is answered is weighed against
    the place of J0 that it may cost.
    """
    allowed = room.allowed(world)
    question = _asked(world, situation, allowed.windows.slots())
    decision = question.answer()
    if len(decision.requests) > allowed.jobs:
        slots = allowed.windows.slots()
        question = _asked(world, situation, slots[:1] if allowed.jobs >= 1 else ())
        decision = question.answer()
        if len(decision.requests) > allowed.jobs:
            question = _asked(world, situation, ())
            decision = question.answer()
    if decision.requests and (place := room.place(world)) is not None:
        question = replace(question, place=place)
        decision = question.answer()
    return question, decision


def _asked(world: JobWorld, situation: Situation, slots: tuple[BackfillSlot, ...]) -> Question:
    parameters = world.parameters()
    kept_free = margins(world.ctx, world.cost.tail_s)
    slots = usable_slots(slots, resumes(world, situation), kept_free, parameters.max_walltime_s)
    state = world.elastic_state(node_limit.can_move(world), node_limit.node_room(world, situation))
    policy = world.ctx.queue_settings(world.job.queue).policy
    return Question(situation, state, slots, world.ctx.now, parameters, policy)


def resumes(world: JobWorld, situation: Situation) -> bool:
    """Whether it is asked about a job that waits with work kept."""
    return situation is Situation.WAIT and world.job.start_s is not None
