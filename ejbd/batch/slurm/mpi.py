"""`srun --mpi=list`: how the site's srun can wire up the ranks of an MPI."""

from __future__ import annotations

import re
from dataclasses import dataclass

Check = tuple[str, bool, str]
SUBJECT = "MPI of srun"
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListMpi:
    """The MPI types of Slurm. The list is on either stream: up to 21.08 it was an error's."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["srun", "--mpi=list"]

    def parse(self, text: str) -> tuple[str, ...]:
        """Their names (`none`, `pmi2`, `pmix`), and `pmix_v4` where a version of PMIx is named."""
        found: list[str] = []
        for line in text.splitlines():
            head, _, versions = line.removeprefix("srun: ").strip().partition(":")
            if head == "MPI plugin types are...":
                continue
            if head.startswith("specific pmix plugin versions available"):
                found += [word for word in versions.replace(",", " ").split() if _NAME.fullmatch(word)]
            elif _NAME.fullmatch(head):
                found.append(head)
        return tuple(dict.fromkeys(found))


def check_types(types: tuple[str, ...]) -> Check:
    """For `ejb doctor`. No site has to offer any: elastic jobs are wired up by EJB's workers."""
    if not types:
        return SUBJECT, True, "srun --mpi=list names no type; ranks of elastic jobs are wired up by PMI-1 of EJB's own"
    pmix = any(name.startswith("pmix") for name in types)
    text = f"srun --mpi: {', '.join(types)}"
    if not pmix:
        return SUBJECT, True, text + "; without pmix Open MPI 5 is started by its mpirun alone"
    return SUBJECT, True, text + "; jobs that need PMIx say --mpi=pmix on srun and are passed through"
