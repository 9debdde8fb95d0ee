"""Keeps what was learnt of runs."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ejbd.manager.facts.past.history import KEPT
from ejbd.store.models import Move, Obstacle, Overhead, Run, Speed


def remember(session: Session, row: Move | Speed | Run | Obstacle | Overhead) -> None:
    """Keep what was learnt, and forget the application's oldest of that kind.

    Of speeds those at the same degree are one kind, of overheads those of the same hop in the same queue.
    """
    session.add(row)
    session.flush()
    table = type(row)
    like = [table.application == row.application]
    if isinstance(row, Speed):
        like.append(Speed.degree == row.degree)
    if isinstance(row, Overhead):
        like += [Overhead.hop == row.hop, Overhead.queue == row.queue]
    newest = select(table.id).where(*like).order_by(table.id.desc()).limit(KEPT)
    oldest = min(session.scalars(newest))
    session.execute(delete(table).where(*like, table.id < oldest))
