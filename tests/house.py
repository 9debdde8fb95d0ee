"""How the house stands: imports upward and circles in the manager, callers of `conclude`, lines by room, and how many
files name a setting of a job, an engine or a batch system.

    python -m tests.house [WORKTREE ...]    # this one, or others beside each other: `git worktree add ../before COMMIT`

A room is a folder of the manager, or a module in none. An import counts once for each pair of modules. It is upward
where the best order of the rooms has the importing one below. Imports for type checkers alone are left out.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

OURS = Path(__file__).resolve().parents[1]
LONG = 500  # lines: files beyond it are named
# What stands for all of its kind: a setting that a job may say, an engine, a batch system.
NAMED = {"setting keep_s": r"\bkeep_s\b", "engine dmtcp": r"(?i)dmtcp", "batch system pbs": r"(?i)\bpbs|qsub"}


def sources(folder: Path) -> list[Path]:
    """Links (ejbd/_workers) are not followed: a file counts once."""
    return sorted(p for p in folder.rglob("*.py") if not any(q.is_symlink() for q in (p, *p.parents)))


def nodes(root: ast.AST) -> Iterator[ast.AST]:
    """All that is there when the module runs."""
    for node in ast.iter_child_nodes(root):
        yield node
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from nodes(node)


def imports(house: Path) -> dict[str, set[str]]:
    """Each module of the house, and the modules that it imports."""
    names = {}
    for path in sources(house / "ejbd"):
        names[".".join(path.relative_to(house).with_suffix("").parts).removesuffix(".__init__")] = path
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        package = path.relative_to(house).parent.parts
        found = set()
        for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = ".".join([*package[: len(package) - node.level + 1]] if node.level else [])
                base = ".".join(part for part in (base, node.module or "") if part)
                found |= {one for alias in node.names for one in (f"{base}.{alias.name}", base)}
        # `from a import b` is of the module a.b where there is one, and of a otherwise.
        whole = found & names.keys()
        graph[name] = {one for one in whole if not any(other.startswith(f"{one}.") for other in whole)} - {name}
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of nodes that reach each other, of two and more (Tarjan, without recursion's limit in so small a house)."""
    sys.setrecursionlimit(10_000)
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def least_upward(rooms: list[str], between: Counter[tuple[str, str]]) -> int:
    """Imports upward in the best order of rooms that import each other in circles."""

    @functools.cache
    def best(placed: int) -> int:
        """Of the rooms that are placed from the ground up: what they import of those above them."""
        if not placed:
            return 0
        found = []
        for at, room in enumerate(rooms):
            if placed >> at & 1:  # as the topmost of them
                above = sum(between[room, other] for to, other in enumerate(rooms) if not placed >> to & 1)
                found.append(best(placed & ~(1 << at)) + above)
        return min(found)

    return best((1 << len(rooms)) - 1)


def room_of(module: str) -> str:
    """Of the manager: its folder, or the module itself."""
    parts = module.split(".")[2:]
    return parts[0] if parts else "__init__"


def callers(house: Path, name: str) -> Counter[str]:
    """Calls by this name in the manager, by room."""
    found: Counter[str] = Counter()
    for path in sources(house / "ejbd" / "manager"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                parts = path.relative_to(house / "ejbd" / "manager").parts
                found[parts[0] if parts[0] != "rules" else "/".join(parts[:2])] += 1
    return found


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def facts(house: Path) -> dict[str, str]:
    """What is printed of one house, by the words for it."""
    graph = imports(house)
    manager = {name: others for name, others in graph.items() if name.startswith("ejbd.manager.")}
    between: Counter[tuple[str, str]] = Counter()
    for name, others in manager.items():
        for other in others & manager.keys():
            if room_of(name) != room_of(other):
                between[room_of(name), room_of(other)] += 1
    rooms = {room: {to for of, to in between if of == room} for room in {room_of(name) for name in manager}}
    of_files, of_rooms = circles({name: others & manager.keys() for name, others in manager.items()}), circles(rooms)
    told = {
        "manager: rooms": f"{len(rooms)}",
        "manager: imports between rooms": f"{between.total()}",
        "manager: imports upward, in the best order": f"{sum(least_upward(sorted(c), between) for c in of_rooms)}",
        "manager: circles of rooms": ", ".join(f"of {len(circle)}" for circle in of_rooms) or "0",
        "manager: circles of files": ", ".join(f"of {len(circle)}" for circle in of_files) or "0",
        "the house: circles of files": ", ".join(f"of {len(circle)}" for circle in circles(graph)) or "0",
    }
    for name in ("conclude", "Conclude"):
        found = callers(house, name)
        told[f"calls of `{name}`"] = f"{found.total()} in {len(found)} rooms" if found else "0"
    everything = sources(house / "ejbd") + sources(house / "workers")
    for what, pattern in NAMED.items():
        named = [path for path in everything if re.search(pattern, path.read_text(encoding="utf-8"))]
        folders = {path.parent for path in named}
        told[f"files that name the {what}"] = f"{len(named)} in {len(folders)} folders"
    by_room: Counter[str] = Counter()
    for path in everything:
        parts = path.relative_to(house).parts
        by_room["/".join(parts[:2]) if len(parts) > 2 and parts[0] == "ejbd" else parts[0]] += lines(path)
        if parts[:2] == ("ejbd", "manager"):
            by_room["/".join(parts[:3]) if len(parts) > 3 else "ejbd/manager, loose"] += lines(path)
    told |= {f"lines of {room}": f"{count:,}" for room, count in sorted(by_room.items())}
    told["lines of tests"] = f"{sum(map(lines, sources(house / 'tests'))):,}"
    long = sorted((path for path in everything if lines(path) > LONG), key=lines, reverse=True)
    told[f"files beyond {LONG} lines"] = f"{len(long)}"
    told |= {f"  {path.relative_to(house)}": f"{lines(path)}" for path in long}
    return told


def main() -> None:
    houses = [facts(Path(word).resolve()) for word in sys.argv[1:] or [str(OURS)]]
    words = list(dict.fromkeys(word for told in houses for word in told))
    wide = max(map(len, words))
    for word in sorted(words, key=lambda word: (word.startswith("lines"), word.startswith(("files bey", "  ")))):
        print(word.ljust(wide), *(told.get(word, "-").rjust(24) for told in houses))


if __name__ == "__main__":
    main()
