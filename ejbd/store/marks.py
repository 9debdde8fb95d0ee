"""What a database says about itself: which one it is, which daemon writes, where its spool is, up to which event mails
were sent and ends of jobs noted in the spool, and when other jobs were noted last."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from ejbd.store.models import Event, Mark

DATABASE, TERM, MAILED, BEAT, OTHERS = "database", "term", "mailed", "beat", "others"
SPOOL, SIGN, ENDS = "spool", "sign", "ends"


def identity(session: Session) -> tuple[str, bool]:
    """The database's name for life, and whether it was given just now."""
    found = session.get(Mark, DATABASE)
    if found is not None:
        return found.value, False
    session.add(Mark(name=DATABASE, value=secrets.token_hex(8)))
    session.flush()
    return session.get_one(Mark, DATABASE).value, True


def spool(session: Session) -> str:
    """The folder that was set up as this database's spool; "" where none was."""
    found = session.get(Mark, SPOOL)
    return "" if found is None else found.value


def set_spool(session: Session, folder: str) -> None:
    session.merge(Mark(name=SPOOL, value=folder))


def next_sign(session: Session) -> int:
    """The number of the next sign of life in the spool. The database has each number before the spool does."""
    return _count_up(session, SIGN)


def next_term(session: Session) -> int:
    """A daemon begins to write: every daemon before it has done so for the last time."""
    return _count_up(session, TERM)


def _count_up(session: Session, name: str) -> int:
    found = session.get(Mark, name)
    if found is None:
        found = Mark(name=name, value="0")
        session.add(found)
    found.value = str(int(found.value) + 1)
    session.flush()
    return int(found.value)


def term_now(connection: Connection) -> int:
    """The number of the daemon that has the right to write."""
    value = connection.execute(select(Mark.value).where(Mark.name == TERM)).scalar()
    return int(value) if value is not None else 0


def shared_term(connection: Connection) -> int:
    """As :func:`term_now`, on PostgreSQL. No other daemon can begin its own term before this transaction has ended."""
    value = connection.execute(select(Mark.value).where(Mark.name == TERM).with_for_update(read=True)).scalar()
    return int(value) if value is not None else 0


def next_beat(session: Session) -> None:
    """The daemon that leads was there just now. A number that goes up tells more than any of two machines' clocks."""
    _count_up(session, BEAT)


def beat_now(session: Session) -> str | None:
    """The beat and its term; None where no daemon that leads has counted any."""
    rows = session.execute(select(Mark.name, Mark.value).where(Mark.name.in_((TERM, BEAT)))).all()
    values = {name: value for name, value in rows}  # noqa: C416  # rows are no pairs to a type checker
    return f"{values.get(TERM, '')}:{values[BEAT]}" if BEAT in values else None


def mailed(session: Session) -> int:
    """The last event of which a mail was sent. What happened before the first call of this sends none."""
    return _event_of(session, MAILED)


def set_mailed(session: Session, event: int) -> None:
    """The mails of this event are about to be sent; no event before it asks for another one."""
    session.get_one(Mark, MAILED).value = str(event)


def others_seen(session: Session) -> float | None:
    """When a poll noted other jobs last, to a minute; None: none ever has."""
    found = session.get(Mark, OTHERS)
    return float(found.value) if found is not None else None


def set_others_seen(session: Session, now: float) -> None:
    session.merge(Mark(name=OTHERS, value=repr(now)))


def ends_noted(session: Session) -> int:
    """The last event up to which the spool has the ends of jobs. What ended before the first call is not noted."""
    return _event_of(session, ENDS)


def set_ends_noted(session: Session, event: int) -> None:
    session.merge(Mark(name=ENDS, value=str(event)))


def _event_of(session: Session, name: str) -> int:
    """The event of a mark; the newest one where there is no such mark yet."""
    found = session.get(Mark, name)
    if found is None:
        found = Mark(name=name, value=str(session.scalar(select(func.max(Event.id))) or 0))
        session.add(found)
        session.flush()
    return int(found.value)
