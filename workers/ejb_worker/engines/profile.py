"""The application writes its own state, by its own means, and goes on from it with another number of ranks: a profile
says how it is told to stop, how its end is told, what its state is, and how it goes on (docs/profiles.md).

Its state lies in the folder in which it runs, and every run changes it. So it is copied before a resume, into the
folder of the checkpoint that is resumed, and put back before every other resume from there. What is done once for all
ranks is done by the home's worker, which then writes down what the others are to start. How the application ended is
judged by the worker of rank 0, for all of them.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from .. import linux
from ..files import read_json, write_json
from ..processes import Child
from ..profiles import saying
from ..profiles.filling import NotFound, filled, values_of
from ..profiles.judging import FINISHED, STOPPED, Judged, Seen, judge
from ..profiles.matching import matches
from ..profiles.progress import Progress
from ..profiles.since import Since, from_json, make_stop_file, note_logs, remove_stop_files
from ..profiles.starting import free_port, start
from ..profiles.state import copy_state, newest, put_back, state_files, state_size
from ..profiles.wrapping import NotSeen, unwrapped
from .application import CHECKPOINTED
from .background import Background
from .base import PREPARE, Checkpoint, Command, EngineError, EpochContext, Outcome, SpoiledCheckpoint
from .offered import OfferedProfile

READY = "profile.json"
"""In the epoch's folder: what its home has found, and what every rank is."""
VERDICT = "verdict.json"
"""In the epoch's folder: how the application has ended."""
RECORD = "stopped.json"
"""In a checkpoint's folder: how many ranks have written the state, and how far the application was."""
COPY = "state"

NOT_FINISHED = 1
"""The code of a rank that has left with 0, and has not finished by its profile."""


class Run:
    """One epoch of an application by its profile, on this worker."""

    def __init__(self, epoch: EpochContext) -> None:
        self.epoch = epoch
        told = epoch.payload.get("profile")
        if told is None:
            raise EngineError("the launch has no profile")
        self.profile = saying.profile_from(told)
        self.launch: Dict[str, Any] = read_json(str(epoch.payload["launch_file"]))
        self.folder = Path(str(self.launch["cwd"]))
        try:
            self.container = unwrapped([str(word) for word in self.launch["argv"]], str(self.folder))
        except NotSeen as error:
            raise EngineError(str(error)) from None
        self.program = self.container.program
        self.judges = any(int(one["rank"]) == 0 for one in epoch.payload["ranks"])
        self.words: List[str] = []
        self.env: Dict[str, str] = {}
        self.values: Dict[str, str] = {}
        self.since = Since(0, {})
        self.progress: Optional[Progress] = None
        self.asked = self.killed = False
        self.tool: Optional[Child] = None
        self._steps: Optional[Iterator[None]] = self._prepared() if epoch.home else None
        self._ready = False

    # -- before its ranks are started -------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether its ranks can be started. Raises EngineError."""
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
            except NotFound as error:
                raise EngineError(str(error)) from None
        elif not self._ready:
            self._read()
        return self._ready

    def _prepared(self) -> Iterator[None]:
        """Everything that is done once; yields where it has to wait."""
        epoch, profile = self.epoch, self.profile
        values = values_of(profile, self.program, self._text)
        patterns = [filled(one, values) for one in profile.state]
        before, done = None, 0.0
        if epoch.restart_dir is not None:
            before, done = ranks_of(epoch.restart_dir), done_by(epoch.restart_dir)
            yield from self._kept(Path(epoch.restart_dir) / COPY, patterns, before)
        remove_stop_files(profile, self.folder, values)
        last = newest(state_files(self.folder, patterns))
        made = start(
            profile,
            self.program,
            values,
            ranks=epoch.size,
            before=before,
            epoch=epoch.epoch,
            done=done,
            endpoint=(socket.gethostname(), free_port()),
            newest_state="" if last is None else os.path.relpath(str(last), str(self.folder)),
            input_text=self._text(values["input"]) if "input" in values else None,
        )
        if made.input is not None:
            (self.folder / made.input[0]).write_text(made.input[1], encoding="utf-8")
        for number, line in enumerate(made.prepare, 1):
            yield from self._done(number, line)
        known = dict(values, ranks=str(epoch.size), epoch=str(epoch.epoch))
        since = note_logs(profile, self.folder, known, ".ejb-%d.began" % epoch.epoch)
        ready = {"words": list(made.words), "env": made.env, "values": known, "since": since.to_json()}
        write_json(os.path.join(epoch.folder, READY), ready)
        self._read()

    def _kept(self, copy: Path, patterns: List[str], before: int) -> Iterator[None]:
        """The state is as it was when it was written, and is kept so, whatever becomes of this resume."""
        again = copy.is_dir()
        work: Callable[[], object]
        if again:
            work = lambda: put_back(self.folder, patterns, copy)  # noqa: E731
        else:
            work = lambda: copy_state(self.folder, patterns, copy)  # noqa: E731
        busy = Background(work)
        while not busy.done:
            yield
        try:
            busy.result()
        except OSError as error:
            if not again and before == self.epoch.size:
                return  # nothing is tried with it that it was not written for
            what = "put back" if again else "copied, so that it does not go on with another number of ranks"
            raise EngineError("the state in %s cannot be %s: %s" % (self.folder, what, error.strerror)) from None

    def _done(self, number: int, line: str) -> Iterator[None]:
        """One command before a start at another width: in the container in which the program is, if it is in one."""
        codes: List[int] = []
        there = ["sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", str(self.folder)]  # and what is mounted is
        words = [*there, *self.container.tools, "sh", "-c", line]
        env = {str(name): str(value) for name, value in self.launch["env"].items()}
        self.tool = self.epoch.run_tool("%s%d" % (PREPARE, number), words, env, codes.append)
        while not codes:
            yield
        self.tool = None
        if codes[0]:
            raise EngineError("%s failed with code %d in %s" % (line, codes[0], self.folder))

    def _read(self) -> None:
        """What the home has written down."""
        try:
            os.listdir(self.epoch.folder)  # what a network file system remembers to be missing is looked for again
            told = read_json(os.path.join(self.epoch.folder, READY))
        except (OSError, ValueError):
            return
        self.words = [str(word) for word in told["words"]]
        self.env = {str(name): str(value) for name, value in told["env"].items()}
        self.values = {str(name): str(value) for name, value in told["values"].items()}
        self.since = from_json(told["since"])
        self._ready = True
        if self.profile.progress and self.epoch.home:
            self.progress = Progress(self.profile.progress, self.values, self.since, self.folder, self.output)

    @property
    def output(self) -> Path:
        """Of rank 0; a launcher's holds that of all."""
        return Path(self.epoch.folder) / "output" / "0.out"

    def _text(self, path: str) -> Optional[str]:
        try:
            return (self.folder / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def command(self, argv: List[str], env: Dict[str, str]) -> Command:
        """The process of a rank, or of the launcher that starts them all."""
        before = argv[: len(argv) - len(self.program)]  # of the launcher, wrappers, container and interpreter
        return Command([*before, *self.words], dict(env, **self.container.with_passed(self.env)))

    # -- its end ----------------------------------------------------------------------------------------------------

    def judged(self, code: int) -> Judged:
        """How it has ended, by the code of rank 0 (or of the launcher); written down for the other workers.

        What leaves with 0 at its first start, before anything has told it to stop, has done what it was started for:
        where a profile's line would be (another log, say) matters only once EJB has a part in it.
        """
        if code == 0 and not self.asked and self.epoch.restart_dir is None:
            return self._written(Judged(FINISHED, "it has ended by itself with 0"))
        texts = self.since.texts(self.profile, self.folder, self.values, self.output)
        newer = self.since.newer(self.profile, self.folder, self.values)
        by_signal = 128 < code < 128 + signal.NSIG  # pw.x may say 255 of its own, which is no signal
        told = 128 - code if by_signal else code  # as subprocess has it: negative by a signal
        found = judge(self.profile, Seen(told, texts, newer, self.asked, self.killed), self.values)
        if found.verdict == STOPPED:
            if not state_files(self.folder, self.patterns):
                found = Judged("failed", "it left no state: nothing is like %s" % ", ".join(self.patterns))
            else:
                record = {"ranks": self.epoch.size, "done": self._done_by_now()}
                write_json(os.path.join(self.epoch.checkpoint_dir, RECORD), record)
        return self._written(found)

    def _done_by_now(self) -> float:
        """How far it is by its own log; what it had done before it was resumed where that says nothing yet."""
        before = done_by(self.epoch.restart_dir) if self.epoch.restart_dir is not None else 0.0
        if not self.profile.progress:
            return before
        found = Progress(self.profile.progress, self.values, self.since, self.folder, self.output).read()
        return before if found is None else max(before, found[0])

    def _written(self, found: Judged) -> Judged:
        write_json(os.path.join(self.epoch.folder, VERDICT), {"verdict": found.verdict, "why": found.why})
        return found

    def verdict(self) -> Optional[Judged]:
        """What the worker of rank 0 has found; None: it has not yet."""
        try:
            os.listdir(self.epoch.folder)
            told = read_json(os.path.join(self.epoch.folder, VERDICT))
        except (OSError, ValueError):
            return None
        return Judged(str(told["verdict"]), str(told["why"]))

    @property
    def patterns(self) -> List[str]:
        """Of the files that are its state."""
        return [filled(one, self.values) for one in self.profile.state]

    def processes(self) -> List[int]:
        """Its ranks here: what the profile is for, wherever below the processes that were started."""
        found: List[int] = []
        for child in self.epoch.ranks.values():
            if child.code is None:
                family = [child.pid, *linux.descendants(child.pid)]
                ranks = [pid for pid in family if matches(self.profile, linux.command_line(pid))]
                found += ranks if ranks or self.epoch.launcher else [child.pid]
        return found

    def kill(self) -> None:
        """End all of it, whatever has a process group of its own."""
        self.killed = True
        for child in self.epoch.ranks.values():
            if child.code is None:
                below = linux.descendants(child.pid)
                child.send_group(signal.SIGKILL)
                for pid in below:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        continue  # it has just ended


class ProfileCheckpoint(Checkpoint):
    """It is told to stop, has its grace, and is judged once nothing of it runs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._until_s = 0.0

    def advance(self) -> Optional[Outcome]:
        run, ranks = self._run, self._run.epoch.ranks
        if any(child.code is None for child in ranks.values()):
            if not run.asked:
                self._ask()
            elif time.monotonic() > self._until_s and not run.killed:
                run.kill()
            return None
        found = run.judged(int(ranks[0].code or 0)) if run.judges else run.verdict()
        if found is None:
            return None  # the worker of rank 0 has the word
        if run.epoch.home:
            remove_stop_files(run.profile, run.folder, run.values)
        codes = {rank: int(child.code or 0) for rank, child in ranks.items()}
        if found.verdict == FINISHED:
            return Outcome(False, "it had finished before it heard that it should stop", exits=dict.fromkeys(ranks, 0))
        allowed = run.profile.stopped.codes
        ends = {} if run.epoch.launcher and not run.judges else codes  # a launcher's daemon says nothing of ranks
        odd = {rank: code for rank, code in ends.items() if code not in allowed and not run.killed}
        if found.verdict == STOPPED and not odd:
            sizes = dict.fromkeys(ranks, 0)
            if run.judges:
                sizes[0] = state_size(run.folder, run.patterns)
            return Outcome(True, sizes=sizes, exits=dict.fromkeys(ranks, CHECKPOINTED))
        why = found.why if not odd or found.verdict != STOPPED else "rank %d ended with %d" % min(odd.items())
        if run.killed:
            return Outcome(False, why, killed=sorted(ranks))
        return Outcome(False, why, exits={rank: code or NOT_FINISHED for rank, code in codes.items()})

    def _ask(self) -> None:
        run, stop = self._run, self._run.profile.stop
        if stop.file:
            if run.epoch.home:
                make_stop_file(run.profile, run.folder, run.values)
        else:
            number = int(getattr(signal, "SIG%s" % stop.signal))
            if stop.to != saying.ONE_RANK or run.judges:
                heard = run.processes()
                caught = [pid for pid in heard if number == signal.SIGKILL or linux.receives(pid, number)]
                if stop.to == saying.ONE_RANK:
                    heard, caught = heard[:1], caught[:1]
                if not heard or len(caught) < len(heard):
                    return  # before it catches the signal that would kill it
                for pid in caught:
                    os.kill(pid, number)
        run.asked = True
        self._until_s = time.monotonic() + float(run.profile.grace_s)

    def timed_out(self) -> Outcome:
        run = self._run
        if not run.asked:
            return Outcome(False, "its ranks do not catch SIG%s" % run.profile.stop.signal)
        return Outcome(False, "it has not ended in time after it was told to stop")


class ProfileEngine(OfferedProfile):
    def prepare(self, epoch: EpochContext) -> None:
        if epoch.restart_dir is not None:
            ranks_of(epoch.restart_dir)
        epoch.state["run"] = Run(epoch)

    def ready(self, epoch: EpochContext) -> bool:
        return _run(epoch).ready()

    def launch(self, epoch: EpochContext, rank: int, argv: List[str], env: Dict[str, str]) -> Command:
        return _run(epoch).command(argv, env)

    restart = launch

    def ended(self, epoch: EpochContext, rank: int, code: int) -> "tuple[int, str]":
        run = _run(epoch)
        if rank != 0:
            stopped = run.asked and code in run.profile.stopped.codes and code != 0
            return (CHECKPOINTED if stopped else code), ""
        found = run.judged(code)
        if found.verdict == FINISHED:
            return 0, ""
        if found.verdict == STOPPED:
            words = "" if run.asked else "it has stopped itself, and has not finished: %s" % found.why
            return CHECKPOINTED, words
        return code or NOT_FINISHED, found.why if code == 0 else ""

    def tell_progress(self, epoch: EpochContext, path: str) -> None:
        run = _run(epoch)
        if run.progress is not None:
            run.progress.tell(path)

    def checkpoint(self, epoch: EpochContext) -> Checkpoint:
        return ProfileCheckpoint(_run(epoch))

    def finish(self, epoch: EpochContext) -> None:
        return

    def close(self, epoch: EpochContext) -> None:
        run = epoch.state.get("run")
        if run is not None and run.tool is not None:
            run.tool.send_group(signal.SIGKILL)


def ranks_of(checkpoint: str) -> int:
    """How many ranks have written the state of a checkpoint. Raises SpoiledCheckpoint where it is none."""
    try:
        return int(read_json(os.path.join(checkpoint, RECORD))["ranks"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SpoiledCheckpoint("the checkpoint to resume from is not there: %s" % checkpoint) from None


def done_by(checkpoint: str) -> float:
    """How far an application was as it wrote a checkpoint, by its own log; 0 where that is not known."""
    try:
        return float(read_json(os.path.join(checkpoint, RECORD))["done"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _run(epoch: EpochContext) -> Run:
    run: Run = epoch.state["run"]
    return run
