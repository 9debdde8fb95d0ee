"""Where the shell of a script lives, and whether its lead is up."""

from __future__ import annotations

from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.store.models import Subjob
from ejbd.store.states import OperationState, SubjobState
from ejbd.wire.kinds import OperationKind


def lives_elsewhere(world: JobWorld, j0: Subjob) -> Subjob | None:
    """The subjob in which the shell of an ordinary script lives while no launch runs: its time is not that of `j0`."""
    job = world.job
    if not (holds_shell(job) and job.script_run) or world.launch is not None:
        return None
    running = (s for s in world.open_subjobs if s.state == SubjobState.RUNNING and not s.releasing)
    return next((s for s in running if s.anchor and s is not j0), None)


def is_up(world: JobWorld) -> bool:
    """Whether the lead has made the job's output files, and has begun the script."""
    operations = world.operations(OperationKind.LEAD)
    return bool(operations) and operations[-1].state == OperationState.DONE
