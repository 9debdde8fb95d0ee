"""A run of the past, as a client reports it to the daemon: a column of the request for each field."""

from __future__ import annotations

from typing import NamedTuple


class ToldRun(NamedTuple):
    """A run that is reported from outside. `key`: the same for the same run."""

    key: int
    user: str
    application: str
    input_class: str
    processors: int
    run_s: float
    requested_s: float | None
    outcome: str
    end_s: float
