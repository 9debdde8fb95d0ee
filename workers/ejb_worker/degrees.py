"""How many ranks each rank's processor has, on a page that the progress library of MPI ranks maps.

A byte for each rank, in one file for the whole job. A process that is restored in another placement has the same file
mapped, and finds there what is true now. Each worker writes of its own ranks alone, before they start.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Dict, Mapping, Sequence

VARIABLE = "EJB_DEGREE_PAGE"
MOST = 255


def page(job_dir: str) -> str:
    return os.path.join(job_dir, "degrees")


def degrees_of(ranks: Sequence[Mapping[str, Any]], cpus: int) -> Dict[int, int]:
    """How many ranks share the processor of each; more where there are fewer CPUs than processors were given out."""
    sharing = Counter(int(entry["processor"]) for entry in ranks)
    least = -(-len(ranks) // max(cpus, 1)) if cpus < len(sharing) else 1
    return {int(entry["rank"]): min(max(sharing[int(entry["processor"])], least), MOST) for entry in ranks}


def write(path: str, degrees: Mapping[int, int], size: int) -> None:
    """Put them where the ranks look. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)  # never shorter: it is mapped
        for rank, degree in degrees.items():
            os.pwrite(descriptor, bytes([degree]), rank)
    finally:
        os.close(descriptor)
