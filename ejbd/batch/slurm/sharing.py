"""Whether Slurm lets two jobs start on the same processors: what folding jobs of two allocations in place takes.

Slurm takes no processors of a job that runs, only whole nodes. Where a partition has OverSubscribe=YES:2 or FORCE:2,
two jobs may start on the same ones, and could keep to disjoint halves of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Check = tuple[str, bool, str]

_SETTING = re.compile(r"^PartitionName=(\S+) .*\bOverSubscribe=(\S+)", re.MULTILINE)
_DEFAULT_SHARES = 4  # Slurm's own where YES or FORCE has no number


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a partition says: `word` as it stands there, and how many jobs may share a processor."""

    partition: str
    word: str

    @property
    def jobs(self) -> int:
        kind, _, number = self.word.partition(":")
        if kind not in ("YES", "FORCE"):
            return 1
        return int(number) if number.isdigit() else _DEFAULT_SHARES

    @property
    def forced(self) -> bool:
        """Whether jobs share without having asked for it."""
        return self.word.startswith("FORCE")


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """Every partition that this user may see."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["scontrol", "--oneliner", "show", "partitions"]

    def parse(self, text: str) -> list[Sharing]:
        return [Sharing(name, word) for name, word in _SETTING.findall(text)]


def check_sharing(found: list[Sharing]) -> Check:
    """For `ejb doctor`: which partitions let two jobs start on the same processors. No site has to."""
    shared = [one for one in found if one.jobs > 1]
    if not shared:
        what = "no partition has OverSubscribe=YES:2: two jobs never start on the same processors"
        return "shared processors", True, what
    names = ", ".join(f"{one.partition} (OverSubscribe={one.word})" for one in shared)
    text = f"two jobs may start on the same processors in {names}"
    if not all(one.forced for one in shared):
        text += "; with YES only those that ask for it (--oversubscribe)"
    if any(one.jobs > 2 for one in shared):
        text += "; more than two may where it is not :2"
    return "shared processors", True, text
