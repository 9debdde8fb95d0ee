"""The ranks of one epoch on this worker: launch, checkpoint, stop, and their exits."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional

from .engines import engine as engine_named
from .engines.base import Checkpoint, EngineError, EpochContext
from .files import make_dir, read_json
from .loop import Loop, Timer
from .processes import Child, Processes
from .settings import Subjob

Reply = Callable[[bool, str, Dict[str, Any]], None]

SIGNAL_HOLD_S = 1.0
"""An end by one of ENDING_CODES may be the batch system ending the whole job: it is told if the worker outlives it."""
ENDING_CODES = frozenset(128 + s for s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL))

# Of the script's own world, not of the ranks'.
_NOT_FOR_RANKS = ("EJB_LAUNCH_SOCKET", "EJB_SHIMS", "EJB_RESTART_DIR")


class Place:
    """What is the same for all ranks on this node. `cpus`: the processors' CPU numbers; None where nothing is bound."""

    def __init__(self, node: str, address: str, processor_dir: str, cpus: Optional[List[int]]) -> None:
        self.node = node
        self.address = address
        self.processor_dir = processor_dir
        self.cpus = cpus


def cpus_to_bind(processors: int, binding: str) -> Optional[List[int]]:
    """The CPUs to bind ranks to, where this process may use just as many as it was given processors."""
    usable = sorted(os.sched_getaffinity(0))
    return usable if binding == "auto" and len(usable) == processors else None


class LaunchError(Exception):
    """One sentence; `code` is what a shell would say (127 not found, 126 not executable)."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class EpochRun:
    """One epoch's ranks on this worker."""

    def __init__(
        self,
        payload: Dict[str, Any],
        *,
        subjob: Subjob,
        place: Place,
        processes: Processes,
        loop: Loop,
        report: Callable[..., object],
    ) -> None:
        self.epoch = int(payload["epoch"])
        self._payload = payload
        self._subjob = subjob
        self._place = place
        self._processes = processes
        self._loop = loop
        self._report = report
        self._folder = str(payload["epoch_dir"])
        try:
            self._engine = engine_named(str(payload["engine"]))
        except EngineError as error:
            raise LaunchError(str(error)) from None
        self._context = EpochContext(
            epoch=self.epoch,
            payload=payload,
            checkpoint_dir=os.path.join(self._folder, "checkpoint"),
            restart_dir=payload.get("restart_dir"),
            run_tool=self._run_tool,
        )
        self._checkpoint: Optional[Checkpoint] = None
        self._checkpoint_reply: Optional[Reply] = None
        self._checkpoint_began = 0.0
        self._deadline: Optional[Timer] = None
        self._poll: Optional[Timer] = None
        self._finished = False
        self._stop_replies: List[Reply] = []
        self._stopping = False

    @property
    def running(self) -> int:
        return sum(1 for child in self._context.ranks.values() if child.code is None)

    def exits(self) -> Dict[str, int]:
        return {str(rank): c.code for rank, c in sorted(self._context.ranks.items()) if c.code is not None}

    def launch(self) -> Dict[str, int]:
        """Start the ranks; their process ids. Raises LaunchError, and then none of them is left."""
        try:
            problem = self._engine.probe()
            if problem:
                raise LaunchError(problem)
            launch = read_json(str(self._payload["launch_file"]))
            if not launch["argv"]:
                raise LaunchError("the launch names no program: %s" % self._payload["launch_file"])
            self._make_folders()
            self._engine.prepare(self._context)
            if not os.path.isdir(launch["cwd"]):
                raise LaunchError(
                    "the working directory is not there on node %s: %s" % (self._place.node, launch["cwd"]), 126
                )
            for entry in self._payload["ranks"]:
                self._start(int(entry["rank"]), int(entry["processor"]), launch)
        except (EngineError, LaunchError, OSError, ValueError, KeyError, TypeError) as error:
            self._abandon()
            if isinstance(error, LaunchError):
                raise
            raise LaunchError(_sentence(error)) from None
        return {str(rank): child.pid for rank, child in self._context.ranks.items()}

    def checkpoint(self, timeout_s: float, reply: Reply) -> None:
        if self._checkpoint is not None or self._stopping:
            reply(
                False,
                "epoch %d is being %s already" % (self.epoch, "stopped" if self._stopping else "checkpointed"),
                {},
            )
            return
        try:
            self._checkpoint = self._engine.checkpoint(self._context)
        except EngineError as error:
            reply(False, str(error), {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        self._checkpoint_reply = reply
        self._checkpoint_began = time.monotonic()
        self._deadline = self._loop.call_later(timeout_s, self._checkpoint_late)
        self._advance()

    def stop(self, grace_s: float, reply: Reply) -> None:
        """TERM, then KILL after `grace_s` seconds; the reply comes when the last rank has ended."""
        self._stopping = True
        self._stop_replies.append(reply)
        if self._checkpoint is not None:
            self._checkpoint_done(False, "the epoch was stopped", {})
        if not self.running:
            self._all_ended()
            return
        self._send(signal.SIGTERM)
        self._loop.call_later(grace_s, lambda: self._send(signal.SIGKILL))

    def _send(self, signum: int) -> None:
        for child in self._context.ranks.values():
            child.send_group(signum)

    def _make_folders(self) -> None:
        for name in ("", "checkpoint", "rendezvous", "output"):
            make_dir(os.path.join(self._folder, name))
        link = os.path.join(self._folder, "launch.json")
        try:
            os.symlink(str(self._payload["launch_file"]), link)
        except FileExistsError:
            pass  # another node's worker was first

    def _start(self, rank: int, processor: int, launch: Dict[str, Any]) -> None:
        argv = [str(word) for word in launch["argv"]]
        env = self._environment(rank, processor, launch["env"])
        start = self._engine.launch if self._context.restart_dir is None else self._engine.restart
        command = start(self._context, rank, argv, env)
        output = os.path.join(self._folder, "output", str(rank))
        cpus = self._place.cpus
        try:
            self._context.ranks[rank] = self._processes.spawn(
                command.argv,
                env=command.env,
                cwd=launch["cwd"],
                stdout=output + ".out",
                stderr=output + ".err",
                cpu=cpus[processor] if cpus is not None else None,
                on_exit=lambda code: self._ended(rank, code),
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            code = 126 if isinstance(error, PermissionError) else 127
            raise LaunchError(
                "cannot start %s on node %s: %s" % (argv[0], self._place.node, error.strerror), code
            ) from None

    def _environment(self, rank: int, processor: int, given: Dict[str, str]) -> Dict[str, str]:
        env = {str(name): str(value) for name, value in given.items() if name not in _NOT_FOR_RANKS}
        size = str(self._payload["size"])
        env.update(
            EJB_JOB_ID=self._subjob.job,
            EJB_SUBJOB_ID=self._subjob.subjob,
            EJB_RANK=str(rank),
            EJB_SIZE=size,
            EJB_EPOCH=str(self.epoch),
            EJB_NODE=self._place.node,
            EJB_PROCESSOR="%s.%s.%d" % (self._subjob.subjob, self._place.node, processor),
            EJB_PROCESSOR_DIR=self._place.processor_dir,
            EJB_CHECKPOINT_DIR=self._context.checkpoint_dir,
            EJB_RENDEZVOUS=os.path.join(self._folder, "rendezvous"),
            EJB_ADDRESS=self._place.address,
            SLURM_PROCID=str(rank),
            SLURM_NTASKS=size,
            SLURM_NPROCS=size,
        )
        if self._context.restart_dir is not None:
            env["EJB_RESTART_DIR"] = self._context.restart_dir
        return env

    def _run_tool(self, name: str, argv: List[str], env: Dict[str, str], on_exit: Callable[[int], None]) -> Child:
        log = os.path.join(self._folder, "%s-%s.log" % (name, self._place.node))
        return self._processes.spawn(argv, env=env, cwd=self._folder, stdout=log, stderr=log, on_exit=on_exit)

    def _abandon(self) -> None:
        self._stopping = True
        self._send(signal.SIGKILL)
        if not self.running:
            self._all_ended()

    def _ended(self, rank: int, code: int) -> None:
        if self._checkpoint is not None:
            self._advance()
        elif not self._stopping:
            self._tell(rank, code)
        if not self.running:
            self._all_ended()

    def _tell(self, rank: int, code: int) -> None:
        def tell() -> None:
            if not self._stopping:
                self._report("rank-exit", epoch=self.epoch, rank=rank, code=code)

        if code in ENDING_CODES:
            self._loop.call_later(SIGNAL_HOLD_S, tell)
        else:
            tell()

    def _all_ended(self) -> None:
        if not self._finished:
            self._finished = True
            self._engine.finish(self._context)
        replies, self._stop_replies = self._stop_replies, []
        for reply in replies:
            reply(True, "", {"exits": self.exits()})

    def _advance(self) -> None:
        if self._checkpoint is None:
            return
        try:
            outcome = self._checkpoint.advance()
        except (EngineError, OSError) as error:
            self._checkpoint_done(False, _sentence(error), {})
            return
        if outcome is not None:
            sizes = {str(rank): size for rank, size in sorted(outcome.sizes.items())}
            self._checkpoint_done(outcome.ok, outcome.error, sizes)
            return
        if self._poll is not None:
            self._poll.cancel()
        if self._checkpoint.poll_s is not None:
            self._poll = self._loop.call_later(self._checkpoint.poll_s, self._advance)

    def _checkpoint_late(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint_done(False, self._checkpoint.timed_out(), {})

    def _checkpoint_done(self, ok: bool, error: str, sizes: Dict[str, int]) -> None:
        self._checkpoint = None
        for timer in (self._deadline, self._poll):
            if timer is not None:
                timer.cancel()
        seconds = round(time.monotonic() - self._checkpoint_began, 3)
        reply, self._checkpoint_reply = self._checkpoint_reply, None
        if reply is not None:
            reply(ok, error, {"exits": self.exits(), "bytes": sizes, "seconds": seconds})


def _sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "%s is missing" % error
    return str(error) or type(error).__name__
