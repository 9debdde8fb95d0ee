"""What the page, `ejb watch` and the lists say of jobs is so: beside the rows that they are about.

The days are those of tests/unit/test_explain_truth.py, with the same facts. After each step every page is read as text,
and each sentence of its templates has here the condition under which it is true.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.api.app import create_app
from ejbd.api.auth import Peer
from ejbd.cli.show.chart import chart
from ejbd.cli.show.jobs import event_line, outcome
from ejbd.core.progress import degree
from ejbd.web.app import install
from tests.fakes.days import Day
from tests.fakes.dmtcp_commands import install as install_dmtcp
from tests.fakes.told_facts import Facts, facts_of, play_day
from tests.nightly import examples

STATES = "received|waiting|running|ending|unknown|completed|failed|timeout|cancelled"


def text_of(page: str) -> str:
    """What people read of it."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def part_of(page: str, begin: str, end: str) -> str:
    return page.partition(begin)[2].partition(end)[0]


def cells_of(table: str) -> list[list[str]]:
    """The rows of a table's body."""
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def held(facts: Facts) -> int:
    return sum(s.processors for s in facts.subjobs if s.state == "running" and not s.releasing)


@dataclass
class Page:
    """A job's page, what REST tells of the job, and its facts."""

    source: str
    told: dict[str, Any]
    facts: Facts

    @property
    def text(self) -> str:
        return text_of(self.source)

    @property
    def movable(self) -> bool | None:
        told = self.facts.told["movable"]
        return told["movable"] if told is not None else None


ON_A_JOBS_PAGE: list[tuple[str, Callable[[Page], bool]]] = [
    (r'<span class="state held">', lambda p: p.facts.job.held),
    (
        r"It can be moved: ",
        lambda p: p.movable is True and not p.facts.job.not_movable and p.facts.job.engine != "none",
    ),
    (r"It cannot be moved: ", lambda p: not p.facts.movable),
    (r"Whether it can be moved is not known: ", lambda p: not p.facts.back_from_a_checkpoint),
    (r"A move costs ", lambda p: p.facts.movable and p.facts.job.elastic),
    (r"Over-subscription costs a factor of ", lambda p: p.facts.job.elastic),
    (r"A start costs ", lambda p: p.facts.job.elastic),
    (r"Checkpoints: every ", lambda p: p.facts.job.engine != "none"),
    (r"What the policy says now", lambda p: p.facts.job.elastic and not p.facts.job.held and not p.facts.awaited),
    (r"<p>start: ", lambda p: p.facts.job.state == "waiting"),
    (r"<p>expand: ", lambda p: p.facts.job.state == "running"),
    (r"Start promised to J0</dt><dd><time", lambda p: p.facts.job.rigid_start_s is not None),
    (r"Expected end</dt><dd><time", lambda p: p.facts.job.state in ("received", "waiting", "running", "unknown")),
    (r"<dt>Ended</dt>", lambda p: p.facts.job.end_s is not None),
    (r"<dt>Exit code</dt>", lambda p: p.facts.job.exit_code is not None),
    (r">Release</button>", lambda p: p.facts.job.held),
    (r">Hold</button>", lambda p: not p.facts.job.held),
    (r"<code>ejb release ", lambda p: p.facts.job.held),
    (r"<code>ejb hold ", lambda p: not p.facts.job.held),
    (r"<code>ejb cancel ", lambda p: p.facts.job.end_s is None),
    (r"<td>run on J0</td>", lambda p: p.facts.j0 is not None or p.facts.job.state == "waiting"),
    (r"<td>suspended</td>", lambda p: p.facts.movable and p.facts.job.elastic),
    (r"<td>cut off</td>", lambda p: p.facts.is_cut_off),
    (r"<h2>Moves</h2>", lambda p: p.facts.job.start_s is not None),
]


def check_page(page: Page) -> None:
    facts, job = page.facts, page.facts.job
    for pattern, holds in ON_A_JOBS_PAGE:
        if re.search(pattern, page.source):
            assert holds(page), f"{pattern!r} is on the page of {facts.rows()}\n{page.text}"
    states = re.findall(rf'<span class="state ({STATES})">\1</span>', page.source)
    assert states[-1] == job.state and states[:-1] in ([], ["cancelled"]), page.text
    assert text_of(html.escape(facts.told["now"])) in page.text
    kind = "elastic" if job.elastic else "passed-through"
    assert f"Kind {kind} {job.kind}, engine {job.engine} " in page.text
    now, size, shared = _figures(r"Processors (\d+) now, for (\d+) processes(?:: degree (\d+))?", page.text)
    assert (now, size) == (held(facts), job.processes), f"{facts.rows()}\n{page.text}"
    assert shared == (degree(job.processes, now) if now else None), page.text
    assert f"Done {page.told['progress']:.0%} of " in page.text
    shown = cells_of(part_of(page.source, 'id="subjobs-table"', "</table>"))
    told = [[f"J{s.ordinal}", s.batch_id or "–", s.state, str(s.processors)] for s in facts.subjobs[-20:]]
    assert [row[:4] for row in shown] == told, f"{facts.rows()}\n{page.text}"
    planned = cells_of(part_of(page.source, 'id="plan-table"', "</table>"))
    assert len(planned) == len(facts.told["planned"])
    kinds = [row[1].removesuffix(" on J0") for row in planned]
    runs = job.state == "running"
    assert "move" not in kinds or facts.movable or not facts.runs, f"{facts.rows()}\n{page.text}"
    assert kinds[:1] != ["start"] or not runs, f"{facts.rows()}\n{page.text}"
    assert runs or "move" not in kinds[: kinds.index("run") + 1 if "run" in kinds else None], page.text
    if kinds[:1] == ["run"]:
        assert job.members or not job.elastic or facts.awaited, f"{facts.rows()}\n{page.text}"


def _figures(pattern: str, text: str) -> list[int | None]:
    found = re.search(pattern, text)
    assert found is not None, f"{pattern!r} is not in {text}"
    return [None if one is None else int(one) for one in found.groups()]


def check_watched(facts: Facts, timeline: dict[str, Any], events: list[dict[str, Any]], told: dict[str, Any]) -> None:
    """The picture of `ejb watch` and `ejb timeline`, and the lines of events beside it."""
    job, lines = facts.job, chart(timeline, 100)
    text = "\n".join(lines)
    said = re.match(rf"job (\w+)  (.*?)  ({STATES})  (\d+)% done(?:  (\d+) processors for (\d+) processes)?  ", text)
    assert said is not None, text
    assert (said[1], said[3], said[4]) == (job.id, job.state, f"{told['progress']:.0%}"[:-1]), text
    charged = sum(s.processors for s in facts.subjobs if s.state == "running")  # also those that are given back
    assert (int(said[5]), int(said[6])) == (charged, job.processes), f"{facts.rows()}\n{text}"
    phase = next(line for line in lines if line.startswith("phase"))
    assert ("|" in phase or "│" in phase) == bool(timeline["planned"]), text
    letters = {"w", "r", "m", "s", "c"} & set(re.split(r"[|│]", phase)[-1]) if timeline["planned"] else set()
    if "s" in letters or "s is suspended" in text:
        assert facts.movable and job.elastic, f"{facts.rows()}\n{text}"
    if "c is cut off" in text:
        assert facts.is_cut_off, f"{facts.rows()}\n{text}"
    if "R" in phase.partition(" ")[2]:
        assert job.start_s is not None, text
    if "a rigid start was promised" in text:
        assert job.rigid_start_s is not None
    if "J0 is expected to start" in text:
        assert facts.j0 is not None and facts.j0.state in ("planned", "pending"), f"{facts.rows()}\n{text}"
    bars = re.findall(r"^J(\d+) +(\d+)p", text, re.MULTILINE)
    assert bars == [
        (str(s.ordinal), str(s.processors))
        for s in facts.subjobs
        if s.start_s is not None or s.state in ("planned", "pending")
    ], f"{facts.rows()}\n{text}"
    printed = [event_line(event) for event in events]  # type: ignore[arg-type]
    changes = [re.search(rf" job\.({STATES})\b", line) for line in printed]
    assert [one[1] for one in changes if one is not None][-1:] in ([job.state], []), printed
    if any(line.endswith(" job.held by=ada") or " job.held " in line for line in printed) and job.held:
        assert job.state in OPEN_JOBS, printed


OPEN_JOBS = ("received", "waiting", "running", "ending", "unknown")


def check_row(row: list[str], facts: Facts) -> None:
    """A job's line of the list."""
    job, how = facts.job, row[3]
    assert how.removeprefix("cancelled ").partition(" ")[0] == job.state, row
    if "held by its user" in how:
        assert job.held and job.state in ("received", "waiting"), row
    if "waits for processors" in how:
        assert job.state in ("received", "waiting") and not job.held and not facts.job.reason, row
    if re.search(r" by \d{4}-", how):
        assert job.state in ("received", "waiting") and not job.held, row
    assert f"{held(facts)} of {job.processes}" in row, f"{row} of {facts.rows()}"


class Read(Day):
    """A day on which every page is read after each step."""

    async def play(self) -> None:
        app = create_app(self.live.manager)
        install(app)
        app.state.lists.most_s = app.state.pictures.most_s = app.state.sites.most_s = 0.0

        async def by_socket(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "state": {"peer": Peer(1, os.geteuid(), os.getegid())}}, receive, send)

        async with AsyncExitStack() as stack:
            transport = httpx.ASGITransport(by_socket)
            stack.enter_context(patch("time.time", lambda: self.live.clock.now))  # what is shown is of this moment
            self.here = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://ejbd"))
            await super().play()
            await self.ended()

    async def read(self, path: str) -> str:
        answer = await self.here.get(path)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.text

    async def told(self, path: str) -> Any:
        return (await self.here.get(path)).json()

    async def step(self, seconds: float) -> None:
        await super().step(seconds)
        open_jobs = {job.id: await facts_of(self, job.id) for job in self.open()}
        for id, facts in open_jobs.items():
            told = await self.told(f"/v1/jobs/{id}")
            check_page(Page(await self.read(f"/web/jobs/{id}"), told, facts))
            events = (await self.told(f"/v1/jobs/{id}/events?limit=1000"))["events"]
            check_watched(facts, await self.told(f"/v1/jobs/{id}/timeline"), events, told)
        listed = await self.read("/web/jobs?which=living")
        rows = cells_of(part_of(listed, 'id="jobs-table"', "</table>"))
        assert {row[0] for row in rows} == set(open_jobs) or not rows
        for row in rows:
            check_row(row, open_jobs[row[0]])
        if rows:
            total, running, waiting, others, used = _figures(
                r"(\d+) jobs?: (\d+) running, (\d+) waiting, (\d+) others; (\d+) processors? in use\.", text_of(listed)
            )
            states = [facts.job.state for facts in open_jobs.values()]
            assert (total, running) == (len(states), sum(state in ("running", "ending") for state in states))
            assert used == sum(map(held, open_jobs.values())), text_of(listed)
            assert waiting == sum(state in ("received", "waiting") for state in states)
            assert others == len(states) - (running or 0) - (waiting or 0)
        await self._site(open_jobs)

    async def _site(self, open_jobs: dict[str, Facts]) -> None:
        """The queues, and the cluster."""
        queues, cluster = text_of(await self.read("/web/queues")), text_of(await self.read("/"))
        (told,), (window,) = (await self.told("/v1/queues"))["queues"], (await self.told("/v1/windows"))["windows"]
        assert _figures(r"(\d+) batch jobs run, (\d+) wait\.", queues) == [told["running"], told["waiting"]]
        assert f"jobs are made elastic {'now' if told['elastic_now'] else 'not now'}" in queues
        assert _figures(r"(\d+) of (\d+) processors are free", queues) == [window["free"], window["total"]], queues
        assert _figures(r"nodes, (\d+) of (\d+) processors free", cluster) == [window["free"], window["total"]], cluster
        usable = "None can be used without delaying others" not in queues
        assert usable == bool(window["slots"]) and usable == ("usable now: " in cluster), f"{queues}\n{cluster}"
        if kept := re.search(r"Kept for job (\w+) of (\w+)", queues):
            waits = {one.id for one in (*self.live.batch.others, *self.live.batch.jobs.values())} | open_jobs.keys()
            assert kept[1] in waits, queues

    async def ended(self) -> None:
        """What `ejb watch` says last of each job."""
        for told in (await self.told("/v1/jobs?alive=false&limit=500"))["jobs"]:
            said, job = outcome(told), self.live.job(told["id"])
            code = "" if job.exit_code is None else f" with exit code {job.exit_code}"
            assert said.startswith(f"job {job.id} {job.state}{code} after "), said


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with DMTCP's commands."""
    return f"{install_dmtcp(tmp_path_factory.mktemp('dmtcp'))}"


@pytest.mark.database
@settings(max_examples=examples(3))
@given(seed=st.integers(0, 2**32))
def test_what_the_pages_and_watch_say_is_so(
    seed: int, tmp_path_factory: pytest.TempPathFactory, sqlite_with_tables: Path, commands: str
) -> None:
    play_day(Read, tmp_path_factory.mktemp("day"), sqlite_with_tables, commands, seed, 8)
