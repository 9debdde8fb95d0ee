"""The adapter of the embedded cluster, by the configuration."""

from __future__ import annotations

from ejbd.batch.local.adapter import LocalBatch
from ejbd.config import LocalSettings, Settings


def make(settings: Settings, own: LocalSettings) -> LocalBatch:
    return LocalBatch(
        settings.cluster_dir,
        nodes=len(own.node_names) or own.nodes,
        processors_per_node=own.processors_per_node,
        folds=own.pool,
        names=own.node_names,
        step=own.step,
        until_s=own.until_s,
        drain_s=own.drain_s,
    )
