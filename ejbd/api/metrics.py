"""Figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy.orm import Session

from ejbd.api.port import ManagerPort
from ejbd.store.queries import (
    job_counts,
    living_workers,
    open_intents,
    overheads,
    pace,
    queue_pauses,
    subjob_counts,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Stored:
    """What the database held when it was asked."""

    def __init__(self, session: Session) -> None:
        self.jobs = job_counts(session)
        self.subjobs = subjob_counts(session)
        self.intents = open_intents(session)
        self.workers = living_workers(session)
        self.pauses = queue_pauses(session)
        self.overheads = overheads(session)
        self.pace = pace(session)

    def collect(self) -> Iterable[Metric]:
        jobs = GaugeMetricFamily("ejb_jobs", "Jobs by state", labels=["state"])
        for state, count in self.jobs.items():
            jobs.add_metric([state.value], count)
        subjobs = GaugeMetricFamily("ejb_subjobs", "Subjobs that have not ended, by state", labels=["state"])
        for held, count in self.subjobs.items():
            subjobs.add_metric([held.value], count)
        intents = GaugeMetricFamily("ejb_intents", "Actions that are not over", labels=["kind", "state"])
        for (kind, at), count in self.intents.items():
            intents.add_metric([kind, at.value], count)
        workers = GaugeMetricFamily("ejb_workers", "Workers that are believed to be alive", value=self.workers)
        paused = GaugeMetricFamily(
            "ejb_queue_paused", "Queues that are left alone, by what keeps failing", labels=["queue", "what", "whose"]
        )
        failures = GaugeMetricFamily(
            "ejb_queue_failures", "Submissions or starts that failed in a row", labels=["queue", "what", "whose"]
        )
        for row in self.pauses:
            paused.add_metric([row.name, row.what, row.whose], row.until_s is not None)
            failures.add_metric([row.name, row.what, row.whose], row.failures)
        took = GaugeMetricFamily(
            "ejb_overhead_seconds",
            "What starts and ends of subjobs took of late: until workers are ready, the launch, giving back",
            labels=["queue", "hop"],
        )
        for (queue, hop), seconds in sorted(self.overheads.items()):
            took.add_metric([queue, hop], seconds)
        pace = GaugeMetricFamily("ejb_pace", "Seconds that a command takes under EJB for one that it takes without")
        if self.pace is not None:
            pace.add_metric([], self.pace)
        return jobs, subjobs, intents, workers, paused, failures, took, pace


async def exposition(manager: ManagerPort) -> bytes:
    """What the database holds, and what the manager counted about itself since it began."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(await manager.store.read(_Stored))
    return generate_latest(registry) + generate_latest(manager.telemetry.registry)
