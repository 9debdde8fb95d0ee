"""An application that runs here by its profile: started, watched, told to stop, and judged."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ejbd.errors import Code, EjbError
from ejbd.profiles.filling import filled
from ejbd.profiles.judging import Judged, Seen, how_far, judge
from ejbd.profiles.profile import STDOUT, Profile, To
from ejbd.profiles.reading import matches
from ejbd.profiles.starting import Start

LOOKED_EVERY_S = 0.02
PREPARES_S = 3600.0


@dataclass
class Run:
    """One launch. `logs`: how long each log was before it; `began_ns`: when it was, by the files' clock."""

    profile: Profile
    folder: Path
    values: Mapping[str, str]
    process: subprocess.Popen[bytes]
    output: Path
    began_ns: int
    began_s: float
    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    asked_s: float | None = None
    killed: bool = False

    def texts(self) -> dict[str, str]:
        """What was written to each log since the launch."""
        return {name: self._since(name) for name in _logs(self.profile, self.values)}

    def _since(self, name: str) -> str:
        path = self.output if name == STDOUT else self.folder / name
        length, inode = self.logs.get(name, (0, 0))
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino == inode and found.st_size >= length:
                    file.seek(length)  # it is appended to; else it was made anew
                return file.read().decode(errors="replace")
        except OSError:
            return ""

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
            (self.folder / filled(stop.file, self.values)).write_text(stop.text, encoding="utf-8")
        else:
            heard = self.ranks()
            for rank in heard[:1] if stop.to is To.ONE_RANK else heard:
                _send(rank, getattr(signal, f"SIG{stop.signal}"))
        if not self.wait(self.profile.grace_s):
            self.kill()

    def kill(self) -> None:
        """End all of it."""
        self.killed = True
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def ranks(self) -> list[psutil.Process]:
        """Its processes that are the program's, not the launcher's. The launcher's own grace would be a race."""
        try:
            parent = psutil.Process(self.process.pid)
            family = [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        return [one for one in family if _is_rank(one, self.profile)]

    def judged(self) -> Judged:
        """What became of it; it has ended."""
        newer = frozenset(
            name
            for end in (self.profile.stopped, self.profile.finished)
            if (name := filled(end.file, self.values)) and _newer(self.folder / name, self.began_ns)
        )
        code = self.process.returncode
        seen = Seen(code, self.texts(), newer, asked=self.asked_s is not None, killed=self.killed)
        return judge(self.profile, seen, self.values)


def begin(profile: Profile, start: Start, folder: Path, values: Mapping[str, str], output: Path) -> Run:
    """Start it: what a stop before has left is taken away first. Raises EjbError where it cannot be started."""
    remove_stop_files(profile, folder, values)
    if start.input is not None:
        (folder / start.input[0]).write_text(start.input[1], encoding="utf-8")
    if shutil.which(start.words[0], path=os.environ.get("PATH")) is None:
        raise EjbError(Code.INVALID, f"{start.words[0]} is not on the PATH")
    logs = {}
    for name in _logs(profile, values):
        if name != STDOUT:
            try:
                found = (folder / name).stat()
                logs[name] = found.st_size, found.st_ino
            except OSError:
                continue
    mark = folder / f".{output.name}.began"
    mark.touch()  # by the clock of the file system
    began_ns = mark.stat().st_mtime_ns
    mark.unlink()
    with output.open("wb") as out:
        process = subprocess.Popen(
            start.words, cwd=folder, env={**os.environ, **start.env}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    return Run(profile, folder, values, process, output, began_ns, time.monotonic(), logs)


def remove_stop_files(profile: Profile, folder: Path, values: Mapping[str, str]) -> None:
    """One that was left over would stop the next run at once."""
    if profile.stop.file:
        (folder / filled(profile.stop.file, values)).unlink(missing_ok=True)


def prepare(start: Start, folder: Path, output: Path) -> None:
    """The commands before a start at another width, once. Raises EjbError for the first that fails."""
    for line in start.prepare:
        with output.open("ab") as out:
            try:
                done = subprocess.run(
                    ["sh", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                    timeout=PREPARES_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise EjbError(Code.INVALID, f"{line} has not ended in {PREPARES_S:.0f} s") from None
        if done.returncode:
            hint = f"its output is in {output}"
            raise EjbError(Code.INVALID, f"{line} failed with code {done.returncode}", hint=hint)


def missing(profile: Profile, folder: Path, values: Mapping[str, str]) -> str:
    """What of the case the profile needs and does not find, in a sentence; "" where nothing is."""
    for needs, where in ((profile.stop.needs, profile.stop.needs_in), (profile.resume.needs, profile.resume.needs_in)):
        if needs:
            path = folder / filled(where, values)
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                return f"{path.name} is not there, in which the profile {profile.name} needs {needs!r}"
            if not re.search(needs, text, re.MULTILINE):
                return f"no line of {path.name} is like {needs!r}, which the profile {profile.name} needs"
    return ""


def _logs(profile: Profile, values: Mapping[str, str]) -> list[str]:
    ends = [profile.stopped.log, profile.finished.log, profile.compare.log]
    ends += [profile.progress.log] if profile.progress else []
    return list(dict.fromkeys(filled(log, values) for log in ends))


def _newer(path: Path, began_ns: int) -> bool:
    try:
        return path.stat().st_mtime_ns >= began_ns
    except OSError:
        return False


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
