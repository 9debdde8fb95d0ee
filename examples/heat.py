#!/usr/bin/env python3
"""A real parallel program that can be moved: the heat equation on a square plate, its rows divided among P ranks.

Each step every rank swaps its edge rows with its neighbours over TCP and computes its own rows. On SIGUSR1 all ranks
agree on one step, write their rows to EJB_CHECKPOINT_DIR and end with code 85; with EJB_RESTART_DIR they go on from
there. The result is the same to the last bit however often, and wherever to, the ranks were moved.

Standard library only, Python 3.8 or later. Without EJB: `heat.py --spawn 16 ...` starts its ranks itself.
"""

# Nodes may have an old Python, and this file is one to read and copy: typing's names, os.path.
# ruff: noqa: UP006, UP035, UP037, UP045, B905, PTH100, PTH103, PTH105, PTH106, PTH108, PTH110, PTH118

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import signal
import socket
import struct
import sys
import time
from array import array
from typing import Any, List, NamedTuple, Optional, Tuple

CHECKPOINTED = 85  # the exit code by which EJB knows: my state is on disk, whole
DIFFUSION = 0.2  # of the temperature difference to the four neighbours, a step; stable below 0.25
HOT = 100.0  # temperature of the upper edge; the other edges are at 0
NEVER = 2**62  # as the step of a checkpoint: none is wanted
ROOM_S = 5.0  # so long a disk that is full is waited for: a restart that fails later is the program's own failure
TELLING_S = 1.0  # progress is reported so often at most
HALO = struct.Struct("<qq")  # step, step of the checkpoint that this rank knows of

Row = List[float]


class World(NamedTuple):
    """Which rank this is, and how it meets the others."""

    rank: int
    size: int
    rendezvous: str
    address: str

    @classmethod
    def from_environment(cls) -> "World":
        """As EJB says; else as Slurm's srun says (an ordinary job); else alone."""
        ours = os.environ
        if "EJB_RANK" in ours:
            address = ours.get("EJB_ADDRESS", "127.0.0.1")
            return cls(int(ours["EJB_RANK"]), int(ours["EJB_SIZE"]), ours.get("EJB_RENDEZVOUS", ""), address)
        if "SLURM_PROCID" in ours:
            parts = [ours.get(f"SLURM_{name}", "0") for name in ("JOB_ID", "STEP_ID", "RESTART_COUNT")]
            folder = os.path.abspath(".heat-" + ".".join(parts))
            return cls(int(ours["SLURM_PROCID"]), int(ours["SLURM_NTASKS"]), folder, socket.gethostname())
        return cls(0, 1, "", "")


class Failure(Exception):
    """The ranks cannot go on; the text says why."""


def rows_of(rank: int, size: int, rows: int) -> Tuple[int, int]:
    """First row and the one behind the last of a rank."""
    return rows * rank // size, rows * (rank + 1) // size


def packed(rows: List[Row]) -> bytes:
    """IEEE doubles, little-endian: exactly the bits."""
    values = array("d", [value for row in rows for value in row])
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpacked(data: bytes, width: int) -> List[Row]:
    values = array("d")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    return [values[start : start + width].tolist() for start in range(0, len(values), width)]


class Neighbour:
    """A connection to the rank above or below."""

    def __init__(self, connection: socket.socket, rank: int, patience_s: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's own time-outs: with Python's each message would cost two system calls.
        connection.setblocking(True)
        limit = struct.pack("@ll", *divmod(max(int(patience_s * 1e6), 1), 1_000_000))  # 0 would be for ever
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._connection = connection
        self.rank = rank

    def send(self, data: bytes) -> None:
        try:
            self._connection.sendall(struct.pack("<I", len(data)) + data)
        except OSError as error:
            raise Failure(f"rank {self.rank} cannot be reached: {error}") from error

    def receive(self, length: Optional[int] = None) -> bytes:
        """One message; where its length is known, by one call of the system."""
        if length is not None:
            return self._exactly(4 + length)[4:]
        (length,) = struct.unpack("<I", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                part = self._connection.recv(length - len(data), socket.MSG_WAITALL)
            except OSError as error:
                raise Failure(f"rank {self.rank} does not answer: {error}") from error
            if not part:
                raise Failure(f"rank {self.rank} has gone")
            data += part
        return data


class Ranks:
    """The chain of ranks: each knows the one before it (`upper`) and the one behind it (`lower`)."""

    def __init__(self, rank: int, size: int, patience_s: float) -> None:
        self.rank = rank
        self.size = size
        self._patience_s = patience_s
        self.upper: Optional[Neighbour] = None
        self.lower: Optional[Neighbour] = None

    def connect(self, world: World, step: int) -> None:
        """Meet the neighbours through files in the rendezvous folder. All must stand at the same step."""
        folder = world.rendezvous
        os.makedirs(folder, mode=0o700, exist_ok=True)
        deadline = time.monotonic() + self._patience_s
        hello = {"size": self.size, "step": step}
        with socket.socket() as listening:
            if self.rank < self.size - 1:
                token = secrets.token_hex(16)
                listening.bind((world.address, 0))
                listening.listen(4)
                port = listening.getsockname()[1]
                self._publish(folder, {"host": world.address, "port": port, "token": token}, deadline)
            if self.rank > 0:
                self.upper = self._call(folder, hello, deadline)
            if self.rank < self.size - 1:
                self.lower = self._answer(listening, token, hello, deadline)
                os.unlink(os.path.join(folder, f"rank-{self.rank}"))  # read by the rank that needed it

    def _publish(self, folder: str, place: Any, deadline: float) -> None:
        """Tell the rank below where this one listens. A disk that is full for a while is waited for."""
        path = os.path.join(folder, f"rank-{self.rank}")
        deadline = min(deadline, time.monotonic() + ROOM_S)
        while True:
            try:
                with open(path + ".tmp", "w") as file:
                    json.dump(place, file)
                break
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        os.replace(path + ".tmp", path)

    def _call(self, folder: str, hello: Any, deadline: float) -> Neighbour:
        path = os.path.join(folder, f"rank-{self.rank - 1}")
        while not os.path.exists(path):
            if time.monotonic() > deadline:
                raise Failure(f"rank {self.rank - 1} did not appear within {self._patience_s:g} s")
            time.sleep(0.02)
        with open(path) as file:
            place = json.load(file)
        try:
            connection = socket.create_connection((place["host"], place["port"]), timeout=self._patience_s)
        except OSError as error:
            raise Failure(f"rank {self.rank - 1} at {place['host']} cannot be reached: {error}") from error
        upper = Neighbour(connection, self.rank - 1, self._patience_s)
        upper.send(json.dumps({**hello, "token": place["token"]}).encode())
        self._compare(hello, json.loads(upper.receive()), self.rank - 1)
        return upper

    def _answer(self, listening: socket.socket, token: str, hello: Any, deadline: float) -> Neighbour:
        while True:
            listening.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = listening.accept()
            except OSError as error:
                raise Failure(f"rank {self.rank + 1} did not call within {self._patience_s:g} s") from error
            lower = Neighbour(connection, self.rank + 1, self._patience_s)
            try:
                theirs = json.loads(lower.receive())
                welcome = secrets.compare_digest(str(theirs.pop("token")), token)
            except (Failure, ValueError, KeyError, AttributeError):
                welcome = False
            if not welcome:  # another program that found the port
                connection.close()
                continue
            lower.send(json.dumps(hello).encode())
            self._compare(hello, theirs, self.rank + 1)
            return lower

    def _compare(self, mine: Any, theirs: Any, rank: int) -> None:
        if mine != theirs:
            raise Failure(f"rank {self.rank} begins with {mine}, rank {rank} with {theirs}")

    def swap(self, to_upper: bytes, to_lower: bytes) -> Tuple[Optional[bytes], Optional[bytes]]:
        """Messages of the upper and the lower neighbour for mine. Even ranks begin with the lower one, so that rows of
        any length pass: of each pair one rank sends while the other receives."""
        from_upper = from_lower = None
        for side in ("lower", "upper") if self.rank % 2 == 0 else ("upper", "lower"):
            other = self.lower if side == "lower" else self.upper
            if other is None:
                continue
            mine = to_lower if side == "lower" else to_upper
            if self.rank % 2 == 0:
                other.send(mine)
                theirs = other.receive(len(mine))
            else:
                theirs = other.receive(len(mine))
                other.send(mine)
            if side == "lower":
                from_lower = theirs
            else:
                from_upper = theirs
        return from_upper, from_lower

    def all_agree(self, mine: bool) -> bool:
        """Whether every rank says yes; the same answer for all."""
        below = self.lower is None or self.lower.receive() == b"y"
        answer = b"y" if mine and below else b"n"
        if self.upper is not None:
            self.upper.send(answer)
            answer = self.upper.receive()
        if self.lower is not None:
            self.lower.send(answer)
        return answer == b"y"

    def gather(self, data: bytes) -> bytes:
        """The data of all in the order of ranks, for rank 0; what is behind them for the others."""
        everything = data + (b"" if self.lower is None else self.lower.receive())
        if self.upper is not None:
            self.upper.send(everything)
        return everything


class Processor:
    """The (virtual) processor that this rank is bound to. It is held by sleeping, not by computing: time-sharing it
    costs what it would cost on a real one, and needs no real one."""

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._lock: Optional[int] = None
        self._name = ""
        if pace_s > 0:
            self._take(os.environ.get("EJB_PROCESSOR") or "")

    def _take(self, name: str) -> None:
        if not name or name == self._name:
            return
        folder = os.environ.get("EJB_PROCESSOR_DIR") or "/tmp"
        os.makedirs(folder, exist_ok=True)
        if self._lock is not None:
            os.close(self._lock)
        self._lock = os.open(os.path.join(folder, name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        self._name = name

    def _look(self) -> None:
        """The rank may be given another processor while it runs: the file says which it has now."""
        try:
            with open(os.environ["EJB_PROCESSOR_FILE"], encoding="ascii") as file:
                self._take(file.read().strip())
        except (KeyError, OSError):
            pass

    def __enter__(self) -> None:
        if self._lock is not None:
            self._look()
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._until = time.monotonic() + self._pace_s

    def __exit__(self, *exception: object) -> None:
        left = self._until - time.monotonic()
        if left > 0 and exception[0] is None:
            time.sleep(left)
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


class Plate:
    """This rank's rows, and the step at which they are."""

    def __init__(self, ranks: Ranks, width: int) -> None:
        self.width = width
        self.first, self.behind = rows_of(ranks.rank, ranks.size, width)
        self.step = 0
        self.rows: List[Row] = [[0.0] * width for _ in range(self.first, self.behind)]

    def compute(self, above: Row, below: Row) -> None:
        """One step. Each cell is computed by the same operations in the same order whatever rank it is on."""
        done = []
        uppers = [above, *self.rows[:-1]]
        lowers = [*self.rows[1:], below]
        for upper, row, lower in zip(uppers, self.rows, lowers):
            left = [0.0, *row[:-1]]
            right = [*row[1:], 0.0]
            done.append(
                [c + DIFFUSION * ((u + d) + (w + e) - 4.0 * c) for u, c, d, w, e in zip(upper, row, lower, left, right)]
            )
        self.rows = done
        self.step += 1

    def save(self, path: str, ranks: Ranks) -> None:
        """Write and flush to the disk; OSError where that fails."""
        data = packed(self.rows)
        head = {"width": self.width, "ranks": ranks.size, "step": self.step, "sha256": hashlib.sha256(data).hexdigest()}
        with open(path, "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + data)
            file.flush()
            os.fsync(file.fileno())

    def load(self, folder: str) -> None:
        """Take this rank's rows from a checkpoint, which may have been written by another number of ranks."""
        writers = 1
        writer = 0
        rows: List[Row] = []
        steps = set()
        while writer < writers:
            path = os.path.join(folder, f"rank-{writer}.ckpt")
            try:
                with open(path, "rb") as file:
                    head, data = json.loads(file.readline()), file.read()
                writers = head["ranks"]
            except (OSError, ValueError, KeyError) as error:
                raise Failure(f"the checkpoint {path} cannot be read: {error}") from error
            first, behind = rows_of(writer, writers, self.width)
            if head["width"] != self.width or hashlib.sha256(data).hexdigest() != head["sha256"]:
                raise Failure(f"the checkpoint {path} is not whole, or of a plate of another size")
            if first < self.behind and behind > self.first:
                rows += unpacked(data, self.width)[max(self.first - first, 0) : self.behind - first]
            steps.add(head["step"])
            writer += 1
        if len(steps) != 1:
            raise Failure(f"the checkpoint in {folder} is of different steps: {sorted(steps)}")
        self.rows = rows
        self.step = steps.pop()


class Telling:
    """Reports to EJB now and then how many steps are done, of how many. Rank 0 does, for all."""

    def __init__(self, ranks: Ranks, steps: int) -> None:
        self._path = os.environ.get("EJB_PROGRESS") if ranks.rank == 0 else None
        self._steps = steps
        self._next = 0.0

    def tell(self, step: int) -> None:
        now = time.monotonic()
        if self._path is None or now < self._next:
            return
        self._next = now + TELLING_S
        with contextlib.suppress(OSError):  # a full disk must not end what goes on computing
            with open(self._path + ".tmp", "w") as file:
                file.write(f"{step} {self._steps}\n")
            os.replace(self._path + ".tmp", self._path)


def checkpoint(plate: Plate, ranks: Ranks) -> bool:
    """Every rank's rows on disk under their final names (True), or none (False). The same answer on all ranks."""
    folder = os.environ.get("EJB_CHECKPOINT_DIR", "")
    path = os.path.join(folder, f"rank-{ranks.rank}.ckpt")
    complaint = ""
    try:
        if not folder:
            raise OSError("EJB_CHECKPOINT_DIR is not set")
        os.makedirs(folder, exist_ok=True)
        plate.save(path + ".tmp", ranks)
    except OSError as error:
        complaint = str(error)
    renaming = good = ranks.all_agree(not complaint)
    if renaming:
        try:
            os.replace(path + ".tmp", path)
            fd = os.open(folder, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        except OSError as error:
            complaint = str(error)
        good = ranks.all_agree(not complaint)
    if good:
        return True
    for left in (path + ".tmp", path) if renaming else (path + ".tmp",):
        try:
            os.unlink(left)
        except OSError:
            pass  # was not written
    if complaint or ranks.rank == 0:
        why = complaint or "another rank could not write"
        with contextlib.suppress(OSError):  # the output may be on the very disk that is full
            print(
                f"heat: rank {ranks.rank}: no checkpoint at step {plate.step}, going on: {why}",
                file=sys.stderr,
                flush=True,
            )
    return False


def run(options: argparse.Namespace) -> int:
    """One rank; its exit code."""
    asked = False

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGUSR1, ask)
    world = World.from_environment()
    # A step takes `size` times the pace where all ranks share one processor.
    ranks = Ranks(world.rank, world.size, max(options.patience, 4 * options.pace * world.size))
    if options.size < ranks.size:
        raise Failure(f"a plate of {options.size} rows is too small for {ranks.size} ranks")
    plate = Plate(ranks, options.size)
    if os.environ.get("EJB_RESTART_DIR"):
        plate.load(os.environ["EJB_RESTART_DIR"])
    if ranks.size > 1:
        ranks.connect(world, plate.step)
    processor = Processor(options.pace)
    telling = Telling(ranks, options.steps)
    target = NEVER  # the step of the next checkpoint
    above_all, below_all = [HOT] * plate.width, [0.0] * plate.width
    while plate.step < options.steps:
        if plate.step == target:
            asked = False
            if checkpoint(plate, ranks):
                signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # one that comes while the interpreter ends must not kill
                return CHECKPOINTED
            target = NEVER
        if asked:
            # Word of it travels one rank a step: by then both ends know. The earliest step that any rank names counts,
            # and all ranks are asked, so that it is mostly the one of the middle.
            asked = False
            target = min(target, plate.step + max(ranks.rank, ranks.size - 1 - ranks.rank, 1))
        head = HALO.pack(plate.step, target)
        from_upper, from_lower = ranks.swap(head + packed(plate.rows[:1]), head + packed(plate.rows[-1:]))
        edges = []
        for message, edge in ((from_upper, above_all), (from_lower, below_all)):
            if message is not None:
                step, wanted = HALO.unpack_from(message)
                if step != plate.step:
                    raise Failure(f"rank {ranks.rank} is at step {plate.step}, its neighbour at {step}")
                target = min(target, wanted)
                edge = unpacked(message[HALO.size :], plate.width)[0]
            edges.append(edge)
        with processor:
            plate.compute(*edges)
        telling.tell(plate.step)
        if options.checkpoint_every and plate.step % options.checkpoint_every == 0 and plate.step < options.steps:
            checkpoint(plate, ranks)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    code = finish(plate, ranks, options.result)
    if ranks.rank == 0 and world.rendezvous and "EJB_RANK" not in os.environ:
        try:
            os.rmdir(world.rendezvous)
        except OSError:
            pass  # a shared file system may still show what was removed
    return code


def finish(plate: Plate, ranks: Ranks, result: Optional[str]) -> int:
    """Bring the plate together on rank 0 and write it. All ranks end with the same code."""
    everything = ranks.gather(packed(plate.rows))
    good = True
    if ranks.rank == 0:
        rows = unpacked(everything, plate.width)
        # Hexadecimal: every bit is there, and the file reads the same on any machine.
        text = f"heat {plate.width} x {plate.width} after {plate.step} steps\n"
        text += "".join(" ".join(map(float.hex, row)) + "\n" for row in rows)
        values = [value for row in rows for value in row]
        if result:
            try:
                with open(result + ".tmp", "w") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(result + ".tmp", result)
            except OSError as error:
                print(f"heat: the result cannot be written: {error}", file=sys.stderr)
                good = False
        print(f"heat: {plate.width} x {plate.width} cells after {plate.step} steps, computed by {ranks.size} ranks")
        mean = math.fsum(values) / len(values)
        print(f"heat: coldest {min(values):.6f}, mean {mean:.6f}, hottest {max(values):.6f}")
        print(f"heat: sha256 {hashlib.sha256(text.encode()).hexdigest()}", flush=True)
    return 0 if ranks.all_agree(good) else 1


def spawn(number: int, arguments: List[str]) -> int:
    """Run the ranks from here, each on a processor of its own; the greatest exit code."""
    import subprocess  # not by every rank: a move waits for all of them to start
    import tempfile

    with tempfile.TemporaryDirectory(prefix="heat-") as folder:
        ranks: List["subprocess.Popen[bytes]"] = []

        def end(signum: int, frame: object) -> None:
            for rank in ranks:
                rank.send_signal(signum)

        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(signum, end)
        for rank in range(number):
            own = {"EJB_RANK": str(rank), "EJB_SIZE": str(number), "EJB_RENDEZVOUS": folder, "EJB_ADDRESS": "127.0.0.1"}
            environment = {name: value for name, value in os.environ.items() if name != "EJB_PROCESSOR"}
            ranks.append(
                subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments], env={**environment, **own})
            )
        return max(code if code >= 0 else 128 - code for code in [rank.wait() for rank in ranks])


def seconds(text: str) -> float:
    """20ms, 0.5s or 0.5."""
    for suffix, unit in (("ms", 0.001), ("s", 1.0), ("", 1.0)):
        if text.endswith(suffix):
            value = float(text[: len(text) - len(suffix)]) * unit
            if not 0 <= value < 1e6:
                break
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 20ms or 0.5s")


def natural(text: str) -> int:
    if not (text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="heat equation on a plate, by ranks that EJB can move", allow_abbrev=False
    )
    parser.add_argument("--size", type=natural, default=64, help="rows and columns of the plate (default: 64)")
    parser.add_argument("--steps", type=natural, default=500, help="(default: 500)")
    parser.add_argument("--pace", type=seconds, default=0.0, help="hold the processor so long each step, such as 20ms")
    parser.add_argument("--result", metavar="FILE", help="write the temperatures of all cells")
    parser.add_argument("--checkpoint-every", type=natural, metavar="K", help="also write a checkpoint every K steps")
    parser.add_argument("--patience", type=seconds, default=60.0, help="wait so long for another rank (default: 60s)")
    parser.add_argument("--spawn", type=natural, metavar="P", help="start P ranks from here, without EJB")
    options = parser.parse_args()
    if options.spawn:
        at = sys.argv.index("--spawn") if "--spawn" in sys.argv else -1
        rest = (
            sys.argv[1:at] + sys.argv[at + 2 :] if at > 0 else [a for a in sys.argv[1:] if not a.startswith("--spawn=")]
        )
        return spawn(options.spawn, rest)
    try:
        return run(options)
    except Failure as error:
        print(f"heat: rank {World.from_environment().rank}: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
