"""Whole days on the fake world, recorded once: the same days give the same events, intents, orders and ends.

EJB_GOLDEN=write records them anew; `python -m tests.fakes.golden FILE` prints a recording.
"""

from __future__ import annotations

import difflib
import itertools
import os
from pathlib import Path

import pytest

from ejbd.config import Elasticity
from ejbd.store.store import Store
from tests.fakes import golden
from tests.fakes.days import Day, Plan, numbered_tokens
from tests.fakes.dmtcp_commands import install
from tests.fakes.plans import Plans

RECORDED = Path(__file__).parent / "recorded" / "golden"

USERS = {"command": 8.0, "script": 5.0, "small": 2.0, "engineless": 2.0, "ask": 2.0, "cancel": 1.0}
RIVALS = {"rival": 6.0, "rival_leaves": 1.0}
WORKERS = {
    **{"worker_silent": 1.0, "worker_again": 1.0, "worker_fails": 2.0, "worker_deaf": 1.0, "worker_well": 2.0},
    **{"worker_slow": 1.0, "warned": 1.0, "rank_fails": 1.0, "rank_stuck": 0.5, "coordinator_lost": 0.5},
    **{"obstacle": 1.0, "log": 0.5, "launch_cancelled": 1.0, "launch_refused": 0.5, "script_ends": 0.5},
}
NODES = {
    **{"node_fails": 2.0, "ended_outside": 2.0, "fails_outside": 1.0, "forgotten": 1.0, "held_outside": 1.0},
    **{"suspended": 2.0, "brought_forward": 1.5, "double": 1.0},
}
SLURM = {
    **{"silent": 1.0, "refuse": 1.0, "refuse_for_good": 1.0, "refuse_changes": 1.0, "hang": 1.0, "lose_answer": 1.0},
    **{"awaited": 2.0},
}
DAEMON = {"daemon_away": 1.0, "alone": 1.0, "clock_set": 0.7, "prune": 0.3}
OPERATORS = {"drain": 1.0, "undrain": 1.0, "queue_set": 1.0, "queue_on": 1.0, "queue_resume": 0.5}
LINKED = {"array": 3.0, "dependent": 4.0, "hold": 2.0, "unhold": 3.0, "signal": 2.0, "cancel_elements": 1.0}

CROWD = ((8, 60.0), (8, 150.0), (8, 260.0), (4, 1500.0))  # four processors are free at first, then more and more

PLANS = [
    Plan(
        "growth", 1, 36, {"command": 6.0, "script": 3.0, "rival": 3.0, "worker_slow": 1.0, "ask": 1.0, "drain": 1.0},
        {"checkpoint_every": 200.0}, pace_s=(8.0, 20.0), crowd=CROWD, at_once=(0, 1), shown=True,
    ),
    Plan("linked", 2, 36, {**LINKED, "command": 3.0, "rival": 2.0}, at_once=(0, 1, 2)),
    Plan("workers", 3, 40, {**USERS, **RIVALS, **WORKERS}, crowd=CROWD, at_once=(0, 1, 1)),
    Plan("nodes", 4, 40, {**USERS, **RIVALS, **NODES}, crowd=CROWD, at_once=(0, 1, 1)),
    Plan("batch", 5, 45, {**USERS, **RIVALS, **SLURM, **DAEMON, **OPERATORS}, crowd=CROWD, at_once=(0, 1, 2)),
    Plan(
        "dmtcp", 6, 40, {**USERS, **RIVALS, **WORKERS}, {"first_checkpoint_s": 20.0}, ("dmtcp",), crowd=CROWD,
        at_once=(0, 1, 1),
    ),
    Plan(
        "learned", 7, 40, {"learned": 6.0, "small": 1.0, "rival": 5.0, "ask": 1.0, "daemon_away": 0.5, "cancel": 0.5},
        {"elasticity": Elasticity.OFF, "gaps": "on"}, pace_s=(20.0, 120.0), past=80,
    ),
    Plan(
        "auto", 8, 50, {**USERS, **RIVALS, **LINKED, **NODES, **WORKERS, **SLURM, **DAEMON, **OPERATORS},
        {"elasticity": Elasticity.AUTO, "auto_queue_length": 2, "checkpoint_every": 40.0},
    ),
    Plan(
        "chains", 9, 30,
        {"command": 5.0, "script": 4.0, "awaited": 9.0, "rival": 7.0, "warned": 2.0, "worker_slow": 2.0,
         "dependent": 2.0, "lines": 3.0, "refuse_changes": 0.5, "brought_forward": 1.0, "ended_outside": 1.0},
        pace_s=(5.0, 12.0), crowd=CROWD, at_once=(0, 1, 1, 2),
    ),
]  # fmt: skip


# Kinds of what happens come in several days: those that the last but one has, or a file of its own, are nightly's.
BY_DEFAULT = ("growth", "auto")


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(
            plan,
            marks=()
            if plan.name in BY_DEFAULT or "EJB_GOLDEN" in os.environ
            else pytest.mark.nightly("`auto` has it, or a file of its own"),
        )
        for plan in PLANS
    ],
    ids=lambda plan: plan.name,
)
async def test_a_day_goes_as_it_was_recorded(
    plan: Plan, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{install(tmp_path / 'dmtcp')}")
    plans = Plans(store)
    with numbered_tokens():
        day = Day(tmp_path, store, plan)
        await day.play()
    assert not plans.scans, "a table that grows is read through (tests/fakes/plans.py)"
    found, path = golden.lines(day), RECORDED / f"{plan.name}.json"
    if os.environ.get("EJB_GOLDEN") == "write":
        golden.write(path, found)
    kept = golden.read(path)
    if found != kept:
        new = tmp_path / "found.txt"
        new.write_text("\n".join(found))
        shown = itertools.islice(difflib.unified_diff(kept, found, "recorded", "found", n=2, lineterm=""), 60)
        pytest.fail(f"{plan.name} went another way (all of it: {new}):\n" + "\n".join(shown), pytrace=False)
