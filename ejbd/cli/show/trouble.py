"""What keeps the daemon from its work, said beside what it shows: that may be old by then."""

from __future__ import annotations

from ejbd.cli.output import Output
from ejbd.client.client import Client
from ejbd.errors import Code, EjbError


def tell_trouble(daemon: Client, out: Output) -> None:
    """A note where the daemon says that it cannot do its work, as while the batch system does not answer."""
    try:
        daemon.get("/v1/health")
    except EjbError as error:
        if error.code is not Code.UNREACHABLE:  # the command itself will say so
            out.note(f"{error.sentence()}; what is shown was so when that began")
