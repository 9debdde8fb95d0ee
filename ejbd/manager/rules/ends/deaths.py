"""What is said in a job's own output of ranks that died, in the words of srun; and launches that EJB refused."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.manager.effects import Effects, tell
from ejbd.manager.facts.deaths import asks_how_it_ended, how, killed_for_memory, tasks_in_words
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.store.models import Epoch, Worker
from ejbd.wire.kinds import EventKind


def note_deaths(world: JobWorld, epoch: Epoch, bad: Sequence[tuple[int, int]]) -> Effects[None]:
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
    yield tell(EventKind.RANK_FAILED, job_id=world.job.id, epoch=epoch.number, rank=rank, code=code, said=said)


def note_memory(world: JobWorld, worker: Worker, epoch: int, rank: int) -> Effects[None]:
    """Event `rank.memory`: the kernel killed a rank for memory."""
    node = worker.node
    yield tell(EventKind.RANK_MEMORY, job_id=world.job.id, epoch=epoch, rank=rank, node=node)


def note_refusal(world: JobWorld, name: str, reason: str, *, line: int = 0) -> Effects[None]:
    """Event `launch.refused`: EJB did not carry out a launch that sbatch would have. `line` 0: it is not known."""
    yield tell(
        EventKind.LAUNCH_REFUSED,
        job_id=world.job.id,
        run=world.job.script_run,
        name=name,
        line=line,
        reason=reason,
        handled=asks_how_it_ended(world, line),
    )
