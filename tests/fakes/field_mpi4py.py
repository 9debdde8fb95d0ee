"""A field that diffuses, by mpi4py, which goes on with another number of ranks.

    field_mpi4py.py CELLS STEPS SECONDS_A_STEP

As field_mpi.c: at SIGUSR1 all ranks stop at the same step, rank 0 writes state.json, and all exit with 85. At the end
rank 0 writes the field into result.txt, as hexadecimal numbers.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from mpi4py import MPI  # type: ignore[import-not-found]  # Debian's: this file is for the system's own Python


def main() -> int:
    cells, steps, second = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    told: list[int] = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    step, whole = 0, [((at * 7919) % 1013) / 1013.0 for at in range(cells)]
    if "EJB_RESTART_DIR" in os.environ:
        step, whole = json.loads(Path("state.json").read_text())
    first, behind = cells * rank // size, cells * (rank + 1) // size
    now = whole[first:behind]
    if rank == 0:
        print(f"steps {steps}", flush=True)
    while not world.allreduce(int(bool(told) or step >= steps), op=MPI.MAX):
        left = world.sendrecv(now[-1], dest=(rank + 1) % size, source=(rank - 1) % size)
        right = world.sendrecv(now[0], dest=(rank - 1) % size, source=(rank + 1) % size)
        around = [now[0] if rank == 0 else left, *now, now[-1] if rank == size - 1 else right]
        now = [
            around[at] + 0.25 * (around[at - 1] - 2.0 * around[at] + around[at + 1]) for at in range(1, len(now) + 1)
        ]
        step += 1
        time.sleep(second / size)
        if rank == 0:
            print(f"step {step}", flush=True)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # one that comes while the interpreter ends must not kill
    parts = world.gather(now, root=0)
    if parts is not None:
        whole = [one for part in parts for one in part]
        if step < steps:
            Path("state.tmp").write_text(json.dumps([step, whole]))
            Path("state.tmp").replace("state.json")
            print(f"stopped after step {step}", flush=True)
        else:
            Path("result.txt").write_text("\n".join(one.hex() for one in whole))
            print(f"done at step {step}", flush=True)
    world.Barrier()
    return 85 if step < steps else 0


if __name__ == "__main__":
    sys.exit(main())
