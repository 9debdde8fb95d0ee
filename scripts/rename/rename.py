"""Apply a table of new names to the sources: functions, methods, classes, fields, constants, parameters.

    python rename.py ROOT TABLE.csv... [--write]

Each reference is resolved by mypy's own trees and types, so that two methods of one name are told apart.
What cannot be resolved (a receiver that is Any, a name in a string) is listed.
"""

# ruff: noqa: SIM102
from __future__ import annotations

import ast
import csv
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from mypy import build
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.nodes import (
    CallExpr,
    ClassDef,
    Decorator,
    Expression,
    FuncDef,
    MemberExpr,
    MypyFile,
    NameExpr,
    RefExpr,
    SuperExpr,
    TypeInfo,
    Var,
)
from mypy.options import Options
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    Overloaded,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarType,
    UnionType,
    get_proper_type,
)


def load_traverser() -> type:
    """mypy's traverser, interpreted: its compiled classes take no subclasses."""
    import mypy.nodes
    import mypy.patterns

    where = next(Path(mypy.nodes.__file__).parent.glob("traverser.py"))
    text = where.read_text(encoding="utf-8")
    text = re.sub(r"([\w.\[\]]+)\.accept\(self\)", r"_accept(self, \1)", text)
    text = text.replace("class TraverserVisitor(NodeVisitor[None]):", "class TraverserVisitor:")
    text = re.sub(r"^@trait\n|^@mypyc_attr\(.*\)\n", "", text, flags=re.M)

    def accept(visitor: object, node: object) -> None:
        name = type(node).__name__
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        method = getattr(visitor, f"visit_{snake}", None) or getattr(
            visitor, f"visit_{snake.replace('_stmt', '')}_stmt", None
        )
        if name == "MypyFile":
            method = visitor.visit_mypy_file  # type: ignore[attr-defined]
        if method is None:
            missing.add(name)
            return
        method(node)

    cut = text.index("class ExtendedTraverserVisitor")
    space: dict[str, object] = {"_accept": accept, "__name__": "traverser"}
    exec(compile(text[:cut], str(where), "exec"), space)
    return space["TraverserVisitor"]  # type: ignore[return-value]


TREES: dict[str, MypyFile] = {}
missing: set[str] = set()
TraverserVisitor = load_traverser()
ACCEPT = TraverserVisitor.visit_mypy_file.__globals__["_accept"]


class Table:
    def __init__(self, paths: list[str]) -> None:
        self.new: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.kind: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        for path in paths:
            for row in csv.reader(Path(path).read_text(encoding="utf-8").splitlines()):
                if len(row) != 3:
                    continue
                kind, old, value = row
                if kind in ("function", "method", "class", "field", "constant"):
                    if old.rsplit(".", 1)[1] != value:
                        self.new[old], self.kind[old] = value, kind
                elif kind == "parameter":
                    self.parameters[old] = value
        self.simple = {old.rsplit(".", 1)[1] for old in self.new}


def infos(kind: Type | None) -> Iterator[TypeInfo]:
    kind = get_proper_type(kind) if kind is not None else None
    match kind:
        case Instance():
            yield kind.type
        case UnionType():
            for item in kind.items:
                yield from infos(item)
        case TypeVarType():
            yield from infos(kind.upper_bound)
        case TypeType():
            yield from infos(kind.item)
        case CallableType() if kind.is_type_obj():
            yield kind.type_object()
        case CallableType():
            yield kind.fallback.type
        case Overloaded():
            if kind.is_type_obj():
                yield kind.type_object()
        case TupleType():
            yield kind.partial_fallback.type
        case TypedDictType():
            yield kind.fallback.type


def is_any(kind: Type | None) -> bool:
    kind = get_proper_type(kind) if kind is not None else None
    if isinstance(kind, UnionType):
        return any(is_any(item) for item in kind.items)
    return kind is None or isinstance(kind, AnyType)


class Edits:
    def __init__(self) -> None:
        self.of: dict[str, dict[tuple[int, int], tuple[str, str]]] = defaultdict(dict)
        self.doubts: list[str] = []

    def add(self, path: str, line: int, column: int, old: str, new: str) -> None:
        had = self.of[path].get((line, column))
        if had and had != (old, new):
            self.doubts.append(f"{path}:{line}:{column}: {old}: both {had[1]} and {new}")
        self.of[path][line, column] = (old, new)


class Walk(TraverserVisitor):
    def __init__(self, tree: MypyFile, table: Table, types: dict[Expression, Type], edits: Edits, source: str) -> None:
        super().__init__()
        self.tree, self.table, self.types, self.edits = tree, table, types, edits
        self.path = tree.path
        self.lines = source.split("\n")
        self.covered: set[tuple[int, int]] = set()
        self.classes: list[TypeInfo] = []

    # -- definitions
    def new_member(self, info: TypeInfo, name: str) -> str | None:
        """The new name of an attribute, by whichever class of the MRO a line names."""
        for base in info.mro:
            new = self.table.new.get(f"{base.fullname}.{name}")
            if new:
                return new
        return None

    def visit_member_expr(self, e: MemberExpr) -> None:
        super().visit_member_expr(e)
        if e.name not in self.table.simple:
            return
        position = (e.end_line or e.line, (e.end_column or 0) - len(e.name.encode()))
        new: str | None = None
        if isinstance(e.expr, RefExpr) and isinstance(e.expr.node, MypyFile) and e.node is not None:
            node_full = e.node.fullname
            new = self.table.new.get(node_full) if node_full.rsplit(".", 1)[-1] == e.name else None
        else:
            kind = self.types.get(e.expr)
            if isinstance(e.expr, RefExpr) and isinstance(e.expr.node, TypeInfo):
                new = self.new_member(e.expr.node, e.name)
            if new is None:
                found = {self.new_member(info, e.name) for info in infos(kind)}
                found.discard(None)
                if len(found) > 1:
                    self.edits.doubts.append(f"{self.path}:{e.line}: {e.name}: {sorted(found)}")  # type: ignore[type-var]
                new = next(iter(found), None)
                if (
                    new is None
                    and isinstance(e.expr, RefExpr)
                    and isinstance(e.expr.node, Var)
                    and e.expr.node.is_self
                    and self.classes
                ):
                    new = self.new_member(self.classes[-1], e.name)
                if new is None and is_any(kind):
                    self.edits.doubts.append(f"{self.path}:{e.line}: .{e.name} of Any")
        self.covered.add(position)
        if new:
            self.edits.add(self.path, *position, e.name, new)

    def visit_super_expr(self, e: SuperExpr) -> None:
        super().visit_super_expr(e)
        self.covered.add((e.end_line or e.line, (e.end_column or 0) - len(e.name.encode())))
        if e.name in self.table.simple and e.info:
            new = next((n for base in e.info.mro[1:] if (n := self.table.new.get(f"{base.fullname}.{e.name}"))), None)
            if new:
                self.edits.add(self.path, e.end_line or e.line, (e.end_column or 0) - len(e.name.encode()), e.name, new)

    def visit_name_expr(self, e: NameExpr) -> None:
        if e.node is None:
            return
        self.covered.add((e.line, e.column))
        if e.name not in self.table.simple:
            return
        full = e.node.fullname
        if isinstance(e.node, Var) and "." not in full:
            return
        new = self.table.new.get(full)
        if new and full.rsplit(".", 1)[-1] == e.name:
            self.edits.add(self.path, e.line, e.column, e.name, new)

    def visit_class_def(self, o: ClassDef) -> None:
        self.classes.append(o.info)
        super().visit_class_def(o)
        self.classes.pop()


def definitions(
    module: str, tree: ast.Module, table: Table, path: str, lines: list[str], edits: Edits, mro: dict[str, TypeInfo]
) -> None:
    """Edit the names where they are defined: def, class, fields and constants."""

    def member(prefix: str, name: str, in_class: bool) -> str | None:
        new = table.new.get(f"{prefix}.{name}")
        if new is None and in_class and (info := mro.get(prefix)):
            for base in info.mro[1:]:
                if found := table.new.get(f"{base.fullname}.{name}"):
                    return found
        return new

    def walk(node: ast.AST, prefix: str, in_class: bool) -> None:
        for n in ast.iter_child_nodes(node):
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if new := member(prefix, n.name, in_class):
                    at = re.compile(rf"\b(?:def|class)\s+({re.escape(n.name)})\b").search(lines[n.lineno - 1])
                    if at:
                        edits.add(path, n.lineno, len(lines[n.lineno - 1][: at.start(1)].encode()), n.name, new)
                walk(n, f"{prefix}.{n.name}", isinstance(n, ast.ClassDef))
            elif isinstance(n, (ast.Assign, ast.AnnAssign)):
                for target in n.targets if isinstance(n, ast.Assign) else [n.target]:
                    for x in ast.walk(target):
                        if isinstance(x, ast.Name) and (in_class or prefix == module):
                            if new := member(prefix, x.id, in_class):
                                edits.add(path, x.lineno, x.col_offset, x.id, new)
            elif not isinstance(n, ast.expr):
                walk(n, prefix, in_class)

    walk(tree, module, False)


class Rest(ast.NodeVisitor):
    """Names that mypy keeps as types (annotations, casts) or imports, and keywords of calls."""

    def __init__(self, walk: Walk, imported: dict[str, str]) -> None:
        self.walk, self.table, self.imported = walk, walk.table, imported
        self.scopes: list[set[str]] = []
        self.local_imports: list[dict[str, str]] = []

    def resolve(self, name: str) -> str | None:
        for scope, imports in zip(reversed(self.scopes), reversed(self.local_imports), strict=False):
            if name in imports:
                return imports[name]
            if name in scope:
                return None
        return self.imported.get(name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg) and arg.annotation:
                self.quoted(arg.annotation)
                self.visit(arg.annotation)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default:
                self.visit(default)
        if node.returns:
            self.quoted(node.returns)
            self.visit(node.returns)
        bound = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        imports: dict[str, str] = {}
        for x in ast.walk(node):
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store):
                bound.add(x.id)
            elif isinstance(x, ast.ImportFrom) and x.module:
                base = absolute(self.walk.tree.fullname, self.walk.path, x)
                imports |= {a.asname or a.name: f"{base}.{a.name}" for a in x.names}
        self.scopes.append(bound)
        self.local_imports.append(imports)
        for statement in node.body:
            self.visit(statement)
        self.scopes.pop()
        self.local_imports.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_Name(self, node: ast.Name) -> None:
        where = (node.lineno, node.col_offset)
        if where in self.walk.covered or node.id not in self.table.simple:
            return
        full = self.resolve(node.id)
        if full and (new := self.table.new.get(full)) and full.rsplit(".", 1)[1] == node.id:
            self.walk.edits.add(self.walk.path, *where, node.id, new)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        at = ((node.end_lineno or 0), (node.end_col_offset or 0) - len(node.attr.encode()))
        if at in self.walk.covered or node.attr not in self.table.simple:
            return
        if isinstance(node.value, ast.Name) and (full := self.resolve(node.value.id)):
            if new := self.table.new.get(f"{full}.{node.attr}"):
                self.walk.edits.add(self.walk.path, *at, node.attr, new)
                return
        self.walk.edits.doubts.append(f"{self.walk.path}:{node.lineno}: .{node.attr} is not resolved")

    def quoted(self, node: ast.AST | None) -> None:
        """Types in quotes within an annotation; not the words of `Literal` or of what `Annotated` adds."""
        if node is None or isinstance(node, ast.Call):
            return None
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                for m in re.finditer(r"(?<![\w.])[A-Za-z_]\w*", node.value):
                    full = self.imported.get(m.group())
                    if full and self.table.kind.get(full) == "class" and (new := self.table.new.get(full)):
                        self.walk.edits.add(
                            self.walk.path, node.lineno, node.col_offset + 1 + m.start(), m.group(), new
                        )
            return None
        if isinstance(node, ast.Subscript):
            head = ast.unparse(node.value).rsplit(".", 1)[-1]
            if head == "Literal":
                return None
            if head == "Annotated":
                return self.quoted(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else None)
        for child in ast.iter_child_nodes(node):
            self.quoted(child)
        return None

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Subscript):
            self.quoted(node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.quoted(node.annotation)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar", "NewType") and node.args:
            for arg in node.args if node.func.id != "cast" else node.args[:1]:
                self.quoted(arg)
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self.generic_visit(node)
        for name in set(node.kwd_attrs) & self.table.simple:
            self.walk.edits.doubts.append(f"{self.walk.path}:{node.lineno}: match {name}= is not resolved")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = absolute(self.walk.tree.fullname, self.walk.path, node)
        for alias in node.names:
            full = f"{base}.{alias.name}"
            if base in TREES and (symbol := TREES[base].names.get(alias.name)) and symbol.node is not None:
                if not isinstance(symbol.node, MypyFile):
                    full = symbol.node.fullname
            if full.rsplit(".", 1)[1] != alias.name:
                continue
            if new := self.table.new.get(full):
                self.walk.edits.add(self.walk.path, alias.lineno, alias.col_offset, alias.name, new)
                if alias.asname == alias.name:
                    end = (alias.end_col_offset or 0) - len(alias.name.encode())
                    self.walk.edits.add(self.walk.path, alias.end_lineno or alias.lineno, end, alias.name, new)


def absolute(module: str, path: str, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".") if path.endswith("__init__.py") else module.split(".")[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def keywords(walk: Walk, tree: ast.Module) -> None:
    """Keyword arguments of classes whose fields, and of functions whose parameters, have new names."""
    calls = {}
    for x in ast.walk(tree):
        if isinstance(x, ast.Call) and x.keywords:
            calls[x.lineno, x.col_offset, x.end_lineno, x.end_col_offset] = x
    if not calls:
        return
    table, found = walk.table, []

    class Find(TraverserVisitor):
        def visit_call_expr(self, o: CallExpr) -> None:
            super().visit_call_expr(o)
            found.append(o)

    ACCEPT(Find(), walk.tree)
    for o in found:
        call = calls.get((o.line, o.column, o.end_line, o.end_column))
        if call is None:
            continue
        owners: list[TypeInfo] = []
        function = ""
        callee = o.callee
        kind = get_proper_type(walk.types.get(callee)) if callee in walk.types else None
        if isinstance(callee, RefExpr) and isinstance(callee.node, TypeInfo):
            owners = [callee.node]
        elif isinstance(callee, RefExpr) and callee.fullname in ("dataclasses.replace", "copy.replace") and o.args:
            owners = list(infos(walk.types.get(o.args[0])))
        elif isinstance(callee, RefExpr) and callee.node is not None and isinstance(callee.node, (FuncDef, Decorator)):
            function = callee.node.fullname
        elif isinstance(callee, MemberExpr):
            for info in infos(walk.types.get(callee.expr)):
                for base in info.mro:
                    if callee.name in base.names:
                        function = f"{base.fullname}.{callee.name}"
                        break
        if not owners and isinstance(kind, CallableType) and kind.is_type_obj():
            owners = [kind.type_object()]
        for word in call.keywords:
            if not word.arg:
                continue
            new = None
            for info in owners:
                new = walk.new_member(info, word.arg) or table.parameters.get(f"{info.fullname}.__init__.{word.arg}")
                if new:
                    break
            if not new and function:
                new = table.parameters.get(f"{function}.{word.arg}")
            if new:
                walk.edits.add(walk.path, word.lineno, word.col_offset, word.arg, new)


def parameters(walk: Walk, module: str, tree: ast.Module) -> None:
    """Parameters by their functions: the argument and each use in the body."""
    table = walk.table

    def visit(node: ast.AST, prefix: str) -> None:
        for n in ast.iter_child_nodes(node):
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
                full = f"{prefix}.{n.name}"
                args = [
                    *n.args.posonlyargs,
                    *n.args.args,
                    *n.args.kwonlyargs,
                    *filter(None, (n.args.vararg, n.args.kwarg)),
                ]
                for arg in args:
                    new = table.parameters.get(f"{full}.{arg.arg}")
                    if not new:
                        continue
                    walk.edits.add(walk.path, arg.lineno, arg.col_offset, arg.arg, new)
                    if any(isinstance(x, ast.Name) and x.id == new for x in ast.walk(n)):
                        walk.edits.doubts.append(f"{walk.path}:{n.lineno}: parameter {new} of {full} clashes")
                    for statement in n.body:
                        for x in ast.walk(statement):
                            if isinstance(x, ast.Name) and x.id == arg.arg:
                                walk.edits.add(walk.path, x.lineno, x.col_offset, arg.arg, new)
                visit(n, full)
            elif isinstance(n, ast.ClassDef):
                visit(n, f"{prefix}.{n.name}")
            else:
                visit(n, prefix)

    visit(tree, module)


def nested(walk: Walk, module: str, tree: ast.Module) -> None:
    """Functions within functions: their uses are in the body around them."""

    def visit(node: ast.AST, prefix: str, around: ast.AST | None) -> None:
        for n in ast.iter_child_nodes(node):
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                full = f"{prefix}.{n.name}"
                if around is not None and (new := walk.table.new.get(full)):
                    for x in ast.walk(around):
                        if isinstance(x, ast.Name) and x.id == n.name:
                            walk.edits.add(walk.path, x.lineno, x.col_offset, n.name, new)
                        elif isinstance(x, ast.Nonlocal) and n.name in x.names:
                            walk.edits.doubts.append(f"{walk.path}:{x.lineno}: nonlocal {n.name}")
                visit(n, full, n if not isinstance(n, ast.ClassDef) else None)
            else:
                visit(n, prefix, around)

    visit(tree, module, None)


def globals_(walk: Walk, module: str, tree: ast.Module) -> None:
    for x in ast.walk(tree):
        if isinstance(x, (ast.Global, ast.Nonlocal)):
            for name in x.names:
                if new := walk.table.new.get(f"{module}.{name}"):
                    line = walk.lines[x.lineno - 1]
                    if m := re.search(rf"\b{name}\b", line):
                        walk.edits.add(walk.path, x.lineno, len(line[: m.start()].encode()), name, new)


def strings(walk: Walk, tree: ast.Module) -> None:
    """`setattr(x, "name")`, `monkeypatch.setattr("a.b.c", ...)`, `getattr(x, "name")`, `__all__`."""
    table = walk.table
    nodes: dict[tuple[int, int], Expression] = {}

    class Find(TraverserVisitor):
        def visit_call_expr(self, o: CallExpr) -> None:
            super().visit_call_expr(o)
            if o.args:
                nodes[o.line, o.column] = o.args[0]

    ACCEPT(Find(), walk.tree)
    for x in ast.walk(tree):
        if isinstance(x, ast.Call) and isinstance(x.func, (ast.Attribute, ast.Name)):
            name = x.func.attr if isinstance(x.func, ast.Attribute) else x.func.id
            if name in ("setattr", "getattr", "hasattr", "delattr", "object") and x.args:
                first = x.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and "." in first.value:
                    if new := table.new.get(first.value):
                        head, tail = first.value.rsplit(".", 1)
                        walk.edits.add(walk.path, first.lineno, first.col_offset + 1 + len(head) + 1, tail, new)
                elif len(x.args) > 1 and isinstance(x.args[1], ast.Constant) and x.args[1].value in table.simple:
                    word = x.args[1]
                    node = nodes.get((x.lineno, x.col_offset))
                    new = None
                    if isinstance(node, RefExpr) and isinstance(node.node, MypyFile):
                        new = table.new.get(f"{node.node.fullname}.{word.value}")
                        if not new and (symbol := node.node.names.get(word.value)) and symbol.node:
                            new = table.new.get(symbol.node.fullname)
                    elif isinstance(node, RefExpr) and isinstance(node.node, TypeInfo):
                        new = walk.new_member(node.node, word.value)
                    elif node is not None:
                        new = next(
                            (n for info in infos(walk.types.get(node)) if (n := walk.new_member(info, word.value))),
                            None,
                        )
                    if new:
                        walk.edits.add(walk.path, word.lineno, word.col_offset + 1, word.value, new)
                    else:
                        walk.edits.doubts.append(f'{walk.path}:{x.lineno}: {name} "{word.value}" is not resolved')


def listed(walk: Walk, tree: ast.Module) -> None:
    """Names in `__all__`."""
    for s in tree.body:
        targets = (
            s.targets
            if isinstance(s, ast.Assign)
            else [s.target]
            if isinstance(s, (ast.AnnAssign, ast.AugAssign))
            else []
        )
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets) and s.value is not None:  # type: ignore[attr-defined]
            for x in ast.walk(s.value):  # type: ignore[attr-defined]
                if (
                    isinstance(x, ast.Constant)
                    and isinstance(x.value, str)
                    and (symbol := walk.tree.names.get(x.value))
                    and symbol.node
                ):
                    full = symbol.node.fullname
                    if (new := walk.table.new.get(full)) and full.rsplit(".", 1)[1] == x.value:
                        walk.edits.add(walk.path, x.lineno, x.col_offset + 1, x.value, new)


def main() -> int:
    write = "--write" in sys.argv
    root, *paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    os.chdir(root)
    sys.path.insert(0, root)
    table = Table(paths)
    options = Options()
    parse_config_file(options, lambda: None, "pyproject.toml", sys.stdout, sys.stderr)
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    options.python_executable = sys.executable
    sources = create_source_list(list(options.files or ()), options)
    result = build.build(sources, options)
    print(f"{len(result.errors)} errors of mypy, {len(result.files)} files")
    edits = Edits()
    str(Path(root).resolve())
    TREES.update(result.files)
    mro: dict[str, TypeInfo] = {}
    trees = []
    ours = {s.module for s in sources}
    for name, tree in result.files.items():
        if name not in ours:
            continue
        trees.append((name, tree))
        stack = [tree.names]
        while stack:
            for symbol in stack.pop().values():
                if isinstance(symbol.node, TypeInfo) and symbol.node.fullname not in mro:
                    mro[symbol.node.fullname] = symbol.node
                    stack.append(symbol.node.names)
    for name, tree in trees:
        source = Path(tree.path).read_text(encoding="utf-8")
        parsed = ast.parse(source)
        lines = source.split("\n")
        walk = Walk(tree, table, result.types, edits, source)
        ACCEPT(walk, tree)
        definitions(name, parsed, table, tree.path, lines, edits, mro)
        imported = {key: symbol.node.fullname for key, symbol in tree.names.items() if symbol.node is not None}
        Rest(walk, imported).visit(parsed)
        keywords(walk, parsed)
        parameters(walk, name, parsed)
        nested(walk, name, parsed)
        listed(walk, parsed)
        globals_(walk, name, parsed)
        strings(walk, parsed)
    # A new name that a file has already for something else.
    count = 0
    for path, found in sorted(edits.of.items()):
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        names = {x.id for x in ast.walk(ast.parse("\n".join(lines))) if isinstance(x, ast.Name)}
        for (line, column), (old, new) in list(found.items()):
            raw = lines[line - 1].encode()
            if raw[column : column + len(old.encode())] != old.encode():
                # Python 3.11 has no true columns within f-strings.
                hits = [m.start() for m in re.finditer(rb"(?<![\w])" + old.encode() + rb"(?![\w])", raw)]
                free = [h for h in hits if (line, h) not in found]
                del found[line, column]
                if len(free) == 1:
                    found[line, free[0]] = (old, new)
                else:
                    edits.doubts.append(f"{path}:{line}:{column}: {old} is not there ({len(free)})")
        for new in {new for old, new in found.values()} & names:
            edits.doubts.append(f"{path}: {new} is a name there already")
        if write:
            for (line, column), (old, new) in sorted(found.items(), reverse=True):
                raw = lines[line - 1].encode()
                if raw[column : column + len(old.encode())] == old.encode():
                    lines[line - 1] = (raw[:column] + new.encode() + raw[column + len(old.encode()) :]).decode()
            Path(path).write_text("\n".join(lines), encoding="utf-8")
        count += len(found)
    print("\n".join(sorted(set(edits.doubts))))
    print("not visited:", missing)
    print(f"{count} places in {len(edits.of)} files, {len(set(edits.doubts))} doubts")
    return 0


sys.exit(main())
