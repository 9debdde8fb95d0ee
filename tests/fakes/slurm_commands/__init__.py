"""Slurm's commands with faults on demand: put `FaultyCommands(folder).path` before the daemon's or adapter's PATH.

Faults: `hang`; `done-then-hang`, `done-then-lost`, `done-then-silent` (carried out, but the answer does not come);
`nothing`, `garbage`, `torn`, `endless` (what is answered); `late` (of sbatch: the job may
start in 9 s); any other text is written to stderr with exit code 1.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

NAMES = ("sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct")
UNREACHABLE = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


class FaultyCommands:
    """A folder of stand-ins that hand over to the real commands where no fault is set. Every call is counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            (folder / name).symlink_to(Path(__file__).with_name("command"))

    @property
    def path(self) -> str:
        """A PATH on which the stand-ins come first."""
        return f"{self.folder}:{os.environ.get('PATH', '/usr/bin:/bin')}"

    def fault(self, name: str, kind: str, *, once: bool = False) -> None:
        """From now on (or for the next call only) `name` has this fault."""
        file = self.folder / f"{name}.{'once' if once else 'fault'}"
        temporary = file.with_suffix(".new")
        temporary.write_text(kind)
        temporary.rename(file)

    def mend(self, name: str) -> None:
        for suffix in ("once", "fault"):
            (self.folder / f"{name}.{suffix}").unlink(missing_ok=True)

    def calls(self) -> Counter[str]:
        """How often each command was called."""
        file = self.folder / "calls"
        return Counter(file.read_text().split()) if file.exists() else Counter()
