"""Who may import whom (the rooms of the house): read from the source, so that nothing has to be importable."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("import-rules")  # one process reads the house once

# What every room above them may use. The six import little or nothing of ours themselves.
COMMON = {"errors", "wire", "files", "options", "plugins", "config"}

# The rooms from the ground up, and what each may import: nothing that stands below its own line, so that there is no
# circle. `errors` and `config` are single modules: every room raises the one tree of errors, and reads the one file.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "errors": set(),
    "workflow": {"core", "errors"},  # plan files: read by the daemon, the command line and the simulator
    "wire": set(),
    "files": {"errors"},
    "options": {"errors"},
    "log": {"wire"},
    "release": set(),
    "plugins": {"core", "wire"},  # policies are core's
    "identity": {"errors"},
    "config": {
        "core",
        "errors",
        "files",
        "identity",
        "plugins",
        "wire",
    },  # what a queue says of a policy's parameters is declared in core
    "accounting": COMMON,
    "batch": {"core", "identity"} | COMMON,
    "store": {"core"} | COMMON,
    "doctor": {"batch"} | COMMON,  # checks a site without a daemon
    "profiles": {"core", "errors", "files"},
    "manager": {"core", "batch", "identity", "profiles", "store", "workflow"} | COMMON,
    "api": {"manager", "store", "workflow"} | COMMON,
    "web": {"api", "core"} | COMMON,  # what REST shows, as pages
    "client": {"errors", "files", "wire"},
    "sim": {"core", "accounting"} | COMMON,
    "studies": {"core", "sim", "doctor", "workflow"} | COMMON,  # played on a site, it is compiled there as doctor does
    "cli": {"client", "accounting", "profiles", "release", "sim", "studies", "workflow"} | COMMON,
}

# What a launch line means is said once, which program it starts, and what a profile means. They import nothing of ours
# but each other.
SHARED = tuple(f"ejbd._workers.ejb_worker.{name}." for name in ("launch_options", "own_job", "profiles", "programs"))

# A registry that is asked for EJB's own policies, which register themselves there.
ON_PURPOSE = {"ejbd.core.policy": {"ejbd.core.bundling.policy", "ejbd.core.malleable.policy"}}

COMPOSITION_ROOT = "daemon"  # ejbd/daemon.py puts the house together and may import every room


def imported(source: str, package: str, *, typing_too: bool = True) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a module of `package` imports, wherever in the module."""
    for node, for_types in _imports(source):
        if for_types and not typing_too:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        else:
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            for alias in node.names:  # `from ejbd import core` names a room just as `import ejbd.core` does
                yield node.lineno, f"{base}.{alias.name}"


@functools.cache  # the whole house is read by several tests
def _imports(source: str) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import in a source, and whether only type checkers read it."""
    found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while waiting:
        node, for_types = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append((node, for_types))
        elif not isinstance(node, ast.expr):  # no expression has an import in it
            below = for_types or (isinstance(node, ast.If) and _is_for_types(node.test))
            waiting += ((child, below) for child in ast.iter_child_nodes(node))
    return sorted(found, key=lambda one: one[0].lineno)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def modules(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    inside = path.relative_to(ROOT / "ejbd")
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@functools.cache
def house() -> dict[str, set[str]]:
    """Each module, and the modules that it imports when it runs, wherever in it."""
    paths = modules("ejbd")
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        package = ".".join(path.relative_to(ROOT).parent.parts)
        wanted = {other for _, other in imported(path.read_text(encoding="utf-8"), package, typing_too=False)}
        found = {other if other in names else other.rpartition(".")[0] for other in wanted}
        graph[name] = found & names.keys() - {name}
    return graph


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, one after the other; none: there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def offences(source: str, package: str, room: str) -> list[str]:
    allowed = MAY_IMPORT[room] | {room}
    found = []
    for line, name in imported(source, package):
        parts = name.split(".")
        if (parts[0] in ("workers", "ejb_worker") or parts[:2] == ["ejbd", "_workers"]) and not name.startswith(SHARED):
            found.append(f"line {line}: {room} imports {name}; the two meet in the wire protocol only")
        elif name.startswith(SHARED):
            continue
        elif parts[0] == "ejbd" and len(parts) > 1 and parts[1] not in allowed and parts[1] != "__version__":
            found.append(f"line {line}: {room} imports {name}")
    return found


def test_every_room_imports_only_what_it_may() -> None:
    found = []
    for path in modules("ejbd"):
        room = room_of(path)
        if room in (COMPOSITION_ROOT, "__init__", "__main__"):
            continue
        assert room in MAY_IMPORT, f"{room} is a new room: say in MAY_IMPORT what it may import"
        here = path.relative_to(ROOT)
        told = offences(path.read_text(encoding="utf-8"), ".".join(here.parent.parts), room)
        found += [f"{here}: {one}" for one in told]
    assert found == []


def test_no_room_may_import_one_that_stands_below_it() -> None:
    order = list(MAY_IMPORT)
    upside_down = [
        f"{room} may import {other}, which stands below it"
        for at, room in enumerate(order)
        for other in MAY_IMPORT[room] - set(order[:at])
    ]
    assert upside_down == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: others - ON_PURPOSE.get(name, set()) for name, others in house().items()}
    assert circle_in(graph) == []


def test_what_is_let_off_is_still_there() -> None:
    assert {name: others & house()[name] for name, others in ON_PURPOSE.items()} == ON_PURPOSE


def test_a_circle_is_seen() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert set(circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}


def test_the_package_itself_imports_no_room() -> None:
    source = (ROOT / "ejbd" / "__init__.py").read_text(encoding="utf-8")
    assert [name for _, name in imported(source, "ejbd") if name.startswith("ejbd")] == []


def test_a_worker_needs_the_standard_library_only() -> None:
    own = {"workers", "ejb_worker", "__future__"}
    foreign = [
        f"{path.relative_to(ROOT)}: line {line}: {name}"
        for path in modules("workers")
        for line, name in imported(path.read_text(encoding="utf-8"), ".".join(path.relative_to(ROOT).parent.parts))
        if name.split(".")[0] not in sys.stdlib_module_names | own
    ]
    assert foreign == []


def test_the_simulated_and_the_live_world_never_meet() -> None:
    assert not {"sim", "studies"} & MAY_IMPORT["manager"]
    assert "manager" not in MAY_IMPORT["sim"] | MAY_IMPORT["studies"]


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "from ejbd.errors import EjbError"),
        ("core", "import ejbd.batch.base"),
        ("core", "from ..store import tables"),
        ("core", "def f():\n    from ejbd import manager"),
        ("cli", "from ejbd.core import room"),
        ("sim", "from ejbd.manager import decider"),
        ("sim", "from ejbd.studies.paper import printed"),
        ("manager", "import ejbd.sim"),
        ("batch", "import workers.ejb_worker"),
        ("batch", "from ejbd._workers.ejb_worker import shim"),
    ],
)
def test_an_offence_is_seen(room: str, source: str) -> None:
    assert len(offences(source, f"ejbd.{room}", room)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "from ejbd.core import shapes\nfrom .view import ClusterView\nimport math"),
        ("manager", "from ejbd.core.room.windows import windows\nfrom ejbd.errors import EjbError"),
        ("cli", "from ejbd.errors import EjbError\nimport httpx\nfrom ejbd.cli import output"),
    ],
)
def test_what_is_allowed_passes(room: str, source: str) -> None:
    assert offences(source, f"ejbd.{room}", room) == []
