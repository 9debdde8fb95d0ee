"""Every statement that a recorded day makes is looked at once: SQLite has to find its rows by an index."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from sqlalchemy import event

from ejbd.store.engine import is_sqlite
from ejbd.store.store import Store

GROWING = ("jobs", "subjobs", "events", "intents", "operations", "workers", "epochs", "launches", "past_runs")
"""Tables that have rows of all jobs that ever were."""
READ_ALL = {
    "store/queries.py:list_jobs": "SORTED_JOBS are sorted, SEARCHED_JOBS looked through for a part of a name",
    "store/queries.py:count_by_state": "how many there are in all, by an index alone",
    "store/queries.py:job_counts": "how many there are in all, by an index alone",
    "store/retention.py:in_use": "once a day, of the jobs with files",
    "store/retention.py:prune": "once a day",
    "store/retention.py:_count": "once a day",
    "manager/service/pruning.py:prune.<locals>.<lambda>": "once a day",
    "manager/telling/savings.py:savings": "of the days that are asked for, and added up by the database",
    "manager/telling/cluster.py:_subjobs": "of the hours that are asked for",
    "manager/facts/promises.py:Promises._recall": "at its start, in the last RECENT_EVENTS",
    "manager/rules/looks/changes.py:begin": "at its start, in the last RECENT_EVENTS",
    "manager/facts/placing/checkpointing.py:recent_offers": "at its start, in the last RECENT_EVENTS",
    "manager/facts/usage.py:_held_before": "at its start, of the half-lives that count",
    "manager/poll/others.py:Others._read": "at its start, of the last day",
    "manager/facts/past/pastruns.py:groups": "all that was ever learned is asked for",
    "manager/facts/past/classes.py:newest": "so many runs, the newest",
    "manager/facts/past/history.py:lasting": "so many runs, the newest",
    "manager/facts/losing.py:part_of_requests": "so many runs, the newest",
    "api/events.py:_events_of": "until there are as many of the user's own as were asked for",
}
"""What may read more rows the more jobs have ended, by the function that asks, and why."""
_SCANS = re.compile(rf"SCAN (?:{'|'.join(GROWING)})\b(?! USING)")
_TESTS, _EJBD = (f"{Path(__file__).parents[2] / room}/" for room in ("tests", "ejbd"))
_PASSED_ON = ("store/store.py", "store/changes.py")
_seen: set[str] = set()


def asking_function() -> str:
    """The function of EJB's that makes the statement that is under way; "" where a test makes it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_TESTS):
            return ""
        if file.startswith(_EJBD) and not file.endswith(_PASSED_ON):
            return f"{file.removeprefix(_EJBD)}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return ""


def reads_a_table_through(plan: list[str]) -> bool:
    """Whether a plan of SQLite's reads every row of a table that grows."""
    return any(map(_SCANS.match, plan))


class Plans:
    """Of the statements of a store that no test of this process made before. `scans`: those that use no index."""

    def __init__(self, store: Store) -> None:
        self.scans: dict[str, str] = {}
        if is_sqlite(store.url):
            for engine in (store._writer, store._reader):
                event.listen(engine, "before_cursor_execute", self._executed)

    def _executed(self, connection: Any, _cursor: object, statement: str, given: Any, _: object, many: bool) -> None:
        if statement in _seen or many or not statement.startswith(("SELECT", "UPDATE", "DELETE")):
            return
        where = asking_function()
        if not where:
            return
        _seen.add(statement)
        driver = connection.connection.dbapi_connection
        rows = driver.execute(f"EXPLAIN QUERY PLAN {statement}", given).fetchall()
        if where not in READ_ALL and reads_a_table_through([row[3] for row in rows]):
            self.scans[where] = statement
