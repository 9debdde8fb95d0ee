"""A database that has seen many jobs, a life of a daemon on it, and what each statement of that life costs there."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import JSON, Boolean, Float, String, Table, Text, event, select, text
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeDecorator

from ejbd.api.app import create_app
from ejbd.api.auth import Principal, principal_of
from ejbd.manager.service import mailer
from ejbd.store import marks
from ejbd.store.models import Base, Job
from ejbd.store.retention import in_use, prune
from ejbd.store.store import Store
from ejbd.web.app import install
from ejbd.wire.rights import Proof, Role
from tests.fakes.days import Day, Plan
from tests.fakes.plans import asking_function

NOW = 1_760_000_000.0
DAY_S = 86400.0
JOBS_A_DAY = 2000  # that have ended
COPIES_A_COMMIT = 500  # SQLite's log has a whole commit
COPY = "00000000"  # in each id of a copied job: the number of the copy
LEFT_OUT = ("marks", "daily_runs", "queue_pauses", "queue_overrides", "queue_windows", "drains")
BOUNDED = ("moves", "speeds", "runs", "overheads", "obstacles")  # of each application the newest few are kept
USER = "ada"
LIFE = Plan(
    "life", 4, 14,
    {"command": 6.0, "script": 2.0, "small": 4.0, "array": 1.5, "dependent": 2.0, "learned": 3.0, "lines": 2.0,
     "rival": 4.0, "cancel": 2.0, "hold": 1.0, "unhold": 1.0, "signal": 1.0, "ask": 2.0, "worker_slow": 1.0,
     "worker_silent": 1.0, "node_fails": 1.0, "rank_fails": 1.0, "warned": 1.0, "drain": 1.0, "undrain": 1.0,
     "daemon_away": 1.0, "engineless": 1.0},
    {"checkpoint_every": 60.0, "gaps": "on"}, crowd=((8, 60.0), (8, 150.0), (8, 260.0), (4, 1500.0)), at_once=(1, 2, 3),
)  # fmt: skip


def age_database(store: Store, of: Store, copies: int) -> int:
    """Fill an empty store with all that a life has left in `of` (SQLite), so many times; returns the number of jobs.

    They ended at JOBS_A_DAY, the last of them just before NOW.
    """
    rows = of.read_sync(_plain_rows)
    ids = {row["id"]: f"{COPY}{at:04d}" for at, row in enumerate(rows["jobs"])}
    ids |= {row["id"]: f"{COPY}w{at:04d}" for at, row in enumerate(rows["workers"])}
    step_s = len(rows["jobs"]) / JOBS_A_DAY * DAY_S
    pattern = re.compile("|".join(map(re.escape, ids)))

    def renamed(name: str, value: Any) -> Any:
        if isinstance(value, str):
            whole = name in ("batch_id", "number", "key") and value[:1] != "{"
            return COPY + value if whole else pattern.sub(lambda found: ids[found[0]], value)
        return value - step_s * (copies + 1) if isinstance(value, float) and value > NOW / 2 else value

    def fill(session: Session, numbers: Collection[int]) -> None:
        connection = session.connection()
        for table in _tables():
            for row in rows[table.name] if table.name == "other_jobs" else ():
                row["open"] = False
            first = [{name: renamed(name, value) for name, value in row.items()} for row in rows[table.name]]
            if not first:
                continue
            names = [name for name in first[0] if name not in _counted(table)]
            quoted = ", ".join(f'"{name}"' for name in names)  # `user` is a word of PostgreSQL's
            one = f"one_{table.name}"
            connection.execute(text(f"CREATE TEMPORARY TABLE {one} AS SELECT {quoted} FROM {table.name} LIMIT 0"))
            connection.execute(text(f"INSERT INTO {one} VALUES ({', '.join(f':{name}' for name in names)})"), first)
            exact = connection.dialect.name == "postgresql"
            values = ", ".join(_copied(table, name, exact) for name in names)
            copied = text(f"INSERT INTO {table.name} ({quoted}) SELECT {values} FROM {one}")
            for number in numbers if table.name not in BOUNDED else {0} & {*numbers}:
                given = {"id": f"{number:0{len(COPY)}d}", "number": number, "later_s": step_s * number}
                connection.execute(copied, {key: given[key] for key in given if f":{key}" in copied.text})
            connection.execute(text(f"DROP TABLE {one}"))

    for begin in range(0, copies, COPIES_A_COMMIT):
        numbers = range(begin, min(copies, begin + COPIES_A_COMMIT))
        store.write_sync(lambda session, of=numbers: fill(session, of))  # type: ignore[misc]
    return len(rows["jobs"]) * copies


def _tables() -> list[Table]:
    return [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]


def _plain_rows(session: Session) -> dict[str, list[dict[str, Any]]]:
    """Every table's rows as SQLite has them, but for booleans."""
    found = {}
    for table in _tables():
        truths = {column.name for column in table.columns if isinstance(column.type, Boolean)}
        order = ", ".join(column.name for column in table.primary_key)
        rows = session.execute(text(f"SELECT * FROM {table.name} ORDER BY {order}")).mappings()
        found[table.name] = [
            {name: bool(value) if name in truths and value is not None else value for name, value in row.items()}
            for row in rows
        ]
    return found


def _counted(table: Table) -> set[str]:
    """Keys that the database counts up."""
    return {column.name for column in table.primary_key if column.autoincrement is True}


def _copied(table: Table, name: str, exact: bool) -> str:
    """The value of a column in the copy of a row; `exact`: the database knows texts and JSON apart."""
    kind, unique = table.columns[name].type, (table.name, name) in (("other_jobs", "seq"), ("past_runs", "key"))
    name = f'"{name}"'
    if isinstance(kind, JSON | TypeDecorator) and exact:
        return f"CAST(replace(CAST({name} AS TEXT), '{COPY}', :id) AS JSON)"
    if isinstance(kind, JSON | TypeDecorator):
        return f"replace({name}, '{COPY}', :id)"
    if isinstance(kind, String | Text):
        return f"replace({name}, '{COPY}', :id)"
    if isinstance(kind, Float):
        return f"CASE WHEN {name} > {NOW / 2} THEN {name} + :later_s ELSE {name} END"
    return f"{name} + 100000 * :number" if unique else name


@dataclass
class Cost:
    """What a statement of a life cost: how often it was made, and the most steps of SQLite's machine at once.

    `text` and `given` are those of that time.
    """

    where: str
    times: int = 0
    steps: int = 0
    text: str = ""
    given: Any = ()


STEP = 10  # steps of SQLite's machine between two counts
_LIST = re.compile(r"\((?:\?|%\(\w+\)s(?:::\w+)?)(?:, ?(?:\?|%\(\w+\)s(?:::\w+)?))*\)")


class Meter:
    """The statements that a store's writer and readers make, and what each costs (steps: on SQLite alone)."""

    def __init__(self, store: Store) -> None:
        self.costs: dict[str, Cost] = {}
        self._under_way: dict[int, tuple[Cost, str, Any]] = {}
        self._steps: dict[int, int] = {}
        for engine in (store._writer, store._reader):
            event.listen(engine, "before_cursor_execute", self._begins)

    def _begins(self, connection: Any, cursor: Any, statement: str, given: Any, *_: object) -> None:
        driver = connection.connection.dbapi_connection
        self._count(driver)
        where = asking_function()
        if not where:
            return
        cost = self.costs.setdefault(_LIST.sub("(...)", statement), Cost(where))
        cost.times += 1
        cost.text, cost.given = cost.text or statement, cost.given or given
        self._under_way[id(driver)] = (cost, statement, given)

    def _count(self, driver: Any) -> None:
        """What the last statement of this connection has cost is known with its next."""
        which = id(driver)
        if which in self._under_way:
            cost, statement, given = self._under_way.pop(which)
            if self._steps.get(which, 0) > cost.steps:
                cost.steps, cost.text, cost.given = self._steps[which], statement, given
        elif hasattr(driver, "set_progress_handler"):
            driver.set_progress_handler(lambda: self._step(which), STEP)
        self._steps[which] = 0

    def _step(self, which: int) -> int:
        self._steps[which] += STEP
        return 0


class Life(Day):
    """A day, its daemon begun again in the middle; near its end all is asked that REST and the page can be asked."""

    def __init__(self, folder: Path, store: Store, *, is_asked: bool) -> None:
        super().__init__(folder, store, LIFE)
        del store.close  # its events are looked at elsewhere, and here they are many
        self.live.clock.now = NOW
        self.asked: dict[str, int] = {}
        self._is_asked, self._steps = is_asked, 0

    async def step(self, seconds: float) -> None:
        await super().step(seconds)
        self._steps += 1
        if self._steps == LIFE.steps // 2:
            await self._begin_again()
        if self._steps == LIFE.steps - 2 and self._is_asked:
            await self._ask()

    async def _begin_again(self) -> None:
        """What a start of the daemon reads, beside what its manager takes up."""
        await self.live.restart()
        mailed = await self.live.store.write(marks.mailed)
        await self.live.store.read(lambda session: mailer.due(session, mailed))
        await self.live.manager.hindsight.look()
        now = self.live.clock.now
        await self.live.store.write(lambda session: prune(session, now, 3650.0))
        await self.live.store.read(lambda session: in_use(session, now, 3650.0))

    async def _ask(self) -> None:
        app = create_app(self.live.manager)
        paths = [one.pattern.pattern.replace("\\", "") for one in app.state.declared.addresses if "GET" in one.methods]
        paths = list_addresses(paths, self.live.store.read_sync(_some_jobs), self.live.clock.now)
        install(app)
        for role, user in ((Role.ADMIN, "root"), (Role.USER, USER)):
            caller = Principal(user, role, Proof.PEER, role.scope)
            app.dependency_overrides[principal_of] = lambda caller=caller: caller
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ejbd") as client:
                for path in paths:
                    self.asked[f"{user} {path}"] = (await client.get(path)).status_code


def _some_jobs(session: Session) -> list[str]:
    """A job of long ago, the newest one, and one that runs."""
    oldest, newest = session.scalars(select(Job.id).order_by(Job.seq)).first(), "last"
    running = session.scalars(select(Job.id).where(Job.state == "running").order_by(Job.seq.desc())).first()
    return [one for one in (oldest, newest, running) if one is not None]


def list_addresses(paths: Sequence[str], jobs: Sequence[str], now: float) -> list[str]:
    """Every address of REST that can be asked for, and the pages, with the queries that clients make."""
    asked = [path for path in paths if not path.endswith("/stream") and "/worker/" not in path]
    found = [path for path in asked if "(" not in path]
    of_jobs = [path for path in asked if path.startswith("/v1/jobs/(")]
    found += [path.replace("([^/]+)", job) for path in of_jobs for job in jobs]
    lists: tuple[str, ...] = (
        "mine=true",
        f"user={USER}",
        "alive=true",
        "state=running",
        "state=failed&state=timeout",
        "queue=batch",
        "queue=none",
        f"user={USER}&queue=none",
    )
    lists += ("name=heat", "name=none", "name_part=eat", "number=1001", "select=last-3..last", "before=5")
    found += [f"/v1/jobs?{query}" for query in lists] + ["/v1/events?after=1&limit=100", "/v1/queues/default"]
    found += [f"/v1/savings?by={by}&until_s={now}" for by in ("day", "user", "queue")] + [
        f"/v1/cluster?since_s={now - DAY_S}"
    ]
    found += ["/v1/history/law?application=heat&processors=4", f"/v1/history?user={USER}", "/web/jobs?which=all"]
    found += ["/", "/web/jobs", "/web/queues", "/web/savings", "/web/health", *(f"/web/jobs/{job}" for job in jobs)]
    found += [f"/web/jobs?which=all&sort=-{key}" for key in ("submitted", "ends", "name", "user")]
    return found


async def live_once(store: Store, folder: Path, *, is_asked: bool) -> Life:
    """One life, from NOW on, and REST asked in it."""
    life = Life(folder, store, is_asked=is_asked)
    await life.play()
    return life


def explain_plans(store: Store, costs: Mapping[str, Cost], *, any_plan: bool = False) -> dict[str, list[str]]:
    """How the database reads the rows of each SELECT. PostgreSQL: by an index where there is one, unless `any_plan`."""
    exact = store.url.get_backend_name() == "postgresql"
    found: dict[str, list[str]] = {}
    with store._reader.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        if exact and not any_plan:
            driver.execute("SET enable_seqscan = off")
        for name, cost in costs.items():
            if cost.text.startswith("SELECT"):
                words = "EXPLAIN" if exact else "EXPLAIN QUERY PLAN"
                rows = driver.execute(f"{words} {cost.text}", cost.given).fetchall()
                found[name] = [str(row[0 if exact else 3]) for row in rows]
    return found
