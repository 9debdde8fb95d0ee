"""Runs of the past that a daemon is told of, so that it has a law of one-processor jobs of our user."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.daemon import Daemon
from tests.fakes.me import ME


def learn(daemon: Daemon, application: str, requested_s: float, seconds: Sequence[float]) -> None:
    """Runs that took so long, all of which came to their own end."""
    known = len(seconds)
    each = {"user": ME.user, "application": application, "input_class": "", "processors": 1}
    history = {
        **{name: [value] * known for name, value in each.items()},
        "requested_s": [requested_s] * known,
        "outcome": ["completed"] * known,
        "key": list(range(known)),
        "run_s": list(seconds),
        "end_s": [1000.0 + at for at in range(known)],
    }
    assert daemon.client.post("/v1/history", json=history).json() == {"new": known}
