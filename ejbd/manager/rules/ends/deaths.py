"""What is said in a job's own output of ranks that died, in the words of srun; and launches that EJB refused."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.manager.facts.deaths import asks_how_it_ended, how, killed_for_memory, tasks_in_words
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EventKind


def note_deaths(world: JobWorld, epoch: Epoch, bad: Sequence[tuple[int, int]]) -> None:
    """Event `rank.failed`: the first rank that died, and sentences about all that had died by then."""
    node_of = {worker.id: worker.node for worker in world.workers}
    nodes = {seat.rank: node_of.get(seat.worker, "?") for seat in epoch.placement}
    groups: dict[tuple[str, str], list[int]] = {}
    memory = killed_for_memory(world, epoch)
    for rank, code in bad:
        groups.setdefault((nodes.get(rank, "?"), how(code, memory=rank in memory)), []).append(rank)
    said = [f"{node}: {tasks_in_words(ranks)}: {died}" for (node, died), ranks in groups.items()]
    left = epoch.size - len(epoch.exits)
    if left > 0:
        said.append(f"{left} other task{'s were' if left > 1 else ' was'} ended")
    rank, code = bad[0]
    add_event(
        world.ctx.session,
        EventKind.RANK_FAILED,
        world.ctx.now,
        job_id=world.job.id,
        epoch=epoch.number,
        rank=rank,
        code=code,
        said=said,
    )


def note_memory(world: JobWorld, worker: Worker, epoch: int, rank: int) -> None:
    """Event `rank.memory`: the kernel killed a rank for memory."""
    ctx = world.ctx
    node = worker.node
    add_event(ctx.session, EventKind.RANK_MEMORY, ctx.now, job_id=world.job.id, epoch=epoch, rank=rank, node=node)


def note_refusal(world: JobWorld, name: str, reason: str, *, line: int = 0) -> None:
    """Event `launch.refused`: EJB did not carry out a launch that sbatch would have. `line` 0: it is not known."""
    add_event(
        world.ctx.session,
        EventKind.LAUNCH_REFUSED,
        world.ctx.now,
        job_id=world.job.id,
        run=world.job.script_run,
        name=name,
        line=line,
        reason=reason,
        handled=asks_how_it_ended(world, line),
    )
