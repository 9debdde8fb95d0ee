"""Two ways to move a program with DMTCP that stays on its machine: by its own commands, and by a worker of EJB.

Both start `RANKS` processes of it, checkpoint and stop them, restart them, and so on; each says how far it comes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.features import last_step
from tests.fakes.manager_server import Json
from tests.fakes.worker_process import World, world

RANKS = 2
STEPS = 4  # that every rank has to come further between two moves
STEP_S = 25.0
CHECKPOINT_S = 25.0


class NotMoved(Exception):
    """What went wrong, in a few words."""


@dataclass
class Program:
    """`words` are followed by the file that ends the program and a path of the rank's own."""

    folder: Path
    words: list[str]
    moves: int
    seen: list[int] = field(default_factory=lambda: [0] * RANKS)

    @property
    def end(self) -> Path:
        return self.folder / "end"

    def mine(self, rank: int) -> str:
        return str(self.folder / f"mine-{rank}")


def wait(ready: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


# -- DMTCP's own commands ----------------------------------------------------------------------------------------------


class Bare:
    """One coordinator a placement, one command a rank."""

    def __init__(self, program: Program, options: list[str]) -> None:
        self.program = program
        self.options = options
        self.bin = Path(shutil.which("dmtcp_launch") or "").resolve().parent
        self.tmp = program.folder / "tmp"
        self.tmp.mkdir()
        self.children: list[subprocess.Popen[bytes]] = []
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.coordinator: subprocess.Popen[bytes] | None = None
        self.port = ""

    def run(self) -> None:
        """Raises NotMoved."""
        for epoch in range(self.program.moves + 1):
            self.coordinate(epoch)
            for rank in range(RANKS):
                self.ranks[rank:] = [self.rank(epoch, rank)]
            self.further(epoch)
            if epoch < self.program.moves:
                self.stop(epoch)
        self.program.end.touch()
        if not wait(lambda: all(one.poll() is not None for one in self.ranks), STEP_S):
            raise NotMoved("does not end")
        codes = [one.returncode for one in self.ranks]
        if any(codes):
            raise NotMoved(f"ended with {codes}")

    def start(self, words: list[str], name: str) -> subprocess.Popen[bytes]:
        env = {n: v for n, v in os.environ.items() if not n.startswith(("DMTCP_", "MTCP_"))}
        env |= {"DMTCP_TMPDIR": str(self.tmp), "HWLOC_COMPONENTS": "-linuxio,-pci"}
        with (
            (self.program.folder / f"{name}.out").open("ab") as out,
            (self.program.folder / f"{name}.err").open("ab") as err,
        ):
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd=self.program.folder,
                start_new_session=True,
            )
        self.children.append(child)
        return child

    def coordinate(self, epoch: int) -> None:
        if self.coordinator is not None:
            self.coordinator.kill()
            self.coordinator.wait()
        file = self.program.folder / f"port-{epoch}"
        words = [str(self.bin / "dmtcp_coordinator"), "-q", "-q", "-p", "0", "--port-file", str(file)]
        self.coordinator = self.start([*words, "--ckptdir", str(self.program.folder)], f"coordinator-{epoch}")
        if not wait(lambda: file.exists() and file.read_text().strip() != "", 10):
            raise NotMoved("no coordinator")
        self.port = file.read_text().strip()

    def rank(self, epoch: int, rank: int) -> subprocess.Popen[bytes]:
        images = self.program.folder / f"images-{epoch}-{rank}"
        images.mkdir()
        words = ["-q", "-q", "-j", "--coord-host", "127.0.0.1", "--coord-port", self.port, "--ckptdir", str(images)]
        if epoch == 0:
            words = ["dmtcp_launch", *words, "--no-gzip", *self.options, *self.program.words]
            words += [str(self.program.end), self.program.mine(rank)]
        else:
            before = self.program.folder / f"images-{epoch - 1}-{rank}"
            words = ["dmtcp_restart", *words, *(str(image) for image in sorted(before.glob("*.dmtcp")))]
        return self.start([str(self.bin / words[0]), *words[1:]], f"rank-{epoch}-{rank}")

    def said(self, epoch: int) -> str:
        lines = []
        for rank in range(RANKS):
            text = (self.program.folder / f"rank-{epoch}-{rank}.err").read_text(errors="replace").strip()
            lines += text.splitlines()[:3]
        return " | ".join(lines)[:500]

    def further(self, epoch: int) -> None:
        """Wait until every rank has taken some more steps."""
        outs = [self.program.folder / f"rank-{epoch}-{rank}.out" for rank in range(RANKS)]
        before = list(self.program.seen)

        def come() -> bool:
            codes = [one.returncode for one in self.ranks if one.poll() is not None]
            if codes:
                raise NotMoved(f"{_when(epoch)}: a rank ended with {codes[0]}: {self.said(epoch)}")
            return all(last_step(out) >= seen + STEPS for out, seen in zip(outs, before, strict=True))

        if not wait(come, STEP_S):
            raise NotMoved(f"{_when(epoch)}: stands still")
        self.program.seen = [last_step(out) for out in outs]

    def stop(self, epoch: int) -> None:
        words = [str(self.bin / "dmtcp_command"), "--coord-host", "127.0.0.1", "--coord-port", self.port]
        for _ in range(50):  # it is refused for a moment after a restart
            try:
                done = subprocess.run([*words, "-kc"], capture_output=True, timeout=CHECKPOINT_S, check=False)
            except subprocess.TimeoutExpired:
                raise NotMoved(f"checkpoint {epoch + 1}: the coordinator does not answer") from None
            if done.returncode == 0:
                break
            time.sleep(0.1)
        else:
            raise NotMoved(f"checkpoint {epoch + 1}: refused")
        if not wait(lambda: all(one.poll() is not None for one in self.ranks), CHECKPOINT_S):
            raise NotMoved(f"checkpoint {epoch + 1}: does not complete: {self.said(epoch)}")
        codes = [one.returncode for one in self.ranks]
        if any(codes):
            raise NotMoved(f"checkpoint {epoch + 1}: ranks ended with {codes}: {self.said(epoch)}")
        for rank in range(RANKS):
            images = self.program.folder / f"images-{epoch}-{rank}"
            if not list(images.glob("*.dmtcp")) or list(images.glob("*.temp")):
                raise NotMoved(f"checkpoint {epoch + 1}: no whole image")

    def close(self) -> None:
        for child in self.children:
            for one in [*_descendants(child.pid), child.pid]:
                _kill(one)
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            child.wait()
        _end_of(self.program.folder)


def _when(epoch: int) -> str:
    return f"after move {epoch}" if epoch else "at its start"


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _end_of(folder: Path) -> None:
    """End processes that outlive their parents: they have this folder in their command lines."""
    for left in Path("/dev/shm").glob(f"*ejb-test-{folder.stat().st_ino}-*"):
        left.unlink(missing_ok=True)
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()):
                process.kill()
        except psutil.Error:
            continue


# -- a worker of EJB ---------------------------------------------------------------------------------------------------


class Engine:
    """The worker's engine, told as the manager would."""

    def __init__(self, program: Program, there: World, told: Json) -> None:
        self.program = program
        self.there = there
        self.told = told
        self.first_s = 0.0  # that it runs before the first checkpoint, at least

    def run(self) -> None:
        """Raises NotMoved."""
        words = ["sh", "-c", 'end=$1; mine=$2; shift 2; exec "$@" "$end" "$mine-$EJB_RANK"', "-"]
        words += [str(self.program.end), str(self.program.folder / "mine"), *self.program.words]
        file = self.there.launch_file(*words, size=RANKS)
        for epoch in range(1, self.program.moves + 2):
            payload = self.there.launch_payload(
                file, ranks=RANKS, epoch=epoch, engine="dmtcp", restart=epoch - 1 if epoch > 1 else None
            )
            payload |= {"timeout_s": STEP_S, "dmtcp": self.told}
            result = self.there.manager.run("launch", payload, epoch=epoch, seconds=2 * STEP_S)
            if not result["ok"]:
                raise NotMoved(f"{_when(epoch - 1)}: {result['error']}: {self.said(epoch)}")
            self.further(epoch)
            time.sleep(self.first_s if epoch == 1 else 0.0)
            if epoch <= self.program.moves:
                payload = {"epoch": epoch, "timeout_s": CHECKPOINT_S}
                result = self.there.manager.run("checkpoint", payload, seconds=2 * CHECKPOINT_S)
                if not result["ok"]:
                    raise NotMoved(f"checkpoint {epoch}: {result['error']}: {self.said(epoch)}")
        self.ends()

    def ends(self) -> None:
        """Have the program end where it is. Raises NotMoved."""
        self.program.end.touch()
        if not wait(lambda: len(self.exits()) == RANKS, STEP_S):
            raise NotMoved("does not end")
        codes = self.exits()
        if any(codes):
            raise NotMoved(f"ended with {codes}")

    def exits(self) -> list[int]:
        return [report["code"] for report in self.there.manager.of_kind("rank-exit")]

    def said(self, epoch: int) -> str:
        lines = []
        for rank in range(RANKS):
            path = self.there.epoch_dir(epoch) / "output" / f"{rank}.err"
            lines += path.read_text(errors="replace").strip().splitlines()[:3] if path.exists() else []
        return " | ".join(lines)[:500]

    def further(self, epoch: int) -> None:
        outs = [self.there.epoch_dir(epoch) / "output" / f"{rank}.out" for rank in range(RANKS)]
        before = list(self.program.seen)

        def come() -> bool:
            codes = self.exits()
            if codes:
                raise NotMoved(f"{_when(epoch - 1)}: a rank ended with {codes[0]}: {self.said(epoch)}")
            return all(last_step(out) >= seen + STEPS for out, seen in zip(outs, before, strict=True))

        if not wait(come, STEP_S):
            raise NotMoved(f"{_when(epoch - 1)}: stands still")
        self.program.seen = [last_step(out) for out in outs]


@contextmanager
def bare(program: Program, options: list[str]) -> Iterator[Bare]:
    value = Bare(program, options)
    try:
        yield value
    finally:
        value.close()


@contextmanager
def engine(program: Program, told: Json) -> Iterator[Engine]:
    spool = program.folder / "spool"
    spool.mkdir()
    libraries = {kind: Path(told[kind]) for kind in ("calls", "plugin") if told[kind] is not None}
    for kind, library in libraries.items():  # workers take them from their own spool alone
        (spool / "dmtcp").mkdir(exist_ok=True)
        for file in library.parent.glob(library.name + "*"):  # its record, too
            shutil.copy(file, spool / "dmtcp")
        told = {**told, kind: str(spool / "dmtcp" / library.name)}
    try:
        with world(spool) as there:
            there.start()
            yield Engine(program, there, told)
    finally:
        _end_of(spool)
        _end_of(program.folder)
