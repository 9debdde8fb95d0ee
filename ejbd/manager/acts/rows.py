"""Writes rows as such: columns, events, topics."""

from __future__ import annotations

from ejbd.manager.acts.learnt import remember
from ejbd.manager.effects import Delete, Flush, ForgetHistory, Insert, InsertRows, Note, Remember, Tell, TellAll, Wake
from ejbd.manager.facts.context import Context
from ejbd.store.models import Base, Epoch, Intent, Job, Operation, Subjob, Workflow, WorkflowStage
from ejbd.store.transitions import add_event, add_events, insert_rows, wake

OF_THEIR_OWN: dict[type[Base], frozenset[str]] = {
    Job: frozenset({"state", "members", "work_s", "work_rate", "work_as_of_s"}),
    Subjob: frozenset({"state"}),
    Epoch: frozenset({"state"}),
    Operation: frozenset({"state"}),
    Intent: frozenset({"state"}),
    Workflow: frozenset({"state"}),
    WorkflowStage: frozenset({"state"}),
}
"""Columns that have effects of their own."""


def put(ctx: Context, effect: Note) -> None:
    refused = OF_THEIR_OWN.get(type(effect.row), frozenset()) & effect.columns.keys()
    if refused:
        raise ValueError(f"{type(effect.row).__name__}.{', '.join(sorted(refused))}: has an effect of its own")
    for name, value in effect.columns.items():
        setattr(effect.row, name, value)


def insert(ctx: Context, effect: Insert) -> Base:
    ctx.session.add(effect.row)
    return effect.row


def insert_many(ctx: Context, effect: InsertRows) -> None:
    insert_rows(ctx.session, effect.model, effect.rows)


def delete(ctx: Context, effect: Delete) -> None:
    ctx.session.delete(effect.row)


def flush(ctx: Context, effect: Flush) -> None:
    ctx.session.flush()


def tell(ctx: Context, effect: Tell) -> None:
    add_event(ctx.session, effect.kind, ctx.now, job_id=effect.job_id, subjob_id=effect.subjob_id, **effect.data)


def tell_all(ctx: Context, effect: TellAll) -> None:
    add_events(ctx.session, effect.events)


def wake_up(ctx: Context, effect: Wake) -> None:
    wake(ctx.session, *effect.topics)


def keep_for_later(ctx: Context, effect: Remember) -> None:
    remember(ctx.session, effect.row)


def forget_history(ctx: Context, effect: ForgetHistory) -> None:
    ctx.history.forget()
