"""What a job's user reads first is so: sentences of `ejb explain` and of the page beside what they are about.

Days are drawn as the golden ones are (tests/fakes/days.py). After each step every open job is explained, and whatever
is said of it has to hold of its rows: each sentence below has the condition under which it is true.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ejbd.manager.telling.told import ToldExplanation
from tests.fakes.days import Day
from tests.fakes.dmtcp_commands import install
from tests.fakes.told_facts import Facts, facts_of, play_day
from tests.nightly import examples

SENTENCES: list[tuple[str, Callable[[Facts], bool]]] = [
    (r"^held; `ejb release`", lambda f: f.job.held),
    (r"the batch system decides", lambda f: f.job.state == "waiting" and not f.job.elastic),
    (r"the place holder J0 runs the application at full width", lambda f: f.on_j0 and f.epoch is not None),
    (r"every one of the \d+ processes has a processor", lambda f: f.runs and f.full_width),
    (r"its processors are there, and its ranks are about", lambda f: f.job.state == "waiting" and not f.runs),
    (r"its ranks are being moved or started", lambda f: f.job.state == "running"),
    (r"waits for \d+ processors that were asked for", lambda f: f.awaited),
    (r"J0 is on its way into the queue", lambda f: f.j0 is None or f.j0.state in ("planned", "pending")),
    (r"J0 fits into what is free", lambda f: f.j0 is not None and f.j0.state == "pending"),
    (r"the batch system has suspended what", lambda f: any(s.state == "suspended" for s in f.subjobs)),
    (r"no launch of its script runs", lambda f: f.job.kind == "script" and not f.runs),
    (r" s of work kept", lambda f: f.job.state == "waiting" and f.job.work_s > 0),
    (r"it is not started early", lambda f: f.job.state == "waiting" and not f.job.members),
    (r"J0 waits for its turn", lambda f: f.j0 is not None and f.j0.state == "pending"),
    (r"^waiting: (?:grow by|stay on)", lambda f: False),
    (r"^running: start by", lambda f: False),
    (r"\na move costs", lambda f: f.movable and f.job.elastic),
    (r"\nplanned, from now on", lambda f: not f.job.held),
    (r"\n +0:00  runs on \d+ processors(?! of J0)", lambda f: not f.job.elastic or bool(f.job.members) or f.awaited),
    (r"it holds no processors at this time", lambda f: not f.job.members),
    (r"\n +0:00  waits", lambda f: f.job.state in ("received", "waiting") or not f.job.members),
    (r"  is cut off: ", lambda f: f.is_cut_off),
    (r"passed through as an ordinary job", lambda f: not f.job.elastic),
    (r"^(?:running|waiting).*: the application cannot be moved", lambda f: f.runs and not f.movable),
    (r"^waiting[^;]*: no processor can be used now", lambda f: not f.job.members and not f.awaited),
    (r"^waiting[^;]*: no slot carries the job to its end", lambda f: f.is_cut_off and not f.job.members),
    (r"that came to nothing", lambda f: f.job.state == "waiting" and not f.awaited and f.job.not_before_s > f.now_s),
    (r"J0 may not start yet, by --begin", lambda f: f.j0 is not None and f.j0.state == "pending"),
    (r"; room is kept for job", lambda f: f.job.elastic and f.told["present"] is not None),
    (r"its script begins only once", lambda f: f.job.kind == "script" and not f.job.spec["restartable"]),
    (r"right now\n", lambda f: f.job.elastic and f.job.state in ("waiting", "running")),
    (r"can be moved: no: engine none", lambda f: f.job.engine == "none"),
    (r"can be moved: no: its ranks are on several nodes", lambda f: f.runs and len(f.nodes) > 1),
    (r"can be moved: yes: engine application", lambda f: f.job.engine == "application"),
    (r"can be moved: yes: it came back from", lambda f: f.job.engine == "dmtcp" and f.back_from_a_checkpoint),
    (r"can be moved: not known yet: it was never", lambda f: f.job.engine == "dmtcp" and not f.back_from_a_checkpoint),
    (r"\na move costs .*nothing was measured yet", lambda f: not f.told["moves"]),
    (r"\na move costs .*\(measured", lambda f: bool(f.told["moves"])),
    (r"no periodic checkpoints: engine none", lambda f: f.job.engine == "none"),
    (r"no periodic checkpoints: queue \w+ says off", lambda f: f.job.engine != "none" and not f.job.spec["checkpoint"]),
    (r"\n +0:00  waits until the batch system starts it", lambda f: not f.runs),
    (r"\n +0:00  runs on \d+ processors of J0", lambda f: f.on_j0 or f.job.state == "waiting" or f.epoch is not None),
    (r" done, if it takes no longer than planned", lambda f: f.told["planned"][-1]["kind"] == "run"),
    (r"  (?:moves|saves its work) on", lambda f: f.movable and f.job.elastic),
    (r"\n +0:00  moves on", lambda f: f.job.state == "running"),
    (r"\n +0:00  starts on", lambda f: f.job.state == "waiting"),
    (r"is suspended, its work kept, until", lambda f: f.movable and f.job.elastic),
]
NUMBERS: list[tuple[str, Callable[[Facts], float]]] = [
    (r"every one of the (\d+) processes has", lambda f: f.processors),
    (
        r"waits for (\d+) processors that were asked",
        lambda f: sum(s.processors for s in f.asked) / f.job.spec["threads"],
    ),
    (r"no further subjob for (\d+) s", lambda f: f.job.not_before_s - f.now_s),
    (r"after (\d+) that came to nothing", lambda f: f.job.failed_starts),
    (r"after (\d+) of at most \d+ setbacks", lambda f: f.job.setbacks),
    (r"^waiting with (\d+) s of work kept", lambda f: f.job.work_s),
    (r"checkpoints: every (\d+) s: the job says so", lambda f: float(f.job.spec["checkpoint"])),
]
"""Of a number that is said: what it has to be, to the half."""


def after_the_first(told: ToldExplanation) -> list[str]:
    """Kinds of what is planned, but for what is under way."""
    return [one["kind"] for one in told["planned"][1:]]


def check(facts: Facts) -> None:
    for pattern, holds in SENTENCES:
        if re.search(pattern, facts.printed):
            assert holds(facts), f"{pattern!r} is said of {facts.rows()}\n{facts.printed}"
    for pattern, value in NUMBERS:
        if said := re.search(pattern, facts.printed):
            assert abs(float(said[1]) - value(facts)) <= 0.5, f"{said[0]!r} of {facts.rows()}\n{facts.printed}"
    planned = facts.told["planned"]
    assert all(one["end_s"] == other["start_s"] for one, other in itertools.pairwise(planned)), planned
    before_j0 = [one["kind"] for one in planned[1:] if not one["on_placeholder"]]
    if not facts.movable:
        assert not {"move", "suspended"} & set(before_j0), facts.printed
    if facts.on_j0 and not facts.saved_off_j0:
        assert set(after_the_first(facts.told)) <= {"run"}, facts.printed
    if planned and planned[0]["on_placeholder"]:
        assert facts.j0 is not None and facts.j0.state == "running", facts.printed
    if facts.told["present"] is not None:
        kind = facts.told["present"]["kind"]
        waits = facts.job.state == "waiting"
        assert kind in (("start", "nothing") if waits else ("expand", "nothing")), facts.printed
        assert not (facts.awaited or facts.job.held), "the policy is not asked about it now"


class Explained(Day):
    """A day on which every open job is explained after each step."""

    checked = 0

    async def step(self, seconds: float) -> None:
        await super().step(seconds)
        for job in self.open():
            check(await facts_of(self, job.id))
            self.checked += 1


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with DMTCP's commands."""
    return f"{install(tmp_path_factory.mktemp('dmtcp'))}"


@pytest.mark.database
@settings(max_examples=examples(3))
@given(seed=st.integers(0, 2**32))
def test_what_is_said_of_a_job_is_so(
    seed: int, tmp_path_factory: pytest.TempPathFactory, sqlite_with_tables: Path, commands: str
) -> None:
    day = play_day(Explained, tmp_path_factory.mktemp("day"), sqlite_with_tables, commands, seed, 14)
    assert day.checked > 10
