"""The profile of reshapable.py, and what that program makes: one for all tests."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).parent / "reshapable.py"
TEXT = """
[field]
match = { program = ["reshapable.py"] }
stop = { signal = "USR1", to = "ranks" }
stopped = { codes = [85], line = "^stopped after step" }
finished = { codes = [0], line = "^done at step" }
state = ["state.json"]
resume = { prepare = ["echo {before} to {ranks} >> prepared"] }
ranks = { min = 1, shape = "any" }
grace_s = 20
progress = { line = "^step +(\\\\d+)", total = "^steps +(\\\\d+)" }
compare = { how = "bits", files = ["result.txt"] }
"""


def total(steps: int) -> str:
    """What the program writes at its end, whatever its widths were."""
    found = 0
    for step in range(1, steps + 1):
        found = (31 * found + step) % 1_000_003
    return f"{found}\n"
