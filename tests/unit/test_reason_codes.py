"""What decides is a code: sentences are for people, and may be worded anew at any time."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ejbd.core.bundling.handlers import plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.policy import Bundling
from ejbd.core.decision import Decision, DecisionKind, ReasonCode
from ejbd.core.policy import Situation
from ejbd.core.question import Question
from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.state import ElasticState
from ejbd.manager.facts.room.verdicts import verdict
from ejbd.store.store import Store
from tests.fakes.live import LiveWorld

ROOT = Path(__file__).resolve().parents[2]
PROSE = ("reason", "why", "message", "hint")
BY_PROSE = ("startswith", "endswith", "find", "index", "count")
# What a source has in which a sentence is looked into: to parse all of the house takes seconds.
MAYBE_BY_PROSE = re.compile(
    rf"\b(?:{'|'.join(PROSE)})\b\s*(?:\.\s*(?:{'|'.join(BY_PROSE)})\b|[=!]=|in\b|not\b)|(?:[=!]=|\bin\b).*\b(?:{'|'.join(PROSE)})\b"
)


@pytest.mark.parametrize("free", [0, 8])
async def test_a_policy_may_say_each_time_something_else(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    asked: list[str] = []

    def waits(self: Bundling, state: ElasticState, slots: Sequence[BackfillSlot], now: float) -> Decision:
        asked.append(state.job)
        words = " ".join(["not yet"] * len(asked))
        return Decision(DecisionKind.NOTHING, state.job, now, f"job {state.job} is told {words}", slots=tuple(slots))

    monkeypatch.setattr(Bundling, "waits", waits)
    live = LiveWorld(tmp_path, store)
    live.batch.free = free
    job = await live.submit()
    for _ in range(10):
        await live.poll(5)
    decided = [data["decision"] for kind, data in live.events(job) if kind == "decision.nothing"]
    assert len(decided) == 1, "it says the same all the time, in other words"
    assert decided[0]["code"] == ("" if free else "no_room")
    assert len(asked) >= 9 if free else not asked, "a policy is not asked to start on nothing"


def test_the_words_of_a_decision_decide_nothing() -> None:
    params = BundlingParameters()
    found = plan_wait(ElasticState("a", 17, 100.0), (BackfillSlot(1, UNLIMITED),), 0.0, params)
    assert found.code == ReasonCode.TOO_NARROW
    assert verdict(found) == verdict(replace(found, reason="zu schmal")) == "nothing:too_narrow:"
    assert verdict(found) != verdict(replace(found, code=ReasonCode.NO_ROOM))


def test_every_answer_of_ejbs_own_policy_has_a_code_that_survives_the_log() -> None:
    params, state = BundlingParameters(), ElasticState("a", 16, 100.0)
    codes = set()
    for slots in ((), (BackfillSlot(1, UNLIMITED),), (BackfillSlot(8, 10.0),), (BackfillSlot(16, UNLIMITED),)):
        for situation in (Situation.WAIT, Situation.RUNNING, Situation.PLACEHOLDER_STARTED, Situation.SUBJOB_ENDS):
            decision = Question(situation, state, slots, 0.0, params).answer()
            assert decision.code in set(ReasonCode)
            assert Decision.from_json(decision.to_json()) == decision
            codes.add(decision.code)
    assert {"no_room", "too_narrow", "none_lasts", "earliest", "no_subjob", "nothing_done"} <= codes
    before = {name: value for name, value in decision.to_json().items() if name != "code"}
    assert Decision.from_json(before).code == "", "of a daemon that told none"


def _prose(node: ast.expr) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr in PROSE) or (isinstance(node, ast.Name) and node.id in PROSE)


def _by_prose(tree: ast.AST) -> list[int]:
    """Lines that look into a sentence, or compare it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in BY_PROSE and _prose(node.func.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Compare) and any(map(_prose, [node.left, *node.comparators])):
            sides = [node.left, *node.comparators]
            pairs = zip(node.ops, node.comparators, strict=True)
            # `in` looks into a sentence only on its right; a comparison with "" or None asks whether there is one.
            into = any(isinstance(op, ast.In | ast.NotIn) and _prose(side) for op, side in pairs)
            words = [one.value for one in sides if isinstance(one, ast.Constant)]
            if into or any(isinstance(word, str) and " " in word for word in words):
                found.append(node.lineno)
    return found


def test_no_sentence_of_our_own_is_looked_into() -> None:
    """What batch systems say (`ejbd/batch`) has to be read: nobody gives codes there."""
    assert _by_prose(ast.parse("if epoch.reason.endswith(X): pass\nif 'a b' in error.message: pass")) == [1, 2]
    found = []
    for room in ("core", "manager", "store", "api", "client", "cli", "sim"):
        for path in sorted((ROOT / "ejbd" / room).rglob("*.py")):
            if MAYBE_BY_PROSE.search(text := path.read_text(encoding="utf-8")):
                found += [f"{path.relative_to(ROOT)}:{line}" for line in _by_prose(ast.parse(text))]
    assert found == []
