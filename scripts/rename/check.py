"""Check a table of names against the code: `python scripts/rename/check.py core`."""

import ast
import collections
import csv
import keyword
import pathlib
import sys

root = pathlib.Path.cwd()
defs = {}  # qualified -> kind
modules = {}
for base in ("ejbd", "workers"):
    for p in sorted(root.glob(base + "/**/*.py")):
        if any(q.is_symlink() for q in (p, *p.parents)):
            continue
        rel = p.relative_to(root).with_suffix("")
        parts = rel.parts
        name = ".".join(parts).removesuffix(".__init__")
        modules[name] = p

        def walk(node, prefix, in_class):
            for n in ast.iter_child_nodes(node):
                if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    defs[f"{prefix}.{n.name}"] = "method" if in_class else "function"
                    for a in (*n.args.posonlyargs, *n.args.args, *n.args.kwonlyargs):
                        defs.setdefault(f"{prefix}.{n.name}.{a.arg}", "parameter")
                    walk(n, f"{prefix}.{n.name}", False)
                elif isinstance(n, ast.ClassDef):
                    defs[f"{prefix}.{n.name}"] = "class"
                    walk(n, f"{prefix}.{n.name}", True)
                elif isinstance(n, (ast.Assign, ast.AnnAssign)):
                    for t in n.targets if isinstance(n, ast.Assign) else [n.target]:
                        for x in ast.walk(t):
                            if isinstance(x, ast.Name):
                                defs.setdefault(f"{prefix}.{x.id}", "field" if in_class else "constant")
                            elif (
                                isinstance(x, ast.Attribute) and isinstance(x.value, ast.Name) and x.value.id == "self"
                            ):
                                defs.setdefault(f"{prefix.rsplit('.', 1)[0]}.{x.attr}", "field")
                else:
                    walk(n, prefix, in_class)

        walk(ast.parse(p.read_text()), name, False)
who = sys.argv[1]
rows = list(csv.reader(pathlib.Path(f"scripts/rename/names/{who}.csv").read_text(encoding="utf-8").splitlines()))
new, target, bad = {}, {}, []
for row in rows:
    if len(row) != 3:
        bad.append(f"not three columns: {row}")
        continue
    kind, old, value = row
    if kind == "module":
        if old not in modules:
            bad.append(f"no module {old}")
        target[old] = value
    elif kind == "override":
        if old not in defs:
            bad.append(f"no {old}")
    else:
        if old not in defs:
            bad.append(f"no {kind} {old}")
        if not value.isidentifier() or keyword.iskeyword(value):
            bad.append(f"not a name: {value}")
        if old in new:
            bad.append(f"twice: {old}")
        new[old] = value
mine = set(target)
seen = collections.defaultdict(list)
one = total = 0
left = []
for old, kind in defs.items():
    if kind not in ("function", "method", "class"):
        continue
    mod = next((m for m in (old.rsplit(".", k)[0] for k in range(1, old.count(".") + 1)) if m in modules), None)
    if mod not in mine:
        continue
    name = new.get(old, old.rsplit(".", 1)[1])
    if kind != "class" and not name.startswith("__") and target[mod] != "LEAVES":
        total += 1
        if "_" not in name.strip("_"):
            one += 1
            if kind == "function" and old.rsplit(".", 1)[0] == mod:
                left.append(old)
    if old.rsplit(".", 1)[0] == mod and target[mod] != "LEAVES":
        seen[(target[mod], name)].append(old)
print("\n".join(bad[:60]))
for (t, n), olds in seen.items():
    if len(olds) > 1 and not n.startswith("__"):
        print(f"clash in {t}: {n}: {olds}")
lines = collections.Counter()
for m, t in target.items():
    lines[t] += modules[m].read_text().count("\n") if m in modules else 0
for t, n in sorted(lines.items()):
    if t != "LEAVES" and (n > 550 or n < 80):
        print(f"size {n}: {t}")
print(f"{who}: {len(rows)} lines, {len(mine)} modules -> {len(set(target.values()))}")
print(f"one word: {one} of {total} = {one / max(total, 1):.0%}; at module level: {left[:40]}")
