"""The ranks of one epoch on this worker: launch, checkpoint, stop, and their exits."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from . import degrees, leftovers, resizing
from .attributes import Attributes
from .ends import Ends
from .engines import engine as engine_named
from .engines.application import CHECKPOINTED
from .engines.base import PREPARE, Checkpoint, Command, EngineError, EpochContext, Outcome, SpoiledCheckpoint
from .failures import DISK_PATIENCE_S, DISK_PAUSE_S, LaunchError, code_of, confined, sentence
from .files import check_room, make_dir, read_json
from .loop import Loop, Timer
from .mpi import MpiEpoch
from .mpirun import OneNodeOnly, Spread
from .nodefolder import Scratch
from .observing import Observer
from .operations import Reply
from .place import Place
from .processes import Child, Processes
from .rankenvironment import launchers_environment, rank_environment
from .rankinput import RankInput
from .settings import Subjob, with_modules
from .watching import WRITING_POLL_S, Writing
from .wiring import Wiring

BRING_UP_POLL_S = 0.02
BRING_UP_S = 60.0
"""How long a launch may take, where its payload does not say."""
SERVICE_GRACE_S = 2.0
_GROWTH_S = 10.0
"""Between two looks at whether a late checkpoint grows."""


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
        self._shielded = shielded
        self.epoch = int(payload["epoch"])
        self._payload = payload
        self._subjob = subjob
        self._place = place
        self._processes = processes
        self._loop = loop
        self._report = report
        self._folder = str(payload["epoch_dir"])
        confined(payload, subjob)
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
        self._observer = Observer(
            self._context,
            self._engine,
            loop=loop,
            report=report,
            ends=lambda: self._stopping or not self.running,
            rests=lambda: self._checkpoint is not None,
            looked=self._look_for_lonely_ranks,
        )
        self._deadline: Optional[Timer] = None
        self._poll: Optional[Timer] = None
        self._finished = False
        self._input: Optional[RankInput] = None
        self._attributes: Dict[str, Any] = {}
        self._stop_replies: List[Reply] = []
        self._stopping = False
        self._ends = Ends(loop=loop, sure=sure, report=self._report_end)

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

    def report_again(self) -> bool:
        """Report the ends so far to a manager that asks for this launch a second time: its memory is of before it.

        False: there is nothing to go on with.
        """
        exits = self.exits()
        if self._stopping or self._checkpoint is not None or self._launch_done is not None:
            return False
        if CHECKPOINTED in exits.values():
            return False
        for rank, code in exits.items():
            self._report("rank-exit", epoch=self.epoch, rank=int(rank), code=code)
        return True

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
            self._brought_up(LaunchError(sentence(error), code_of(error)))
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
            self._observer.begin(may_hang=self._engine.may_hang and self._launcher is None)

    def _bring_up(self) -> Iterator[None]:
        """Everything until the ranks run; yields where it has to wait."""
        problem = self._engine.probe()
        if problem:
            raise LaunchError(problem)
        launch = read_json(str(self._payload["launch_file"]))
        yield from self._end_leftovers(launch["env"].get(leftovers.MARK))
        if not launch["argv"]:
            raise LaunchError("the launch names no program: %s" % self._payload["launch_file"])
        self._make_folders()
        yield from self._wait_for_room()
        self._context.cwd = str(launch["cwd"])
        self._attributes = launch.get("attributes") or {}
        self._context.most_files = Attributes(self._attributes).most_files()
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
            yield from self._spread.ready(launchers_environment(env, (self._launcher or {})["env"]))
        self._tell_degrees()
        self.first_s = round(time.monotonic() - self._launch_began, 3)
        for entry in self._payload["ranks"][: None if self._launcher is None else 1]:
            self._start(
                int(entry["rank"]), [int(one) for one in entry.get("processors") or [entry["processor"]]], launch
            )
        while not self._engine.up(self._context):
            yield

    def _wait_for_room(self) -> Iterator[None]:
        """What ranks print goes through the spool. On a full one their first line would end them, and with them the
        job, as if it were theirs: so they begin once there is room, or the launch fails for the disk's sake."""
        until = time.monotonic() + DISK_PATIENCE_S
        while True:
            try:
                check_room(os.path.join(self._folder, "output"))
                return
            except OSError as error:
                if code_of(error):
                    return  # it is not the disk's fault: a limit on the size of files, say
                if time.monotonic() > until:
                    raise
            again = time.monotonic() + DISK_PAUSE_S
            while time.monotonic() < again:
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

    def _end_leftovers(self, script: Optional[str]) -> Iterator[None]:
        """Nothing of a placement that lost its worker here runs beside this one; `script`: the mark of the script."""
        until = time.monotonic() + leftovers.PATIENCE_S
        told = False
        while True:
            left = leftovers.kill(self._subjob.job_dir, script)
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

    def checkpoint(self, timeout_s: float, reply: Reply) -> None:
        if self._busy():
            reply(False, "epoch %d is %s already" % (self.epoch, self._busy()), {})
            return
        obstacle = self._observer.before_checkpoint()
        if obstacle:
            reply(False, obstacle, {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        try:  # ranks that find no room may go on without a word, and would be waited for until it is too late
            check_room(self._context.checkpoint_dir)
        except OSError as error:
            why = "no checkpoint can be written to the spool: %s" % error.strerror
            reply(False, why, {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        self._observer.look_at_stillness()
        try:
            self._checkpoint = self._engine.checkpoint(self._context)
        except EngineError as error:
            reply(False, str(error), {"exits": self.exits(), "bytes": {}, "seconds": 0.0})
            return
        self._checkpoint_reply = reply
        self._checkpoint_began = time.monotonic()
        self._writing = Writing(self._context.checkpoint_dir)
        self._look_for_files()
        self._deadline = self._loop.call_later(timeout_s, lambda: self._checkpoint_late(timeout_s))
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
            env = launchers_environment(env, self._launcher["env"])
        start = self._engine.launch if self._context.restart_dir is None else self._engine.restart
        output = os.path.join(self._folder, "output", str(rank))
        cpus = self._cpus
        resizing.tell(self._place.processor_file(self.epoch, rank), self._place.processor(self._subjob, processors[0]))
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
                attributes=Attributes({**self._attributes, **command.attributes}),
                ignore_term=self._shielded,
                on_exit=lambda code: self._ended(rank, code),
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            code = 126 if isinstance(error, PermissionError) else 127
            raise LaunchError(
                "cannot start %s on node %s: %s" % (argv[0], self._place.node, error.strerror), code
            ) from None

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
                resizing.tell(
                    self._place.processor_file(self.epoch, rank), self._place.processor(self._subjob, processors[0])
                )
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
        env = rank_environment(self._context, self._subjob, self._place, rank, processors[0], given, of_launcher)
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
            attributes=Attributes(self._attributes) if name.startswith(PREPARE) else None,
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
            self._ends.was_killed(rank, code)
            self._observer.last_sample()
            if code and self._mpi is not None:
                self._mpi.tell_if_refused(rank)
            self._ends.tell(rank, self._final_code(rank, code))
        if not self.running:
            self._all_ended()

    def _mpirun_ended(self, spread: Spread, code: int) -> None:
        try:
            spread.ended(code)
        except OSError as error:
            self._report("log", level="warning", message="other workers are not told of mpirun's end: %s" % error)

    def _report_end(self, rank: int, code: int, for_memory: bool) -> None:
        if not self._stopping:
            more: Dict[str, Any] = {"memory": True} if for_memory else {}
            for one in self._stands_for(rank):
                self._report("rank-exit", epoch=self.epoch, rank=one, code=code, **more)

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
            counted, words = code or 1, "how rank %d ended cannot be judged: %s" % (rank, sentence(error))
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
            outcome = Outcome(False, sentence(error))
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

    def _checkpoint_late(self, timeout_s: float) -> None:
        """Its time is over. As long as more and more is written it is late, but on its way. How long the first
        checkpoint of a large application takes is not known, and without it all of its work would be lost."""
        if self._checkpoint is None:
            return
        if self._writing is not None and self._writing.seen() and self._writing.grows():
            pause_s = min(timeout_s, _GROWTH_S)
            self._deadline = self._loop.call_later(pause_s, lambda: self._checkpoint_late(timeout_s))
        else:
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
            self._observer.keep_stillness()
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
        killed = sorted(one for rank in outcome.killed for one in self._stands_for(rank))
        if reply is not None:
            exits = {rank: code for rank, code in self.exits().items() if int(rank) not in killed}
            data = {"exits": exits, "killed": killed, "bytes": sizes, "seconds": seconds, "write_s": write_s}
            reply(outcome.ok, outcome.error, data)
        if outcome.ok:
            self.close()
        elif killed:
            self._stopping = True  # from here on no end is theirs
            if not self.running:
                self._all_ended()
