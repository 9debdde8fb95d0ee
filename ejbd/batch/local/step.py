"""The process that watches over one running job, as a batch system's step daemon does.

It starts the job's script, and ends it at its walltime or on TERM. It leaves no process of it behind, and writes how it
ended into `result.json`. It needs no server: one that is killed and started again finds it, or its result. Files of the
job's folder: `spec.json` has what to run. `started` is this process's, made once, so that a job can never run twice.
Then there are `limit` (new planned end, read on HUP), `main` (the script's process, leader of the session) and
`result.json`.
"""

# pathlib would double the time in which a step starts
# ruff: noqa: PTH104, PTH108

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

from ejbd.batch.local import processes

GRACE_S = 2.0  # between TERM and KILL
_SWEEP_S = 0.05
_PR_SET_CHILD_SUBREAPER = 36
_WATCHED = {signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGINT}
# What Python ignores, or the process that started the server made it ignore, the script must not inherit.
_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


def write_json(path: str, value: Any) -> None:
    """Whole or not at all."""
    with open(f"{path}.tmp", "w") as file:
        json.dump(value, file)
    os.rename(f"{path}.tmp", path)


def _limit(name: str, soft: int) -> None:
    """Set a soft limit; never above our own hard one."""
    number = getattr(resource, f"RLIMIT_{name.upper()}")
    hard = resource.getrlimit(number)[1]
    above = hard != resource.RLIM_INFINITY and (soft < 0 or soft > hard)
    resource.setrlimit(number, (hard if above else soft, hard))


def claim(folder: str) -> bool:
    """Make `started` for this process; False where another process has it (link never overwrites)."""
    temporary = f"{folder}/started.{os.getpid()}"
    with open(temporary, "w") as file:
        json.dump(processes.identify(os.getpid()), file)
    try:
        os.link(temporary, f"{folder}/started")
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


class Step:
    """One running job: `folder` is its folder, `spec` what the server wrote there."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._spec = spec
        self._main: int | None = None
        self._code: int | None = None
        self._cause: str | None = None  # why the job is being ended before its time
        self._deadline = self._on_own_clock(float(spec["end_s"]))
        # What the job is told before its end: number, seconds ahead, and whether its script alone.
        self._warning: tuple[int, float, bool] | None = spec["signal"] and tuple(spec["signal"])

    def run(self) -> dict[str, Any]:
        """The job from start to end; what `result.json` gets."""
        refusal = self._start()
        if refusal is not None:
            code, reason = refusal
            return self._result("failed", code, reason)
        self._wait_for_script()
        self._end_all()
        state = self._cause or ("completed" if self._code == 0 else "failed")
        return self._result(state, self._code, {"timeout": "walltime used up"}.get(state, ""))

    def _start(self) -> tuple[int, str] | None:
        """Start the script in a session of its own; (exit code, reason) where that is not possible."""
        spec = self._spec
        try:
            stdin = os.open(spec["input"] or "/dev/null", os.O_RDONLY)
        except OSError as error:
            return 1, f"the input cannot be opened: {error}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if spec["append"] else os.O_TRUNC)
            stdout = os.open(spec["output"], flags, 0o666 & ~int(spec["umask"]))
            stderr = stdout if spec["error"] is None else os.open(spec["error"], flags, 0o666 & ~int(spec["umask"]))
        except OSError as error:
            return 1, f"the output cannot be opened: {error}"
        reading, writing = os.pipe()  # closed by a successful exec; otherwise it brings the reason
        pid = os.fork()
        if pid == 0:
            self._become_script(stdin, stdout, stderr, writing)
        os.close(writing)
        self._main = pid
        write_json(f"{self._folder}/main", processes.identify(pid))
        with os.fdopen(reading, "r", errors="replace") as pipe:
            failure = pipe.read()
        if failure:
            os.waitpid(pid, 0)
            return 127, failure
        return None

    def _become_script(self, stdin: int, stdout: int, stderr: int, failures: int) -> NoReturn:
        spec = self._spec
        try:
            os.setsid()
            for source, target in ((stdin, 0), (stderr, 2), (stdout, 1)):
                os.dup2(source, target)
            os.umask(int(spec["umask"]))
            for name, limit in spec.get("limits", {}).items():
                _limit(name, limit)
            os.chdir(spec["workdir"])
            for signum in _TO_DEFAULT:
                signal.signal(signum, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])
        except OSError as error:
            os.write(failures, f"the script cannot be started in {spec['workdir']}: {error}".encode(errors="replace"))
        os._exit(127)

    def _wait_for_script(self) -> None:
        """Until the script has ended by itself or is to be ended."""
        while self._code is None and self._cause is None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                self._cause = "timeout"
                break
            if self._warning is not None and left <= self._warning[1]:
                number, _, script = self._warning
                self._warning = None
                self._warn(number, script)
            received = signal.sigtimedwait(_WATCHED, left if self._warning is None else left - self._warning[1])
            self._reap()
            if received is None or self._code is not None:
                continue
            if received.si_signo in (signal.SIGTERM, signal.SIGINT):
                self._cause = "cancelled"
            elif received.si_signo == signal.SIGHUP:
                with open(f"{self._folder}/limit") as file:
                    self._deadline = self._on_own_clock(float(file.read()))

    def _warn(self, number: int, script: bool) -> None:
        """Send the signal that was asked for: to the script alone, or to what its launcher has started."""
        if not script:
            processes.signal_tasks(self._members(), number)
        elif self._main is not None:
            try:
                os.kill(self._main, number)
            except ProcessLookupError:
                pass

    def _end_all(self) -> None:
        """TERM, first to the script (it may have workers to end in order), then to all; KILL after the grace."""
        killing = time.monotonic() + GRACE_S
        told = False
        if self._code is None and self._main is not None:
            try:
                os.killpg(self._main, signal.SIGTERM)
            except ProcessLookupError:
                pass
        while True:
            childless = self._reap()
            if childless and not self._members():
                return
            now = time.monotonic()
            if now >= killing:
                processes.send(self._members(), signal.SIGKILL)
                pause = _SWEEP_S
            else:
                if self._code is not None and not told:
                    told = True
                    processes.send(self._members(), signal.SIGTERM)
                pause = min(killing - now, _SWEEP_S) if childless else killing - now
            signal.sigtimedwait(_WATCHED, pause)

    def _members(self) -> list[int]:
        return processes.members(self._spec["cluster"], int(self._spec["job"]), ancestor=os.getpid())

    def _reap(self) -> bool:
        """Collect ended children, also those that orphans' ends left to this process; True where there is none left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._main:
                code = os.waitstatus_to_exitcode(status)
                self._code = code  # negative: of a signal

    @staticmethod
    def _on_own_clock(end_s: float) -> float:
        return time.monotonic() + end_s - time.time()

    @staticmethod
    def _result(state: str, code: int | None, reason: str) -> dict[str, Any]:
        return {"state": state, "exit_code": code, "end_s": time.time(), "reason": reason}


def main() -> int:
    """`step.main()` with the job's folder as the last argument."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    folder = sys.argv[-1]
    if not claim(folder):
        return 0
    # Orphans of the job become children of this process, so that none can slip away by forking twice.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(f"{folder}/spec.json") as file:
        spec = json.load(file)
    write_json(f"{folder}/result.json", Step(folder, spec).run())
    return 0
