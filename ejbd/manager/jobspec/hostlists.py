"""Lists of nodes in what a user asks for."""

from __future__ import annotations

from ClusterShell.NodeSet import NodeSet

from ejbd.manager.jobspec.findings import invalid, shortened
from ejbd.wire.hostlists import unfold

HINT = "e.g. n[1-3],m7"


def hosts(text: str, where: str) -> NodeSet:
    """The nodes that `n[1-3],m7` names. Raises EjbError (INVALID) for what is no such list, or names too many."""
    try:
        return unfold(text)
    except ValueError as error:
        raise invalid(where, f"{shortened(text)} cannot be taken: {shortened(str(error), 200)[1:-1]}", HINT) from None
