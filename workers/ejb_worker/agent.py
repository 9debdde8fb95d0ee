"""The agent: one worker on one node of one subjob."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional
from urllib.parse import urlsplit

from . import linux
from .alone import EXIT_ALONE, Alone
from .attributes import Propagation
from .engines import ENGINES, build_of_node
from .failures import DISK_PATIENCE_S, DISK_PAUSE_S, LaunchError
from .leftovers import Warden
from .loop import Loop
from .nodefolder import NodeFolder
from .operations import Operations, Reply
from .place import Place, cpus_to_bind
from .processes import Processes
from .reports import ReportBuffer
from .settings import Subjob, manager_url, own_address
from .transport import Transport

if TYPE_CHECKING:
    from .epochs import EpochRun
    from .lead import Lead

EXIT_TOLD = 0
EXIT_UNWANTED = 3
EXIT_PARENT = 4
# Ended by a signal: 128 + its number.

_FOR_JOBS = (".epochs", ".lead")  # what only a job needs is loaded while the manager decides what there is to do
_LAST_REPORTS_S = 3.0
_LAST_REPORTS_PAUSE_S = 0.002
_LAST_OUTPUT_S = 5.0
_PARENT_SIGNAL = signal.SIGRTMIN + 1
_WARNING_HOLD_S = 0.5
"""How long a TERM waits for word that it is the end: what ends a job signals all of it, one after another."""
SURE_S = 0.03
"""How long the end of a rank or of the script is held. What ends a job signals the worker as well, but in its own
order. A program that leaves on TERM as if its work were done would be taken for one that has done it. Where this
process is woken late the machine is busy, and what signals may be late too: then it is held once more.
"""
QUIET_SURE_S = 0.01
"""The same, where nothing waits for a processor at its beginning and its end: signals come one upon the other there."""
_LATE_S = 0.01
_HOLDS = 5
_LOOKS_S = 0.1
_LATE_LOOKS_S = 1.0
_LOOKING_S = 120.0


class Agent:
    """Runs until it is asked to leave, its parent dies or a signal ends it. `grace_s`: from TERM to KILL at the end.

    `ending`: the file that the subjob's script makes when the batch system ends the job. A TERM without it is a warning
    (a preemption with a grace, say), which is reported. "": every TERM is the end. `warns`: such warnings are to be
    expected, and ranks that can be checkpointed do not hear them. `propagation`: what srun hands on to ranks there.
    """

    def __init__(
        self,
        subjob: Subjob,
        *,
        node: str,
        processors: int,
        address: str = "",
        grace_s: float = 1.5,
        ending: str = "",
        propagation: Optional[Propagation] = None,
        warns: bool = False,
    ) -> None:
        self._subjob = subjob
        self._grace_s = grace_s
        self._ending = ending
        self._warns = warns
        self._warned_s: Optional[float] = None  # when TERM came; None: not, or it was long ago
        self._warning_told = False
        self._parent = os.getppid()
        self._boot = os.urandom(8).hex()
        self._loop = Loop()
        self._processes = Processes(self._loop)
        self._warden = Warden(subjob.job_dir)
        self._buffer = ReportBuffer(subjob.folder, node, self._boot)
        self._epochs: Dict[int, EpochRun] = {}
        self._lead: Optional[Lead] = None
        self._leaving = self._all_ended = False
        self._exit_code = EXIT_TOLD
        self._folder = NodeFolder(subjob.subjob, node)
        address = address or _address(subjob)
        self._place = Place(
            node,
            address,
            self._folder.processors,
            cpus_to_bind(processors, subjob.binding),
            processors,
            subjob.binding,
            propagation,
        )
        handlers = {
            "launch": self._launch,
            "checkpoint": self._checkpoint,
            "stop": self._stop,
            "lead": self._become_lead,
            "unlead": self._unlead,
            "launch-ended": self._launch_ended,
            "drain": self._drain,
            "signal": self._signal,
            "resize": self._resize,
            "exit": self._exit,
        }
        self._operations = Operations(handlers, self._report, self._buffer.is_pending)
        hello = {
            "node": node,
            "processors": processors,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "address": address,
            "boot": self._boot,
            "age_s": linux.age_s(),
            "engines": [engine.name for engine in ENGINES.values() if not engine.probe()],
            "dmtcp": build_of_node(),
        }
        self._transport = Transport(
            subjob,
            self._buffer,
            hello,
            on_registered=lambda: self._loop.call_soon(self._prepare),
            on_operations=lambda operations: self._loop.call_soon(lambda: self._deliver(operations)),
            on_unwanted=lambda: self._loop.call_soon(self._unwanted),
            on_away=lambda: self._loop.call_soon(self._alone.look),
            answered=self._operations.answered,
            log=self._say,
        )

        self._alone = Alone(
            subjob,
            node,
            processors,
            loop=self._loop,
            away_s=self._transport.away_s,
            idle=lambda: not (self._epochs or self._lead or self._leaving),
            leave=lambda: self._leave(
                EXIT_ALONE, "no manager answers: the job begins as it was submitted", heard=False
            ),
            log=self._say,
        )

    def run(self) -> int:
        """The exit code."""
        linux.become_subreaper()
        self._loop.on_signal(_PARENT_SIGNAL, lambda _signum: self._look_for_parent())
        self._loop.on_signal(signal.SIGTERM, self._terminated)
        self._loop.on_signal(signal.SIGINT, self._ended_by_signal)
        # Not ignored: an ignored signal stays ignored in the ranks.
        self._loop.on_signal(signal.SIGHUP, lambda _signum: None)
        linux.set_parent_death_signal(_PARENT_SIGNAL)
        self._look_for_parent()
        self._transport.start()
        try:
            self._loop.run()
        finally:
            self._end_all()
            for run in self._epochs.values():
                run.close()
            self._transport.close()
            self._buffer.close()
            self._folder.remove()
        return self._exit_code

    def _end_all(self) -> None:
        """Of this job nothing runs here any more, and nothing begins."""
        if not self._all_ended:
            self._all_ended = True
            self._processes.end_all()
            self._warden.close()

    def _report(self, kind: str, **fields: Any) -> int:
        return self._buffer.add(kind, fields)

    def _log(self, message: str) -> None:
        self._say(message)
        self._report("log", level="warning", message=message)

    def _say(self, message: str) -> None:
        """To the batch job's own output, for a person that reads it."""
        try:
            sys.stderr.write("ejb worker %s: %s\n" % (self._subjob.subjob, message))
            sys.stderr.flush()
        except (OSError, ValueError):
            pass

    def _prepare(self) -> None:
        """Whatever the job will need here: its first word finds it done."""
        for name in _FOR_JOBS:
            importlib.import_module(name, __package__)
        if not self._leaving:
            self._begin_warden()

    def _deliver(self, operations: List[Dict[str, Any]]) -> None:
        if not self._leaving:
            self._operations.deliver(operations)

    def _launch(self, payload: Dict[str, Any], reply: Reply) -> None:
        from .epochs import EpochRun

        epoch = int(payload["epoch"])
        self._begin_warden()
        known = self._epochs.get(epoch)
        if known is not None and epoch == max(self._epochs) and known.report_again():
            reply(True, "", {"pids": known.pids, "seconds": known.launch_s, "first_s": known.first_s})
            return
        if any(number >= epoch for number in self._epochs):
            reply(False, "epoch %d was launched here before" % max(self._epochs), {})
            return
        try:
            run = EpochRun(
                payload,
                subjob=self._subjob,
                place=self._place,
                processes=self._processes,
                loop=self._loop,
                report=self._report,
                sure=self._sure,
                shielded=self._warns and payload["engine"] != "none",
            )
        except LaunchError as error:
            reply(False, str(error), {"code": error.code})
            return

        def launched(error: Optional[LaunchError]) -> None:
            if error is None:
                reply(True, "", {"pids": run.pids, "seconds": run.launch_s, "first_s": run.first_s})
                return
            self._epochs.pop(epoch, None)
            reply(False, str(error), error.data)

        for old in [number for number in self._epochs if number < epoch and not self._epochs[number].running]:
            self._epochs[old].close()
            if old < epoch - 10:
                del self._epochs[old]
        self._epochs[epoch] = run
        run.launch(launched)

    def _begin_warden(self) -> None:
        try:
            self._warden.begin()
        except OSError as error:
            self._log("nothing will end the job's processes here if this worker is killed: %s" % error)

    def _checkpoint(self, payload: Dict[str, Any], reply: Reply) -> None:
        run = self._epochs.get(int(payload["epoch"]))
        if run is None:
            reply(
                False, "epoch %s is not on this worker" % payload["epoch"], {"exits": {}, "bytes": {}, "seconds": 0.0}
            )
        else:
            run.checkpoint(float(payload["timeout_s"]), reply)

    def _stop(self, payload: Dict[str, Any], reply: Reply) -> None:
        run = self._epochs.get(int(payload["epoch"]))
        if run is None:
            reply(True, "", {"exits": {}})
        else:
            run.stop(float(payload.get("grace_s", 2.0)), reply)

    def _become_lead(self, payload: Dict[str, Any], reply: Reply) -> None:
        from .lead import Lead

        run = int(payload["run"])
        if self._lead is not None:
            same = self._lead.run == run
            pid = self._lead.pid
            if same:
                self._lead.report_again()
            reply(
                same, "" if same else "run %d is led here already" % self._lead.run, {} if pid is None else {"pid": pid}
            )
            return
        lead = Lead(
            payload,
            owner="%s-%d" % (self._boot, run),
            subjob=self._subjob,
            place=self._place,
            local_dir=self._folder.own,
            processes=self._processes,
            loop=self._loop,
            report=self._report,
            log=lambda message: self._loop.call_soon(lambda: self._log(message)),
            killed=self._script_killed,
            sure=self._sure,
            warned=lambda: self._warned_s is not None,
        )
        self._lead = lead
        if payload.get("script") is not None:
            self._begin_warden()

        until = time.monotonic() + DISK_PATIENCE_S

        def opened(obstacle: str) -> None:
            sentence, data = obstacle, {"output": True}
            if not obstacle:
                try:
                    reply(True, "", dict(lead.start()))
                    return
                except LaunchError as error:
                    sentence, data = str(error), {} if error.code else {"own": True}
                    if not error.code and time.monotonic() < until:  # a disk of EJB's own is full or gone
                        self._loop.call_later(DISK_PAUSE_S, lambda: opened(""))
                        return
            if self._lead is lead:
                self._lead = None
            lead.end(0.0, lambda _problem: reply(False, sentence, dict(data)))

        lead.open(opened)  # before anything of the job runs, as with sbatch

    def _unlead(self, payload: Dict[str, Any], reply: Reply) -> None:
        lead, self._lead = self._lead, None
        if lead is None:
            reply(True, "", {})
        else:
            grace_s = float(payload.get("grace_s", 2.0))
            words = [str(sentence) for sentence in payload.get("say") or ()]
            last = payload.get("exit")

            def ended(error: str) -> None:
                reply(not error, error, {"own": True} if error and lead.own_trouble else {})
                if not error and last is not None:
                    self._leave(int(last.get("code", EXIT_TOLD)), None)

            lead.say(words, lambda: lead.end(grace_s, ended))

    def _launch_ended(self, payload: Dict[str, Any], reply: Reply) -> None:
        if self._lead is None:
            reply(False, "this worker is not the lead", {})
        else:
            say = [str(sentence) for sentence in payload.get("say") or ()]
            self._lead.launch_ended(int(payload["ordinal"]), int(payload["code"]), say, reply)

    def _drain(self, payload: Dict[str, Any], reply: Reply) -> None:
        run = self._epochs.get(int(payload["epoch"]))
        if self._lead is None:
            reply(False, "this worker is not the lead", {})
        elif run is not None and run.running:
            reply(False, "ranks of epoch %d still run here" % run.epoch, {})
        else:
            first = payload.get("take_back")
            take_back = None if first is None else int(first)
            self._lead.drain(int(payload["epoch"]), bool(payload.get("moved")), take_back, reply)

    def _signal(self, payload: Dict[str, Any], reply: Reply) -> None:
        """To ranks or to the script; nothing where they have ended by now."""
        signum = int(payload["signal"])
        if payload["epoch"] is None:
            if self._lead is not None:
                self._lead.signal(signum)
        else:
            run = self._epochs.get(int(payload["epoch"]))
            if run is not None:
                run.signal(signum)
        reply(True, "", {})

    def _resize(self, payload: Dict[str, Any], reply: Reply) -> None:
        run = self._epochs.get(int(payload["epoch"]))
        if run is None:
            reply(False, "epoch %s is not on this worker" % payload["epoch"], {})
        else:
            run.resize(payload, reply)

    def _exit(self, payload: Dict[str, Any], reply: Reply) -> None:
        self._leave(int(payload.get("code", EXIT_TOLD)), None, lambda: reply(True, "", {}))

    def _terminated(self, signum: int) -> None:
        if not self._ending:
            self._ended_by_signal(signum)
        elif self._warned_s is None:
            self._warned_s, self._warning_told = time.monotonic(), False
            self._look_for_the_end()
        elif os.path.exists(self._ending):
            self._ended_by_signal(signum)

    def _look_for_the_end(self) -> None:
        """Whether it is the end, again and again: on a file system that is shared, word of it may come late."""
        if self._leaving or self._warned_s is None:
            return
        if os.path.exists(self._ending):
            self._ended_by_signal(signal.SIGTERM)
            return
        since = time.monotonic() - self._warned_s
        if since >= _WARNING_HOLD_S and not self._warning_told:
            self._warning_told = True
            self._say("the batch system warns that it will end this job")
            self._report("warned", signal="TERM")
        if since < _LOOKING_S:
            self._loop.call_later(_LATE_LOOKS_S if self._warning_told else _LOOKS_S, self._look_for_the_end)
        else:
            self._warned_s = None

    def _sure(self, tell: Callable[[], None]) -> None:
        """Call `tell` of an end once it is sure not to be part of the job's: never, where this worker is ended, too."""

        def hold(times: int, hold_s: float) -> None:
            due_s = time.monotonic() + hold_s
            self._loop.call_later(hold_s, lambda: look(times, time.monotonic() - due_s, hold_s))

        def look(times: int, late_s: float, held_s: float) -> None:
            if self._leaving:
                return
            if self._warned_s is not None and not self._warning_told:
                self._loop.call_later(_LOOKS_S, lambda: look(0, 0.0, held_s))  # it may be the end yet
            elif times > 1 and (late_s > _LATE_S or (held_s < SURE_S and not linux.quiet())):
                hold(times - 1, SURE_S)
            else:
                tell()

        hold(_HOLDS, min(QUIET_SURE_S, SURE_S) if linux.quiet() else SURE_S)

    def _script_killed(self, code: int) -> bool:
        """Whether the script was ended by the warning that this worker has got, too: then it is no end of its own."""
        if self._warned_s is None or code != 128 + signal.SIGTERM:
            return False
        self._leave(128 + signal.SIGTERM, "the batch system's warning ended the script")
        return True

    def _ended_by_signal(self, signum: int) -> None:
        self._leave(128 + signum, "ended by " + linux.signal_name(signum))

    def _look_for_parent(self) -> None:
        # The kernel also signals when merely the parent's *thread* that forked us has ended.
        if os.getppid() != self._parent:
            self._leave(EXIT_PARENT, "the worker's parent has ended")

    def _unwanted(self) -> None:
        self._leave(EXIT_UNWANTED, "the manager no longer wants this subjob", heard=False)

    def _leave(
        self, exit_code: int, reason: Optional[str], before: Callable[[], None] = lambda: None, *, heard: bool = True
    ) -> None:
        """Stop the ranks and the script, collect the output, report it, and leave the loop.

        `heard`: there is a manager that takes the last reports. The code does not say so: it may be the job's own.
        """
        if self._leaving:
            return
        self._leaving = True
        self._exit_code = exit_code
        if reason is not None:
            self._say(reason)
        running = {number for number, run in self._epochs.items() if run.running}
        told = False

        def last(*_ignored: Any) -> None:
            nonlocal told
            if told:
                return
            told = True
            before()
            if reason is not None:
                exits = {str(number): run.exits() for number, run in sorted(self._epochs.items())}
                self._report("leaving", reason=reason, exits=exits)
            self._end_all()  # while the last reports are on their way
            self._last_reports(time.monotonic() + (_LAST_REPORTS_S if heard else 0.0))

        def stopped(number: int) -> None:
            running.discard(number)
            if not running:  # the ranks before the collector, so that their last lines are collected
                lead.end(self._grace_s, last) if lead is not None else last()

        lead, self._lead = self._lead, None
        if lead is not None:
            lead.terminate(self._grace_s)
        for number in sorted(running):
            self._epochs[number].stop(self._grace_s, _call_with(stopped, number))
        if not running:
            stopped(0)
        self._loop.call_later(self._grace_s + _LAST_OUTPUT_S, last)

    def _last_reports(self, until_s: float) -> None:
        if time.monotonic() >= until_s or not self._buffer.pending():
            self._loop.stop()
        else:
            self._loop.call_later(_LAST_REPORTS_PAUSE_S, lambda: self._last_reports(until_s))


def _call_with(call: Callable[[int], None], number: int) -> Reply:
    return lambda _ok, _error, _data: call(number)


def _address(subjob: Subjob) -> str:
    try:
        return own_address(urlsplit(manager_url(subjob.spool)).hostname or "127.0.0.1")
    except (OSError, ValueError):
        return "127.0.0.1"
