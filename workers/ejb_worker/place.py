"""What is the same for all ranks on this node."""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional

from . import resizing
from .attributes import Propagation
from .settings import Subjob


class Place:
    """What is the same for all ranks on this node. `cpus`: the processors' CPU numbers; None where nothing is bound.
    `propagation`: what the site's own launcher hands on to ranks; None where nothing is said.
    """

    def __init__(
        self,
        node: str,
        address: str,
        processor_dir: str,
        cpus: Optional[List[int]],
        processors: int = 1,
        binding: str = "none",
        propagation: Optional[Propagation] = None,
    ) -> None:
        self.node = node
        self.processors = processors
        self.address = address
        self.processor_dir = processor_dir
        self.cpus = cpus
        self.propagation = propagation
        self._binding = binding

    def cpus_of(self, payload: Mapping[str, Any]) -> Optional[List[int]]:
        """Those of an operation that says which of the node's processors the job has; else all, or None."""
        told = payload.get("cpus")
        if not told:
            return self.cpus
        usable = cpus_to_bind(int(told["of"]), self._binding)
        return None if usable is None else [usable[int(one)] for one in told["numbers"]]

    def processor(self, subjob: Subjob, number: int) -> str:
        return "%s.%s.%d" % (subjob.subjob, self.node, number)

    def processor_file(self, epoch: int, rank: int) -> str:
        return os.path.join(self.processor_dir, "%d-%d" % (epoch, rank))


def cpus_to_bind(processors: int, binding: str) -> Optional[List[int]]:
    """The CPUs to bind ranks to, where this process may use just as many as it was given processors."""
    usable = resizing.in_order(sorted(os.sched_getaffinity(0)))
    return usable if binding == "auto" and len(usable) == processors else None
