"""What the manager counts about itself, for Prometheus: polls, and what the batch system was asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, Metric

from ejbd.batch.process import CommandCount

POLL_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Telemetry:
    """The registry of one manager. `commands` are the batch system's own counts by the name of the command."""

    def __init__(self, commands: Mapping[str, CommandCount]) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.failed_polls = Counter("ejb_failed_polls", "Polls without an answer", registry=self.registry)
        self.last_poll = Gauge("ejb_last_poll_timestamp_seconds", "When a poll was last stored", registry=self.registry)
        self._polls = Histogram(
            "ejb_poll_seconds",
            "A poll: observe (the batch system's answer) and store (planning and commit)",
            ["part"],
            buckets=POLL_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(_Commands(commands))

    @contextmanager
    def poll(self, part: str) -> Iterator[None]:
        """Time one part of a poll: `observe` or `store`."""
        with self._polls.labels(part).time():
            yield


class _Commands:
    def __init__(self, commands: Mapping[str, CommandCount]) -> None:
        self.commands = commands

    def collect(self) -> Iterable[Metric]:
        calls = CounterMetricFamily("ejb_batch_commands", "Commands of the batch system", labels=["command"])
        failures = CounterMetricFamily("ejb_batch_command_failures", "Those that did not end well", labels=["command"])
        seconds = CounterMetricFamily("ejb_batch_command_seconds", "What they took", labels=["command"])
        for name, count in sorted(self.commands.items()):
            calls.add_metric([name], count.calls)
            failures.add_metric([name], count.failures)
            seconds.add_metric([name], count.seconds)
        return calls, failures, seconds
