"""Asking a policy about a job: as it is at a poll, or as it would be if it were submitted now."""

from __future__ import annotations

from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.room.slots import usable_slots
from ejbd.manager.placements import node_limit
from ejbd.manager.planning.jobworld import JobWorld
from ejbd.manager.planning.room import Room, margins


def ask(world: JobWorld, situation: Situation, room: Room) -> Question:
    """What the policy is asked about this job now, with the slots that it may use of what there is room for."""
    parameters = world.parameters()
    started = situation is Situation.PLACEHOLDER_STARTED
    slots = () if started else room.windows(world.job.queue, world.needs).slots()
    kept_free = margins(world.ctx, world.cost.tail_s)
    slots = usable_slots(slots, resumes(world, situation), kept_free, parameters.max_walltime_s)
    state = world.elastic_state(node_limit.can_move(world), node_limit.node_room(world, situation))
    policy = world.ctx.queue_settings(world.job.queue).policy
    return Question(situation, state, slots, world.ctx.now, parameters, policy)


def resumes(world: JobWorld, situation: Situation) -> bool:
    """Whether it is asked about a job that waits with work kept."""
    return situation is Situation.WAIT and world.job.start_s is not None
