"""Writes the states of workflows and of their allocations."""

from __future__ import annotations

from ejbd.manager.effects import MoveStage, MoveWorkflow
from ejbd.manager.facts.context import Context
from ejbd.store.flows import move_stage, move_workflow


def move(ctx: Context, effect: MoveWorkflow) -> None:
    move_workflow(ctx.session, effect.workflow, effect.state, ctx.now, effect.reason)


def move_allocation(ctx: Context, effect: MoveStage) -> None:
    move_stage(ctx.session, effect.stage, effect.state, ctx.now, effect.reason)
