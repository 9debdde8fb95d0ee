"""What a checkpoint engine decides: what a rank's process is, how a checkpoint is asked for, when it counts, and what a
restart starts.

The worker does the rest: processes, output, time-outs, reports. An engine is stateless; what belongs to one epoch it
keeps in `EpochContext.state`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ..processes import Child

PREPARE = "prepare-"
"""Helpers of such names are commands of the user's: they have what the ranks have of the launch."""


class EngineError(Exception):
    """One sentence for the operation's `error`."""


class SpoiledCheckpoint(EngineError):
    """The checkpoint to restart from is incomplete or damaged: no placement can begin with it."""


class EpochContext:
    """One epoch on this worker.

    `run_tool` starts a helper process of the engine (a coordinator, a command), its output in the log file
    `<folder>/<name>-<node>.log`. It calls back with its exit code. `home`: this worker keeps what an epoch has once (a
    coordinator, the PMI server). `services`: the helpers that belong to the computation, by name. `scratch`: makes and
    names a folder of this machine for this epoch, the same for all of the job's workers here. `launched`: how many
    processes the workers start for the epoch's ranks. It is one each, or one in all where a launcher starts them (and
    `launcher` is true); `ranks` has that one as rank 0. `cwd`: the folder in which ranks begin; known once they do.
    `most_files`: how many files a rank may have open (-1: no limit); known once they begin. `lost` is called, with a
    sentence, where something that every rank depends on has ended by itself.
    """

    __slots__ = (
        "address",
        "checkpoint_dir",
        "cwd",
        "epoch",
        "folder",
        "home",
        "launched",
        "launcher",
        "lost",
        "most_files",
        "node",
        "payload",
        "ranks",
        "restart_dir",
        "run_tool",
        "scratch",
        "services",
        "size",
        "state",
    )

    def __init__(
        self,
        *,
        epoch: int,
        payload: Mapping[str, Any],
        checkpoint_dir: str,
        restart_dir: Optional[str],
        node: str,
        address: str,
        scratch: Callable[[], str],
        run_tool: Callable[[str, List[str], Dict[str, str], Callable[[int], None]], Child],
        lost: Callable[[str], None],
    ) -> None:
        self.epoch = epoch
        self.payload = payload
        self.checkpoint_dir = checkpoint_dir
        self.restart_dir = restart_dir
        self.run_tool = run_tool
        self.lost = lost
        self.node = node
        self.address = address
        self.scratch = scratch
        self.folder = str(payload["epoch_dir"])
        self.cwd = ""
        self.most_files = -1
        self.size = int(payload["size"])
        self.home = bool(payload.get("home", True))
        self.launcher = payload.get("launcher") is not None
        self.launched = 1 if self.launcher else self.size
        self.services: Dict[str, Child] = {}
        self.ranks: Dict[int, Child] = {}
        self.state: Dict[str, Any] = {}


class Command:
    """What is executed for one rank. `attributes`: what it has otherwise than its launch says (:mod:`..attributes`)."""

    __slots__ = ("argv", "attributes", "env")

    def __init__(self, argv: List[str], env: Dict[str, str], attributes: Optional[Mapping[str, Any]] = None) -> None:
        self.argv = argv
        self.env = env
        self.attributes = attributes or {}


class Outcome:
    """How a checkpoint ended on this worker.

    `sizes`: bytes written, by rank. `exits`: codes to report instead of the processes' own, by rank. `killed`: the
    ranks that the engine has ended itself, since it could not go on: that is no end of theirs.
    """

    __slots__ = ("error", "exits", "killed", "ok", "sizes")

    def __init__(
        self,
        ok: bool,
        error: str = "",
        sizes: Optional[Dict[int, int]] = None,
        exits: Optional[Dict[int, int]] = None,
        killed: Sequence[int] = (),
    ) -> None:
        self.ok = ok
        self.error = error
        self.sizes = sizes or {}
        self.exits = exits or {}
        self.killed = tuple(killed)


class Checkpoint:
    """A checkpoint under way.

    The worker calls `advance` at every end of a rank, and after `poll_s` seconds unless that is None.
    """

    poll_s: Optional[float] = 0.05

    def advance(self) -> Optional[Outcome]:
        """The outcome once it is known."""
        raise NotImplementedError

    def timed_out(self) -> Outcome:
        """The time is over: what was missing. Ranks that can go on are left running."""
        raise NotImplementedError


class Engine:
    """One way to checkpoint. Every method may raise EngineError."""

    name = ""
    keeps_services = False
    """Whether helpers are members of the computation, checkpointed and restored along with the ranks."""
    may_hang = False
    """Whether ranks that were brought back by it may hang, though nothing shows it."""
    gave_up: Optional[int] = None
    """The exit code of a process that the engine itself has ended because it could not go on."""

    def probe(self) -> str:
        """Why this engine cannot be used on this node, or "" if it can."""
        raise NotImplementedError

    def prepare(self, epoch: EpochContext) -> None:
        """Before the first rank of an epoch is started here."""
        raise NotImplementedError

    def ready(self, epoch: EpochContext) -> bool:
        """Whether ranks can be started now; asked again and again after `prepare`."""
        return True

    def launch(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        """The process of a rank that starts from the beginning. `env` is the rank's whole environment."""
        raise NotImplementedError

    def restart(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        """The process of a rank that resumes from `epoch.restart_dir`."""
        raise NotImplementedError

    def service(self, epoch: EpochContext, name: str, argv: List[str], env: Dict[str, str]) -> Command:
        """The process of a helper that belongs to the computation, from the beginning."""
        return Command(argv, env)

    def restored_services(self, epoch: EpochContext) -> Dict[str, Command]:
        """The helpers that come back from `epoch.restart_dir` along with the ranks; only where `epoch.home`."""
        return {}

    def up(self, epoch: EpochContext) -> bool:
        """Whether the ranks run; asked again and again once every process is started."""
        return True

    def ended(self, epoch: EpochContext, rank: int, code: int) -> "tuple[int, str]":
        """A rank has ended by itself: the code that counts, and what is to be said of it, in a sentence, or ""."""
        return code, ""

    def tell_progress(self, epoch: EpochContext, path: str) -> None:
        """Write down how far the ranks are, where the engine can see it and they do not tell it themselves."""
        return

    def obstacle(self, epoch: EpochContext) -> str:
        """What is seen in the ranks here that keeps them from being checkpointed or brought back, in a sentence."""
        return ""

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        """Ask the ranks of an epoch (`epoch.ranks`) for a checkpoint after which they end."""
        raise NotImplementedError

    def finish(self, epoch: EpochContext) -> None:
        """After the last rank of an epoch has ended here; ranks elsewhere may still run."""
        raise NotImplementedError

    def close(self, epoch: EpochContext) -> None:
        """No rank of the epoch runs any more, anywhere, or none is to."""
        return
