"""The jobs of a soak: what each kind is, what its program makes of itself, and what has been done to each."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.daemon import Daemon

RANKS = 4
STEPS = (30, 150, 350)  # of 40 ms: over at once, some seconds, long enough to be moved and hit
HOSTILE = (
    "a b|c\td",
    "%j%x%a",
    "$(touch /tmp/ejb-soak-was-run)",
    "`id`;'\"\\",
    "ejb-0.0",
    "n[1-2000000]",
    "é\u202eλ\U0001f600",
    "JobState=COMPLETED ExitCode=0:0",
    "x" * 600,
)
"""Names of jobs, by somebody who means no good. Slurm takes them all, and shows them as they are."""
TAKEN = tuple(name for name in HOSTILE if (len(name) <= 200 and name.isprintable()) or "\u202e" in name)
"""Those that EJB takes, too."""

KINDS: dict[str, float] = {
    "application": 5,
    "none": 2,
    "script": 2,
    "restartable": 1,
    "failing": 1,
    "late": 0.5,
    "cancelled": 1,
    "rigid": 3,
    "rigid-failing": 1,
    "rigid-late": 0.3,
}
"""Kinds of jobs, and how often each comes."""

OF_ITSELF: dict[str, tuple[str, int | None]] = {
    **dict.fromkeys(("application", "none", "script", "restartable", "cancelled", "rigid"), ("completed", 0)),
    **dict.fromkeys(("failing", "rigid-failing"), ("failed", 7)),
    **dict.fromkeys(("late", "rigid-late"), ("timeout", None)),
}
"""What becomes of one to whom nobody does anything: state and exit code (None: any)."""


@dataclass(frozen=True, slots=True)
class Done:
    """Something that was done to a job. `to`: a tag, or a rank. `at`: monotonic seconds."""

    # worker killed | worker stopped | rank killed | scancel | node lost | controller killed | cancel asked | cancel
    what: str
    to: str
    at: float = field(default_factory=time.monotonic)


@dataclass
class Sent:
    """One submission."""

    key: str
    kind: str
    steps: int = STEPS[0]
    name: str = ""
    cancel_after_s: float = 0.0
    id: str = ""
    done: list[Done] = field(default_factory=list)
    submitted_at: float = 0.0
    over_at: float | None = None  # when it was seen to be over

    @property
    def passed_through(self) -> bool:
        return self.kind.startswith("rigid")

    def suffered(self, *whats: str) -> list[Done]:
        return [one for one in self.done if one.what in whats]

    def result(self, folder: Path) -> Path:
        return folder / f"{self.key}.result"

    def output(self, folder: Path) -> Path:
        return folder / f"{self.key}.out"

    def runs(self, folder: Path) -> Path:
        """A line for each time that its script began: written where no disk fills up."""
        return folder / f"{self.key}.runs"


def any_kind(dice: random.Random, key: str, slow: bool = True) -> Sent:
    """`slow`: also such as take a minute or two by their nature."""
    kinds = {kind: weight for kind, weight in KINDS.items() if slow or "late" not in kind}
    sent = Sent(key, dice.choices(list(kinds), weights=list(kinds.values()))[0])
    sent.steps = dice.choice(STEPS)
    sent.name = dice.choice(TAKEN) if dice.random() < 0.3 else key
    if sent.kind == "cancelled":
        sent.cancel_after_s = dice.random() * 15
    return sent


def post(sent: Sent, daemon: Daemon, folder: Path, layout: dict[str, Any]) -> str:
    """Submit it once; its id. Raises httpx.HTTPError, or AssertionError where it was not taken."""
    off = {"elastic": "off", "engine": "none"}
    heat = daemon.heat(sent.steps, sent.result(folder), "40ms")
    common: dict[str, Any] = {"name": sent.name, "output": str(sent.output(folder))}
    begin = f"#!/bin/sh\necho run >> '{sent.runs(folder)}'\necho begin\n"
    match sent.kind:
        case "application" | "none" | "cancelled":
            engine = "none" if sent.kind == "none" else "application"
            what: dict[str, Any] = {"ranks": RANKS, "overrides": {**layout, "engine": engine}}
            answer = daemon.post_job(*heat, time="5:00", key=sent.key, **_with(what, common))
        case "script" | "restartable":
            quoted = " ".join(f"'{word}'" for word in heat)
            script = f"{begin}srun {quoted} || exit $?\necho end\n"
            what = {"ranks": RANKS, "overrides": {**layout, "elastic": "on"}, "script": script}
            if sent.kind == "restartable":
                what["overrides"]["restartable"] = True
            answer = daemon.post_job(time="5:00", key=sent.key, **_with(what, common))
        case "failing" | "late":
            ends, limit = ("sleep 2; exit 7", "5:00") if sent.kind == "failing" else ("exec sleep 400", "1:00")
            what = {"ranks": 2, "overrides": {"engine": "none"}}  # one would be passed through
            answer = daemon.post_job("sh", "-c", f"echo begin; {ends}", time=limit, key=sent.key, **_with(what, common))
        case _:
            rest = {"rigid": "sleep 3\necho end", "rigid-failing": "sleep 2\nexit 7", "rigid-late": "sleep 400"}
            what = {"ranks": 1, "overrides": off, "script": f"{begin}{rest[sent.kind]}\n"}
            limit = "1:00" if sent.kind == "rigid-late" else "5:00"
            answer = daemon.post_job(time=limit, key=sent.key, **_with(what, common))
    return str(answer["id"])


def _with(what: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    return {**what, "overrides": {**common, **what["overrides"]}}
