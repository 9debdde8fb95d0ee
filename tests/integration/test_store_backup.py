"""A copy of the database and the way back, on SQLite and PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import text

from ejbd.errors import Code, EjbError
from ejbd.store.backup import backup, check, restore
from ejbd.store.engine import parse_url
from ejbd.store.store import Store
from tests.fakes.port import new_store
from tests.fakes.typed import Typed
from tests.store_fixtures import make_job


def kept(store: Store) -> list[str]:
    return store.read_sync(lambda session: sorted(session.scalars(text("SELECT id FROM jobs"))))


def test_a_copy_of_a_database_that_is_written_brings_back_what_it_held(
    store: Store, store_url: str, tmp_path: Path
) -> None:
    """Also where the database has been damaged or emptied since."""
    url, copy = parse_url(store_url), tmp_path / "copy"
    store.acquire_single_writer()
    store.write_sync(lambda session: session.add(make_job("before00")))
    assert backup(url, copy) > 0 and copy.stat().st_mode & 0o777 == 0o600, "the daemon runs on"
    store.write_sync(lambda session: session.add(make_job("after000")))
    assert kept(store) == ["after000", "before00"] and check(url) == []

    with pytest.raises(EjbError) as there:
        backup(url, copy)
    assert there.value.code is Code.CONFLICT and list(tmp_path.glob("*.partial")) == []
    with pytest.raises(EjbError) as refused:
        restore(url, copy, replace=True)
    assert refused.value.code is Code.CONFLICT, "a daemon has it"
    store.close()
    with pytest.raises(EjbError, match="holds 2 jobs") as holds:
        restore(url, copy)
    assert holds.value.code is Code.CONFLICT
    (tmp_path / "none").write_bytes(b"no copy of anything" * 100)
    with pytest.raises(EjbError) as invalid:
        restore(url, tmp_path / "none", replace=True)
    assert invalid.value.code is Code.INVALID
    assert check(url) == []

    restore(url, copy, replace=True)
    again = Store(store_url)
    again.upgrade()
    assert kept(again) == ["before00"] and check(url) == []
    again.write_sync(lambda session: session.add(make_job("later000")))
    assert kept(again) == ["before00", "later000"]
    again.close()


def test_what_is_wrong_is_told(store: Store, store_url: str) -> None:
    url = parse_url(store_url)
    store.write_sync(lambda session: session.execute(text("UPDATE alembic_version SET version_num = 'from-2099'")))
    store.close()
    assert check(url) == ["it is of revision from-2099, which this version of ejbd does not know"]


@pytest.mark.xdist_group("cli")  # whose process has imported `ejb`
def test_the_commands_and_their_exit_codes(tmp_path: Path) -> None:
    config, copy = tmp_path / "ejbd.toml", tmp_path / "copy"
    config.write_text(f'state_dir = "{tmp_path}"\n')
    env = {name: value for name, value in os.environ.items() if not name.startswith("EJB")}

    def admin(*words: str) -> tuple[int, str]:
        with Typed(["admin", *words, "--config", str(config)], tmp_path, env) as process:
            said = process.communicate(timeout=120)
        assert process.returncode is not None
        return process.returncode, "".join(said)

    assert admin("check")[0] == 8
    made = new_store(tmp_path / "ejbd.sqlite")
    made.write_sync(lambda session: session.add(make_job("kept0000")))
    made.close()
    assert admin("backup", str(copy))[0] == 0 and admin("backup", str(copy))[0] == 4
    code, said = admin("restore", str(copy))
    assert code == 4 and "--replace" in said
    (tmp_path / "ejbd.sqlite").write_bytes(b"\0" * 8192)
    code, said = admin("check")
    assert code == 1 and "cannot be read" in said
    assert admin("restore", str(copy), "--replace")[0] == 0
    code, said = admin("adopt")
    assert code == 4 and "--leave-jobs" in said
    assert admin("adopt", "--leave-jobs")[0] == 0 and admin("adopt")[0] == 0
    assert admin("check") == (0, f"sqlite+pysqlite:///{tmp_path / 'ejbd.sqlite'} is whole\n")
