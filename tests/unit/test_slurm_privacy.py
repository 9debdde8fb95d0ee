"""What a site hides is looked at again: an administrator may hide jobs, or let the daemon's user see them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ejbd.batch.slurm import SlurmBatch
from ejbd.errors import BatchError


class Site:
    """A Slurm with accounts that answers questions about its settings."""

    def __init__(self) -> None:
        self.hides = "none"
        self.level = "None"
        self.away = False
        self.asked: list[str] = []

    async def query(self, argv: Sequence[str], timeout_s: float, doing: str) -> str:
        self.asked.append(argv[0])
        if self.away:
            raise BatchError(f"Slurm did not {doing}", transient=True)
        if argv[0] == "sacctmgr":
            return f"{self.level}\n"
        return (
            f"AccountingStorageType   = accounting_storage/slurmdbd\nPrivateData = {self.hides}\nSlurmUser = slurm(1)\n"
        )


async def test_what_is_hidden_or_shown_later_is_seen_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("ejbd.batch.slurm.adapter.time.monotonic", lambda: now)
    monkeypatch.setattr("ejbd.batch.slurm.adapter.os.geteuid", lambda: 1000)
    site, batch = Site(), SlurmBatch()
    monkeypatch.setattr(batch, "_query", site.query)

    async def blind() -> bool:
        await batch._settings()
        return bool(await batch.blindness())

    assert not await blind()
    site.hides = "jobs"
    now += 30.0
    assert not await blind() and site.asked == ["scontrol"], "not at each poll"
    now += 31.0
    assert await blind()
    site.level = "Operator"
    assert await blind()
    now += 61.0
    assert not await blind(), "the cure that was told works without a restart"
    now += 61.0
    site.away = True
    assert not await blind(), "what was told last holds"
    asked = len(site.asked)
    assert not await blind() and len(site.asked) == asked, "and a poll does not wait for it each time"
