"""Another program that opens the daemon's SQLite file, and closes it: the log that the daemon writes stays its own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from sqlalchemy import text

from ejbd.store.store import Store

BESIDE = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=30) as connection:
    connection.execute("INSERT INTO marks (name, value) VALUES (?, '1')", (sys.argv[2],))
    print(connection.execute("SELECT count(*) FROM marks").fetchone()[0])
connection.close()
"""


def test_what_is_written_after_another_program_was_at_the_file_is_in_the_file(tmp_path: Path) -> None:
    """Its close removed the log: the daemon wrote on to a file without a name, and lost all of that with its end."""
    file = tmp_path / "ejb.sqlite"

    def beside(name: str) -> int:
        command = [sys.executable, "-c", BESIDE, str(file), name]
        return int(subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout)

    with closing(Store(f"sqlite:///{file}")) as store:
        store.write_sync(lambda session: None)  # it is connected
        store.upgrade()

        def count() -> int:
            return int(store.read_sync(lambda session: session.scalar(text("SELECT count(*) FROM marks")) or 0))

        def write(name: str) -> None:
            store.write_sync(
                lambda session: session.execute(
                    text("INSERT INTO marks (name, value) VALUES (:name, '1')"), {"name": name}
                )
            )

        assert count() == 0
        write("first")
        assert beside("second") == 2
        assert (tmp_path / "ejb.sqlite-wal").exists() and count() == 2
        write("third")
        assert beside("fourth") == 4 and count() == 4
