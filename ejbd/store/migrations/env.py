"""What Alembic runs: on the daemon's own connection, or for the `alembic` command on the database that it names by
`-x url=...` or EJBD_DATABASE_URL."""

from __future__ import annotations

import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import URL, Connection

from ejbd.errors import EjbError
from ejbd.store.engine import migration_engine, parse_url
from ejbd.store.models import Base


def named_url() -> URL:
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get("EJBD_DATABASE_URL")
    if not url:
        raise CommandError("name the database: alembic -x url=sqlite:////path/to/ejbd.sqlite ..., or EJBD_DATABASE_URL")
    try:
        return parse_url(str(url))
    except EjbError as error:
        raise CommandError(error.sentence()) from None


def run(connection: Connection) -> None:
    # SQLite cannot alter most of a table: batch mode makes it anew. Its DDL is transactional, once the driver lets it.
    context.configure(
        connection=connection, target_metadata=Base.metadata, render_as_batch=True, transactional_ddl=True
    )
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
elif context.is_offline_mode():
    context.configure(url=named_url(), target_metadata=Base.metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = migration_engine(named_url())
    with engine.begin() as opened:
        run(opened)
    engine.dispose()
