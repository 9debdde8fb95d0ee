"""J0s that begin a job by themselves: what a test of them does, and looks into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ejbd.manager.jobspec import JobKind
from tests.fakes.live import LiveWorld

SCRIPT: dict[str, Any] = {"engine": "none", "kind": JobKind.SCRIPT, "argv": (), "script": "#!/bin/bash\nsrun ./heat\n"}


async def waiting(live: LiveWorld, kind: dict[str, Any], **more: Any) -> str:
    """A job that finds no free processor."""
    live.batch.free = 0
    job = await live.submit(**kind, **more)
    await live.poll(1)
    return job


def folder(live: LiveWorld, job: str) -> Path:
    """Where its J0's workers find what they may do alone."""
    return live.manager.world.spool.subjob_dir(job, f"{job}.0") / "alone"


def order(live: LiveWorld, job: str) -> dict[str, Any]:
    return dict(json.loads(json.loads((folder(live, job) / "order.json").read_text())["order"]))


def text(path: str) -> str:
    return Path(path).read_text()
