"""`ejb report`: the tables that it prints, and the CSV by day and user."""

from __future__ import annotations

import csv
import getpass
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from ejbd.cli.app import app
from ejbd.store.models import OtherDay, OtherReplay, Subjob
from tests.fakes.api_server import ApiServer
from tests.fakes.web import runs, submit

DAY_S = 1_699_920_000.0
END_S = DAY_S + 50_000
ALL_DAYS = "20000"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path, settings={"operators": [getpass.getuser()]})
    monkeypatch.setenv("EJB_SOCKET", str(made.socket))
    monkeypatch.delenv("EJB_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    yield made
    made.close()


def ejb(*words: str) -> str:
    return str(CliRunner().invoke(app, ["report", *words], catch_exceptions=False).stdout)


def ended(server: ApiServer, user: str, promised_s: float) -> None:
    """A job with 100 s of work, for which it held four processors for 200 s."""
    times: dict[str, Any] = {"end_s": END_S, "start_s": END_S - 200, "rigid_start_s": promised_s}
    job = submit(server, user, "saved", state="completed", work_s=100.0, **times)
    runs(server, job, f"5{user}", ["n9"], 4)
    own = update(Subjob).where(Subjob.job_id == job).values(state="ended", start_s=END_S - 200, end_s=END_S)
    server.run(server.store.write(lambda session: session.execute(own)))


def replayed(session: Any) -> None:
    known: dict[str, Any] = {"away_s": 3600, "unknown": 2, "left_out": 1, "ranked": False, "limits": "none answers"}
    session.add(OtherReplay(day_s=DAY_S, as_of_s=DAY_S + 90_000, **known))
    sums = {"gained_s": 7200.0, "lost_s": 1800.0, "error_s": 6000.0, "before_real_s": 0.0}
    session.add(OtherDay(day_s=DAY_S, user="eve", queue="main", jobs=4, gained=2, lost=1, unsure=3, **sums))


def columns(line: str) -> list[str]:
    return [word.strip() for word in line.split("  ") if word.strip()]


def test_both_tables_have_a_row_a_key_and_all_together_in_the_end(server: ApiServer) -> None:
    assert "no day has been replayed yet" in ejb()
    ended(server, "ada", END_S + 3500)
    ended(server, "bob", END_S - 1900)
    server.run(server.store.write(replayed))
    lines = ejb("--by", "day,user", "--days", ALL_DAYS).splitlines()
    assert columns(lines[0]) == [
        *("DAY,USER", "JOBS", "HOURS SAVED", "EARLIER", "LATER JOBS", "LATER", "SPENT (CORE-H)", "NOT COUNTED"),
    ]
    # 8 processors at full width would have taken 800 processor-seconds; 4 for 200 s took as much.
    assert columns(lines[1]) == ["2023-11-14 ada", "1", "1.00", "1.00", "0", "0.00", "0.00", "0"]
    assert columns(lines[2]) == ["2023-11-14 bob", "1", "-0.50", "0.00", "1", "0.50", "0.00", "0"]
    assert columns(lines[3]) == ["all", "2", "0.50", "1.00", "1", "0.50", "0.00", "0"]
    assert len({len(line) for line in lines[:4]}) == 1, "columns of figures end below each other"
    at = next(at for at, line in enumerate(lines) if "OTHER JOBS" in line)
    assert columns(lines[at + 1]) == ["2023-11-14 eve", "4", "1.50", "2", "2.00", "1", "0.50", "1.67", "3"]
    rest = "\n".join(lines[at + 3 :])
    assert "the replays are off by more than the net hours: these say little" in rest
    assert "not known: 1.0 h without a poll, 2 ends, 1 jobs that cannot be replayed" in rest
    assert "limits of accounts were not played: none answers" in rest and "1 days in the order of arrival" in rest


def test_csv_by_day_and_user_has_the_same_rows_of_elastic_and_of_other_jobs(server: ApiServer) -> None:
    ended(server, "ada", END_S + 3500)
    server.run(server.store.write(replayed))
    words = ("--csv", "--by", "day,user", "--days", ALL_DAYS)
    (elastic,) = csv.DictReader(io.StringIO(ejb(*words)))
    assert (elastic["day"], elastic["user"], elastic["jobs"], elastic["saved_s"]) == (
        "2023-11-14",
        "ada",
        "1",
        "3600.0",
    )
    (other,) = csv.DictReader(io.StringIO(ejb(*words, "--others")))
    assert (other["day"], other["user"], other["net_s"], other["lost_s"]) == ("2023-11-14", "eve", "5400.0", "1800.0")
