"""Effects are done here: what writes is called for each, and behind a door the rule of another room runs in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ejbd.manager import effects as fx
from ejbd.manager.acts import jobs, operations, placements, rows, subjobs
from ejbd.manager.acts.consulting import consult
from ejbd.manager.effects import Effect, Effects
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.rules.ends import concluding

T = TypeVar("T")

WRITES: dict[type[Effect], Callable[[JobWorld, Any], Any]] = {
    fx.Note: rows.put,
    fx.Insert: rows.insert,
    fx.Delete: rows.delete,
    fx.Tell: rows.tell,
    fx.Wake: rows.wake_up,
    fx.MoveJob: jobs.move,
    fx.Want: jobs.want,
    fx.Rate: jobs.rate,
    fx.LoseWork: jobs.lose_work,
    fx.Ask: subjobs.ask,
    fx.AskWhole: lambda world, effect: subjobs.add_whole(world, delay_s=effect.delay_s),
    fx.Release: lambda world, effect: subjobs.release(world, effect.subjob, effect.why),
    fx.ReleaseAtEnd: lambda world, effect: subjobs.release_at_end(world, effect.subjob, effect.why),
    fx.SetAside: lambda world, effect: subjobs.set_aside(world, effect.j0, effect.why),
    fx.MoveSubjob: subjobs.move,
    fx.Act: subjobs.act,
    fx.MoveIntent: subjobs.move_one_intent,
    fx.BeginLaunch: placements.begin_launch,
    fx.BeginEpoch: placements.begin_epoch,
    fx.MoveEpoch: placements.move,
    fx.Order: operations.order,
    fx.MoveOperation: operations.move,
    fx.Abandon: lambda world, effect: operations.abandon(world, effect.worker, effect.why),
}
"""What does an effect, and its answer."""

DOORS: dict[type[Effect], Callable[[JobWorld, Any], Effects[Any]]] = {
    fx.Conclude: lambda world, effect: concluding.conclude(world, effect.end),
}
"""The rule behind a door."""


def carry_out(world: JobWorld, asked: Effects[T]) -> T:
    """Do what a rule asks for, each effect before the rule goes on, and return what it returns.

    What goes wrong with an effect is raised in the rule, at the place where it asked.
    """
    try:
        effect = next(asked)
        while True:
            try:
                answer = do(world, effect)
            except Exception as error:
                effect = asked.throw(error)
            else:
                effect = asked.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def do(world: JobWorld, effect: Effect) -> Any:
    """Do one effect, and return its answer. It is noted in the context's `done`, where that is wanted."""
    if world.ctx.done is not None:
        world.ctx.done.append(effect)
    if isinstance(effect, fx.Consult):
        return consult(world, effect, carry_out)
    door = DOORS.get(type(effect))
    if door is not None:
        return carry_out(world, door(world, effect))
    return WRITES[type(effect)](world, effect)
