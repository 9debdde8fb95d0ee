"""A move through EJB beside the same checkpoint, stop and restart by bare DMTCP commands, by turns.

The program is a TCP ring of ranks that hold so many megabytes each. Through EJB: a daemon and the embedded cluster; the
job grows as processors come free, and a move is the time from the decision (`epoch.stopping`) until every rank runs
again (`epoch.running`). Bare: `dmtcp_command -kc`, wait for the processes, one `dmtcp_restart` a rank, `dmtcp_command
-s` until every rank runs; no pause anywhere, nothing is looked at. Both keep the images before until the ranks run
again: without that a checkpoint reuses the pages that the removed ones have just given back, which makes it quicker and
is not safe. Needs DMTCP on PATH and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from harness import folder, machine, spread
from tests.acceptance.sites import LocalSite
from tests.fakes.daemon import Daemon, until

ENV = {"EJB_ADDRESS": "127.0.0.1"}
# ranks -> nodes, processors a node, the block, what comes free one after the other
LAYOUTS: dict[int, tuple[int, int, int, tuple[int, ...]]] = {
    4: (4, 2, 4, (1, 2)),
    16: (4, 8, 16, (2, 4, 8)),
    64: (8, 16, 64, (8, 16, 32)),
}


@dataclass
class Figures:
    """Seconds, one entry a move."""

    checkpoint: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    bytes: int = 0

    @property
    def whole(self) -> list[float]:
        return [down + up for down, up in zip(self.checkpoint, self.restart, strict=True)]


# -- bare DMTCP -------------------------------------------------------------------------------------------------------


class Bare:
    """One computation under a coordinator of its own."""

    def __init__(self, where: Path, program: Path, ranks: int, megabytes: int) -> None:
        self.where = where
        self.ranks = ranks
        self.generation = 0
        for name in ("rendezvous", "tmp", "coordinator"):
            (where / name).mkdir(parents=True)
        self._start_coordinator()
        self.processes = []
        for rank in range(ranks):
            env = {"EJB_RANK": str(rank), "EJB_SIZE": str(ranks), "EJB_RENDEZVOUS": str(where / "rendezvous")}
            words = ["dmtcp_launch", *self._common(rank), "--no-gzip", str(program), str(megabytes), str(where)]
            self.processes.append(self._spawn(words, rank, env))
        self._until_running()
        until(lambda: all(self._out(rank).read_text() for rank in range(ranks)), "the ring did not form", 120)

    def _start_coordinator(self) -> None:
        port = self.where / "port"
        port.unlink(missing_ok=True)
        words = ["dmtcp_coordinator", "-q", "-q", "-p", "0", "--port-file", str(port)]
        words += ["--ckptdir", str(self.where / "coordinator"), "--tmpdir", str(self.where / "tmp")]
        self.coordinator = self._spawn(words, "coordinator", {"DMTCP_COORD_HOST": "127.0.0.1"})
        until(lambda: port.exists() and bool(port.read_text()), "the coordinator did not come")
        self.target = ["--coord-host", "127.0.0.1", "--coord-port", port.read_text()]

    def _out(self, name: object) -> Path:
        return self.where / f"{name}.out"

    def _spawn(self, words: list[str], name: object, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        with self._out(name).open("ab") as out:
            return subprocess.Popen(
                words,
                env={**os.environ, **ENV, "DMTCP_TMPDIR": str(self.where / "tmp"), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _images(self, rank: int) -> Path:
        return self.where / f"images-{self.generation}" / f"rank-{rank}"

    def _common(self, rank: int) -> list[str]:
        images = self._images(rank)
        images.mkdir(parents=True)
        return ["-q", "-q", "-j", *self.target, "--ckptdir", str(images), "--tmpdir", str(self.where / "tmp")]

    def _command(self, word: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["dmtcp_command", *self.target, word], capture_output=True, text=True, timeout=60)

    def _until_running(self) -> None:
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            said = self._command("-s").stdout
            peers = re.search(r"NUM_PEERS=(\d+)", said)
            if peers and int(peers.group(1)) >= self.ranks and "RUNNING=yes" in said:
                return
        raise RuntimeError("the ranks did not run")

    def move(self, figures: Figures) -> None:
        begun = time.monotonic()
        if self._command("-kc").returncode:
            raise RuntimeError("the coordinator refused")
        for process in self.processes:
            process.wait(180)
        stopped = time.monotonic()
        self.coordinator.kill()
        self.coordinator.wait()
        self._start_coordinator()  # as EJB has it: one for each placement
        images = {rank: sorted(self._images(rank).glob("*.dmtcp")) for rank in range(self.ranks)}
        figures.bytes = sum(image.stat().st_size for found in images.values() for image in found)
        self.generation += 1
        self.processes = [
            self._spawn(["dmtcp_restart", *self._common(rank), *map(str, images[rank])], rank)
            for rank in range(self.ranks)
        ]
        self._until_running()
        figures.checkpoint.append(stopped - begun)
        figures.restart.append(time.monotonic() - stopped)
        if self.generation > 1:
            shutil.rmtree(self.where / f"images-{self.generation - 2}")

    def close(self) -> None:
        self._command("-k")
        for process in [*self.processes, self.coordinator]:
            process.kill()
            process.wait()


# -- through EJB ------------------------------------------------------------------------------------------------------


class Through:
    """A daemon with the embedded cluster, and one job that grows."""

    def __init__(self, where: Path, program: Path, ranks: int, megabytes: int) -> None:
        nodes, cpus, block, fillers = LAYOUTS[ranks]
        self.moves = len(fillers)
        self.where = where
        where.mkdir()
        self.site = LocalSite(where, nodes, cpus, block, fillers, settings='dmtcp_compress = "off"\n')  # as bare
        # A long stopping time is not to be taken for a fault on a busy machine.
        limits = {"EJBD_LIMITS__LAUNCH_TIMEOUT_S": "120", "EJBD_LIMITS__CHECKPOINT_TIMEOUT_S": "120"}
        self.daemon = Daemon(where, self.site.toml, limits, as_program=True)
        try:
            self.site.fill()
            self.daemon.start()
            words = [str(program), str(megabytes), str(where)]
            self.job = self.daemon.submit(
                *words, ranks=ranks, time="15:00", overrides={"engine": "dmtcp", "mpi": "none"}
            )
            self.daemon.wait_event(self.job, "epoch.running", 1, timeout_s=120)
        except BaseException:
            self.close()
            raise

    def move(self, figures: Figures, parts: dict[str, list[float]]) -> None:
        count = self.daemon.kinds(self.job).count("epoch.running")
        time.sleep(1.0)  # the ring has formed, and what the last move left to do is done
        self.site.more()
        self.daemon.wait_event(self.job, "epoch.running", count + 1, timeout_s=180)
        events = [e for e in self.daemon.events(self.job) if e["kind"].startswith("epoch.")][-4:]
        kinds = [e["kind"].removeprefix("epoch.") for e in events]
        if kinds != ["stopping", "stopped", "launching", "running"]:
            raise RuntimeError(f"not one whole move: {kinds}")
        at = [float(e["at_s"]) for e in events]
        figures.checkpoint.append(at[1] - at[0])
        figures.restart.append(at[3] - at[1])
        figures.bytes = int(events[1]["data"]["bytes"])
        for (a, b), seconds in zip(pairwise(kinds), (y - x for x, y in pairwise(at)), strict=True):
            parts.setdefault(f"{a} -> {b}", []).append(seconds)

    def close(self) -> None:
        (self.where / "end").touch()
        self.daemon.stop()
        self.site.close()


def compare(ranks: int, megabytes: int, rounds: int, parent: Path | None) -> None:
    bare, through = Figures(), Figures()
    parts: dict[str, list[float]] = {}
    with folder(parent) as where:
        program = where / "ring"
        subprocess.run(["cc", "-O2", "-o", str(program), str(Path(__file__).parent / "ring.c")], check=True)
        for number in range(rounds):
            plain = Bare(where / f"bare-{number}", program, ranks, megabytes)
            try:
                ejb = Through(where / f"ejb-{number}", program, ranks, megabytes)
                try:
                    for _ in range(ejb.moves):
                        os.sync()  # what one has written is not to be the other's burden
                        plain.move(bare)
                        os.sync()
                        ejb.move(through, parts)
                finally:
                    ejb.close()
            finally:
                plain.close()
            for leftover in (where / f"bare-{number}", where / f"ejb-{number}"):
                shutil.rmtree(leftover, ignore_errors=True)
    ratio = statistics.median(through.whole) / statistics.median(bare.whole)
    print(f"{ranks} x {megabytes} MB, {len(bare.whole)} moves each way, {machine()}")
    for name, figures in (("bare", bare), ("EJB", through)):
        print(
            f"  {name:5} down {spread(figures.checkpoint, ' s')}  up {spread(figures.restart, ' s')}  "
            f"whole {spread(figures.whole, ' s')}  {figures.bytes >> 20} MiB"
        )
    print(f"  EJB / bare: {ratio:.2f}")
    for name, seconds in parts.items():
        print(f"  {name}: {spread(seconds, ' s')}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4], choices=sorted(LAYOUTS))
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="jobs; each moves two or three times (default 3)")
    parser.add_argument("--folder", type=Path, default=None, help="where images go (default: the system's temporary)")
    given = parser.parse_args()
    if shutil.which("dmtcp_launch") is None or shutil.which("cc") is None:
        print("dmtcp_move: needs dmtcp_launch and cc on PATH: not measured")
        return
    for ranks in given.ranks:
        compare(ranks, given.megabytes, given.rounds, given.folder)


if __name__ == "__main__":
    main()
