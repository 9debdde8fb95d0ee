"""--signal: what a job is told some time before its end, as sbatch reads it."""

from __future__ import annotations

from ejbd.manager.jobspec.findings import Given, invalid, shortened
from ejbd.options.signals import MOST_S, EndSignal


def read_signal(given: Given) -> EndSignal:
    """What an option says. Raises EjbError (INVALID) naming where it stands."""
    try:
        return EndSignal.read(given.value or "")
    except ValueError:
        message = f"{shortened(given.value or '')} is not [B:]SIGNAL[@SECONDS], SECONDS at most {MOST_S}"
        raise invalid(given.where, message, "such as USR1@120 or B:TERM@300") from None
