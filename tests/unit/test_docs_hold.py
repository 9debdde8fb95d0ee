"""What docs say of the code's shape, held against the code: rooms, settings, paths; and names that stand once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from ejbd.config import BatchTraits, QueueSettings, Settings
from ejbd.wire.kinds import Engine

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def rooms() -> set[str]:
    """Folders with modules, as `ejbd/manager/poll`."""
    return {str(path.parent.relative_to(ROOT)) for path in (ROOT / "ejbd").rglob("__init__.py")} - {"ejbd"}


def test_every_room_is_in_the_architecture_and_no_other() -> None:
    block = ARCHITECTURE[ARCHITECTURE.index("## The rooms") : ARCHITECTURE.index("Which room may import which")]
    told, parent = set(), ""
    for line in block.splitlines():
        if found := re.match(r"    (ejbd/[a-z_/]+)/ ", line):
            parent = found[1]
            told.add(parent)
        elif re.match(r"    [a-z]", line):
            parent = "elsewhere"
        told |= {f"{parent}/{name}" for name in re.findall(r"(?:^      |[ ,;:])([a-z_]+)/(?=[ ,;)]|$)", line)}
        told |= set(re.findall(r"(?:; |, and )(ejbd/[a-z]+)/", line))
    missing = {room for room in rooms() if room not in told and "migrations" not in room}
    assert missing == set()
    assert {name for name in told if name.startswith("ejbd/") and not (ROOT / name).is_dir()} == set()


@pytest.mark.parametrize(
    "name", ["architecture.md", "configuration.md", "policies.md", "slurm.md", "worker-protocol.md"]
)
def test_paths_that_docs_name_are_there(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    named = set(re.findall(r"`((?:ejbd|workers|tests|benchmarks|scripts)/[\w./-]+?)`", text))
    assert {path for path in named if not (ROOT / path.rstrip("/")).exists()} == set()


def keys(model: type[BaseModel]) -> set[str]:
    found = set()
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= keys(kind)
        else:
            found.add(name)
    return found


def test_every_setting_is_in_the_configuration() -> None:
    told = set(re.findall(r"`([a-z_0-9]+)(?:`| ?=)", CONFIGURATION))
    assert (keys(Settings) - {"queues"} | set(QueueSettings.model_fields)) - told == set()


def test_engines_are_named_in_one_place() -> None:
    names = {engine.value for engine in Engine}
    lists = []
    for path in sorted((ROOT / "ejbd").rglob("*.py")):
        text = path.read_text()
        if sum(f'"{name}"' in text for name in names) < 2:
            continue  # to parse all of the house takes seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                words = {one.value for one in node.elts if isinstance(one, ast.Constant)}
                if len(names & words) > 1:
                    lists.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert lists == [], "ejbd.wire.kinds.Engine has them"


def test_traits_of_a_batch_system_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        BatchTraits(True, False, False, 10.0, 10.0)  # type: ignore[call-arg, arg-type]


@pytest.mark.parametrize("name", ["ejbd/store/states.py", "ejbd/wire/states.py"])
def test_every_state_says_why_it_is_not_its_neighbour(name: str) -> None:
    silent = []
    for kind in ast.parse((ROOT / name).read_text()).body:
        if isinstance(kind, ast.ClassDef) and any(
            isinstance(base, ast.Name) and base.id == "StrEnum" for base in kind.bases
        ):
            for one, behind in zip(kind.body, [*kind.body[1:], None], strict=True):
                if isinstance(one, ast.Assign):
                    said = behind.value if isinstance(behind, ast.Expr) else None
                    if not (isinstance(said, ast.Constant) and " Not `" in str(said.value)):
                        silent.append(f"{kind.name}.{ast.unparse(one)}")
    assert silent == []
