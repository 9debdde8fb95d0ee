"""An mpi4py rank for tests: mpi_rank.py STEPS. Every step a ring exchange, an allreduce of an object and an alltoall of
numpy arrays, all verified; says how many numbers were wrong, and finalizes by itself."""

import sys
import time

import numpy as np
from mpi4py import MPI  # type: ignore[import-not-found, unused-ignore]

COUNT = 20000

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
left, right = (rank - 1) % size, (rank + 1) % size
numbers = np.arange(COUNT, dtype=np.float64)
bad = 0
for step in range(int(sys.argv[1])):
    got = np.empty_like(numbers)
    world.Sendrecv(numbers * (rank + 1) + step, right, recvbuf=got, source=left)
    bad += int(np.count_nonzero(got != numbers * (left + 1) + step))
    told = world.allreduce({rank: step}, op=lambda one, other: {**one, **other})
    bad += told != dict.fromkeys(range(size), step)
    parts = np.empty(size, dtype=np.int64)
    world.Alltoall(np.arange(size, dtype=np.int64) + rank * size + step, parts)
    bad += int(np.count_nonzero(parts != np.arange(size) * size + rank + step))
    if step % 10 == 0:
        print(f"rank {rank} of {size} step {step}", flush=True)
    time.sleep(0.01)
print(f"rank {rank} of {size} ends, bad {bad}", flush=True)
MPI.Finalize()
sys.exit(3 if bad else 0)
