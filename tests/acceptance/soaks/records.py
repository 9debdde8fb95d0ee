"""What the batch system itself says of its jobs, gathered while a soak goes on, and not by EJB's own readers."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from subprocess import SubprocessError

from ejbd.batch.base import tag_in
from tests.acceptance.sites import Site, SlurmSite

_COLUMNS = (("JobID", 14), ("State", 18), ("exit_code", 12), ("RestartCnt", 8), ("Comment", 200))
_STATES = {
    **{name: name.lower() for name in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")},
    "NODE_FAIL": "lost",
    "BOOT_FAIL": "lost",
    "PREEMPTED": "lost",
    "OUT_OF_MEMORY": "failed",
}


@dataclass(frozen=True, slots=True)
class End:
    """How a batch job ended: completed | failed | timeout | cancelled | lost | ended (PBS: the code says how)."""

    state: str
    code: int | None


@dataclass
class Story:
    """One batch job, from look to look."""

    id: str
    tag: str
    restarts: int = 0
    ran: bool = False
    live: bool = True
    ends: list[End] = field(default_factory=list)  # more than one: a controller that had forgotten, or a requeue


class Records:
    """Call `look` once a second or so; `of` says what was seen."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stories: dict[tuple[str, str], Story] = {}
        self._lock = threading.Lock()

    def look(self) -> None:
        """Nothing is learnt from a batch system that does not answer."""
        with suppress(AssertionError, SubprocessError, OSError, json.JSONDecodeError):
            rows = self._slurm() if isinstance(self._site, SlurmSite) else self._others()
            with self._lock:
                self._take(rows)

    def of(self, job: str) -> list[Story]:
        """The batch jobs of an EJB job, in the order in which they turned up."""
        with self._lock:
            return [story for story in self._stories.values() if story.tag.startswith(f"ejb-{job}.")]

    def _take(self, rows: list[tuple[str, str, str, int | None, int]]) -> None:
        for id, tag, state, code, restarts in rows:
            story = self._stories.setdefault((id, tag), Story(id, tag))
            story.restarts = max(story.restarts, restarts)
            story.live = not (_ended(state) or state == "COMPLETING")  # which is the end, however long it takes
            story.ran |= state.upper() not in ("PENDING", "CONFIGURING", "HELD", "Q", "H", "W")
            if _ended(state):
                end = End(_STATES.get(state.upper(), "ended"), code)
                if not story.ends or story.ends[-1] != end:
                    story.ends.append(end)

    def _slurm(self) -> list[tuple[str, str, str, int | None, int]]:
        assert isinstance(self._site, SlurmSite)
        form = ",".join(f"{name}:{width}" for name, width in _COLUMNS)
        text = self._site.cluster.run("squeue", "--noheader", "--states=all", f"-O{form}", timeout_s=20)
        rows: list[tuple[str, str, str, int | None, int]] = []
        for line in text.splitlines():
            values, at = [], 0
            for _, width in _COLUMNS:
                values.append(line[at : at + width].strip())
                at += width
            id, state, code, restarts, comment = values
            tag = tag_in(comment)
            if id.isdecimal() and tag and code.isdecimal():
                status = int(code)
                rows.append((id, tag, state, 128 + status % 128 if status % 128 else status >> 8, int(restarts or 0)))
        return rows

    def _others(self) -> list[tuple[str, str, str, int | None, int]]:
        return [(job.id, job.name, job.state, job.status, 0) for job in self._site.jobs() if job.name]


def _ended(state: str) -> bool:
    return state.upper() in _STATES or state in ("F", "C", "X")  # the letters are PBS's
