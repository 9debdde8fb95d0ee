"""A job's rows, and what `ejb explain` says of it, on days that are drawn: what sentences are held against."""

from __future__ import annotations

import asyncio
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from ejbd.cli.output import Output
from ejbd.cli.show import jobs as showing
from ejbd.manager.telling.told import ToldExplanation
from ejbd.store.models import Epoch, Job, Subjob
from ejbd.store.store import Store
from ejbd.wire.kinds import SubjobRole
from tests.fakes.days import Day, Plan, numbered_tokens

HAPPENS = {
    **{"command": 6.0, "script": 4.0, "small": 2.0, "engineless": 4.0, "rival": 4.0, "rival_leaves": 1.0},
    **{"hold": 1.0, "unhold": 1.0, "suspended": 1.0, "brought_forward": 2.0, "warned": 1.0, "obstacle": 1.0},
    **{"worker_slow": 1.0, "worker_silent": 1.0, "queue_set": 1.0, "queue_on": 1.0, "rank_fails": 0.5},
}
D = TypeVar("D", bound=Day)
CROWD = ((8, 60.0), (8, 150.0), (8, 260.0), (4, 1500.0))


def play_day(kind: type[D], folder: Path, tables: Path, commands: str, seed: int, steps: int) -> D:
    """Play a day of a seed on a copy of the database `tables`; `commands`: a PATH with DMTCP's."""
    shutil.copyfile(tables, folder / "ejbd.sqlite")
    store = Store(f"sqlite:///{folder / 'ejbd.sqlite'}")
    engines = ("application", "dmtcp", "none")
    plan = Plan("told", seed, steps, HAPPENS, {"first_checkpoint_s": 20.0}, engines, crowd=CROWD)
    try:
        with numbered_tokens(), pytest.MonkeyPatch.context() as patched:
            patched.setenv("PATH", commands)
            day = kind(folder, store, plan)
            asyncio.run(day.play())
    finally:
        store.close()
    return day


@dataclass
class Facts:
    """A job's rows, and what is said of it as people read it."""

    job: Job
    subjobs: list[Subjob]
    epoch: Epoch | None
    told: ToldExplanation
    printed: str
    now_s: float

    def rows(self) -> str:
        """What there is of it, for a failure."""
        held = [(s.id, s.role, s.state, s.releasing) for s in self.subjobs]
        return f"{self.job.state} {self.job.kind} on {self.job.members}, {held}, {self.epoch and self.epoch.state}"

    @property
    def j0(self) -> Subjob | None:
        kept = (s for s in self.subjobs if s.role == SubjobRole.PLACEHOLDER and not s.releasing)
        return next((s for s in kept if s.state in OPEN), None)

    @property
    def on_j0(self) -> bool:
        return self.j0 is not None and self.j0.state == "running" and self.j0.id in self.job.members

    @property
    def runs(self) -> bool:
        """Whether its ranks run."""
        return self.job.state == "running" and self.epoch is not None and self.epoch.state == "running"

    @property
    def full_width(self) -> bool:
        return self.epoch is not None and self.epoch.processors >= self.epoch.size

    @property
    def asked(self) -> list[Subjob]:
        """Subjobs that have not begun."""
        kept = (s for s in self.subjobs if s.role == SubjobRole.SUBJOB and not s.releasing)
        return [s for s in kept if s.state in ("planned", "pending")]

    @property
    def awaited(self) -> bool:
        return bool(self.asked)

    @property
    def nodes(self) -> set[str]:
        """On which its subjobs are."""
        return {node for s in self.subjobs if s.id in self.job.members for node in s.nodes}

    @property
    def processors(self) -> int:
        """On which its ranks run."""
        return self.epoch.processors if self.epoch is not None else 0

    @property
    def back_from_a_checkpoint(self) -> bool:
        return any(move["restart_s"] is not None for move in self.told["moves"])

    @property
    def movable(self) -> bool:
        return self.told["movable"] is None or self.told["movable"]["movable"] is not False

    @property
    def is_cut_off(self) -> bool:
        """Whether it ends with its processors: it can be neither moved nor suspended."""
        return not self.movable or (self.job.kind == "script" and not self.job.spec["restartable"])

    @property
    def saved_off_j0(self) -> bool:
        """Whether J0 ends before its time, which is a reason to leave it."""
        j0 = self.j0
        return j0 is not None and (j0.warned or (j0.end_s or math.inf) < (j0.start_s or 0.0) + j0.walltime_s - 2.0)


OPEN = ("planned", "pending", "running", "suspended")


class Kept(Output):
    """Keeps what a command prints."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def line(self, text: str = "") -> None:
        self.kept.append(text)


async def facts_of(day: Day, id: str) -> Facts:
    """Of a job as it is now."""
    told = await day.live.manager.explain(id)
    out = Kept()
    showing.explanation(dict(told), out)
    epochs = [one for one in day.live.epochs(id) if one.state in ("launching", "running", "stopping")]
    epoch = epochs[-1] if epochs else None
    text, now_s = "\n".join(out.kept), day.live.clock.now
    return Facts(day.live.job(id), day.live.subjobs(id), epoch, told, text, now_s)
