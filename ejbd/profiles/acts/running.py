"""An application that runs here by its profile: started, watched, told to stop, and judged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ejbd._workers.ejb_worker.profiles.judging import Judged, Seen, how_far, judge
from ejbd._workers.ejb_worker.profiles.matching import matches
from ejbd._workers.ejb_worker.profiles.since import Since, make_stop_file, note_logs, remove_stop_files
from ejbd._workers.ejb_worker.profiles.starting import Start
from ejbd.errors import Code, EjbError
from ejbd.profiles.profile import Profile, To

LOOKED_EVERY_S = 0.02
PREPARES_S = 3600.0


@dataclass
class Run:
    """One launch."""

    profile: Profile
    folder: Path
    values: Mapping[str, str]
    process: subprocess.Popen[bytes]
    output: Path
    since: Since
    began_s: float
    asked_s: float | None = None
    killed: bool = False

    def texts(self) -> dict[str, str]:
        """What was written to each log since the launch."""
        return self.since.texts(self.profile, self.folder, self.values, self.output)

    def progress(self) -> tuple[float, float | None]:
        """Steps done and to be done, as far as the profile tells."""
        about = self.profile.progress
        return (0.0, None) if about is None else how_far(about, self.texts(), self.values)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self, until_s: float) -> bool:
        """Whether it ended within so many seconds."""
        end_s = time.monotonic() + until_s
        while not self.ended() and time.monotonic() < end_s:
            time.sleep(LOOKED_EVERY_S)
        return self.ended()

    def stop(self) -> None:
        """Tell it to write its state and end, and kill what is left after the grace."""
        if self.ended():
            return
        stop, self.asked_s = self.profile.stop, time.monotonic()
        if stop.file:
            make_stop_file(self.profile, self.folder, self.values)
        else:
            heard = self.ranks()
            for rank in heard[:1] if stop.to is To.ONE_RANK else heard:
                _send(rank, getattr(signal, f"SIG{stop.signal}"))
        if not self.wait(self.profile.grace_s):
            self.kill()

    def kill(self) -> None:
        """End all of it."""
        self.killed = True
        family = self._family()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        for one in family:  # mpirun's ranks have groups of their own
            _send(one, signal.SIGKILL)
        self.process.wait()

    def ranks(self) -> list[psutil.Process]:
        """Its processes that are the program's, not the launcher's. The launcher's own grace would be a race."""
        return [one for one in self._family() if _is_rank(one, self.profile)]

    def _family(self) -> list[psutil.Process]:
        try:
            parent = psutil.Process(self.process.pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def judged(self) -> Judged:
        """What became of it; it has ended."""
        newer = self.since.newer(self.profile, self.folder, self.values)
        code = self.process.returncode
        seen = Seen(code, self.texts(), newer, asked=self.asked_s is not None, killed=self.killed)
        return judge(self.profile, seen, self.values)


def begin(
    profile: Profile, launcher: Sequence[str], start: Start, folder: Path, values: Mapping[str, str], output: Path
) -> Run:
    """Start it by its launcher's words (none: it starts itself). What a stop before has left is taken away first.

    Raises EjbError where it cannot be started."""
    remove_stop_files(profile, folder, values)
    if start.input is not None:
        (folder / start.input[0]).write_text(start.input[1], encoding="utf-8")
    words = [*launcher, *start.words]
    if shutil.which(words[0], path=os.environ.get("PATH")) is None:
        raise EjbError(Code.INVALID, f"{words[0]} is not on the PATH")
    since = note_logs(profile, folder, values, f".{output.name}.began")
    with output.open("wb") as out:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, **start.env}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return Run(profile, folder, values, process, output, since, time.monotonic())


def prepare(start: Start, folder: Path, output: Path, container: Sequence[str] = ()) -> None:
    """The commands before a start at another width, once. Raises EjbError for the first that fails.

    `container`: the words that start them where the program is."""
    for line in start.prepare:
        with output.open("ab") as out:
            try:
                done = subprocess.run(
                    [*container, "sh", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, timeout=PREPARES_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise EjbError(Code.INVALID, f"{line} has not ended in {PREPARES_S:.0f} s") from None
        if done.returncode:
            hint = f"its output is in {output}"
            raise EjbError(Code.INVALID, f"{line} failed with code {done.returncode}", hint=hint)


def _is_rank(process: Any, profile: Profile) -> bool:
    try:
        return matches(profile, process.cmdline())
    except psutil.Error:
        return False


def _send(process: Any, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        pass
