"""The lead: runs the user's script and collects the job's output."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from .collector import Collector, Output
from .ends import ENDING_CODES, SIGNAL_HOLD_S
from .failures import LaunchError, code_of
from .files import make_dir, read_json, write_json
from .interpreter import interpreter_of, is_bash
from .launches import Launches
from .leftovers import MARK, mark
from .loop import Loop
from .operations import Reply
from .own_job import describe_job
from .place import Place
from .plain_launch import FILE as ALLOCATION_FILE
from .plain_launch import allocation_of
from .processes import Child, Processes
from .settings import Subjob, batch_job_variables, site_variables, with_modules
from .shimfolder import QUERIES, SHIMS, shim_environment, write_queries, write_shims

LAST_WORD_S = 0.01
"""A script that ends with 0 so soon behind the end of a launch has begun nothing since that could have left on a TERM
as if its work were done. The end of the ranks was held; its own is not."""


class Lead:
    def __init__(
        self,
        payload: Dict[str, Any],
        *,
        owner: str,
        subjob: Subjob,
        place: Place,
        local_dir: str,
        processes: Processes,
        loop: Loop,
        report: Callable[..., object],
        log: Callable[[str], None],
        sure: Callable[[Callable[[], None]], None],
        killed: Callable[[int], bool] = lambda _code: False,
        warned: Callable[[], bool] = lambda: False,
    ) -> None:
        """`killed`: asked of a script that a signal has ended, whether that was not its own doing and is seen to.
        `sure`: calls back once an end is sure not to be that of the whole job. `warned`: whether the batch system
        signals what runs here.
        """
        self._killed = killed
        self._sure = sure
        self._warned = warned
        self.run = int(payload["run"])
        self._payload = payload
        self._subjob = subjob
        self._place = place
        self._local_dir = local_dir
        self._processes = processes
        self._loop = loop
        self._report = report
        self._log = log
        self._script: Optional[Child] = None
        self._launches: Optional[Launches] = None
        self._ending = False
        self._launch_told: Optional[Dict[str, Any]] = None  # the launch that the script waits for
        self._told_of_plain = False
        self._script_collected = False
        self._read_on_s: Optional[float] = None  # when the script was last told the end of a launch
        self._after_script: List[Callable[[], None]] = []
        output, error = str(payload["output"]), payload.get("error")
        truncate = not payload.get("append", False)
        job_dir, run = subjob.job_dir, self.run
        self._collector = Collector(
            lambda: Output(job_dir, output, error, owner=owner, truncate=truncate, run=run),
            call_soon=loop.call_soon,
            log=log,
        )
        self._collector.start()

    def open(self, done: Callable[[str], None]) -> None:
        """Make the output files, then call `done` with "" or with why that cannot be."""
        self._collector.open(done)

    def start(self) -> Dict[str, int]:
        """Run the script, if there is one. Raises LaunchError."""
        script = self._payload.get("script")
        if script is None:
            return {}  # it only collects, and may have been told to hand over along with the word to begin
        if self._ending:
            raise LaunchError("the lead was ended before it began")
        try:
            return {"pid": self._start_script(script)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            missing = "%s is missing" % error if isinstance(error, KeyError) else str(error)
            raise LaunchError("cannot start the script: %s" % missing, code_of(error)) from None

    @property
    def pid(self) -> Optional[int]:
        return self._script.pid if self._script is not None else None

    def launch_ended(self, ordinal: int, code: int, say: Sequence[str], reply: Reply) -> None:
        """The script reads on only after everything the ranks wrote is in the output."""

        def tell(_error: str) -> None:
            if self._launches is not None:
                if self._launch_told is not None and self._launch_told["ordinal"] == ordinal:
                    self._launch_told = None
                self._launches.launch_ended(ordinal, code, say)
                self._read_on_s = time.monotonic()
            reply(True, "", {})

        self._collector.flush(tell)

    def say(self, sentences: Sequence[str], then: Callable[[], None]) -> None:
        """Put lines into the job's standard error, behind what its ranks wrote, then call `then`.

        For a job without a script, which has no shim to say them.
        """
        if not sentences:
            then()
            return

        def write(_error: str) -> None:
            self._write_words(["error: %s" % sentence for sentence in sentences])
            then()

        self._collector.flush(write)

    def _write_words(self, sentences: Sequence[str]) -> None:
        try:
            folder = os.path.join(self._subjob.job_dir, "script")
            make_dir(folder)
            with open(os.path.join(folder, "%d.err" % self.run), "ab") as file:
                file.write("".join("ejb: %s\n" % sentence for sentence in sentences).encode("utf-8", "replace"))
        except OSError as error:
            self._log("cannot write into the output: %s" % error)

    @property
    def own_trouble(self) -> bool:
        """Whether what its collector met last was met with EJB's own files, and not with the user's."""
        return self._collector.own_trouble

    def drain(self, epoch: int, moved: bool, take_back: Optional[int], reply: Reply) -> None:
        def done(error: str) -> None:
            reply(not error, error, {})

        self._collector.flush(done, final_epoch=epoch, moved=moved, take_back=take_back)

    def end(self, grace_s: float, done: Callable[[str], None]) -> None:
        """End the script (TERM, KILL after `grace_s` seconds), collect what is there, leave the output to another."""
        self.terminate(grace_s)
        if self._script is not None and not self._script_collected:
            self._after_script.append(lambda: self._collector.close(done))
        else:
            self._collector.close(done)

    def signal(self, signum: int) -> None:
        """To the script's shell alone."""
        if self._script is not None:
            self._script.send(signum)

    def terminate(self, grace_s: float) -> None:
        """Begin to end the script; `end` waits for it."""
        if self._ending:
            return
        self._ending = True
        if self._script is not None:
            script = self._script
            script.send_group(signal.SIGTERM)
            script.send_group(signal.SIGCONT)
            self._loop.call_later(grace_s, lambda: script.send_group(signal.SIGKILL))
        # After TERM: a shell that does not handle it must not come to what stands behind the launch.
        self._close_launches()

    def _start_script(self, script: Dict[str, Any]) -> int:
        path = self._subjob.inside(str(script["path"]))
        words = interpreter_of(path)
        folder = os.path.join(self._subjob.job_dir, "script")
        make_dir(folder)
        shims = os.path.join(self._local_dir, "shims")
        allocation = allocation_of(os.environ)
        write_shims(shims)
        write_json(os.path.join(shims, ALLOCATION_FILE), allocation)
        socket_path = os.path.join(self._local_dir, "launch-%d.sock" % self.run)
        env = {str(k): str(v) for k, v in read_json(self._subjob.inside(str(script["env_file"]))).items()}
        env = shim_environment(env, shims, bash=is_bash(words), names=SHIMS + QUERIES if allocation else SHIMS)
        processors = int(self._payload["processors"])
        env["HOSTNAME"] = self._place.node
        env.update(site_variables(env, self._place.node, self._place.processors))
        env.update(
            EJB_JOB_ID=self._subjob.job,
            EJB_SUBJOB_ID=self._subjob.subjob,
            EJB_LAUNCH_SOCKET=socket_path,
            EJB_LAUNCH_FOLDER=os.path.join(self._subjob.job_dir, "launches"),
            SLURM_JOB_NAME=str(script["job_name"]),
            SLURM_SUBMIT_DIR=str(script["cwd"]),
        )
        env.update({str(name): str(value) for name, value in (script.get("variables") or {}).items()})
        env.update(batch_job_variables(env.get("SLURM_JOB_ID", "")))
        if allocation:
            output, error = str(self._payload["output"]), str(self._payload.get("error") or self._payload["output"])
            number, batch_job = env.get("SLURM_JOB_ID", ""), allocation["SLURM_JOB_ID"]
            write_queries(shims, describe_job(number, batch_job, env, output, error))
        env = with_modules(env)
        env[MARK] = mark(self._subjob.job_dir, env, self.run)
        out = os.path.join(folder, "%d.out" % self.run)
        # Where both go into one file, they are one from the beginning: what the script prints keeps its order.
        apart = self._payload.get("error") not in (None, self._payload["output"])
        err = os.path.join(folder, "%d.err" % self.run) if apart else out
        ended = {int(ordinal): int(code) for ordinal, code in (script.get("ended_launches") or {}).items()}
        self._launches = Launches(
            path=socket_path,
            job_dir=self._subjob.job_dir,
            job=self._subjob.job,
            processors=processors,
            tasks=int(self._payload.get("tasks") or processors),
            threads=int(self._payload.get("threads") or 1),
            ended=ended,
            streams={"output": out, "error": err},
            propagation=self._place.propagation,
            loop=self._loop,
            before_launch=lambda call: self._collector.flush(lambda _error: call()),
            on_launch=self._on_launch,
            on_cancel=self._on_cancel,
            on_refused=self._on_refused,
            on_plain=self._on_plain,
            log=self._log,
        )
        try:
            self._script = self._processes.spawn(
                words + [path] + [str(word) for word in script.get("args", [])],
                env=env,
                cwd=str(script["cwd"]),
                stdout=out,
                stderr=err,
                on_exit=self._script_ended,
            )
        except OSError:
            self._close_launches()
            raise
        return self._script.pid

    def report_again(self) -> None:
        """Report the launch that the script waits for to a manager with a memory of before it."""
        if self._launch_told is not None and not self._ending:
            self._report("launch", **self._launch_told)

    def _on_launch(self, ordinal: int, size: int, path: str, together: bool, time: str, name: str) -> None:
        if not self._ending:
            told = {"time": time} if time else {}
            where = {"ordinal": ordinal, "size": size, "file": path}
            self._launch_told = {**where, "together": together, "program": name, **told}
            self._report("launch", **self._launch_told)

    def _on_cancel(self, ordinal: int) -> None:
        # Not at once: the batch system may be ending script and shim along with everything else here.
        self._loop.call_later(SIGNAL_HOLD_S, lambda: self._tell_cancel(ordinal))

    def _tell_cancel(self, ordinal: int) -> None:
        if not self._warned():
            self._tell_unless_ending("launch-cancel", ordinal=ordinal)

    def _on_plain(self, name: str, why: str, where: str) -> None:
        """A launch that runs without EJB: the first one is told of in the job's output, each in the log."""
        line = where.rpartition(":")[2]
        at = "line %s: " % line if line not in ("", "0") else ""
        self._log("%s%s launches by itself, not by EJB: %s" % (at, name, why))
        if not self._told_of_plain:
            self._told_of_plain = True
            said = "%s%s: %s: this launch runs on the nodes that the job has now, and is not moved"
            self._write_words(["warning: " + said % (at, name, why)])

    def _on_refused(self, name: str, sentence: str, where: str) -> None:
        source, _colon, line = where.rpartition(":")
        script = self._payload.get("script") or {}
        known = source == str(script.get("path")) and line.isdigit()  # in the script itself, not in what it sources
        number = min(int(line), 2**31) if known else 0
        self._tell_unless_ending("launch-refused", run=self.run, name=name, line=number, reason=sentence[:1000])

    def _script_ended(self, code: int) -> None:
        self._close_launches()
        since_s = None if self._read_on_s is None else time.monotonic() - self._read_on_s
        own = code == 0 and since_s is not None and since_s < LAST_WORD_S and not self._warned()

        def tell(_error: str) -> None:
            self._script_collected = True
            if own:
                self._tell_exit(code)
            elif code in ENDING_CODES:
                self._loop.call_later(SIGNAL_HOLD_S, lambda: self._tell_exit(code))
            else:
                self._sure(lambda: self._tell_exit(code))
            for call in self._after_script:
                call()

        self._collector.flush(tell, final_run=self.run)

    def _tell_exit(self, code: int) -> None:
        if self._ending or (code in ENDING_CODES and self._killed(code)):
            return
        by_signal = self._script is not None and self._script.by_signal
        told = {"signal": code - 128} if by_signal else {}
        self._report("script-exit", run=self.run, code=code, **told)

    def _tell_unless_ending(self, kind: str, **fields: Any) -> None:
        if not self._ending:
            self._report(kind, **fields)

    def _close_launches(self) -> None:
        launches, self._launches = self._launches, None
        if launches is not None:
            launches.close()
