"""A spool belongs to one database: a daemon with another one says so, and touches nobody's jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ejbd.errors import Code, EjbError
from ejbd.manager.hands.spool import Spool
from ejbd.store import marks
from ejbd.store.store import Store


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    made = Spool(tmp_path / "spool")
    made.prepare()
    return made


def told(spool: Spool) -> str:
    return str(json.loads((spool.root / "identity.json").read_text())["database"])


def test_the_first_database_marks_the_spool_and_comes_back(spool: Spool) -> None:
    spool.claim_for("a", True, ())
    (spool.root / "jobs" / "j1").mkdir()
    spool.claim_for("a", False, ["j1"])
    assert told(spool) == "a"


@pytest.mark.parametrize(("new", "word"), [(True, "new"), (False, "another")])
def test_another_database_is_refused_while_there_are_jobs(spool: Spool, new: bool, word: str) -> None:
    spool.claim_for("a", True, ())
    (spool.root / "jobs" / "j1").mkdir()
    with pytest.raises(EjbError, match=word) as refused:
        spool.claim_for("b", new, ())
    assert refused.value.code is Code.CONFLICT and "identity.json" in refused.value.hint
    assert told(spool) == "a"


def test_a_spool_without_jobs_is_anybodys(spool: Spool) -> None:
    spool.claim_for("a", True, ())
    spool.claim_for("b", True, ())
    assert told(spool) == "b"


def test_a_spool_from_before_identities_is_marked(spool: Spool) -> None:
    (spool.root / "jobs" / "j1").mkdir()
    spool.claim_for("a", True, ["j1"])
    assert told(spool) == "a"


def test_an_empty_spool_under_living_jobs_is_refused(spool: Spool) -> None:
    """Its file system is not mounted: what is written there reaches no worker."""
    with pytest.raises(EjbError, match="none of the files of the 2 jobs"):
        spool.claim_for("a", False, ["j1", "j2"])
    assert not (spool.root / "identity.json").exists()


def test_a_torn_identity_is_told(spool: Spool) -> None:
    (spool.root / "identity.json").write_text("{")
    with pytest.raises(EjbError, match="cannot be read"):
        spool.claim_for("a", True, ())


def test_a_database_keeps_its_name(store: Store) -> None:
    name, new = store.write_sync(marks.identity)
    assert new and store.write_sync(marks.identity) == (name, False)


@pytest.mark.slow
def test_a_daemon_on_a_wrong_database_ends_with_4(tmp_path: Path) -> None:
    (tmp_path / "spool" / "jobs" / "j1").mkdir(parents=True, mode=0o700)
    (tmp_path / "spool").chmod(0o700)
    (tmp_path / "spool" / "jobs").chmod(0o700)
    (tmp_path / "spool" / "identity.json").write_text('{"database": "another"}')
    (tmp_path / "ejbd.toml").write_text(f'state_dir = "{tmp_path}/state"\nspool = "{tmp_path}/spool"\n')
    done = subprocess.run(
        [sys.executable, "-m", "ejbd.daemon", "--config", str(tmp_path / "ejbd.toml")],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
    )
    assert done.returncode == 4, done.stderr
    assert "the spool with 1 jobs belongs to a database of its own" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in (tmp_path / "spool" / "jobs").iterdir()] == ["j1"]
    assert not (tmp_path / "spool" / "manager.json").exists()
