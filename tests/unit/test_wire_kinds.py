"""The words of the wire: each is said in one place, and every state and decision has its kind of event."""

from __future__ import annotations

import ast
import re
import typing
from enum import StrEnum
from pathlib import Path

import pytest

from ejbd.core.decision import DecisionKind
from ejbd.manager.protocol import worker_models
from ejbd.wire import kinds
from ejbd.wire.kinds import EventKind, OperationKind
from ejbd.wire.states import EpochState, IntentState, JobState, SubjobState

ROOT = Path(__file__).resolve().parents[2]
SPOKEN = [
    path
    for room in ("api", "cli", "manager", "sim", "store")
    for path in sorted((ROOT / "ejbd" / room).rglob("*.py"))
    if "migrations" not in path.parts and path.name != "crashpoints.py"  # its names look alike and are others
]


@pytest.mark.parametrize(
    ("states", "events"),
    [
        (JobState, kinds.JOB_EVENT),
        (SubjobState, kinds.SUBJOB_EVENT),
        (EpochState, kinds.EPOCH_EVENT),
        (IntentState, kinds.INTENT_EVENT),
    ],
)
def test_every_state_has_its_kind_of_event(states: type[StrEnum], events: dict[StrEnum, EventKind]) -> None:
    assert set(events) == set(states)
    assert all(event.what == state for state, event in events.items())


@pytest.mark.parametrize("decision", DecisionKind)
def test_every_decision_has_its_kind_of_event(decision: DecisionKind) -> None:
    leaving = decision in (DecisionKind.LEAVE, DecisionKind.GIVE_UP)
    assert kinds.decision_event(decision.value).what == ("shrink" if leaving else decision.value)


def test_what_is_no_decision_has_no_kind_of_event() -> None:
    with pytest.raises(ValueError, match="guess"):
        kinds.decision_event("guess")


def test_operations_on_the_wire_are_those_that_the_manager_gives() -> None:
    union = typing.get_args(worker_models.Operation)[0]
    told = {typing.get_args(model.model_fields["kind"].annotation)[0] for model in typing.get_args(union)}
    assert told == set(OperationKind)


def test_no_kind_of_event_is_a_bare_string() -> None:
    said = set(EventKind)
    there = re.compile(f"""["'](?:{"|".join(map(re.escape, said))})["']""")  # to parse all of the house takes seconds
    found = [
        f"{path.relative_to(ROOT)}, line {node.lineno}: {node.value!r}"
        for path in SPOKEN
        if there.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in said
    ]
    assert SPOKEN and found == []
