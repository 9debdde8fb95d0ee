"""Move definitions to their target modules and write every import anew.

    python merge.py ROOT TABLE.csv... [--write]

`module` lines map today's modules to targets; `override` lines move one definition. Names are as they stand now.
Each top-level statement is a unit. Its global names are resolved to what defines them, and each file's imports follow
from what its units use.
"""

# ruff: noqa: B023, SIM102
from __future__ import annotations

import ast
import builtins
import csv
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

BASES = ("ejbd", "workers", "tests", "benchmarks", "examples", "scripts", "deploy")
OURS = ("ejbd", "workers")


@dataclass
class Binding:
    """What an import binds: a module, or a symbol of one."""

    module: str
    symbol: str  # "" for a module
    typing: bool
    plain: bool = False  # `import a.b` without `as`
    used: int = 0
    keep: bool = False


@dataclass
class Source:
    name: str
    path: Path
    text: str
    tree: ast.Module
    package: bool
    bindings: dict[str, Binding] = field(default_factory=dict)
    top: dict[str, ast.stmt] = field(default_factory=dict)


def top_names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Assign():
            return [
                x.id
                for t in statement.targets
                for x in ast.walk(t)
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
            ]
        case ast.AnnAssign() | ast.AugAssign():
            return [statement.target.id] if isinstance(statement.target, ast.Name) else []
        case ast.If() | ast.Try() | ast.For() | ast.With() | ast.While():
            out = []
            for child in ast.walk(statement):
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                    out.append(child.id)
                elif isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    out.append(child.name)
            return out
    if type(statement).__name__ == "TypeAlias":
        return [statement.name.id]  # type: ignore[attr-defined]
    return []


class Scopes(ast.NodeVisitor):
    """Global names that a statement uses, and what it binds in scopes of its own."""

    def __init__(self) -> None:
        self.globals: list[ast.Name] = []
        self.local_imports: list[tuple[ast.stmt, list[dict[str, Binding]]]] = []
        self.stack: list[set[str]] = []
        self.bound: set[str] = set()
        self.strings: list[ast.Constant] = []
        self.eager: set[str] = set()
        self.depth = 0

    def name(self, node: ast.Name) -> None:
        if any(node.id in scope for scope in self.stack):
            return
        self.globals.append(node)
        if self.depth == 0:
            self.eager.add(node.id)

    def visit_Name(self, node: ast.Name) -> None:
        self.name(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.strings.append(node)

    def annotation(self, node: ast.expr | None) -> None:
        if node is None:
            return
        self.quotes(node)
        self.depth += 1  # never evaluated: `from __future__ import annotations`
        self.visit(node)
        self.depth -= 1

    def quotes(self, node: ast.expr) -> None:
        for quoted in quoted_types(node):
            try:
                inner = ast.parse(quoted.value, mode="eval")
            except SyntaxError:
                continue
            for x in ast.walk(inner):
                if isinstance(x, ast.Name) and x.id != "None":
                    x.lineno, x.col_offset = quoted.lineno, quoted.col_offset + 1 + x.col_offset
                    if not any(x.id in scope for scope in self.stack):
                        self.globals.append(x)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if isinstance(node.value, ast.Subscript):
            self.quotes(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self.annotation(node.annotation)
        if node.value:
            self.visit(node.value)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        args = node.args
        for default in (*args.defaults, *args.kw_defaults):
            if default:
                self.visit(default)
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        for arg in every:
            self.annotation(arg.annotation)
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                self.visit(decorator)
            self.annotation(node.returns)
        bound = {arg.arg for arg in every}
        body = node.body if isinstance(node.body, list) else [node.body]
        globals_: set[str] = set()
        for statement in body:
            for x in own(statement):
                if isinstance(x, ast.Name) and isinstance(x.ctx, (ast.Store, ast.Del)):
                    bound.add(x.id)
                elif isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    bound.add(x.name)
                elif isinstance(x, (ast.Import, ast.ImportFrom)):
                    bound |= {(a.asname or a.name).split(".")[0] for a in x.names}
                elif isinstance(x, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and x.name:
                    bound.add(x.name)
                elif isinstance(x, ast.MatchMapping) and x.rest:
                    bound.add(x.rest)
                elif isinstance(x, (ast.Global, ast.Nonlocal)):
                    globals_ |= set(x.names)
        bound -= globals_
        self.bound |= bound
        self.stack.append(bound)
        self.depth += 1
        for statement in body:
            self.visit(statement)
        self.depth -= 1
        self.stack.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = function  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for x in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(x)
        # A class's own names are seen by its body only, not by its methods; a reading before binding is global.
        bound: set[str] = set()
        for statement in node.body:
            for x in own(statement):
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
                    bound.add(x.id)
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.visit(statement)
            else:
                self.stack.append(bound)
                self.visit(statement)
                self.stack.pop()

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        bound = {x.id for g in node.generators for x in ast.walk(g.target) if isinstance(x, ast.Name)}
        self.visit(node.generators[0].iter)
        self.stack.append(bound)
        self.bound |= bound
        for index, g in enumerate(node.generators):
            if index:
                self.visit(g.iter)
            for test in g.ifs:
                self.visit(test)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self.stack.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension  # type: ignore[assignment]


def quoted_types(node: ast.AST) -> list[ast.Constant]:
    """Types in quotes within an annotation; not the words of `Literal` or of what `Annotated` adds."""
    if isinstance(node, ast.Constant):
        return [node] if isinstance(node.value, str) else []
    if isinstance(node, ast.Call):
        return []
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value).rsplit(".", 1)[-1]
        if head == "Literal":
            return []
        if head == "Annotated":
            return quoted_types(node.slice.elts[0]) if isinstance(node.slice, ast.Tuple) else []
    return [x for child in ast.iter_child_nodes(node) for x in quoted_types(child)]


def own(node: ast.AST) -> list[ast.AST]:
    """A statement's nodes without those of functions, classes and lambdas in it."""
    out: list[ast.AST] = []
    stack = [node]
    while stack:
        one = stack.pop()
        out.append(one)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(one, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            # Its targets are its own; a walrus in it is the function's.
            out += [x.target for x in ast.walk(one) if isinstance(x, ast.NamedExpr)]
            continue
        stack.extend(ast.iter_child_nodes(one))
    return out


class House:
    def __init__(self, root: Path, tables: list[str]) -> None:
        self.root = root
        self.sources: dict[str, Source] = {}
        self.doubts: list[str] = []
        for base in BASES:
            for path in sorted(root.glob(f"{base}/**/*.py")):
                if any(q.is_symlink() for q in (path, *path.parents)) or "ejbd/release/deploy" in str(path):
                    continue
                parts = path.relative_to(root).with_suffix("").parts
                name = ".".join(parts).removesuffix(".__init__")
                if base in ("benchmarks", "scripts") and len(parts) > 1 and not (root / base / "__init__.py").exists():
                    name = ".".join(parts[1:]).removesuffix(".__init__") or name
                text = path.read_text(encoding="utf-8")
                self.sources[name] = Source(name, path, text, ast.parse(text), path.name == "__init__.py")
        self.target: dict[str, str] = {}
        self.override: dict[str, str] = {}
        names: dict[str, str] = {}
        for table in tables:
            for row in csv.reader(Path(table).read_text(encoding="utf-8").splitlines()):
                if len(row) == 3 and row[0] == "module":
                    self.target[row[1]] = row[2]
                elif len(row) == 3 and row[0] == "override":
                    self.override[row[1]] = row[2]
                elif len(row) == 3 and row[0] in ("function", "class", "constant"):
                    names[row[1]] = f"{row[1].rsplit('.', 1)[0]}.{row[2]}"
        if "--renamed" in sys.argv:
            self.override = {names.get(old, old): new for old, new in self.override.items()}
        for old in self.override:
            module, name = old.rsplit(".", 1)
            source = self.sources.get(module)
            if source is None or not any(name in top_names(x) for x in source.tree.body):
                self.doubts.append(f"override of {old}: not there")
        for source in self.sources.values():
            self.bind(source)

    def bind(self, source: Source) -> None:
        def collect(statements: list[ast.stmt], typing: bool) -> None:
            for s in statements:
                if isinstance(s, (ast.Import, ast.ImportFrom)):
                    for key, binding in self.bindings_of(source, s, typing).items():
                        line = source.text.split("\n")[s.lineno - 1 : s.end_lineno]
                        binding.keep = any("noqa" in one for one in line)
                        source.bindings[key] = binding
                elif isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING" and not is_plain(s):
                    collect(s.body, True)
                else:
                    for name in top_names(s):
                        source.top.setdefault(name, s)

        collect(source.tree.body, False)

    def bindings_of(self, source: Source, s: ast.Import | ast.ImportFrom, typing: bool) -> dict[str, Binding]:
        out = {}
        if isinstance(s, ast.Import):
            for a in s.names:
                out[a.asname or a.name.split(".")[0]] = Binding(a.name, "", typing, plain=not a.asname)
            return out
        base = s.module or ""
        if s.level:
            package = source.name.split(".") if source.package else source.name.split(".")[:-1]
            package = package[: len(package) - s.level + 1]
            base = ".".join([*package, *([s.module] if s.module else [])])
        if base == "__future__":
            return out
        for a in s.names:
            if f"{base}.{a.name}" in self.sources:
                out[a.asname or a.name] = Binding(f"{base}.{a.name}", "", typing)
            else:
                out[a.asname or a.name] = Binding(base, a.name, typing)
        return out

    def definer(self, module: str, symbol: str, depth: int = 0) -> tuple[str, str]:
        """Where a symbol is really defined: (module, symbol); (module, "") for a module."""
        source = self.sources.get(module)
        if source is None or depth > 9:
            return module, symbol
        if symbol in source.top:
            return module, symbol
        if symbol in source.bindings:
            b = source.bindings[symbol]
            if not b.symbol:
                return b.module, ""
            return self.definer(b.module, b.symbol, depth + 1)
        if f"{module}.{symbol}" in self.sources:
            return f"{module}.{symbol}", ""
        return module, symbol

    def new_module(self, module: str, symbol: str = "") -> str:
        if symbol and f"{module}.{symbol}" in self.override:
            return self.override[f"{module}.{symbol}"]
        new = self.target.get(module, module)
        return module if new == "LEAVES" else new


def is_plain(s: ast.If) -> bool:
    """A block for type checkers without imports: a statement like others."""
    return not any(isinstance(x, (ast.Import, ast.ImportFrom)) for x in s.body) and not isinstance(s.body[0], ast.Pass)


def offsets(text: str) -> list[int]:
    out, at = [0], 0
    for line in text.encode().split(b"\n"):
        at += len(line) + 1
        out.append(at)
    return out


@dataclass
class Unit:
    source: Source
    statement: ast.stmt
    text: str
    names: list[str]
    eager: set[tuple[str, str]]
    scopes: Scopes


class File:
    """A target file: its units, and what they need."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.units: list[Unit] = []
        self.imports: dict[str, tuple[str, str, bool]] = {}  # local name -> (module, symbol, typing)
        self.kept: list[str] = []
        self.docs: list[str] = []
        self.changed = False
        self.by_binding: dict[str, list[str]] = {}


class Linker:
    def __init__(self, house: House) -> None:
        self.house = house
        self.files: dict[str, File] = {}
        self.current = ""
        self.split: dict[str, list[tuple[ast.stmt, str]]] = {}

    def run(self) -> None:
        house = self.house
        for source in house.sources.values():
            self.cut(source)
        # Names in use in each target file: a module's short name must not be one of them.
        for file in self.files.values():
            file_bound = set()
            for unit in file.units:
                file_bound |= unit.scopes.bound | set(unit.names)
            self.link(file, file_bound)

    def cut(self, source: Source) -> None:
        """Units of a source, each into its file."""
        body = source.tree.body
        lines = source.text.split("\n")
        at = 0
        for index, s in enumerate(body):
            first = min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", []))]) - 1
            end = s.end_lineno or s.lineno
            start = at
            at = end
            lead = "\n".join(lines[start:first]).strip("\n")
            chunk = "\n".join(lines[first:end])
            if (
                index == 0
                and isinstance(s, ast.Expr)
                and isinstance(s.value, ast.Constant)
                and isinstance(s.value.value, str)
            ):
                file = self.files.setdefault(
                    house_target(self.house, source.name), File(house_target(self.house, source.name))
                )
                file.docs.append(chunk)
                if lead.strip():
                    file.kept.append(lead)
                continue
            if isinstance(s, (ast.Import, ast.ImportFrom)):
                continue
            if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING":
                file = self.files.setdefault(
                    house_target(self.house, source.name), File(house_target(self.house, source.name))
                )
                file.imports["TYPE_CHECKING"] = ("typing", "TYPE_CHECKING", False)
                file.by_binding.setdefault("TYPE_CHECKING", []).append("TYPE_CHECKING")
            checking = ""
            if isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING" and not is_plain(s):
                rest = [x for x in s.body if not isinstance(x, (ast.Import, ast.ImportFrom, ast.Pass))]
                if not rest:
                    continue
                s = ast.If(s.test, rest, [], lineno=rest[0].lineno, end_lineno=rest[-1].end_lineno, col_offset=0)
                first = min([rest[0].lineno, *(d.lineno for d in getattr(rest[0], "decorator_list", []))]) - 1
                checking = "if TYPE_CHECKING:\n\n"
                lead = ""
            while end < len(lines) and lines[end].startswith(" ") and lines[end].strip().startswith("#"):
                end += 1
                at = end
            names = top_names(s)
            target = house_target(self.house, source.name)
            for name in names:
                target = self.house.override.get(f"{source.name}.{name}", target)
            file = self.files.setdefault(target, File(target))
            scopes = Scopes()
            scopes.visit(s)
            eager = set()
            for id in scopes.eager:
                eager.add(self.resolve(source, id) or (source.name, id))
            comment = lead if lead.strip().startswith("#") else ""
            text = (comment + "\n" if comment else "") + checking + chunk
            unit = Unit(source, s, text, names, eager, scopes)
            unit.first = first  # type: ignore[attr-defined]
            unit.comment = comment  # type: ignore[attr-defined]
            unit.checking, unit.end = checking, end  # type: ignore[attr-defined]
            file.units.append(unit)
        tail = "\n".join(lines[at:]).strip("\n")
        if tail.strip():
            self.house.doubts.append(f"{source.path}: a tail: {tail[:60]!r}")

    def resolve(self, source: Source, id: str) -> tuple[str, str] | None:
        if id in source.top:
            return source.name, id
        if id in source.bindings:
            b = source.bindings[id]
            return (b.module, "") if not b.symbol else self.house.definer(b.module, b.symbol)
        return None

    def need(self, file: File, module: str, symbol: str, typing: bool, bound: set[str], prefer: str) -> str:
        """The local name for what a file needs."""
        made = file.by_binding.setdefault(self.current, [])
        for local, (m, s, t) in file.imports.items():
            if (m, s) == (module, symbol):
                if t and not typing:
                    file.imports[local] = (m, s, False)
                made.append(local)
                return local
        local = prefer
        tries = [
            prefer,
            f"{prefer}_{'module' if not symbol else 'of_' + module.rsplit('.', 1)[-1]}",
            f"_{prefer}",
            f"{prefer}_2",
        ]
        for local in tries:
            if (
                local not in bound
                and local not in file.imports
                and not (hasattr(builtins, local) and local not in ("open",))
            ):
                break
        file.imports[local] = (module, symbol, typing)
        made.append(local)
        return local

    def link(self, file: File, bound: set[str]) -> None:
        house = self.house
        for unit in file.units:
            source = unit.source
            edits: list[tuple[int, int, str]] = []  # byte offsets in the source
            starts = offsets(source.text)

            def at(line: int, column: int) -> int:
                return starts[line - 1] + column

            attributes = {id(x.value): x for x in ast.walk(unit.statement) if isinstance(x, ast.Attribute)}
            {id(x.value): x for x in ast.walk(unit.statement) if isinstance(x, ast.Attribute)}
            calls = {id(x.args[0]): x for x in ast.walk(unit.statement) if isinstance(x, ast.Call) and x.args}
            for node in unit.scopes.globals:
                name = node.id
                self.current = name
                if name in source.top:
                    self.current = ""
                    home = house.new_module(source.name, name)
                    if home != file.name and isinstance(node.ctx, ast.Load):
                        free = bound if any(name in u.names for u in file.units) else bound - {name}
                        local = self.need(file, home, name, False, free, name)
                        if local != name:
                            edits.append((at(node.lineno, node.col_offset), len(name), local))
                    continue
                b = source.bindings.get(name)
                if b is None:
                    continue
                b.used += 1
                if b.symbol:
                    module, symbol = house.definer(b.module, b.symbol)
                    if symbol:
                        home = house.new_module(module, symbol)
                        if home == file.name and module in house.sources:
                            if symbol != name:
                                edits.append((at(node.lineno, node.col_offset), len(name), symbol))
                            continue
                        prefer = name if (name != b.symbol or b.symbol != symbol) else symbol
                        local = self.need(file, home, symbol, b.typing, bound, prefer)
                        if local != name:
                            edits.append((at(node.lineno, node.col_offset), len(name), local))
                        continue
                    b = Binding(module, "", b.typing)
                # A module.
                if b.module.split(".")[0] not in OURS and b.module not in house.sources:
                    if b.plain:
                        file.imports.setdefault(f"import {b.module}", (b.module, "", b.typing))
                        file.by_binding.setdefault(name, []).append(f"import {b.module}")
                        if file.imports[f"import {b.module}"][2] and not b.typing:
                            file.imports[f"import {b.module}"] = (b.module, "", False)
                    else:
                        local = self.need(file, b.module, "", b.typing, bound, name)
                        if local != name:
                            edits.append((at(node.lineno, node.col_offset), len(name), local))
                    continue
                # One of ours, by attribute.
                module, chain, whole = b.module, node, attributes.get(id(node))
                if b.plain:
                    module = b.module.split(".")[0]
                    if b.module in house.target or any(k.startswith(b.module + ".") for k in house.target):
                        house.doubts.append(f"{source.path}:{node.lineno}: import {b.module} as a whole")
                    file.imports.setdefault(f"import {b.module}", (b.module, "", b.typing))
                    file.by_binding.setdefault(name, []).append(f"import {b.module}")
                    continue
                while (
                    whole is not None
                    and f"{module}.{whole.attr}" in house.sources
                    and whole.attr not in house.sources[module].top
                ):
                    module = f"{module}.{whole.attr}"
                    chain, whole = whole, attributes.get(id(whole))  # type: ignore[assignment]
                symbol = ""
                word = None
                if whole is not None:
                    symbol = whole.attr
                elif (
                    (call := calls.get(id(chain))) is not None
                    and len(call.args) > 1
                    and isinstance(call.args[1], ast.Constant)
                ):
                    symbol = str(call.args[1].value)
                    word = call.args[1]
                real, real_symbol = house.definer(module, symbol) if symbol else (module, "")
                if word is not None and real not in house.sources:
                    real, real_symbol = module, ""  # patched where it is imported
                if word is not None and real != module:
                    house.doubts.append(
                        f"{source.path}:{node.lineno}: {module}.{symbol} is patched where it is imported"
                    )
                    real, real_symbol = module, ""
                if real not in house.sources and symbol and module in house.sources:
                    # A library's name by one of our modules.
                    house.doubts.append(f"{source.path}:{node.lineno}: {module}.{symbol} is {real}.{real_symbol}")
                    real, real_symbol = module, ""
                home = house.new_module(real, real_symbol)
                if home == file.name and whole is not None and real_symbol:
                    edits.append(
                        (
                            at(node.lineno, node.col_offset),
                            -at(whole.end_lineno or 0, whole.end_col_offset or 0),
                            real_symbol,
                        )
                    )
                    if any(real_symbol in scope for scope in [unit.scopes.bound]):
                        house.doubts.append(f"{source.path}:{node.lineno}: {real_symbol} may be a local name here")
                    continue
                if home == file.name:
                    house.doubts.append(f"{source.path}:{node.lineno}: {module} is used as a value in its own module")
                    continue
                tail = home.rsplit(".", 1)[-1]
                prefer = tail if home != module else name
                local = self.need(file, home, "", b.typing, bound, prefer)
                if local != name or chain is not node:
                    edits.append(
                        (at(node.lineno, node.col_offset), -at(chain.end_lineno or 0, chain.end_col_offset or 0), local)
                    )  # type: ignore[attr-defined]
            # Imports within functions.
            for x in ast.walk(unit.statement):
                if isinstance(x, (ast.Import, ast.ImportFrom)):
                    self.local_import(file, unit, x, edits, at)
            for x in unit.scopes.strings:
                if re.fullmatch(r"(ejbd|workers|tests)(\.\w+)+", str(x.value)):
                    new = self.new_path(str(x.value))
                    if new != x.value:
                        edits.append((at(x.lineno, x.col_offset) + 1, len(x.value.encode()), new))
            for x in unit.scopes.strings:
                if x.value in source.bindings and not any(n.id == x.value for n in unit.scopes.globals):
                    b = source.bindings[str(x.value)]
                    self.current = str(x.value)
                    module, symbol = house.definer(b.module, b.symbol) if b.symbol else (b.module, "")
                    home = house.new_module(module, symbol)
                    if home != file.name and not b.plain:
                        self.need(file, home, symbol, b.typing, bound, str(x.value))
            names = {at(n.lineno, n.col_offset): n.id for n in unit.scopes.globals}
            edits = self.settle(unit, edits, names)
            unit.edits = edits  # type: ignore[attr-defined]
            if edits:
                file.changed = True
            unit.text = self.apply(unit, edits, starts)
        for source in {u.source.name: u.source for u in file.units}.values():
            for local, b in source.bindings.items():
                module, symbol = house.definer(b.module, b.symbol) if b.symbol else (b.module, "")
                home = house.new_module(module, symbol)
                if home != b.module:
                    file.changed = True
                same = f"import {local} as {local}" in source.text or f"{local} as {local}" in source.text
                self.current = local
                if (b.keep or same) and home != file.name and not b.plain:
                    self.need(file, home, symbol, b.typing, set(), local)
        # Bindings that nothing uses and that are kept on purpose.

    def new_path(self, path: str) -> str:
        parts = path.split(".")
        for n in range(len(parts), 0, -1):
            module = ".".join(parts[:n])
            if module in self.house.sources:
                rest = parts[n:]
                if rest:
                    return ".".join([self.house.new_module(module, rest[0]), *rest])
                return self.house.new_module(module)
        return path

    def local_import(
        self, file: File, unit: Unit, x: ast.Import | ast.ImportFrom, edits: list[tuple[int, int, str]], at
    ) -> None:  # type: ignore[no-untyped-def]
        house = self.house
        out = []
        indent = " " * x.col_offset
        changed = False
        for local, b in house.bindings_of(unit.source, x, False).items():
            if b.module not in house.sources:
                out.append(None)
                continue
            if b.symbol:
                module, symbol = house.definer(b.module, b.symbol)
                if not symbol:
                    house.doubts.append(f"{unit.source.path}:{x.lineno}: a module through a package")
                home = house.new_module(module, symbol)
                if home == file.name:
                    house.doubts.append(
                        f"{unit.source.path}:{x.lineno}: {local} is in this module now: drop the import"
                    )
                out.append(f"from {home} import {symbol}" + (f" as {local}" if local != symbol else ""))
                changed |= home != b.module
            elif b.plain:
                home = house.new_module(b.module)
                out.append(f"import {home}")
                changed |= home != b.module
            else:
                home = house.new_module(b.module)
                package, tail = home.rsplit(".", 1)
                out.append(f"from {package} import {tail}" + (f" as {local}" if local != tail else ""))
                changed |= home != b.module
                if any(k.startswith(b.module + ".") for k in house.override):
                    house.doubts.append(f"{unit.source.path}:{x.lineno}: {b.module} within a function, in parts now")
        if changed and None not in out:
            start = at(x.lineno, x.col_offset)
            edits.append((start, -at(x.end_lineno, x.end_col_offset), f"\n{indent}".join(out)))  # type: ignore[arg-type]
        elif changed:
            house.doubts.append(f"{unit.source.path}:{x.lineno}: a mixed import")

    def settle(
        self, unit: Unit, edits: list[tuple[int, int, str]], names: dict[int, str]
    ) -> list[tuple[int, int, str]]:
        """Python 3.11 has no true columns in f-strings of several lines: look for the name near by."""
        raw = unit.source.text.encode()
        out = []
        for start, length, new in edits:
            name = names.get(start)
            if name is None or raw[start : start + len(name.encode())] == name.encode():
                out.append((start, length, new))
                continue
            begin, end = raw.rfind(b"\n", 0, start) + 1, raw.find(b"\n", start)
            hits = [m.start() for m in re.finditer(rb"(?<![\w.])" + name.encode() + rb"(?!\w)", raw[begin:end])]
            if len(hits) != 1:
                self.house.doubts.append(f"{unit.source.path}: {name} -> {new} is not found in {raw[begin:end][:90]!r}")
                continue
            shift = begin + hits[0] - start
            out.append((start + shift, length if length > 0 else length - shift, new))
        return out

    def apply(self, unit: Unit, edits: list[tuple[int, int, str]], starts: list[int]) -> str:
        raw = unit.source.text.encode()
        begin = starts[unit.first]  # type: ignore[attr-defined]
        end = starts[unit.end] - 1  # type: ignore[attr-defined]
        out, at = [], begin
        for start, length, new in sorted(set(edits)):
            stop = -length if length < 0 else start + length
            if start < at:
                self.house.doubts.append(f"{unit.source.path}: edits overlap at {raw[start:stop]!r}")
                continue
            raw[start:stop]
            out += [raw[at:start], new.encode()]
            at = stop
        out.append(raw[at:end])
        comment = unit.comment  # type: ignore[attr-defined]
        return (comment + "\n" if comment else "") + unit.checking + b"".join(out).decode()  # type: ignore[attr-defined]


def house_target(house: House, module: str) -> str:
    return house.new_module(module)


def ordered(file: File, house: House) -> list[Unit]:
    """Units so that what runs at import time stands behind what it needs."""
    where = {}
    for index, unit in enumerate(file.units):
        for name in unit.names:
            where[unit.source.name, name] = index
    out: list[Unit] = []
    state = [0] * len(file.units)

    def visit(index: int) -> None:
        if state[index]:
            return
        state[index] = 1
        for need in file.units[index].eager:
            if need in where and where[need] != index:
                visit(where[need])
        out.append(file.units[index])

    for index in range(len(file.units)):
        visit(index)
    return out


def render(file: File, house: House) -> str:
    runtime, typing = import_lines(file, house)
    body: list[str] = []
    seen: set[str] = set()
    for unit in ordered(file, house):
        flat = unit.text.strip()
        if isinstance(unit.statement, (ast.Assign, ast.AnnAssign)):  # `log`, a router: the same in each source
            if flat in seen:
                continue
            seen.add(flat)
            if unit.names == ["__all__"]:
                defined = {n for u in file.units for n in u.names}
                listed = [x.value for x in ast.walk(unit.statement) if isinstance(x, ast.Constant)]
                if len({u.source.name for u in file.units}) > 1 or set(listed) - defined:
                    continue
        body.append(unit.text.strip("\n"))
    parts = []
    if file.docs:
        parts.append(file.docs[0])
    parts.append("from __future__ import annotations")
    parts += runtime
    if typing:
        parts.append("from typing import TYPE_CHECKING")
        parts.append("if TYPE_CHECKING:\n" + "\n".join(f"    {line}" for line in typing))
    return "\n".join(parts) + "\n\n" + "\n\n\n".join(body) + "\n"


def import_line(local: str, file: File, house: House) -> str:
    module, symbol, _ = file.imports[local]
    if local.startswith("import "):
        return local
    if symbol:
        return f"from {module} import {symbol}" + (f" as {local}" if local != symbol else "")
    if "." in module:
        package, tail = module.rsplit(".", 1)
        if module.split(".")[0] in OURS or module in house.sources:
            return f"from {package} import {tail}" + (f" as {local}" if local != tail else "")
        return f"import {module} as {local}"
    return f"import {module}" + (f" as {local}" if local != module else "")


def import_lines(file: File, house: House) -> tuple[list[str], list[str]]:
    runtime: list[str] = []
    typing: list[str] = []
    if any(getattr(u, "checking", "") for u in file.units):
        runtime.append("from typing import TYPE_CHECKING")
    for local, (_, _, only) in sorted(file.imports.items()):
        (typing if only else runtime).append(import_line(local, file, house))
    return runtime, typing


def in_place(file: File, house: House) -> str:
    """A file of one source: its edits, and each of its imports anew where it stood."""
    source = file.units[0].source if file.units else house.sources[file.name]
    raw = source.text.encode()
    starts = offsets(source.text)
    changes: list[tuple[int, int, str]] = []
    written: set[str] = set()
    last: dict[str, ast.stmt] = {}
    statements: list[tuple[ast.stmt, bool]] = []

    def collect(body: list[ast.stmt], typing: bool) -> None:
        for s in body:
            if isinstance(s, (ast.Import, ast.ImportFrom)) and getattr(s, "module", "") != "__future__":
                statements.append((s, typing))
                last.update(dict.fromkeys(house.bindings_of(source, s, typing), s))  # type: ignore[arg-type]
            elif isinstance(s, ast.If) and ast.unparse(s.test) == "TYPE_CHECKING":
                collect(s.body, True)

    collect(source.tree.body, False)
    made_by_others = [x for key, locals_ in file.by_binding.items() if key not in last for x in locals_]
    place = None
    for s, typing in statements:
        bindings = house.bindings_of(source, s, typing)  # type: ignore[arg-type]
        locals_ = []
        same = True
        for name, b in bindings.items():
            if last[name] is not s:
                same = False
                continue
            mine = [x for x in file.by_binding.get(name, []) if x in file.imports]
            if not mine and (b.module not in house.sources or house.new_module(b.module) == b.module):
                if b.module not in house.sources:
                    mine = [name] if name in file.imports else mine
            for x in mine:
                module, symbol, _only = file.imports[x]
                same &= (module, symbol) == (b.module, b.symbol) and (x == name or x.startswith("import "))
                if x not in written:
                    locals_.append(x)
                    written.add(x)
            same &= bool(mine) and len(set(mine)) == 1
        if not typing and place is None and not (isinstance(s, ast.ImportFrom) and s.module == "typing"):
            place = s
        if same:
            continue
        text = raw[starts[s.lineno - 1] : starts[s.end_lineno or 1]].decode()
        noqa = "  # " + text.split("# ", 1)[1].split("\n")[0] if "noqa" in text and "# " in text else ""
        lines = [" " * s.col_offset + import_line(x, file, house) + noqa + "\n" for x in dict.fromkeys(locals_)]
        if typing and not lines:
            lines = [" " * s.col_offset + "pass\n"]
        changes.append((starts[s.lineno - 1], -starts[s.end_lineno or 1], "".join(lines)))
    rest = [x for x in dict.fromkeys(made_by_others) if x not in written and x in file.imports]
    if rest:
        text = "".join(import_line(x, file, house) + "\n" for x in rest)
        at = starts[(place.lineno if place else 1) - 1]
        for index, (a, z, old) in enumerate(changes):
            if a == at:
                changes[index] = (a, z, text + old)
                break
        else:
            changes.append((at, -at if at else 0, text))
    out, at = [], 0
    edits = [e for unit in file.units for e in unit.edits]  # type: ignore[attr-defined]
    for start, length, text in sorted(set(edits) | set(changes)):
        stop = -length if length < 0 else start + length
        if start < at:
            house.doubts.append(f"{source.path}: overlap in place at {text[:50]!r}")
            continue
        out += [raw[at:start], text.encode()]
        at = stop
    out.append(raw[at:])
    return b"".join(out).decode()


def write_files(linker: Linker, house: House) -> None:
    written: set[Path] = set()
    plans: list[tuple[Path, str]] = []
    gone: list[Path] = []
    of_target = defaultdict(list)
    for source in house.sources.values():
        of_target[house_target(house, source.name)].append(source)
    for name, file in linker.files.items():
        sources = {u.source.name: u.source for u in file.units}
        mine = of_target.get(name, [])
        if len(mine) == 1 and set(sources) <= {mine[0].name}:
            source = mine[0]
            moved_out = [k for k in house.override if k.rsplit(".", 1)[0] == source.name]
            if name == source.name and not file.changed and not moved_out:
                written.add(source.path)
                continue
            if not moved_out:
                text = in_place(file, house) if file.units else source.text
                path = source.path if name == source.name else path_of(house, name, source.package and not file.units)
                plans.append((path, text))
                written.add(path)
                continue
        path = path_of(
            house, name, any(s.package for s in mine) and any(other.startswith(name + ".") for other in linker.files)
        )
        plans.append((path, render(file, house)))
        written.add(path)
    for source in house.sources.values():
        if source.path not in written and house_target(house, source.name) != source.name:
            gone.append(source.path)
    for path in gone:
        path.unlink()
    for path, text in plans:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path, _ in plans:
        for parent in path.parents:
            if parent == house.root or (parent.name in BASES and parent.parent == house.root):
                break
            init = parent / "__init__.py"
            if not init.exists() and path.relative_to(house.root).parts[0] in OURS:
                init.write_text(f'"""{parent.name.capitalize()}."""\n', encoding="utf-8")
    print(f"{len(plans)} files written, {len(gone)} removed")


def path_of(house: House, name: str, package: bool) -> Path:
    base = house.root / Path(*name.split("."))
    if package or (
        base.is_dir() and (base / "__init__.py").exists() and name in house.sources and house.sources[name].package
    ):
        return base / "__init__.py"
    return base.with_suffix(".py")


def main() -> int:
    write = "--write" in sys.argv
    root, *tables = [a for a in sys.argv[1:] if not a.startswith("--")]
    house = House(Path(root), tables)
    linker = Linker(house)
    linker.run()
    # Names defined twice in a target.
    for name, file in sorted(linker.files.items()):
        owners = defaultdict(set)
        for unit in file.units:
            for one in unit.names:
                owners[one].add((unit.source.name, unit.text.strip()))
        for one, sources in owners.items():
            if len({s for s, _ in sources}) > 1 and len({t for _, t in sources}) > 1:
                house.doubts.append(f"clash in {name}: {one}: {sorted({s for s, _ in sources})}")
    if write:
        write_files(linker, house)
    print("\n".join(sorted(set(house.doubts))))
    touched = [n for n, f in linker.files.items()]
    print(f"{len(house.sources)} sources -> {len(touched)} files, {len(set(house.doubts))} doubts")
    # Circles among the targets at run time.
    graph = {
        n: {m for (m, s, t) in f.imports.values() if not t and m in linker.files}
        for n, f in linker.files.items()
        if n.split(".")[0] in OURS
    }
    for n in list(graph):
        graph[n] |= {
            f"{m}.{s}" for (m, s, t) in linker.files[n].imports.values() if not t and f"{m}.{s}" in linker.files
        }

    for circle in circles(graph):
        print("circle:", " -> ".join(circle))
    return 0


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one module."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on: set[str] = set()
    out = []
    sys.setrecursionlimit(10000)

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in graph.get(v, ()):
            if w not in graph:
                continue
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while True:
                w = stack.pop()
                on.discard(w)
                part.append(w)
                if w == v:
                    break
            if len(part) > 1:
                out.append(part)

    for v in list(graph):
        if v not in index:
            visit(v)
    return out


sys.exit(main())
