"""Fixtures around the database: `store_url` and `store` run a test on SQLite, or where SQL is its matter on both.

SQL is the matter of the integration tests, and of the unit tests that are marked `sql`: between them they run what the
daemon asks of its database. With EJB_TEST_DATABASES=all every test runs on both.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ejbd.store.models import Epoch, Job, Move, Speed, Subjob
from ejbd.store.store import Store
from tests.integration.postgres import PostgresServer, why_not


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server a test process (each worker of pytest-xdist is one)."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ejbd.sqlite'}"


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "store_url" not in metafunc.fixturenames:
        return
    item = metafunc.definition
    if any("store_url" in mark.args[0] for mark in item.iter_markers("parametrize")):
        return  # it says so itself
    about_sql = "unit" not in item.path.parts or item.get_closest_marker("sql") is not None
    everywhere = about_sql or os.environ.get("EJB_TEST_DATABASES") == "all"
    metafunc.parametrize("store_url", BOTH if everywhere else BOTH[:1], indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture(scope="session")
def sqlite_with_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that nobody has written to, to be copied: to make one takes longer than most tests.

    The first process of pytest-xdist makes it for all.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    path = folder / "with-tables.sqlite"
    with open(folder / "with-tables.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            made = path.with_suffix(".new")
            opened = Store(f"sqlite:///{made}")
            opened.upgrade()
            opened.close()
            made.rename(path)
    return path


@pytest.fixture(scope="session")
def postgres_with_tables(postgres_server: PostgresServer) -> str:
    """The URL of such a database on the server of the session."""
    url = postgres_server.new_database()
    opened = Store(url)
    opened.upgrade()
    opened.close()
    return url


@pytest.fixture
def postgres_tables_url(postgres_server: PostgresServer, postgres_with_tables: str) -> str:
    """The URL of a database with its tables, and nothing in them."""
    template = postgres_with_tables.partition("@/")[2].partition("?")[0]
    return postgres_server.new_database(f'TEMPLATE "{template}"')


@pytest.fixture
def store(store_url: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with its tables."""
    if store_url.startswith("sqlite"):
        shutil.copyfile(request.getfixturevalue("sqlite_with_tables"), store_url.removeprefix("sqlite:///"))
    else:
        template = request.getfixturevalue("postgres_with_tables")
        request.getfixturevalue("postgres_server").copy(template, store_url)
    opened = Store(store_url)
    yield opened
    opened.close()


def make_job(job_id: str, **values: Any) -> Job:
    """A plain job's row, with `values` on top."""
    given: dict[str, Any] = {
        "name": "heat",
        "user": "ada",
        "queue": "main",
        "state": "received",
        "elastic": True,
        "kind": "command",
        "engine": "application",
        "processes": 16,
        "walltime_s": 600.0,
        "spec": {"argv": ["./heat"]},
        "submit_s": 1000.0,
    }
    return Job(id=job_id, **(given | values))


def make_subjob(job_id: str, ordinal: int = 0, **values: Any) -> Subjob:
    """A subjob's row; ordinal 0 is J0."""
    given: dict[str, Any] = {
        "id": f"{job_id}.{ordinal}",
        "role": "subjob" if ordinal else "placeholder",
        "tag": f"ejb-{job_id}-{ordinal}",
        "state": "planned",
        "processors": 16,
        "walltime_s": 600.0,
        "usable_s": 540.0,
        "created_s": 1000.0,
    }
    return Subjob(job_id=job_id, ordinal=ordinal, **(given | values))


def make_epoch(job_id: str, number: int, created_s: float, **values: Any) -> Epoch:
    """An epoch's row, launching on one subjob of the same number."""
    given: dict[str, Any] = {
        "launch_ordinal": 0,
        "state": "launching",
        "size": 16,
        "processors": 4,
        "members": [f"{job_id}.{number}"],
        "placement": [],
        "work_at_start_s": 0.0,
    }
    return Epoch(job_id=job_id, number=number, created_s=created_s, **(given | values))


def make_move(at_s: float, **values: Any) -> Move:
    """A move's row, not yet restarted."""
    given: dict[str, Any] = {"application": "heat", "job_id": "a", "epoch": 1, "processors": 4, "nodes": 1, "bytes": 9}
    times = {"checkpoint_s": 1.0, "write_s": 1.0, "wait_s": 0.0}
    return Move(at_s=at_s, **(given | times | values))


def make_speed(at_s: float, **values: Any) -> Speed:
    """A speed's row."""
    given: dict[str, Any] = {"application": "heat", "work": "w", "job_id": "a", "launch": 0, "epoch": 1}
    figures = {"processors": 4, "degree": 4, "units": 20.0, "seconds": 10.0, "total": None}
    return Speed(at_s=at_s, **(given | figures | values))
