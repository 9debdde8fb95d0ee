"""Figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from ejbd.api.port import ManagerPort
from ejbd.store.queries import job_counts
from ejbd.store.states import JobState

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Jobs:
    """Jobs by state, as they were counted."""

    def __init__(self, counts: dict[JobState, int]) -> None:
        self.counts = counts

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily("ejb_jobs", "Jobs by state", labels=["state"])
        for state, count in self.counts.items():
            family.add_metric([state.value], count)
        yield family


async def exposition(manager: ManagerPort) -> bytes:
    """Jobs by state, and the registry of the manager if it keeps one (attribute `registry`)."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(await manager.store.read(job_counts)))
    own = getattr(manager, "registry", None)
    text = generate_latest(registry)
    return text + generate_latest(own) if isinstance(own, CollectorRegistry) else text
