"""The migrations make the tables that the models describe, and can be taken back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

import ejbd.store
from ejbd.errors import Code, EjbError
from ejbd.store import schema
from ejbd.store.engine import migration_engine, parse_url
from ejbd.store.models import Base
from ejbd.store.store import Store

INI = Path(ejbd.store.__file__).with_name("alembic.ini")


def tables(url: str) -> set[str]:
    engine = migration_engine(parse_url(url))
    found = set(inspect(engine).get_table_names())
    engine.dispose()
    return found


@pytest.fixture(scope="module")
def both(sqlite_with_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    """A database by the models, and one by the migrations; nothing is written to them."""
    by_models = migration_engine(parse_url(f"sqlite:///{tmp_path_factory.mktemp('models') / 'models.sqlite'}"))
    Base.metadata.create_all(by_models)
    by_migrations = migration_engine(parse_url(f"sqlite:///{sqlite_with_tables}"))
    yield [by_models, by_migrations]
    by_models.dispose()
    by_migrations.dispose()


@pytest.mark.parametrize("table", sorted(t.name for t in Base.metadata.sorted_tables))
def test_sqlite_tables_are_word_for_word_those_of_the_models(table: str, both: list[Engine]) -> None:
    """compare_metadata does not see everything (AUTOINCREMENT, constraint names): the text does, quotes aside."""
    query = text("SELECT sql FROM sqlite_master WHERE tbl_name = :table AND sql IS NOT NULL ORDER BY name")
    texts = []
    for engine in both:
        with engine.connect() as connection:
            texts.append(
                [
                    sorted(line.rstrip(", ").replace('"', "") for line in row.split("\n"))
                    for row in connection.scalars(query, {"table": table})
                ]
            )
    assert texts[0] == texts[1] != []


def test_up_is_what_the_models_say_down_goes_by_every_revision_and_up_again(store_url: str) -> None:
    url = parse_url(store_url)
    schema.upgrade(url)
    wanted = {table.name for table in Base.metadata.sorted_tables} | {"alembic_version"}
    assert tables(store_url) == wanted
    schema.upgrade(url)
    engine = migration_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": Base.metadata}
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert revisions
    for older in [*revisions[1:], "base"]:
        schema.downgrade(url, older)
    assert tables(store_url) == {"alembic_version"}
    schema.upgrade(url)
    assert tables(store_url) == wanted


def test_a_newer_database_is_refused_with_one_sentence(store_url: str) -> None:
    store = Store(store_url)
    store.upgrade()
    store.write_sync(lambda session: session.execute(text("UPDATE alembic_version SET version_num = 'from-2099'")))
    with pytest.raises(EjbError, match="from-2099, which this version of ejbd does not know") as refused:
        store.upgrade()
    assert refused.value.code is Code.STORE and not refused.value.transient
    store.close()


@pytest.mark.sampled(2)
def test_the_alembic_command(store_url: str, tmp_path: Path) -> None:
    def alembic(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "alembic", "-c", str(INI), *arguments],
            cwd=tmp_path,
            env={**os.environ, "EJBD_DATABASE_URL": ""},
            capture_output=True,
            text=True,
            timeout=180,
        )

    unnamed = alembic("upgrade", "head")
    assert unnamed.returncode != 0 and "name the database" in unnamed.stdout + unnamed.stderr
    made = alembic("-x", f"url={store_url}", "upgrade", "head")
    assert made.returncode == 0, made.stderr
    assert "jobs" in tables(store_url)
    assert "(head)" in alembic("-x", f"url={store_url}", "current").stdout
    printed = alembic("-x", f"url={store_url}", "upgrade", "head", "--sql")
    assert "CREATE TABLE jobs" in printed.stdout


def test_jobs_of_the_first_version_are_kept(store_url: str) -> None:
    """A database that was used under 0001 is brought to the newest revision with its rows, and back again."""
    url = parse_url(store_url)
    schema.upgrade(url, "0001")
    engine = migration_engine(url)
    with engine.begin() as connection:
        columns = {c["name"]: c for c in inspect(connection).get_columns("jobs")}
        given = {"id": "abcd1234", "state": "completed", "submit_s": 5.0}
        row = {n: given.get(n, _some(c["type"])) for n, c in columns.items() if n in given or not c["nullable"]}
        row.pop("seq", None)
        names = ", ".join(f'"{name}"' for name in row)
        connection.execute(text(f"INSERT INTO jobs ({names}) VALUES ({', '.join(':' + n for n in row)})"), row)
    schema.upgrade(url)
    with engine.connect() as connection:
        kept = connection.execute(text("SELECT id, state, submit_s, application FROM jobs")).all()
    assert [tuple(job) for job in kept] == [("abcd1234", "completed", 5.0, "")]
    schema.downgrade(url, "0001")
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT id FROM jobs")).all() == ["abcd1234"]
        assert "application" not in {c["name"] for c in inspect(connection).get_columns("jobs")}
    engine.dispose()


def test_open_jobs_of_before_keep_the_qos_that_they_named(store_url: str) -> None:
    """From 0022: it was in their specifications alone."""
    url = parse_url(store_url)
    schema.upgrade(url, "0022")
    specs: dict[str, dict[str, object]] = {
        "aaaa0001": {"options": ["--account=physics", "--qos=long"], "rigid_options": [], "asked": None},
        "aaaa0002": {"options": ["--qos=long"], "rigid_options": [], "asked": {"options": ["--qos=short"]}},
        "aaaa0003": {"options": ["--account=physics"]},
    }
    engine = migration_engine(url)
    with engine.begin() as connection:
        columns = {c["name"]: c for c in inspect(connection).get_columns("jobs")}
        names = [name for name, column in columns.items() if name != "seq" and not column["nullable"]]
        for id, spec in specs.items():
            given = {"id": id, "state": "waiting", "spec": json.dumps(spec)}
            row = {name: given.get(name, _some(columns[name]["type"])) for name in names}
            quoted = ", ".join(f'"{name}"' for name in row)
            connection.execute(text(f"INSERT INTO jobs ({quoted}) VALUES ({', '.join(':' + n for n in row)})"), row)
    schema.upgrade(url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT id, qos FROM jobs ORDER BY id")).all()
    engine.dispose()
    assert [tuple(row) for row in found] == [("aaaa0001", "long"), ("aaaa0002", "short"), ("aaaa0003", "")]


def _some(kind: object) -> object:
    """A value that a NOT NULL column of that type takes."""
    name = str(kind).upper()
    if name.startswith("BOOL"):
        return False
    if name.startswith(("VARCHAR", "TEXT")):
        return "x"
    return "{}" if name.startswith("JSON") else 1
