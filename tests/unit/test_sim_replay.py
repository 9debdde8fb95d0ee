"""`ejb sim replay`: decisions of the live manager made again, altered ones found, torn logs refused by their line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ejbd.core.decision import DecisionKind
from ejbd.errors import EjbError
from ejbd.sim.replay import read_log, replay
from ejbd.sim.replay_jobs import JobBook, LoggedJob, as_swf
from ejbd.sim.run import Policy, run
from ejbd.sim.swf import FIELDS, read_swf
from ejbd.sim.workload import workload_of
from ejbd.store.models import Event
from tests.fakes.ejb_sim import Said, ejb_sim
from tests.fakes.live import LiveWorld
from tests.fakes.port import new_store
from tests.fakes.swf import log_of

HEADER = {"kind": "ejb.log", "format": 1, "version": "x", "queues": [{"name": "batch", "processors": 32}]}
Life = Callable[[LiveWorld], Awaitable[str]]


async def grown(live: LiveWorld) -> str:
    """16 ranks of 100 s: 20 s on 4 processors, 45 s on 8, then over."""
    live.batch.free = 4
    job = await live.submit()
    await live.poll(1)
    first = await live.begin(f"{job}.1")
    await live.poll(20)
    live.batch.free = 0
    second = await live.begin(f"{job}.2")
    await live.poll(20)
    await live.work()
    await live.poll(25)
    for worker in (first, second):
        await worker.finish_ranks(2)
    await live.work()
    await live.act()
    assert live.job(job).state == "completed"
    return job


async def played_live(folder: Path) -> str:
    """What `ejb events --export` writes, of a job that grew and one that was passed through."""
    store = new_store(folder / "ejb.sqlite")
    live = LiveWorld(folder, store)
    live.settings.queues["default"].min_processors = 2
    await grown(live)
    rigid = await live.submit(processes=1)
    live.batch.start(f"ejb-{rigid}.0")
    await live.poll(1)
    live.batch.end(f"ejb-{rigid}.0")
    await live.poll(30)
    events = store.read_sync(lambda s: list(s.scalars(select(Event).order_by(Event.id))))
    lines = [{"id": e.id, "at_s": e.at_s, "job": e.job_id, "kind": e.kind, "data": e.data} for e in events]
    store.close()
    return "\n".join(json.dumps(line) for line in [HEADER, *lines]) + "\n"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for all tests here: what is read does not depend on the database."""
    return asyncio.run(played_live(tmp_path_factory.mktemp("lived")))


@pytest.fixture
def log(tmp_path: Path, exported: str) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text(exported)
    return path


def changed(log: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> int:
    """Alter the first event of a kind; its line."""
    lines = log.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        if row["kind"] == kind:
            change(row["data"])
            lines[number - 1] = json.dumps(row)
            log.write_text("\n".join(lines))
            return number
    raise AssertionError(f"no {kind}")


def test_the_same_core_decides_the_same(log: Path) -> None:
    found = read_log(log)
    again = replay(found)
    assert again.decisions >= 3 and again.kinds["start"] == 1 and again.kinds["expand"] >= 1
    assert (again.differing, again.expecting_otherwise, again.worded_otherwise) == ((), 0, 0)


def test_other_parameters_would_decide_otherwise(log: Path) -> None:
    again = replay(read_log(log), {"omax": 2})
    first = again.differing[0]
    assert first.logged.decision.kind is DecisionKind.START and first.now.kind is DecisionKind.NOTHING
    assert "O_max 2 needs 8 for 16 processes" in first.now.reason
    slower = replay(read_log(log), {"lambda_s": 1000.0, "guard": "off"})
    assert {d.logged.decision.kind for d in slower.differing} == {DecisionKind.EXPAND}
    assert replay(read_log(log), {"min_left_s": 10_000.0}).differing


def test_an_altered_decision_is_found_where_it_stands(log: Path) -> None:
    def widen(data: dict[str, Any]) -> None:
        data["decision"]["requests"][0]["processors"] = 5

    line = changed(log, "decision.start", widen)
    (difference,) = replay(read_log(log)).differing
    assert difference.logged.line == line
    told = difference.to_json()
    assert (told["then"]["requests"][0]["processors"], told["now"]["requests"][0]["processors"]) == (5, 4)


def test_an_altered_parameter_is_found(log: Path) -> None:
    def narrow(data: dict[str, Any]) -> None:
        data["question"]["parameters"]["omax"] = 3

    line = changed(log, "decision.start", narrow)
    assert [d.logged.line for d in replay(read_log(log)).differing] == [line]


def test_other_words_and_expectations_are_no_other_decision(log: Path) -> None:
    changed(log, "decision.start", lambda data: data["decision"].update(reason="because"))
    changed(log, "decision.expand", lambda data: data["decision"].update(expected_completion_s=1.0))
    again = replay(read_log(log))
    assert (again.differing, again.expecting_otherwise, again.worded_otherwise) == ((), 1, 1)


def test_jobs_as_a_trace_that_can_be_simulated(log: Path, tmp_path: Path) -> None:
    found = read_log(log)
    elastic, rigid = found.jobs
    assert (elastic.elastic, elastic.processors, elastic.walltime_s, elastic.state) == (True, 16, 100, "completed")
    assert elastic.run_s == pytest.approx(20 / 4 + 45 / 2), "its work at full width, not its stay"
    assert (rigid.elastic, rigid.processors, rigid.run_s) == (False, 1, 30)
    trace = as_swf(found.jobs, found.processors)
    workload = workload_of(trace, "live")
    assert workload.processors == 32
    assert workload.jobs.run.tolist() == [28, 30] and workload.jobs.walltime.tolist() == [100, 100]
    outcome = run(workload, Policy.EASY, plain=True)
    assert (outcome.start - workload.jobs.submit).tolist() == [0, 0]


def test_work_is_reckoned_by_the_delta_that_was_known_at_the_time() -> None:
    """Delta 1 for 20 s on 4 of 16 processors, 1.25 for as long. A log of before has no rates."""
    launching = {"epoch": 1, "ranks": 16, "restart_from": None, "launch": 0}
    life: list[tuple[float, str, dict[str, Any]]] = [
        (0.0, "job.received", {"elastic": True}),
        (0.0, "decision.start", {"question": {"parameters": {"delta": 2.0}}}),
        (5.0, "epoch.launching", launching),
        (10.0, "epoch.running", {"epoch": 1, "processors": 4, "rate": 1 / 4}),
        (30.0, "epoch.rate", {"epoch": 1, "rate": 1 / 5}),
        (50.0, "epoch.ended", {"epoch": 1}),
    ]
    book, before = JobBook(), JobBook()
    for at_s, kind, data in life:
        book.note(kind, at_s, "a", data)
        if kind != "epoch.rate":
            before.note(kind, at_s, "a", {name: value for name, value in data.items() if name != "rate"})
    assert [job.run_s for job in book.jobs()] == [20 / 4 + 20 / 5]
    assert [job.run_s for job in before.jobs()] == [40 / 8]


def test_a_job_that_still_runs_is_left_out_of_the_trace() -> None:
    job = LoggedJob("a", True, 4, 100.0, 10.0, 11.0, None, "running", 5.0)
    assert len(as_swf([job], 0)) == 0
    assert as_swf([], 0).rows.shape == (0, len(FIELDS))


@pytest.mark.parametrize(
    ("tear", "line", "what"),
    [
        (lambda lines: [*lines[:4], lines[4][:50]], 5, "line 5 of log.jsonl is not one whole JSON object"),
        (lambda lines: lines[1:], 1, "line 1 of log.jsonl is not the header of an exported log"),
        (lambda lines: [lines[0].replace('"format": 1', '"format": 9'), *lines[1:]], 1, "says format 9"),
        (lambda lines: [*lines[:2], "{}"], 3, "line 3 of log.jsonl is no event that this version can read"),
        (lambda lines: [], 1, "the file is empty"),
    ],
    ids=["torn", "no header", "newer", "no event", "empty"],
)
def test_a_bad_line_is_told_by_its_number(
    log: Path, tear: Callable[[list[str]], list[str]], line: int, what: str
) -> None:
    log.write_text("\n".join(tear(log.read_text().splitlines())))
    with pytest.raises(EjbError) as refusal:
        read_log(log)
    assert what in refusal.value.sentence() and f":{line}" in refusal.value.where


def test_a_question_that_cannot_be_read_is_told_by_its_line(log: Path) -> None:
    line = changed(log, "decision.start", lambda data: data["question"].pop("state"))
    with pytest.raises(EjbError, match=f"line {line} of log.jsonl is no event"):
        read_log(log)


def ejb(*words: str) -> Said:
    return ejb_sim("replay", *words, code=None)


def test_the_command_tells_by_its_exit_code(log: Path, tmp_path: Path) -> None:
    trace = tmp_path / "live.swf"
    same = ejb(str(log), "--swf", str(trace))
    assert same.returncode == 0, same.stderr
    assert "0 would differ" in same.stdout and "2 jobs" in same.stderr
    assert len(read_swf(trace)) == 2
    other = ejb(str(log), "--omax", "2", "--no-suspend")
    assert other.returncode == 1
    assert "then start: start by case 1" in other.stdout and "with omax=2, suspend=False" in other.stdout
    document = json.loads(ejb(str(log), "--omax", "2", "--json").stdout)
    assert document["changes"] == {"omax": 2} and document["differing"][0]["then"]["kind"] == "start"
    log.write_text(log.read_text()[:-20])
    torn = ejb(str(log))
    assert torn.returncode == 2 and "is not one whole JSON object" in torn.stderr


def test_a_log_comes_from_standard_input_and_its_jobs_go_to_standard_output(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ejbd.cli.main", "sim", "replay", "-", "--swf", "-"]
    with log.open() as given:
        told = subprocess.run(command, stdin=given, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert len(log_of(told.stdout.splitlines())) == 2
    assert log_of(told.stdout.splitlines()).odd == ()
    assert not (tmp_path / "-").exists()
    refused = ejb(str(log), "--swf", "-", "--json")
    assert refused.returncode == 2 and "both stdout" in refused.stderr


RECORDED = Path(__file__).parent / "recorded" / "log" / "grows-twice-0.1.0.jsonl"


def test_a_log_of_version_0_1_0_gives_the_same_decisions() -> None:
    """Recorded on a real cluster when there was one policy, its switches had other names, and nothing was drawn."""
    text = RECORDED.read_text()
    assert '"act_in_migration"' in text and '"least_work_first"' in text and '"timeline"' not in text
    again = replay(read_log(RECORDED))
    assert again.kinds == {"start": 1, "expand": 2, "nothing": 3, "move_to_placeholder": 1}
    assert (again.decisions, again.differing, again.expecting_otherwise) == (7, (), 0)
    assert replay(read_log(RECORDED), {"omax": 2}).differing, "what was asked is what was recorded"
