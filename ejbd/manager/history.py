"""What is remembered of an application beyond one job: what its moves cost, by :class:`ejbd.store.models.Move`.

An *application* is what its next job is expected to behave like: the same user, as many processes, the same checkpoint
engine, and the same program. The program of a command is its file's name (behind an interpreter: that of the script
that it runs); that of a batch script is the job's name, since the script itself changes with every parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from posixpath import basename
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ejbd.core.cost import Measurement, spool_speed
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import Move

KEPT = 32  # moves of one application
SPEEDS = 50  # the newest moves of anybody that tell how fast the spool is
LONGEST_NAME = 400
MOVES_TOPIC = "moves"  # of commits that change what is known
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|lua|node|bash|dash|ksh|zsh|sh|julia|Rscript|java)[0-9.]*")


@dataclass
class Known:
    """What was read of the history. Whoever learns of a change puts a new one in its place, and never changes the old:

    a transaction that began before fills the one that it was given, which nobody looks at any more.
    """

    moves: dict[str, list[Measurement]] = field(default_factory=dict)
    speed: float | None = None


def application_of(user: str, spec: JobSpec, engine: str) -> str:
    """The name under which measurements are kept: `user:processes:engine:program`."""
    return f"{user}:{spec.processes}:{engine}:{program_of(spec)[:LONGEST_NAME]}"[:512]


def program_of(spec: JobSpec) -> str:
    """What a job runs, in a word or two."""
    if spec.kind is JobKind.SCRIPT or not spec.argv:
        return spec.name
    program = basename(spec.argv[0]) or spec.name
    if _INTERPRETER.fullmatch(program):
        script = next((word for word in spec.argv[1:] if not word.startswith("-")), "")
        return f"{program} {basename(script)}".strip()
    return program


def measurements(session: Session, application: str) -> list[Measurement]:
    """The application's moves, newest first."""
    columns = (Move.processors, Move.bytes, Move.checkpoint_s, Move.write_s, Move.wait_s, Move.restart_s)
    query = select(*columns).where(Move.application == application).order_by(Move.id.desc()).limit(KEPT)
    return [Measurement(*row) for row in session.execute(query)]


def moves_of(session: Session, application: str, limit: int = 10) -> list[Move]:
    """The application's latest moves, newest first."""
    return list(
        session.scalars(select(Move).where(Move.application == application).order_by(Move.id.desc()).limit(limit))
    )


def move_json(move: Move) -> dict[str, Any]:
    """A move for people and programs to read."""
    names = ("job_id", "epoch", "at_s", "processors", "nodes", "to_processors", "to_nodes", "bytes")
    parts = ("checkpoint_s", "write_s", "wait_s", "restart_s", "by_node")
    return {name: getattr(move, name) for name in (*names, *parts)}


def measured_speed(session: Session) -> float | None:
    """Bytes a second that the spool took from checkpoints of late, whoever wrote them; None where none tells."""
    query = select(Move.bytes, Move.write_s).order_by(Move.id.desc()).limit(SPEEDS)
    return spool_speed([(row.bytes, row.write_s) for row in session.execute(query)])


def remember(session: Session, move: Move) -> None:
    """Keep a move, and forget the application's oldest ones."""
    session.add(move)
    session.flush()
    newest = select(Move.id).where(Move.application == move.application).order_by(Move.id.desc()).limit(KEPT)
    oldest = min(session.scalars(newest))
    session.execute(delete(Move).where(Move.application == move.application, Move.id < oldest))
