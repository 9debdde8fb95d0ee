"""The ranks of one epoch on this worker: launch, checkpoint, stop, and their exits."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from . import degrees, leftovers, linux, resizing, stillness
from .engines import engine as engine_named
from .engines.base import Checkpoint, Command, EngineError, EpochContext, Outcome, SpoiledCheckpoint
from .files import check_room, make_dir, read_json
from .loop import Loop, Timer
from .mpi import MpiEpoch
from .mpirun import OneNodeOnly, Spread
from .nodefolder import Scratch
from .processes import Child, Processes
from .rankinput import RankInput
from .settings import Subjob, site_variables, with_modules
from .watching import WRITING_POLL_S, Samples, Writing, progress_file, resident
from .wiring import Wiring

Reply = Callable[[bool, str, Dict[str, Any]], None]

SIGNAL_HOLD_S = 1.0
"""An end by one of ENDING_CODES may be the batch system ending the whole job: it is reported if the worker outlives it.
"""
ENDING_CODES = frozenset(128 + s for s in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL))

KILLED = 128 + signal.SIGKILL

BRING_UP_POLL_S = 0.02
BRING_UP_S = 60.0
"""How long a launch may take, where its payload does not say."""
SERVICE_GRACE_S = 2.0
LOOKS_BEFORE_CHECKPOINT = 6
LOOK_AGAIN_S = 0.05
"""Before a checkpoint: a temporary file that is open for a moment is no reason not to move."""

# What a launch meets where a disk or a table of the system is full, or a disk is gone.
_NOT_THE_PROGRAMS_FAULT = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ESTALE,
        errno.EROFS,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
    )
)

# Of the script's own world, not of the ranks'.
_NOT_FOR_RANKS = ("EJB_LAUNCH_SOCKET", "EJB_LAUNCH_FOLDER", "EJB_SHIMS", "EJB_RESTART_DIR")

_BATCH_SYSTEMS = ("SLURM_", "PBS_", "LSB_", "OMPI_COMM_", "PMIX_", "PMI_")


class Place:
    """What is the same for all ranks on this node. `cpus`: the processors' CPU numbers; None where nothing is bound."""

    def __init__(
        self,
        node: str,
        address: str,
        processor_dir: str,
        cpus: Optional[List[int]],
        processors: int = 1,
        binding: str = "none",
    ) -> None:
        self.node = node
        self.processors = processors
        self.address = address
        self.processor_dir = processor_dir
        self.cpus = cpus
        self._binding = binding

    def cpus_of(self, payload: Mapping[str, Any]) -> Optional[List[int]]:
        """Those of an operation that says which of the node's processors the job has; else all, or None."""
        told = payload.get("cpus")
        if not told:
            return self.cpus
        usable = cpus_to_bind(int(told["of"]), self._binding)
        return None if usable is None else [usable[int(one)] for one in told["numbers"]]


def cpus_to_bind(processors: int, binding: str) -> Optional[List[int]]:
    """The CPUs to bind ranks to, where this process may use just as many as it was given processors."""
    usable = resizing.in_order(sorted(os.sched_getaffinity(0)))
    return usable if binding == "auto" and len(usable) == processors else None


class LaunchError(Exception):
    """One sentence; `code` is what a shell would say (127 not found, 126 not executable); 0: not its fault.

    `spoiled`: the checkpoint to restart from is, wherever one tries. `broken`: ranks were being restored and ended, or
    did not come back in time. `one_node`: what starts them cannot do so on several.
    """

    def __init__(self, message: str, code: int = 1, *, spoiled: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.spoiled = spoiled
        self.broken = False
        self.one_node = False

    @property
    def data(self) -> Dict[str, Any]:
        """For the result of the operation."""
        if self.one_node:
            return {"one_node": True}
        if self.spoiled or self.broken:
            return {"spoiled": True} if self.spoiled else {"broken": True}
        return {"code": self.code} if self.code else {}


def _confined(payload: Dict[str, Any], subjob: Subjob) -> None:
    """Raises LaunchError where a launch would read or write elsewhere than in the job's own folder."""
    try:
        subjob.inside(str(payload["epoch_dir"]), "epochs")
        subjob.inside(str(payload["launch_file"]), "launches")
        if payload.get("restart_dir") is not None:
            subjob.inside(str(payload["restart_dir"]), "epochs")
        plugin = (payload.get("dmtcp") or {}).get("plugin")
        if plugin is not None and not os.path.realpath(plugin).startswith(os.path.realpath(subjob.spool) + os.sep):
            raise ValueError("%s is not in the spool" % plugin)
    except ValueError as error:
        raise LaunchError(str(error)) from None


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
        sure: Callable[[Callable[[], None]], None],
        shielded: bool = False,
    ) -> None:
        """`shielded`: the ranks do not hear a TERM of the batch system, for they are to be checkpointed on it. `sure`:
        calls back once an end is sure not to be that of the whole job.
        """
        self._sure = sure
        self._shielded = shielded
        self.epoch = int(payload["epoch"])
        self._payload = payload
        self._subjob = subjob
        self._place = place
        self._processes = processes
        self._loop = loop
        self._report = report
        self._folder = str(payload["epoch_dir"])
        _confined(payload, subjob)
        try:
            self._engine = engine_named(str(payload["engine"]))
        except EngineError as error:
            raise LaunchError(str(error)) from None
        self._context = EpochContext(
            epoch=self.epoch,
            payload=payload,
            checkpoint_dir=os.path.join(self._folder, "checkpoint"),
            restart_dir=payload.get("restart_dir"),
            node=place.node,
            address=place.address,
            scratch=lambda: self._scratch.path(),
            run_tool=self._run_tool,
            lost=self._coordinator_lost,
        )
        self._scratch = Scratch(subjob.job, self.epoch)
        self._mpi: Optional[Wiring] = None
        if payload.get("mpi") is not None:
            self._mpi = Wiring(
                MpiEpoch(payload["mpi"], epoch_dir=self._folder, size=self._context.size, address=place.address),
                self._context,
                self._engine,
                loop=loop,
                start_service=self._start_service,
                report=report,
            )
        # One command that starts all ranks: its end is theirs. They are on this worker, or spread over several.
        self._launcher: Optional[Dict[str, Any]] = payload.get("launcher")
        self._cpus = place.cpus_of(payload)
        self._spread: Optional[Spread] = None
        if self._launcher is not None and self._launcher.get("hosts"):
            self._spread = Spread(self._launcher, self._context)
        self._codes: Dict[int, int] = {}
        self._bringing_up: Optional[Iterator[None]] = None
        self._launch_done: Optional[Callable[[Optional[LaunchError]], None]] = None
        self._launch_until = 0.0
        self._launch_began = 0.0
        self.first_s = 0.0
        self.launch_s = 0.0
        self._checkpoint: Optional[Checkpoint] = None
        self._checkpoint_reply: Optional[Reply] = None
        self._checkpoint_began = 0.0
        self._writing: Optional[Writing] = None
        self._samples: Optional[Samples] = None
        self._stillness: Optional[stillness.Stillness] = None
        self._deadline: Optional[Timer] = None
        self._poll: Optional[Timer] = None
        self._untold: List[Tuple[int, int]] = []
        self._held_long_enough: Set[int] = set()
        self._finished = False
        self._input: Optional[RankInput] = None
        self._stop_replies: List[Reply] = []
        self._stopping = False
        self._memory_kills = linux.memory_kills()
        self._killed_for_memory: Set[int] = set()

    # `launch_s`: how long the launch took; `first_s`: of it, until its first rank was about to be started.

    @property
    def running(self) -> int:
        return sum(1 for child in self._context.ranks.values() if child.code is None)

    @property
    def _of_mpi(self) -> bool:
        return self._mpi is not None or self._launcher is not None

    def exits(self) -> Dict[str, int]:
        ended = {rank: child.code for rank, child in self._context.ranks.items() if child.code is not None}
        codes = {rank: self._codes.get(rank, code) for rank, code in sorted(ended.items())}
        return {str(one): code for rank, code in codes.items() for one in self._stands_for(rank)}

    def _stands_for(self, rank: int) -> Iterable[int]:
        """The ranks that the process of `rank` is, or has started."""
        if self._launcher is None:
            return (rank,)
        return range(self._context.size) if self._spread is None or self._spread.home else ()

    @property
    def pids(self) -> Dict[str, int]:
        return {str(rank): child.pid for rank, child in self._context.ranks.items()}

    def launch(self, done: Callable[[Optional[LaunchError]], None]) -> None:
        """Start the ranks, then call `done`: with None, or with what went wrong, and then none of them is left."""
        self._launch_done = done
        self._launch_began = time.monotonic()
        self._launch_until = self._launch_began + float(self._payload.get("timeout_s") or BRING_UP_S)
        self._bringing_up = self._bring_up()
        self._proceed()

    def _proceed(self) -> None:
        if self._bringing_up is None:
            return
        try:
            if self._stopping:
                raise LaunchError("epoch %d was stopped" % self.epoch, 0)
            next(self._bringing_up)
            if time.monotonic() > self._launch_until:
                raise LaunchError("epoch %d was not up in time on node %s" % (self.epoch, self._place.node), 0)
        except StopIteration:
            self._brought_up(None)
        except LaunchError as error:
            self._brought_up(error)
        except EngineError as error:
            failed = LaunchError(str(error), 0, spoiled=isinstance(error, SpoiledCheckpoint))
            failed.one_node = isinstance(error, OneNodeOnly)
            self._brought_up(failed)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._brought_up(LaunchError(_sentence(error), code_of(error)))
        else:
            self._loop.call_later(BRING_UP_POLL_S, self._proceed)

    def _brought_up(self, error: Optional[LaunchError]) -> None:
        self._bringing_up = None
        if error is not None:
            error.broken = self._context.restart_dir is not None and bool(self._context.ranks) and not self._stopping
            self._abandon()
        self.launch_s = round(time.monotonic() - self._launch_began, 3)
        done, self._launch_done = self._launch_done, None
        if done is not None:
            done(error)
        if error is None:
            told = progress_file(str(self._payload["launch_file"])) if self._context.home else None
            self._samples = Samples(self.epoch, told)
            self._sample(self._samples)
            if self._engine.may_hang and self._launcher is None:
                before = self._context.restart_dir
                self._stillness = stillness.Stillness(stillness.kept(before) if before is not None else {})
                self._look_for_stillness(self._stillness)

    def _bring_up(self) -> Iterator[None]:
        """Everything until the ranks run; yields where it has to wait."""
        problem = self._engine.probe()
        if problem:
            raise LaunchError(problem)
        yield from self._end_leftovers()
        launch = read_json(str(self._payload["launch_file"]))
        if not launch["argv"]:
            raise LaunchError("the launch names no program: %s" % self._payload["launch_file"])
        self._make_folders()
        self._context.cwd = str(launch["cwd"])
        self._input = RankInput(launch, self._folder, self._place.node, self._context.restart_dir)
        self._engine.prepare(self._context)
        if not os.path.isdir(launch["cwd"]):
            raise LaunchError(
                "the working directory is not there on node %s: %s" % (self._place.node, launch["cwd"]), 126
            )
        while not self._engine.ready(self._context):
            yield
        restored = self._engine.restored_services(self._context) if self._context.restart_dir is not None else {}
        for name, command in restored.items():
            self._start_service(name, command)
        if self._mpi is not None:
            yield from self._mpi.bring_up()
        if self._spread is not None:
            env = self._environment(int(self._payload["ranks"][0]["rank"]), [0], launch["env"], {})
            yield from self._spread.ready(_launchers_environment(env, (self._launcher or {})["env"]))
        self._tell_degrees()
        self.first_s = round(time.monotonic() - self._launch_began, 3)
        for entry in self._payload["ranks"][: None if self._launcher is None else 1]:
            self._start(
                int(entry["rank"]), [int(one) for one in entry.get("processors") or [entry["processor"]]], launch
            )
        while not self._engine.up(self._context):
            yield

    def _tell_degrees(self) -> None:
        """To MPI ranks, which wait otherwise where they share a processor."""
        if not self._of_mpi:
            return
        ranks = self._payload["ranks"]
        path = degrees.page(self._subjob.job_dir)
        try:
            degrees.write(path, degrees.degrees_of(ranks, len(os.sched_getaffinity(0))), self._context.size)
        except OSError as error:  # a disk that is full, say: they wait as if they shared one
            self._report("log", level="warning", message="ranks are not told how they are placed: %s" % error)

    def _end_leftovers(self) -> Iterator[None]:
        """Nothing of a placement that lost its worker here runs beside this one."""
        until = time.monotonic() + leftovers.PATIENCE_S
        told = False
        while True:
            left = leftovers.kill(self._subjob.job_dir)
            if not left:
                return
            if not told:
                told = True
                message = "%d processes of an earlier placement were still here, and are ended" % len(left)
                self._report("log", level="warning", message=message)
            if time.monotonic() > until:
                words = (", ".join(map(str, left[:5])), self._place.node)
                raise LaunchError("processes of an earlier placement do not end (%s) on node %s" % words, 0)
            yield

    def _sample(self, samples: Samples) -> None:
        """Tell what is new about the ranks, again and again while they run."""

        def take() -> None:
            if not self.running or self._stopping:
                return
            if self._checkpoint is None:
                pids = [child.pid for child in self._context.ranks.values() if child.code is None]
                self._read_progress()
                found = samples.take(resident(pids), self._obstacle())
                if found is not None:
                    self._report("sample", **found)
                self._look_for_lonely_ranks()
            self._sample(samples)

        self._loop.call_later(samples.pause_s, take)

    def _read_progress(self) -> None:
        if self._context.home:
            try:
                self._engine.tell_progress(self._context, progress_file(str(self._payload["launch_file"])))
            except (EngineError, OSError, ValueError):
                pass  # a log that cannot be read: nothing is known of it

    def _look_for_stillness(self, watched: stillness.Stillness) -> None:
        """Tell once of a rank that hangs since its restart."""
        if not self.running or self._stopping:
            return
        if self._checkpoint is None:
            hangs = watched.look(time.monotonic(), self._signs())
            if hangs is not None:
                self._report("stuck", epoch=self.epoch, rank=hangs[0], seconds=round(hangs[1], 1))
                return
        self._loop.call_later(stillness.LOOK_S, lambda: self._look_for_stillness(watched))

    def _signs(self) -> Dict[int, stillness.Signs]:
        output = os.path.join(self._folder, "output")
        running = {rank: child.pid for rank, child in self._context.ranks.items() if child.code is None}
        return stillness.signs_of(
            {
                r: (pid, [os.path.join(output, "%d.%s" % (r, end)) for end in ("out", "err")])
                for r, pid in running.items()
            }
        )

    def _keep_stillness(self) -> None:
        if self._stillness is not None:
            try:
                stillness.keep(
                    self._context.checkpoint_dir,
                    "%s-%d" % (self._place.node.replace("/", "_"), os.getpid()),
                    self._stillness.longest,
                )
            except OSError:
                pass  # then nothing is known of it after the restart

    def _obstacle(self) -> str:
        try:
            return self._engine.obstacle(self._context)
        except (EngineError, OSError, ValueError, IndexError):
            return ""  # a process has ended while it was read

    def _lasting_obstacle(self) -> str:
        """What is still in the way after a few readings."""
        for _ in range(LOOKS_BEFORE_CHECKPOINT - 1):
            if not self._obstacle():
                return ""
            time.sleep(LOOK_AGAIN_S)
        return self._obstacle()

    def _last_sample(self) -> None:
        self._read_progress()
        found = self._samples.last() if self._samples is not None else None
        if found is not None:
            self._report("sample", **found)

    def checkpoint(self, timeout_s: float, reply: Reply) -> None:
        if self._busy():
            reply(False, "epoch %d is %s already" % (self.epoch, self._busy()), {})
            return
        self._last_sample()
        obstacle = self._lasting_obstacle()
        if obstacle:
            if self._samples is not None:
                self._report("sample", **self._samples.with_obstacle(obstacle))
            reply(False, obstacle, {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        try:  # ranks that find no room may go on without a word, and would be waited for until it is too late
            check_room(self._context.checkpoint_dir)
        except OSError as error:
            why = "no checkpoint can be written to the spool: %s" % error.strerror
            reply(False, why, {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        if self._stillness is not None:  # also of ranks that did not run for as long as from one look to the next
            self._stillness.look(time.monotonic(), self._signs())
        try:
            self._checkpoint = self._engine.checkpoint(self._context)
        except EngineError as error:
            reply(False, str(error), {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        self._checkpoint_reply = reply
        self._checkpoint_began = time.monotonic()
        self._writing = Writing(self._context.checkpoint_dir)
        self._look_for_files()
        self._deadline = self._loop.call_later(timeout_s, self._checkpoint_late)
        self._advance()

    def stop(self, grace_s: float, reply: Reply) -> None:
        """TERM, then KILL after `grace_s` seconds; the reply comes when the last rank has ended."""
        self._stopping = True
        self._stop_replies.append(reply)
        if self._checkpoint is not None:
            self._checkpoint_done(Outcome(False, "the epoch was stopped"))
        if not self.running:
            self._all_ended()
            return
        self._terminate()
        self._loop.call_later(grace_s, lambda: self._send(signal.SIGKILL))

    def signal(self, signum: int) -> None:
        """To every rank and what it has started, as the batch system signals a step."""
        if self._spread is not None and not self._spread.home:
            return  # mpirun passes it on
        if signum == signal.SIGTERM:
            self._terminate()  # also those that ignore what the batch system sends
        else:
            self._send(signum)

    def _terminate(self) -> None:
        for child in self._context.ranks.values():
            child.terminate()

    def _send(self, signum: int) -> None:
        for child in self._context.ranks.values():
            child.send_group(signum)

    def close(self) -> None:
        """No rank of the epoch runs any more, on any node: end what was kept for them."""
        if self._input is not None:
            self._input.close()
        if self._mpi is not None:
            self._mpi.close()
        for child in list(self._context.services.values()):
            child.send_group(signal.SIGKILL)
        self._engine.close(self._context)
        self._scratch.remove()

    def _make_folders(self) -> None:
        for name in ("", "checkpoint", "rendezvous", "output"):
            make_dir(os.path.join(self._folder, name))
        link = os.path.join(self._folder, "launch.json")
        try:
            os.symlink(str(self._payload["launch_file"]), link)
        except FileExistsError:
            pass  # another node's worker was first

    def _start(self, rank: int, processors: List[int], launch: Dict[str, Any]) -> None:
        argv = [str(word) for word in launch["argv"]]
        env = self._environment(rank, processors, launch["env"], launch.get("told") or {})
        if self._launcher is not None:
            options = self._spread.options() if self._spread is not None else []
            argv = [*(str(word) for word in self._launcher["argv"]), *options, *argv]
            env = _launchers_environment(env, self._launcher["env"])
        start = self._engine.launch if self._context.restart_dir is None else self._engine.restart
        output = os.path.join(self._folder, "output", str(rank))
        cpus = self._cpus
        resizing.tell(self._processor_file(rank), self._processor(processors[0]))
        try:
            command = start(self._context, rank, argv, env)
            if self._spread is not None and not self._spread.home:
                daemon = self._spread.daemon(command.env)
                if daemon is None:
                    return  # mpirun had ended before it asked for one: nothing of it runs here
                command = daemon
            self._context.ranks[rank] = self._processes.spawn(
                command.argv,
                env=command.env,
                cwd=launch["cwd"],
                stdout=output + ".out",
                stderr=output + ".err",
                stdin=self._input.descriptor(rank) if self._input is not None else None,
                cpus=[cpus[one] for one in processors] if cpus is not None and self._launcher is None else None,
                ignore_term=self._shielded,
                on_exit=lambda code: self._ended(rank, code),
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            code = 126 if isinstance(error, PermissionError) else 127
            raise LaunchError(
                "cannot start %s on node %s: %s" % (argv[0], self._place.node, error.strerror), code
            ) from None

    def _processor(self, number: int) -> str:
        return "%s.%s.%d" % (self._subjob.subjob, self._place.node, number)

    def _processor_file(self, rank: int) -> str:
        return os.path.join(self._place.processor_dir, "%d-%d" % (self.epoch, rank))

    def resize(self, payload: Dict[str, Any], reply: Reply) -> None:
        """Ranks that run here go on on other processors of this node; the answer has the affinity as it is then."""
        doing = self._busy() or ("placed by the command that started them" if self._launcher is not None else "")
        if doing:
            reply(False, "ranks of epoch %d are %s" % (self.epoch, doing), {})
            return
        running = {rank: child.pid for rank, child in self._context.ranks.items() if child.code is None}
        began = time.monotonic()
        try:
            cpus = self._place.cpus_of(payload)
            lent = int(payload.get("lent") or 0)
            if lent and cpus is not None:
                raise resizing.ResizeError("ranks are bound to the %d CPUs of this subjob" % len(cpus))
            most = self._place.processors + lent if cpus is None else min(len(cpus), self._place.processors)
            places = resizing.wanted(payload, sorted(running), most)
            told, threads = resizing.move(running, places, cpus)
            self._cpus = cpus
            for rank, processors in places.items():
                resizing.tell(self._processor_file(rank), self._processor(processors[0]))
        except resizing.ResizeError as error:
            reply(False, str(error), {"cpus": error.cpus} if error.cpus else {})
            return
        for entry in self._payload["ranks"]:
            if int(entry["rank"]) in places:
                processors = places[int(entry["rank"])]
                entry.update(processor=processors[0], processors=processors if len(processors) > 1 else None)
        self._tell_degrees()
        reply(True, "", {"cpus": told, "threads": threads, "seconds": round(time.monotonic() - began, 4)})

    def _busy(self) -> str:
        """What is being done with the ranks, in a word; "" where they just run."""
        if self._checkpoint is not None:
            return "being checkpointed"
        return "being stopped" if self._stopping else "being launched" if self._bringing_up is not None else ""

    def _environment(
        self, rank: int, processors: List[int], given: Dict[str, str], of_launcher: Dict[str, Any]
    ) -> Dict[str, str]:
        env = {str(name): str(value) for name, value in given.items() if name not in _NOT_FOR_RANKS}
        size = str(self._payload["size"])
        env.update(
            EJB_JOB_ID=self._subjob.job,
            EJB_SUBJOB_ID=self._subjob.subjob,
            EJB_RANK=str(rank),
            EJB_SIZE=size,
            EJB_EPOCH=str(self.epoch),
            EJB_NODE=self._place.node,
            EJB_PROCESSOR=self._processor(processors[0]),
            EJB_PROCESSOR_DIR=self._place.processor_dir,
            EJB_PROCESSOR_FILE=self._processor_file(rank),
            EJB_CHECKPOINT_DIR=self._context.checkpoint_dir,
            EJB_RENDEZVOUS=os.path.join(self._folder, "rendezvous"),
            EJB_ADDRESS=self._place.address,
            EJB_PROGRESS=progress_file(str(self._payload["launch_file"])),
            SLURM_PROCID=str(rank),
            SLURM_NTASKS=size,
            SLURM_NPROCS=size,
        )
        env.update(site_variables(env, self._place.node, self._place.processors))
        for told in (self._payload, next(one for one in self._payload["ranks"] if int(one["rank"]) == rank)):
            env.update({str(name): str(value) for name, value in (told.get("variables") or {}).items()})
        env.update({str(name): str(value) for name, value in of_launcher.items() if value is not None})
        for name in (name for name, value in of_launcher.items() if value is None):
            env.pop(name, None)
        if self._context.restart_dir is not None:
            env["EJB_RESTART_DIR"] = self._context.restart_dir
        if self._mpi is not None:
            env = self._mpi.environment(rank, env)
        if self._of_mpi:
            env[degrees.VARIABLE] = degrees.page(self._subjob.job_dir)
        env = with_modules(env)
        env[leftovers.MARK] = leftovers.mark(self._subjob.job_dir, env)
        return env

    def _start_service(self, name: str, command: Command, *pass_fds: int) -> None:
        self._context.services[name] = self._run_tool(
            name, command.argv, command.env, lambda code: self._service_ended(name, code), pass_fds
        )

    def _service_ended(self, name: str, code: int) -> None:
        """A server that leaves with a failure leaves ranks behind that wait for ever."""
        if self._stopping or self._checkpoint is not None or code == 0 or self._mpi is None or not self.running:
            return
        self._report("log", level="error", message=self._mpi.why())
        for rank, child in self._context.ranks.items():
            if child.code is None:
                # The engine ends the ranks as it ended the server: not the program's failure.
                self._codes[rank] = code if code == self._engine.gave_up else self._mpi.exit_code(rank, 1)
        self._end_ranks()

    def _coordinator_lost(self, why: str) -> None:
        if not self._stopping:
            self._report("coordinator-lost", epoch=self.epoch, reason=why)

    def _end_ranks(self) -> None:
        self._terminate()
        self._loop.call_later(SERVICE_GRACE_S, lambda: self._send(signal.SIGKILL))

    def _look_for_lonely_ranks(self) -> None:
        """Ranks that would each do the whole work are ended, and the job's output says why."""
        if self._mpi is None or self._context.size < 2 or self._context.restart_dir is not None:
            return  # ranks that come back have found each other; what /proc shows as their environment may be anything
        running = {rank: child for rank, child in self._context.ranks.items() if child.code is None}
        if self._mpi.tell_if_alone({rank: child.pid for rank, child in running.items()}):
            self._codes.update(dict.fromkeys(running, 1))
            self._end_ranks()

    def _run_tool(
        self,
        name: str,
        argv: List[str],
        env: Dict[str, str],
        on_exit: Callable[[int], None],
        pass_fds: Sequence[int] = (),
    ) -> Child:
        log = os.path.join(self._folder, "%s-%s.log" % (name, self._place.node))
        return self._processes.spawn(
            argv,
            env=env,
            cwd=self._folder,
            stdout=log,
            stderr=log,
            on_exit=on_exit,
            pass_fds=pass_fds,
            ignore_term=self._shielded,
        )

    def _abandon(self) -> None:
        self._stopping = True
        self._send(signal.SIGKILL)
        for child in list(self._context.services.values()):
            child.send_group(signal.SIGKILL)
        if not self.running:
            self._all_ended()

    def _ended(self, rank: int, code: int) -> None:
        if self._spread is not None and self._spread.home:
            self._mpirun_ended(self._spread, code)
        if self._checkpoint is not None:
            self._advance()
        elif not self._stopping:
            if code == KILLED and linux.memory_kills() > self._memory_kills:
                self._killed_for_memory.add(rank)
            self._last_sample()
            if code and self._mpi is not None:
                self._mpi.tell_if_refused(rank)
            self._tell(rank, self._final_code(rank, code))
        if not self.running:
            self._all_ended()

    def _mpirun_ended(self, spread: Spread, code: int) -> None:
        try:
            spread.ended(code)
        except OSError as error:
            self._report("log", level="warning", message="other workers are not told of mpirun's end: %s" % error)

    def _tell(self, rank: int, code: int) -> None:
        """Report an end, in the order of the ends: the first one is the cause of those of its peers."""
        self._untold.append((rank, code))
        if code in ENDING_CODES:
            self._loop.call_later(SIGNAL_HOLD_S, lambda: self._tell_from(rank))
        else:
            self._sure(lambda: self._tell_from(rank))

    def _tell_from(self, rank: int) -> None:
        """The hold of this rank's end is over: report it if it is the first, and what has waited only for it."""
        self._held_long_enough.add(rank)
        while self._untold and self._untold[0][0] in self._held_long_enough:
            other, code = self._untold.pop(0)
            if not self._stopping:
                memory = {"memory": True} if other in self._killed_for_memory else {}
                for one in self._stands_for(other):
                    self._report("rank-exit", epoch=self.epoch, rank=one, code=code, **memory)

    def _final_code(self, rank: int, code: int) -> int:
        """The code of a rank that ended, as it is reported from now on."""
        if rank not in self._codes:
            code = self._mpi.exit_code(rank, code) if self._mpi is not None else code
            self._codes[rank] = self._counted(rank, code)
        return self._codes[rank]

    def _counted(self, rank: int, code: int) -> int:
        """What an end is by the engine."""
        if self._stopping:
            return code
        try:
            counted, words = self._engine.ended(self._context, rank, code)
        except (EngineError, OSError, ValueError, KeyError) as error:
            counted, words = code or 1, "how rank %d ended cannot be judged: %s" % (rank, _sentence(error))
        if words:
            self._report("log", level="error", message=words[:1000])
        return counted

    def _all_ended(self) -> None:
        if not self._finished:
            self._finished = True
            self._engine.finish(self._context)
        if self._stopping:
            self.close()
        replies, self._stop_replies = self._stop_replies, []
        for reply in replies:
            reply(True, "", {"exits": self.exits()})

    def _advance(self) -> None:
        if self._checkpoint is None:
            return
        try:
            outcome = self._checkpoint.advance()
        except (EngineError, OSError) as error:
            outcome = Outcome(False, _sentence(error))
        if outcome is not None:
            self._checkpoint_done(outcome)
            return
        if self._poll is not None:
            self._poll.cancel()
        if self._checkpoint.poll_s is not None:
            self._poll = self._loop.call_later(self._checkpoint.poll_s, self._advance)

    def _look_for_files(self) -> None:
        if self._checkpoint is not None and self._writing is not None and not self._writing.seen():
            self._loop.call_later(WRITING_POLL_S, self._look_for_files)

    def _checkpoint_late(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint_done(self._checkpoint.timed_out())

    def _checkpoint_done(self, outcome: Outcome) -> None:
        self._checkpoint = None
        if outcome.ok and self._input is not None:
            try:
                self._input.stopped()
            except OSError as error:
                message = "how far the ranks have read cannot be kept: %s" % error.strerror
                outcome = Outcome(False, message, exits=outcome.exits, sizes=outcome.sizes)
        if outcome.ok:
            self._keep_stillness()
        for timer in (self._deadline, self._poll):
            if timer is not None:
                timer.cancel()
        self._codes.update(outcome.exits)
        for rank, child in self._context.ranks.items():
            child.end_left_behind()
            if child.code is not None:
                self._final_code(rank, child.code)
        sizes = {str(rank): size for rank, size in sorted(outcome.sizes.items())}
        seconds = round(time.monotonic() - self._checkpoint_began, 3)
        write_s = round(min(seconds, self._writing.seconds() if self._writing is not None else seconds), 3)
        reply, self._checkpoint_reply = self._checkpoint_reply, None
        if reply is not None:
            exits = self.exits()
            for (
                rank,
                code,
            ) in outcome.exits.items():  # those that are being killed are reported, too, before they are reaped
                exits.update((str(one), code) for one in self._stands_for(rank))
            data = {"exits": exits, "bytes": sizes, "seconds": seconds, "write_s": write_s}
            reply(outcome.ok, outcome.error, data)
        if outcome.ok:
            self.close()


def _launchers_environment(env: Dict[str, str], more: Dict[str, str]) -> Dict[str, str]:
    """Without what tells a launcher of a batch system's allocation: it starts its ranks here, and nowhere else.

    What is one rank's own is left out too: all of its ranks would see it.
    """
    plain = {
        name: value
        for name, value in env.items()
        if not name.startswith(_BATCH_SYSTEMS) and name not in ("EJB_RANK", "EJB_PROCESSOR", "EJB_PROCESSOR_FILE")
    }
    plain.update({str(name): str(value) for name, value in more.items()})
    return plain


def code_of(error: Exception) -> int:
    """What a launch that met this error says of its program."""
    return 0 if isinstance(error, OSError) and error.errno in _NOT_THE_PROGRAMS_FAULT else 1


def _sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "%s is missing" % error
    return str(error) or type(error).__name__
