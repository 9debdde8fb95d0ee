"""What runs in the allocation of a pool: a daemon of its user's own, on an embedded cluster of the allocation's nodes.

`python -m ejbd.cli.pool_serving NAME`, by the batch script of `ejb pool start`. It ends with its batch job.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from ejbd.cli import pool_door
from ejbd.cli.own_daemon import own_daemon
from ejbd.client import pools
from ejbd.client.pools import FILE
from ejbd.errors import Code, EjbError
from ejbd.wire.hostlists import unfold

POLL_S = 0.5


def settings(environment: Mapping[str, str], listen: str) -> tuple[str, list[str], int]:
    """The daemon's settings by what Slurm says of the allocation, with its nodes and the processors of each.

    Of nodes that differ each counts as many as the smallest. Raises EjbError outside an allocation.
    """
    try:
        names = list(unfold(environment["SLURM_JOB_NODELIST"]))
        counts = [int(part) for part in re.findall(r"(?:^|,)([0-9]+)", environment["SLURM_JOB_CPUS_PER_NODE"])]
        job = environment["SLURM_JOB_ID"]
    except KeyError as error:
        raise EjbError(Code.INVALID, f"a pool runs in an allocation of Slurm: {error} is not set") from None
    words = [shutil.which("srun") or "srun", f"--jobid={job}", "--overlap", "-N1", "-n1", "--cpu-bind=none", "--quiet"]
    conf = environment.get("SLURM_CONF")
    prefix = ["env", f"SLURM_CONF={conf}"] if conf else []
    step = f"{shlex.join([*prefix, *words])} -w {{node}}"
    text = (
        f'batch = "local"\npoll_s = {POLL_S}\nlisten = "{listen}:0"\n\n'
        f'[queues.default]\npolicy = "fcfs-malleable"\nelasticity = "on"\nmin_processors = 1\n\n'
        f"[local]\npool = true\nprocessors_per_node = {min(counts)}\n"
        f"node_names = {json.dumps(names)}\nstep = {json.dumps(step)}\n"
    )
    return text, names, min(counts)


def serve(folder: Path) -> None:
    """Run the pool until its batch job is told to end."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    host, address = socket.gethostname(), _address()
    text, names, processors = settings(os.environ, address)
    text += pool_door.settings(folder, address) if pool_door.certificate(folder, host, address) else ""
    with own_daemon(folder, text, {}, apart=True) as daemon:
        told = {"socket": daemon.place.socket, "nodes": names, "processors_per_node": processors, "host": host}
        end_s = os.environ.get("SLURM_JOB_END_TIME")
        told |= {"batch_job": os.environ["SLURM_JOB_ID"], "end_s": float(end_s) if end_s else None}
        told |= {"url": pool_door.open_door(folder, address, daemon)}
        (folder / f"{FILE}.tmp").write_text(json.dumps(told))
        (folder / f"{FILE}.tmp").rename(folder / FILE)
        while not stopped.wait(1.0):
            pass
        (folder / FILE).unlink(missing_ok=True)
    down = [sys.executable, "-m", "ejbd.batch.local", "down", str(folder / "state" / "cluster")]
    subprocess.run(down, check=False, timeout=60)


def _address() -> str:
    """By which the other nodes find this one."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def main() -> int:
    os.umask(0o077)
    try:
        folder = pools.folder_of(sys.argv[1])
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        serve(folder)
    except EjbError as error:
        print(f"ejb pool: {error.sentence()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
