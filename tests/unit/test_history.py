"""Runs of the past: taken in once, kept of our own jobs, and the law that they show."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from ejbd.cli import history_import
from ejbd.core.view import BatchState
from ejbd.manager.acts.pastruns import take_in
from ejbd.manager.effects.ends import PassedThroughEnded
from ejbd.manager.facts.past.pastruns import Application, application_of_job, groups, key_of, learned, newest
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.store.models import PastRun
from ejbd.store.store import Store
from ejbd.wire.toldruns import ToldRun
from tests.fakes.api_server import ApiServer
from tests.fakes.live import LiveWorld
from tests.fakes.me import ME
from tests.fakes.shell import Shell

pytestmark = pytest.mark.sql

HEADING = "JobIDRaw|User|JobName|AllocCPUS|ElapsedRaw|TimelimitRaw|State|Start|End\n"


def told(count: int, user: str = "ada", outcome: str = "completed", first: int = 0) -> list[ToldRun]:
    drawn = random.Random(first)
    times = [drawn.gauss(600, 60) for _ in range(count)]
    return [
        ToldRun(key_of(user, outcome, first, at), user, "heat", "", 4, time, 3600.0, outcome, 1000.0 + at)
        for at, time in enumerate(times)
    ]


def test_a_run_is_kept_once(store: Store) -> None:
    runs = told(30)
    assert store.write_sync(lambda session: take_in(session, runs)) == 30
    assert store.write_sync(lambda session: take_in(session, [*runs, *told(1, "bob")])) == 1
    assert store.write_sync(lambda session: take_in(session, [])) == 0
    found = store.read_sync(lambda session: groups(session, None, None, 10))
    assert [(one["user"], one["runs"], one["completed"]) for one in found] == [("ada", 30, 30), ("bob", 1, 1)]
    assert store.read_sync(lambda session: groups(session, "bob", "heat", 10))[0]["newest_s"] == 1000.0


def test_too_few_runs_leave_the_request_as_it_is(store: Store) -> None:
    of = Application("ada", "heat", 4)
    store.write_sync(lambda session: take_in(session, [*told(9), *told(40, outcome="failed", first=1)]))
    rows = store.read_sync(lambda session: newest(session, of))
    found = learned(of, rows)
    assert found.fitted is None
    assert found.why == "9 of its 49 runs came to an end by itself; a law needs 10, so the user's request stands"
    store.write_sync(lambda session: take_in(session, told(1, first=2)))
    fitted = learned(of, store.read_sync(lambda session: newest(session, of))).fitted
    assert fitted is not None and (fitted.runs, fitted.censored) == (10, 40)
    assert learned(of, []).why == "none came to an end by itself; a law needs 10, so the user's request stands"


def test_an_application_whose_every_run_failed_has_no_law(store: Store) -> None:
    of = Application("ada", "heat", 4)
    store.write_sync(lambda session: take_in(session, told(50, outcome="failed")))
    assert learned(of, store.read_sync(lambda session: newest(session, of))).fitted is None


def spec(**more: object) -> JobSpec:
    values = {"name": "job-12.sh", "kind": JobKind.SCRIPT, "argv": (), "processes": 4, "walltime_s": 60.0}
    return JobSpec(**{**values, "cwd": "/", "output": "o", **more})  # type: ignore[arg-type]


def test_what_an_application_is(store: Store) -> None:
    assert application_of_job("ada", spec()) == Application("ada", "job", 4)
    assert application_of_job("ada", spec(app="heat:big")) == Application("ada", "heat", 4, "big")
    command = spec(kind=JobKind.COMMAND, argv=("python3", "/x/heat_7.py", "8"))
    assert application_of_job("ada", command) == Application("ada", "python3 heat_7.py", 4)


@pytest.fixture
def live(tmp_path: Path, store: Store) -> LiveWorld:
    return LiveWorld(tmp_path, store)


async def test_what_ends_here_is_kept(live: LiveWorld) -> None:
    job = await live.submit()
    await live.poll(1)
    worker = await live.begin(f"{job}.1")
    await live.work()
    await live.poll(30)
    await worker.finish_ranks(1)
    await live.work()
    rows = live.store.read_sync(lambda session: list(session.scalars(select(PastRun))))
    assert [(row.processors, row.outcome, row.requested_s) for row in rows] == [(16, "completed", 100.0)]
    assert rows[0].run_s == pytest.approx(30 / 4, abs=1.0), "full-width seconds, not those over-subscribed"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path)
    yield made
    made.close()


def sacct(count: int, user: str, first: int = 1) -> str:
    drawn = random.Random(first)
    lines = []
    for job in range(first, first + count):
        run_s = int(drawn.lognormvariate(6, 0.3))
        lines.append(
            f"{job}|{user}|slant-{job}.sh|4|{run_s}|60|COMPLETED|2024-05-31T10:10:00|2024-05-31T11:{job % 60:02}:00\n"
        )
    return "".join(lines)


@pytest.mark.slow
def test_import_list_and_show(server: ApiServer, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    user = ME.user
    file = tmp_path / "finished"
    file.write_text(HEADING + sacct(40, user) + f"99|{user}|x\n98|{user}|x|4|-1|60|FAILED|Unknown|Unknown\n")
    out, err = shell.ejb("history", "import", str(file))
    assert "40 runs read, 40 of them new" in out
    assert "1 line (42): torn: not 9 fields; left out" in err and "1 line (43): the run time is negative" in err
    again = json.loads(shell.ejb("history", "import", str(file), "--json")[0])
    assert (again["read"], again["new"]) == (40, 0)
    listed = json.loads(shell.ejb("history", "list", "--json")[0])["applications"]
    assert [(one["application"], one["processors"], one["runs"]) for one in listed] == [("slant", 4, 40)]
    picture = tmp_path / "slant.svg"
    shown = shell.ejb("history", "show", "slant", "--limit", "1h", "--svg", str(picture))[0]
    assert "by 40 runs" in shown and "expected cost" in shown and "ask   " in shown
    assert picture.read_text().startswith("<svg") and "stroke-dasharray" in picture.read_text()
    law = json.loads(shell.ejb("history", "show", "slant", "--limit", "1h", "--json")[0])
    assert law["sequence_s"][-1] == 3600.0 and len(law["seen"]) == 40 and law["form"] in law["criterion"]
    assert "no run of 'nothing' is known" in shell.ejb("history", "show", "nothing", code=3)[1]
    assert "cannot be read" in shell.ejb("history", "import", str(tmp_path / "none"), code=2)[1]


def test_requests_are_in_the_order_of_the_daemons_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each changes a part of that index, where runs in the order of their ends would change all of it each time."""
    file, sent = tmp_path / "finished", list[tuple[list[str], list[int]]]()
    lines = [sacct(1, f"user{job % 7}", job).replace("slant", f"app{job % 3}") for job in range(1, 96)]
    file.write_text(HEADING + "".join(lines))

    class Sent:
        def request(self, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
            sent.append(([f"{u} {a}" for u, a in zip(body["user"], body["application"], strict=True)], body["key"]))
            return httpx.Response(200, json={"new": len(body["key"])})

    monkeypatch.setattr(history_import, "AT_ONCE", 10)
    monkeypatch.setattr(history_import, "SORTED", 40)
    done = history_import.import_runs(Sent(), file, None, cluster="", only=None, as_user=None)  # type: ignore[arg-type]
    assert (done["read"], done["new"], done["odd"]) == (95, 95, [])
    assert [len(keys) for _, keys in sent] == [10, 10, 10, 10, 10, 10, 10, 10, 10, 5]
    for first in range(0, 10, 4):
        of = [name for names, _ in sent[first : first + 4] for name in names]
        assert of == sorted(of)
    assert len({key for _, keys in sent for key in keys}) == 95


def test_an_swf_log_is_taken_in(server: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    rows = [f"{job} {job * 10} 5 {100 + job} 8 -1 -1 8 600 -1 1 3 1 7 1 1 -1 -1" for job in range(1, 31)]
    rows.append("31 400 5 -1 8 -1 -1 8 600 -1 0 3 1 7 1 1 -1 -1")
    file.write_text("; UnixStartTime: 1000000\n" + "\n".join(rows) + "\n")
    shell = Shell(server, tmp_path)
    done = json.loads(shell.ejb("history", "import", str(file), "--as", ME.user, "--json")[0])
    assert (done["read"], done["new"]) == (30, 30)
    assert done["odd"] == ["1 line (32): a negative run time or submit time; left out"]
    assert "application7" in shell.ejb("history", "list")[0]


def test_passed_through_ends_are_told_with_their_times() -> None:
    end = PassedThroughEnded(BatchState.TIMEOUT, None, "said", 10.0, 70.0)
    assert end.end_s is not None and end.start_s is not None and end.end_s - end.start_s == 60.0
