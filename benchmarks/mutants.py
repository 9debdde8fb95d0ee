"""How many planted faults the tests catch, and which test catches each.

    python benchmarks/mutants.py [--all] [--only NAME ...] [--golden] [--tests PATH ...] [--nightly] [--list]
                                 [-n PROCESSES]

Each fault of `planted.py` is planted by itself in a copy of the tree (what git knows of it, as it stands), where the
tests run that should see it: those that its line in the table names; with `--golden` the recorded days alone, with
`--tests` these, with `--all` all unit tests; none on PostgreSQL. Of each file those run that the default run keeps;
with `--nightly` all of it. The first that fails runs once more on the copy as it
is: what fails there, too, says nothing about the fault. It ends with 1 where a fault survived, or its text was not
found exactly once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planted import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("ejbd", "workers")
GOLDEN = "unit/test_golden_days"
LONGEST_S = 900.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one fault. `by`: the first test that failed, or why there is no answer."""

    fault: Fault
    what: str  # caught | SURVIVED | NOT FOUND | NO ANSWER
    by: str
    seconds: float = 0.0


def copy_of_tree(into: Path) -> None:
    """All files that git knows, as they stand in the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, into / name
        if source.is_file() or source.is_symlink():  # a link leads to the copy's own files
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def sources(tree: Path) -> dict[Path, str]:
    """Every file in which a fault may be planted, and its text."""
    paths = [path for room in SOURCES for path in sorted((tree / room).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in paths}


def places(texts: dict[Path, str], text: str) -> list[Path]:
    """The file of each place where a text stands."""
    return [path for path, whole in texts.items() for _ in range(whole.count(text))]


def run(tree: Path, tests: Sequence[str], processes: int, whole: bool) -> tuple[str | None, str]:
    """The first test that failed (None: none did), and why there is no answer ("" where there is one)."""
    words = [f"tests/{test}.py" if not test.startswith("tests") else test for test in tests]
    there = [word for word in words if (tree / word.partition("::")[0]).exists()]
    if not there:
        return None, f"none of its tests is there: {', '.join(words)}"
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-m", "not postgresql"]
    argv += [*there, "--ignore=tests/unit/test_planted.py"]  # it sees that the sources are others, whatever the fault
    argv += ["-n", str(processes), "--dist", "loadgroup"] if processes > 1 else []
    # The copy comes before an editable install of the tree itself, in the processes that tests start, too.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["EJB_TEST_ALL"] = "1" if whole else ""
    try:
        done = subprocess.run(
            argv, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return f"(did not end within {LONGEST_S:g} s)", ""
    failed = _FAILED.search(done.stdout)
    if done.returncode == 0:
        return None, ""
    if failed is not None:
        return failed[1], ""
    if done.returncode in (1, 2):  # the tests could not even be collected
        return "(collection)", ""
    return None, f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def judge(tree: Path, fault: Fault, tests: Sequence[str], processes: int, whole: bool) -> Verdict:
    """Plant, run, and take the fault out again."""
    found = places(sources(tree), fault.old)
    if len(found) != 1:
        where = ", ".join(str(path.relative_to(tree)) for path in found) or "nowhere"
        return Verdict(fault, "NOT FOUND", f"its text stands {len(found)} times ({where})")
    path, began = found[0], time.monotonic()
    kept = path.read_text(encoding="utf-8")
    path.write_text(kept.replace(fault.old, fault.new), encoding="utf-8")
    try:
        by, trouble = run(tree, tests, processes, whole)
    finally:
        path.write_text(kept, encoding="utf-8")
    if by is not None and "::" in by and run(tree, [by], 1, whole)[0] is not None:
        trouble = f"{by} fails without it, too"
    took_s = time.monotonic() - began
    if trouble:
        return Verdict(fault, "NO ANSWER", trouble, took_s)
    return Verdict(fault, "SURVIVED" if by is None else "caught", by or "", took_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="run all unit tests for each fault")
    parser.add_argument("--golden", action="store_true", help="run the recorded days alone")
    parser.add_argument("--tests", nargs="+", default=[], help="run these instead: files below tests/")
    parser.add_argument("--nightly", action="store_true", help="of each file what the nightly run adds, too")
    parser.add_argument("--only", nargs="+", default=[], help="plant these faults alone")
    parser.add_argument("--list", action="store_true", help="say where each fault would be planted, and run nothing")
    parser.add_argument("-n", type=int, default=1, dest="processes", help="processes of pytest (default 1)")
    asked = parser.parse_args()
    faults = [fault for fault in FAULTS if not asked.only or fault.name in asked.only]
    if unknown := set(asked.only) - {fault.name for fault in FAULTS}:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    if asked.list:
        texts = sources(ROOT)
        for fault in faults:
            found = [str(path.relative_to(ROOT)) for path in places(texts, fault.old)]
            print(f"{fault.name:36} {fault.kind:18} {', '.join(found) or 'NOT FOUND'}")
        return int(any(len(places(texts, fault.old)) != 1 for fault in faults))
    same = ["tests/unit"] if asked.all else [GOLDEN] if asked.golden else asked.tests
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="ejb-mutants-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder)
        copy_of_tree(tree)
        for fault in faults:
            verdict = judge(tree, fault, same or fault.tests, asked.processes, asked.nightly)
            verdicts.append(verdict)
            print(
                f"{fault.name:36} {fault.kind:18} {verdict.what:10} {verdict.seconds:5.0f} s  {verdict.by}", flush=True
            )
    caught = sum(verdict.what == "caught" for verdict in verdicts)
    print(f"\n{caught} of {len(verdicts)} faults were caught")
    return int(caught < len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
