"""The embedded cluster: virtual nodes on this machine, EASY backfilling, real processes, walltimes that kill.

`LocalBatch` is the adapter; `server` the process that keeps the queue and outlives the daemon; `step` the process that
watches over one running job. The adapter is imported on first use only, since a step must start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ejbd.batch.local.adapter import LocalBatch

__all__ = ["LocalBatch"]


def __getattr__(name: str) -> Any:
    if name == "LocalBatch":
        from ejbd.batch.local.adapter import LocalBatch

        return LocalBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
