"""Starting and reaping processes. Everything here runs in the main thread.

The kernel ties the parent-death signal to the *thread* that forked. So ranks are forked by the one thread that lives as
long as the worker. There is one reaper for all children. It sees an ended child first, and ends what is left of its
process group while the zombie still holds the number. Only then it collects it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Callable, Dict, Optional, Sequence

from . import linux
from .attributes import Attributes
from .loop import Loop

KEPT_FOR_OUTPUT = 16 * 1024
"""Bytes of room that the first output of a program finds, however full the disk is by then. What a program cannot write
when it ends may end it with a code that it does not deserve."""


LOOK_S = 10.0
"""Between two looks at whether a child has ended without a signal."""


class Child:
    """A process that the worker started and waits for. `code` is None while it runs.

    What it leaves behind in its process group is ended along with it, unless it is `spared`.
    """

    __slots__ = ("_ended_for_it", "_popen", "by_signal", "code", "on_exit", "pid", "spared")

    def __init__(self, popen: subprocess.Popen[bytes], on_exit: Callable[[int], None]) -> None:
        self._popen = popen
        self.pid = popen.pid
        self.on_exit = on_exit
        self.code: Optional[int] = None
        self.by_signal = False
        self.spared = False
        self._ended_for_it = False

    @property
    def left_behind(self) -> bool:
        """Whether it has ended, and others of its process group have not."""
        if self.code is None:
            return False
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return any(linux.process_group(pid) == self.pid for pid in linux.children())

    def end_left_behind(self) -> None:
        """End what it has left behind while it was spared."""
        self.spared = False
        if self.left_behind:
            _kill_group(self.pid, signal.SIGKILL)

    def send(self, signum: int) -> None:
        """To the process alone."""
        if self.code is None:
            _kill(self.pid, signum)

    def send_group(self, signum: int) -> None:
        """To its whole process group."""
        if self.code is None:
            _kill_group(self.pid, signum)

    def terminate(self) -> None:
        """What TERM does to its process group, also where it was started to ignore what the batch system sends."""
        if self.code is None and linux.ignores(self.pid, signal.SIGTERM) and not linux.has_children(self.pid):
            self._ended_for_it = True  # it has no handler that TERM would give a chance to
            _kill_group(self.pid, signal.SIGKILL)
        else:
            self.send_group(signal.SIGTERM)

    def ended(self, code: int) -> int:
        """It was reaped with this code; the code that counts."""
        if self._ended_for_it and code == 128 + signal.SIGKILL:
            code = 128 + signal.SIGTERM
        self.code = code
        self._popen.returncode = code  # reaped by the worker's one reaper: Popen has nothing left to wait for
        return code


class Processes:
    def __init__(self, loop: Loop) -> None:
        self._children: Dict[int, Child] = {}
        self._loop = loop
        self._looks = False
        loop.on_signal(signal.SIGCHLD, lambda _signum: self.reap())

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Dict[str, str],
        cwd: str,
        stdout: str,
        stderr: str,
        on_exit: Callable[[int], None],
        cpus: Optional[Sequence[int]] = None,
        attributes: Optional[Attributes] = None,
        ignore_term: bool = False,
        pass_fds: Sequence[int] = (),
        stdin: Optional[int] = None,
    ) -> Child:
        """Start `argv` in a process group of its own, output appended to two files, input from a descriptor (None:
        nothing). Raises OSError.

        `ignore_term`: TERM does nothing to it unless it handles that; :meth:`Child.terminate` ends it all the same.
        `on_exit` gets the exit code (128+signal for a signal) from the loop, never from within this call.
        """
        worker = os.getpid()

        def in_child() -> None:
            linux.set_parent_death_signal(signal.SIGKILL)
            if os.getppid() != worker:
                os._exit(127)  # the worker ended before the kernel was asked
            # A group but not a session of its own: some batch systems find a job's processes by their session.
            os.setpgid(0, 0)
            if ignore_term:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if cpus is not None:
                os.sched_setaffinity(0, cpus)
            if attributes is not None:
                attributes.set_here()

        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        out = os.open(stdout, flags, 0o600)
        try:
            err = os.open(stderr, flags, 0o600)
            try:
                for descriptor in (out, err):
                    linux.reserve(descriptor, KEPT_FOR_OUTPUT)
                popen = subprocess.Popen(
                    list(argv),
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL if stdin is None else stdin,
                    stdout=out,
                    stderr=err,
                    close_fds=True,
                    pass_fds=pass_fds,
                    preexec_fn=in_child,
                )
            finally:
                os.close(err)
        finally:
            os.close(out)
        child = Child(popen, on_exit)
        self._children[child.pid] = child
        if not self._looks:
            self._looks = True
            self._loop.call_later(LOOK_S, self._look)
        return child

    def _look(self) -> None:
        """An end of which no signal has told would be waited for as long as the job lasts."""
        self.reap()
        self._looks = bool(self._children)
        if self._looks:
            self._loop.call_later(LOOK_S, self._look)

    def reap(self) -> None:
        """Collect every child that has ended, orphans of the ranks included."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            child = self._children.pop(ended.si_pid, None)
            if child is not None and not child.spared:
                _kill_group(ended.si_pid, signal.SIGKILL)
            os.waitpid(ended.si_pid, 0)
            if child is not None:
                by_signal = ended.si_code != os.CLD_EXITED
                child.by_signal = by_signal
                child.on_exit(child.ended(128 + ended.si_status if by_signal else ended.si_status))

    def end_all(self, patience_s: float = 2.0) -> None:
        """KILL every child and everything that was orphaned to the worker; for the worker's own end."""
        for child in self._children.values():
            _kill_group(child.pid, signal.SIGKILL)
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            self.reap()
            left = linux.children()
            if not left:
                return
            for pid in left:
                _kill(pid, signal.SIGKILL)
            time.sleep(0.002)  # KILL needs no longer


def _kill(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass
    except PermissionError:
        pass  # a set-user-id program: the kernel does not let us


def _kill_group(pid: int, signum: int) -> None:
    try:
        os.killpg(pid, signum)
    except ProcessLookupError:
        pass
    except PermissionError:
        pass
