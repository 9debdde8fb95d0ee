"""The manager stands on floors: facts are read, rules ask for effects, acts do them. Read from the source."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from ejbd.manager import effects
from ejbd.manager.acts import carrying, doors
from ejbd.manager.effects import Effect

MANAGER = Path(__file__).resolve().parents[2] / "ejbd" / "manager"

# The rooms from the ground up: none imports one that stands below its own line.
FLOORS = (
    "crashpoints",  # a leaf: where the crash matrix stops the daemon
    "protocol",
    "hands",
    "jobspec",
    "effects",
    "facts",
    "rules",
    "acts",
    "world",  # what the parts above share
    "listening",
    "service",
    "submission",
    "telling",
    "poll",
    "requests",
    "tasks",
    "manager",  # puts the parts together
)

# Of the store's transitions a rule may name topics, and nothing that writes.
TOPICS = {"INTENTS_TOPIC", "LEFT_TOPIC", "NEW_JOBS_TOPIC", "QUEUES_TOPIC", "STARTED_TOPIC", "job_topic"}
STATEMENTS = {"delete", "insert", "update"}
WRITERS = {"add", "add_all", "delete", "flush", "merge", "begin_nested", "commit", "rollback"}  # of a session


parse_source = functools.cache(ast.parse)  # the manager is read by several tests


def sources(room: str = "") -> list[Path]:
    return sorted((MANAGER / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Modules of the manager, each with a name, that a module imports when it runs."""
    tree = parse_source(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in typing:
            for alias in node.names:
                yield node.module, alias.name


def room_of(module: str, name: str) -> tuple[str, str]:
    """The floor and, of rules, the room: `("rules", "ends")`."""
    parts = [*module.split(".")[2:], name]
    return parts[0], parts[1] if parts[0] == "rules" and len(parts) > 2 else ""


def floor_of(path: Path) -> tuple[str, str]:
    parts = path.relative_to(MANAGER).with_suffix("").parts
    return parts[0], parts[1] if parts[0] == "rules" and len(parts) > 2 else ""


def upward() -> list[str]:
    found = []
    for path in sources():
        floor, _ = floor_of(path)
        if floor == "__init__":
            continue
        for module, name in imports(path):
            if module.startswith("ejbd.manager"):
                other, _ = room_of(module, name)
                if FLOORS.index(other) > FLOORS.index(floor):
                    found.append(f"{path.relative_to(MANAGER)}: {module}.{name}")
    return found


def test_no_floor_of_the_manager_imports_one_above_it() -> None:
    assert upward() == []


def test_no_room_of_rules_imports_another() -> None:
    found = []
    for path in sources("rules"):
        _, room = floor_of(path)
        for module, name in imports(path):
            if module.startswith("ejbd.manager.rules") and room_of(module, name)[1] not in ("", room):
                found.append(f"{path.relative_to(MANAGER)}: {module}.{name}")
    assert found == []


def writes(source: str) -> list[str]:
    """What a module does that only acts may do: it changes a row, or asks the session or the store to write."""
    found = []
    for node in ast.walk(parse_source(source)):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            flat = [inner for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Attribute)]
            found += [
                f"line {node.lineno}: {ast.unparse(one)}"
                for one in flat
                if isinstance(one.ctx, ast.Store) and not ast.unparse(one).startswith(("self.", "world.told_s"))
            ]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = ast.unparse(node.func.value)
            if node.func.attr in WRITERS and (of == "session" or of.endswith(".session")):
                found.append(f"line {node.lineno}: {ast.unparse(node.func)}")
        elif isinstance(node, ast.ImportFrom) and node.module == "sqlalchemy":
            found += [f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name in STATEMENTS]
        elif isinstance(node, ast.ImportFrom) and node.module == "ejbd.store.transitions":
            found += [f"line {node.lineno}: {alias.name}" for alias in node.names if alias.name not in TOPICS]
    return found


def test_no_rule_writes() -> None:
    found = {str(path.relative_to(MANAGER)): writes(path.read_text(encoding="utf-8")) for path in sources("rules")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "job.members = []",
        "job.work_s, job.work_rate = 0.0, 0.0",
        "world.job.setbacks += 1",
        "ctx.session.add(row)",
        "from ejbd.store.transitions import add_event",
        "from sqlalchemy import select, update",
    ],
)
def test_a_rule_that_writes_is_seen(source: str) -> None:
    assert writes(source)


def effects_that_are_lost(source: str, rules: set[str]) -> list[str]:
    """Effects that are made and not asked for, and rules that are called and never carried out."""
    made = {name for name in effects.__all__ if name not in ("Effect", "Effects")}
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in made | rules
    ]


def rules_in(source: str) -> set[str]:
    """Functions that ask for effects."""
    return {
        node.name
        for node in ast.walk(parse_source(source))
        if isinstance(node, ast.FunctionDef) and node.returns is not None and "Effects[" in ast.unparse(node.returns)
    }


def test_every_effect_that_a_rule_makes_is_asked_for() -> None:
    found = {}
    for path in sources("rules"):
        source = path.read_text(encoding="utf-8")
        found[str(path.relative_to(MANAGER))] = effects_that_are_lost(source, rules_in(source))
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert effects_that_are_lost("tell(kind)", set()) and effects_that_are_lost("step(world)", {"step"})


def kinds() -> set[type[Effect]]:
    return {kind for kind in vars(effects).values() if isinstance(kind, type) and issubclass(kind, Effect)} - {Effect}


DOORS = doors.OF_JOB | doors.OF_SITE | doors.OF_ROW


def test_every_effect_has_one_handler() -> None:
    tables = (carrying.WRITES, carrying.WRITES_OF_A_JOB, doors.OF_JOB, doors.OF_SITE, doors.OF_ROW)
    own = {effects.In, effects.Apart}  # which say in which world others are done
    known = [kind for table in tables for kind in table]
    assert sorted(kind.__name__ for kind in known) == sorted(kind.__name__ for kind in kinds() - own)


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.__name__)
def test_a_door_has_the_parameters_of_the_rule_behind_it(kind: type[Effect]) -> None:
    given = list(inspect.signature(DOORS[kind]).parameters)
    assert [field.name for field in fields(kind)] == (given if kind in doors.OF_ROW else given[1:])
