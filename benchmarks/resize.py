"""How long does a resize take, in place, beside a move by a checkpoint?

    python benchmarks/resize.py [--ranks 16] [--runs 9]

A real worker with so many paced ranks (examples/paced.c), bound to the CPUs that there are. By turns they are folded
onto half of the processors, unfolded, and moved by a checkpoint and a restart (engine application), all without a
daemon: an operation until its answer, as the manager would see it. Aim, on a quiet machine: a resize below 50 ms.
Last, how many times as long a run takes on half of its processors: ranks hold these by sleeping, so it is to be 2. A
run that is folded halfway, and unfolded, has to have the result that the program says beforehand.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import ROOT, machine, spread
from tests.fakes.worker_process import World, world

PATIENCE_S = 120.0
PACE_MS = 100  # what a rank waits for its turn beyond the other's is a small part of that
STEPS = (50, 150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--runs", type=int, default=9)
    asked = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="ejb-bench-") as folder:
        program = Path(folder) / "paced"
        subprocess.run(["cc", "-O2", "-o", str(program), str(ROOT / "examples" / "paced.c")], check=True, timeout=120)
        spool = Path(folder) / "spool"
        spool.mkdir()
        with world(spool) as there:
            found = play(there, program, asked.ranks, asked.runs)
        stretch = []
        apart = Path(folder) / "spool-result"
        apart.mkdir()
        with world(apart) as there:
            same = same_result(there, program, asked.ranks)
        for at in range(4):
            apart = Path(folder) / f"spool-{at}"
            apart.mkdir()
            with world(apart) as there:
                stretch.append(whole_run(there, program, asked.ranks, STEPS[at % 2], folded=at > 1))
    for name, seconds in found.items():
        print(f"{name}: {spread([1000.0 * one for one in seconds])} ms")
    # Without start and end: what the steps take by which the longer run is longer.
    whole, folded = stretch[1] - stretch[0], stretch[3] - stretch[2]
    print(f"{STEPS[1] - STEPS[0]} steps of {PACE_MS} ms:")
    print(f"{asked.ranks} ranks on as many virtual processors: {whole:.2f} s")
    print(f"folded onto half of them: {folded:.2f} s, {folded / whole:.3f} times as long")
    print(f"folded and unfolded meanwhile, the result is {'the same' if same else 'ANOTHER'}; {machine()}")


def play(there: World, program: Path, ranks: int, runs: int) -> dict[str, list[float]]:
    """Seconds of each, by its name."""
    cpus = len(os.sched_getaffinity(0))
    there.start(processors=cpus)
    words = [str(program), "--steps", "1000000", "--pace", "1ms"]
    file = there.launch_file(*words, size=ranks)

    def placed(processors: int) -> list[dict[str, int]]:
        return [{"rank": rank, "processor": rank % processors} for rank in range(ranks)]

    def launch(epoch: int, restart: int | None) -> None:
        payload = there.launch_payload(file, ranks=ranks, epoch=epoch, restart=restart)
        run(there, "launch", {**payload, "ranks": placed(cpus)}, epoch)

    launch(1, None)
    time.sleep(1.0)  # until they have met
    found: dict[str, list[float]] = {name: [] for name in ("fold", "fold, in the worker", "unfold", "move")}
    for epoch in range(1, runs + 1):
        for name, processors in (("fold", max(1, cpus // 2)), ("unfold", cpus)):
            payload = {"epoch": epoch, "ranks": placed(processors)}
            seconds, data = timed(functools.partial(run, there, "resize", payload, epoch))
            found[name].append(seconds)
            if name == "fold":
                found["fold, in the worker"].append(data["seconds"])

        def move(epoch: int = epoch) -> dict[str, Any]:
            run(there, "checkpoint", {"epoch": epoch, "timeout_s": PATIENCE_S}, epoch)
            launch(epoch + 1, epoch)
            return {}

        found["move"].append(timed(move)[0])
        time.sleep(0.5)
    return found


def whole_run(there: World, program: Path, ranks: int, steps: int, folded: bool) -> float:
    """Seconds that a run of so many steps takes on `ranks` virtual processors, or folded at once onto half."""
    there.start(processors=ranks)
    file = there.launch_file(str(program), "--steps", str(steps), "--pace", f"{PACE_MS}ms", size=ranks)
    payload = there.launch_payload(file, ranks=ranks)
    run(there, "launch", {**payload, "ranks": [{"rank": rank, "processor": rank} for rank in range(ranks)]}, 1)
    begin = time.monotonic()
    if folded:
        run(there, "resize", {"epoch": 1, "ranks": [{"rank": r, "processor": r // 2} for r in range(ranks)]}, 1)
    there.exits(ranks)
    return time.monotonic() - begin


def same_result(there: World, program: Path, ranks: int) -> bool:
    """Whether a run that is folded and unfolded ends as the program foretells."""
    result = there.spool / "result"
    words = [str(program), "--steps", "60", "--pace", f"{PACE_MS}ms"]
    said = subprocess.run([*words[:3], "--expect", str(ranks)], capture_output=True, text=True, check=True, timeout=60)
    there.start(processors=ranks)
    file = there.launch_file(*words, "--result", str(result), size=ranks)
    payload = there.launch_payload(file, ranks=ranks)
    run(there, "launch", {**payload, "ranks": [{"rank": rank, "processor": rank} for rank in range(ranks)]}, 1)
    for a_processor in (2, 1):
        time.sleep(1.0)
        run(
            there,
            "resize",
            {"epoch": 1, "ranks": [{"rank": r, "processor": r // a_processor} for r in range(ranks)]},
            1,
        )
    there.exits(ranks)
    return result.read_text() == said.stdout


def run(there: World, kind: str, payload: dict[str, Any], epoch: int) -> dict[str, Any]:
    result = there.manager.run(kind, payload, epoch=epoch, seconds=PATIENCE_S)
    if not result["ok"]:
        raise SystemExit(f"{kind}: {result['error']}")
    data: dict[str, Any] = result["data"]
    return data


def timed(call: Callable[[], dict[str, Any]]) -> tuple[float, dict[str, Any]]:
    begin = time.monotonic()
    data = call()
    return time.monotonic() - begin, data


if __name__ == "__main__":
    main()
