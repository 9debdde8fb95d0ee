"""Effects are done here: what writes is called for each, and behind a door the rule of another room runs in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from ejbd.manager import effects as fx
from ejbd.manager.acts import doors, flows, jobs, numbers, operations, pastruns, placements, remembering, rows, subjobs
from ejbd.manager.acts.consulting import consult
from ejbd.manager.acts.guard import guarded
from ejbd.manager.effects import Effect, Effects
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.where import Where, context_of

T = TypeVar("T")

WRITES: dict[type[Effect], Callable[[Context, Any], Any]] = {
    fx.Note: rows.put,
    fx.Insert: rows.insert,
    fx.InsertRows: rows.insert_many,
    fx.Delete: rows.delete,
    fx.Flush: rows.flush,
    fx.Tell: rows.tell,
    fx.TellAll: rows.tell_all,
    fx.Wake: rows.wake_up,
    fx.Remember: rows.keep_for_later,
    fx.ForgetHistory: rows.forget_history,
    fx.MoveJob: jobs.move,
    fx.MoveWorkflow: flows.move,
    fx.MoveStage: flows.move_allocation,
    fx.Want: jobs.want,
    fx.Rate: jobs.rate,
    fx.LoseWork: jobs.lose_work,
    fx.MoveSubjob: subjobs.move,
    fx.Act: subjobs.act,
    fx.SubmitNow: subjobs.submit_now,
    fx.MoveEpoch: placements.move,
    fx.MakeEpochFolder: placements.make_folder,
    fx.DropCheckpoint: placements.drop_checkpoint,
    fx.Withdraw: placements.withdraw,
    fx.Order: operations.order,
    fx.MoveOperation: operations.move,
    fx.Abandon: operations.abandon,
    fx.Promise: remembering.promise,
    fx.Keep: remembering.keep,
    fx.KeepIn: remembering.keep_in,
    fx.KeepOnly: remembering.keep_only,
    fx.Offered: remembering.offered,
    fx.KeepRun: lambda ctx, effect: pastruns.take_in(ctx.session, [effect.run]),
    fx.ForgetCutShort: lambda ctx, effect: pastruns.forget_cut_short(ctx.session, effect.run),
    fx.SettleNumber: numbers.settle_both,
}
"""What does an effect, and its answer."""

WRITES_OF_A_JOB: dict[type[Effect], Callable[[JobWorld, Any], Any]] = {
    fx.Ask: subjobs.ask,
    fx.AskWhole: lambda world, effect: subjobs.add_whole(world, delay_s=effect.delay_s),
    fx.Release: lambda world, effect: subjobs.release(world, effect.subjob, effect.why),
    fx.ReleaseAtEnd: lambda world, effect: subjobs.release_at_end(world, effect.subjob, effect.why),
    fx.SetAside: lambda world, effect: subjobs.set_aside(world, effect.j0, effect.why),
    fx.Consult: lambda world, effect: consult(world, effect, carry_out),
}
"""The same of those that concern the job that the rule is about."""


def carry_out(where: Where, asked: Effects[T]) -> T:
    """Do what a rule asks for, each effect before the rule goes on, and return what it returns.

    What goes wrong with an effect is raised in the rule, at the place where it asked.
    """
    try:
        effect = next(asked)
        while True:
            try:
                answer = do(where, effect)
            except Exception as error:
                effect = asked.throw(error)
            else:
                effect = asked.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def run(ctx: Context, rule: Callable[..., Effects[T]], *args: Any) -> T:
    """Carry out a rule about the whole site: `rule(ctx, *args)`."""
    return carry_out(ctx, rule(ctx, *args))


def do(where: Where, effect: Effect) -> Any:
    """Do one effect, and return its answer."""
    kind = type(effect)
    ctx = context_of(where)
    if kind in WRITES:
        return WRITES[kind](ctx, effect)
    if isinstance(effect, fx.In):
        asked = effect.asked
        return do(effect.world, asked) if isinstance(asked, Effect) else carry_out(effect.world, asked)
    if isinstance(effect, fx.Apart):
        return in_savepoint(effect.world, effect.rule)
    if kind in doors.OF_ROW:
        return carry_out(where, doors.OF_ROW[kind](**fields_of(effect)))
    if kind in doors.OF_SITE:
        return carry_out(where, doors.OF_SITE[kind](ctx, **fields_of(effect)))
    if not isinstance(where, JobWorld):
        raise TypeError(f"{kind.__name__} is about a job, and the rule that asks for it is about none")
    if kind in doors.OF_JOB:
        return carry_out(where, doors.OF_JOB[kind](where, **fields_of(effect)))
    return WRITES_OF_A_JOB[kind](where, effect)


def in_savepoint(world: JobWorld, rule: Callable[[JobWorld], Effects[Any]]) -> None:
    """Carry out a rule about one job in a savepoint of its own."""
    guarded(world, lambda world: carry_out(world, rule(world)))


def fields_of(effect: Effect) -> dict[str, Any]:
    """What an effect tells the rule behind its door."""
    return {field.name: getattr(effect, field.name) for field in fields(effect)}
