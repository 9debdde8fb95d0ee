"""What ranks died of, in the words of srun."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from sqlalchemy import select

from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.jobspec.shell import read_script
from ejbd.store.models import Epoch, Event
from ejbd.wire.kinds import EventKind

REFUSED_LAUNCH = 2  # what a shim returns for a launch that EJB refuses


OUT_OF_MEMORY = "OUT_OF_MEMORY"  # Slurm's word


SRUN_OUT_OF_MEMORY = 1  # what srun returns where memory was what a rank died of, rather than 128 + KILL


def how(code: int, *, memory: bool = False) -> str:
    """An exit code in srun's words; a signal by its name (128 + number, as in a shell)."""
    if memory:
        return "Out Of Memory"
    if 128 < code < 128 + signal.NSIG:
        return signal.strsignal(code - 128) or f"signal {code - 128}"
    return f"Exited with exit code {code}"


def killed_for_memory(world: JobWorld, epoch: Epoch) -> set[int]:
    query = select(Event.data).where(Event.job_id == world.job.id, Event.kind == EventKind.RANK_MEMORY)
    return {data["rank"] for data in world.ctx.session.scalars(query) if data["epoch"] == epoch.number}


def launch_code(world: JobWorld, epoch: Epoch, rank: int, code: int) -> int:
    """What the launch returns of which `rank` was the first to die, with `code`: as srun does."""
    return SRUN_OUT_OF_MEMORY if rank in killed_for_memory(world, epoch) else code


def for_memory(world: JobWorld) -> str:
    """That memory was what the latest placement died of, in words; "" where it was not."""
    epoch = world.epoch
    lost = sorted(killed_for_memory(world, epoch)) if epoch is not None else []
    if not lost:
        return ""
    hint = "ask for more (--mem-per-cpu, --mem)"
    were = "was" if len(lost) == 1 else "were"
    return f"{OUT_OF_MEMORY}: {tasks_in_words(lost)} of the last launch {were} killed: {hint}"


def last_words(world: JobWorld) -> list[str]:
    """The sentences about the ranks of the latest placement that died; none where it ended well."""
    epoch = world.epoch
    if epoch is None:
        return []
    query = (
        select(Event).where(Event.job_id == world.job.id, Event.kind == EventKind.RANK_FAILED).order_by(Event.id.desc())
    )
    event = world.ctx.session.scalars(query.limit(1)).first()
    return list(event.data.get("said", ())) if event is not None and event.data["epoch"] == epoch.number else []


def tasks_in_words(ranks: Sequence[int]) -> str:
    """`task 3`, `tasks 0-3,7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"task{'s' if len(ranks) > 1 else ''} {text}"


def asks_how_it_ended(world: JobWorld, line: int) -> bool:
    """Whether the script asks how the launch ended: the one that stands there, or, where none is known, each of all."""
    spec = world.spec
    launches = read_script(spec.script, spec.processes * spec.threads).launches if spec.script is not None else ()
    there = [one for one in launches if one.first_line <= line <= one.last_line] if line else launches
    return bool(there) and all(one.handled for one in there)


def refusal_that_was_passed_over(world: JobWorld) -> str:
    """What the script's present run took no notice of, in a sentence; "" where there is nothing."""
    query = select(Event).where(Event.job_id == world.job.id, Event.kind == EventKind.LAUNCH_REFUSED).order_by(Event.id)
    for event in world.ctx.session.scalars(query):
        data = event.data
        if data.get("run") == world.job.script_run and not data.get("handled"):
            where = f"line {data['line']}: " if data.get("line") else ""
            return f"{where}a launch was refused, and the script went on: {data['name']}: {data['reason']}"
    return ""


OUTPUT_LOST = 128 + 53  # what Slurm ends a job with (0:53) where its output cannot be opened


CANCELLED_LAUNCH = 143  # of a launch where the script ended its shim
