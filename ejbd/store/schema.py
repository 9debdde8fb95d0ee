"""Migrations from within the program: the daemon upgrades its own database when it starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError

from ejbd.errors import Code, EjbError
from ejbd.store.engine import is_trouble, migration_engine, place, store_error

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(url: URL, revision: str = "head") -> None:
    """Bring the tables of `url` to a revision (the newest known here), in one transaction. Nothing to do: nothing done.

    Raises EjbError if they are of a revision not known here, since a newer daemon has been there.
    """
    _migrate(url, revision, lambda config: command.upgrade(config, revision))


def downgrade(url: URL, revision: str) -> None:
    """Take the tables back to `revision` (`base`: none at all). Data that it has no room for is lost."""
    _migrate(url, revision, lambda config: command.downgrade(config, revision))


def revision(connection: Connection) -> str | None:
    """The revision of the database's tables; None: it has none yet."""
    return MigrationContext.configure(connection).get_current_revision()


def knows(found: str) -> bool:
    """Whether this version has that revision."""
    return found in _revisions()[0]


def _migrate(url: URL, wanted: str, step: Callable[[Config], None]) -> None:
    config = _config()
    engine = migration_engine(url)
    try:
        with engine.begin() as connection:
            found = revision(connection)
            known, newest = _revisions()
            if found is not None and found not in known:
                _refuse_newer(found, url)
            if found is not None and found == (newest if wanted == "head" else wanted):
                return
            config.attributes["connection"] = connection
            step(config)
    except DBAPIError as error:
        if is_trouble(error):
            raise store_error(url, error) from error
        raise
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


@functools.cache
def _revisions() -> tuple[frozenset[str], str | None]:
    """Every revision that this version knows, and the newest: read once, since every file of them is run for that."""
    scripts = ScriptDirectory.from_config(_config())
    return frozenset(script.revision for script in scripts.walk_revisions()), scripts.get_current_head()


def _refuse_newer(found: str, url: URL) -> NoReturn:
    raise EjbError(
        Code.STORE,
        f"the database is of revision {found}, which this version of ejbd does not know",
        where=place(url),
        hint="start the newer ejbd that made it, or give this one another database_url",
    )
