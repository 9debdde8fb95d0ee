"""What a worker costs while nothing happens: resident memory and CPU time, beside a Python that only sleeps.

    python benchmarks/worker_rest.py [--seconds 10] [--json]

The worker is the real one, as a zipapp, registered at a small manager in this process that holds its long polls and
takes its heartbeats; the "lead" also follows the output of a rank that sleeps. CPU seconds are measured over
`--seconds` and scaled to a minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipapp
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fakes.worker_process import WORKERS, World, world  # noqa: E402

SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Rest:
    """One process at rest. Bytes; CPU in seconds a minute, scaled from the observation."""

    name: str
    rss: int
    uss: int
    threads: int
    cpu_s_per_min: float


def observe(processes: dict[str, int], seconds: float) -> list[Rest]:
    """Watch all of them over the same stretch of time."""
    watched = {name: psutil.Process(pid) for name, pid in processes.items()}
    before = {name: cpu(process) for name, process in watched.items()}
    began = time.monotonic()
    time.sleep(seconds)
    scale = 60 / (time.monotonic() - began)
    found = []
    for name, process in watched.items():
        used = (cpu(process) - before[name]) * scale
        memory = process.memory_full_info()
        found.append(Rest(name, memory.rss, memory.uss, process.num_threads(), round(used, 4)))
    return found


def cpu(process: psutil.Process) -> float:
    """Nanosecond accounting of the scheduler: clock ticks of 10 ms are too coarse here. Sum over the threads."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def start_worker(there: World, archive: Path, flags: list[str]) -> int:
    there.manager.heartbeat_s, there.manager.poll_s = 5.0, 20.0  # as the real manager asks for
    there.manager.start()
    words = ["agent", "--subjob-dir", str(there.manager.subjob_dir), "--node", "n1", "--processors", "4"]
    there.process = subprocess.Popen([sys.executable, *flags, str(archive), *words])
    there.manager.wait_for(lambda: there.manager.registrations)
    return there.process.pid


def measure(seconds: float) -> list[Rest]:
    with tempfile.TemporaryDirectory() as folder:
        spools = [Path(folder) / str(number) for number in range(3)]
        for spool in spools:
            spool.mkdir()
        archive = Path(folder) / "worker.pyz"
        zipapp.create_archive(WORKERS, archive, main="ejb_worker.__main__:main", filter=lambda p: p.suffix != ".pyc")
        with world(spools[0]) as idle, world(spools[1]) as lead, world(spools[2]) as plain:
            sleepers = {
                "python3 that sleeps": [sys.executable, "-c", "import time; time.sleep(600)"],
                "python3 -I -S that sleeps": [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"],
            }
            bare = {name: subprocess.Popen(command) for name, command in sleepers.items()}
            try:
                processes = {name: process.pid for name, process in bare.items()}
                processes["worker"] = start_worker(idle, archive, ["-I", "-S"])
                processes["worker without -I -S"] = start_worker(plain, archive, [])
                processes["worker, lead with 1 rank"] = start_worker(lead, archive, ["-I", "-S"])
                lead.lead()
                lead.launch("sleep", "600")
                time.sleep(SETTLE_S)
                return observe(processes, seconds)
            finally:
                for process in bare.values():
                    process.kill()
                    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to watch (default: 10)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.seconds)
    if options.json:
        print(json.dumps({"seconds": options.seconds, "rest": [asdict(one) for one in found]}, indent=2))
        return
    print(f"at rest, watched for {options.seconds:g} s (CPU scaled to a minute), Python {sys.version.split()[0]}")
    print(f"{'process':28} {'RSS MB':>8} {'USS MB':>8} {'threads':>8} {'CPU s/min':>10}")
    for one in found:
        print(f"{one.name:28} {one.rss / 1e6:8.1f} {one.uss / 1e6:8.1f} {one.threads:8d} {one.cpu_s_per_min:10.3f}")


if __name__ == "__main__":
    main()
