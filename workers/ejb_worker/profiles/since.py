"""What an application has written since its launch: logs are appended to, so that only what is new counts."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .filling import ReadsFile, filled, option
from .saying import STDOUT

TAIL_BYTES = 64 * 1024
"""Of a log before a launch: a program may go on from where its checkpoint was written, and so cut off what came after.
GROMACS does, and a quick end of its next run would else lie within the length that the log had."""


class Since:
    """One launch in a folder. `logs`: length and inode of each log before it; `tails`: its last bytes then (latin-1).
    `began_ns`: when it was, by the clock of the folder's file system."""

    def __init__(
        self, began_ns: int, logs: Mapping[str, Tuple[int, int]], tails: Optional[Mapping[str, str]] = None
    ) -> None:
        self.began_ns = began_ns
        self.logs = dict(logs)
        self.tails = dict(tails or {})

    def to_json(self) -> Dict[str, Any]:
        """Plain JSON values."""
        logs = {name: list(at) for name, at in self.logs.items()}
        return {"began_ns": self.began_ns, "logs": logs, "tails": self.tails}

    def texts(self, profile: Any, folder: Path, values: Mapping[str, str], output: Path) -> Dict[str, str]:
        """What was written to each log that the profile reads. `output`: the file of its standard output."""
        return {
            name: self._text(name, output if name == STDOUT else folder / name) for name in logs_of(profile, values)
        }

    def newer(self, profile: Any, folder: Path, values: Mapping[str, str]) -> List[str]:
        """The files by which an end is told that were written since."""
        names = [filled(end.file, values) for end in (profile.stopped, profile.finished)]
        return [name for name in names if name and _newer(folder / name, self.began_ns)]

    def _text(self, name: str, path: Path) -> str:
        length, inode = self.logs.get(name, (0, 0))
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_ino == inode:  # else it was made anew
                    tail = self.tails.get(name, "").encode("latin-1")
                    file.seek(length - len(tail))
                    same = _same(tail, file.read(len(tail)))
                    if same or found.st_size >= length:
                        file.seek(length - len(tail) + same)
                    else:
                        file.seek(0)
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def from_json(told: Mapping[str, Any]) -> Since:
    """What `to_json` has written."""
    logs = {name: (int(at[0]), int(at[1])) for name, at in told["logs"].items()}
    return Since(int(told["began_ns"]), logs, told.get("tails"))


def note_logs(profile: Any, folder: Path, values: Mapping[str, str], mark: str) -> Since:
    """How things are right before a launch. `mark`: the name of a file that is made in the folder, and removed."""
    logs, tails = {}, {}
    for name in logs_of(profile, values):
        if name != STDOUT:
            try:
                with (folder / name).open("rb") as file:
                    found = os.fstat(file.fileno())
                    file.seek(max(0, found.st_size - TAIL_BYTES))
                    tails[name] = file.read(TAIL_BYTES).decode("latin-1")
                logs[name] = found.st_size, found.st_ino
            except OSError:
                continue
    path = folder / mark
    path.touch()
    began_ns = path.stat().st_mtime_ns
    path.unlink()
    return Since(began_ns, logs, tails)


def logs_of(profile: Any, values: Mapping[str, str]) -> List[str]:
    """The logs that the profile reads, by their names in the folder."""
    ends = [profile.stopped.log, profile.finished.log, profile.compare.log]
    ends += [profile.progress.log] if profile.progress else []
    return list(dict.fromkeys(filled(log, values) for log in ends))


def missing(profile: Any, values: Mapping[str, str], words: Sequence[str], reads: ReadsFile) -> str:
    """Why a case cannot be run by the profile, in a sentence: it has what a resumed run would not keep, or lacks what
    the profile needs. `words`: the program's. "" where nothing speaks against it."""
    for needs, where in ((profile.stop.needs, profile.stop.needs_in), (profile.resume.needs, profile.resume.needs_in)):
        if needs:
            path = filled(where, values)
            name, text = os.path.basename(path), reads(path)
            if text is None:
                return "%s is not there, in which the profile %s needs %r" % (name, profile.name, needs)
            if not re.search(needs, text, re.MULTILINE):
                return "no line of %s is like %r, which the profile %s needs" % (name, needs, profile.name)
    for one in getattr(profile, "unless", ()):  # a job of an older daemon's has none
        where = _hindered(one, values, words, reads)
        if where:
            return "%s: %s, so that the profile %s is not for it" % (where, one.why, profile.name)
    return ""


def _hindered(one: Any, values: Mapping[str, str], words: Sequence[str], reads: ReadsFile) -> str:
    """The option or the file that an `unless` of a profile is about; "" where that is not there."""
    if one.option:
        found = next((word for word in words if word.partition("=")[0] in one.option.split("|")), "")
        like = not one.line or re.search(one.line, option(words, one.option) or "") is not None
        return found.partition("=")[0] if like else ""
    name = filled(one.file, values)
    text = reads(name)
    return name if text is not None and re.search(one.line, text, re.MULTILINE) else ""


def remove_stop_files(profile: Any, folder: Path, values: Mapping[str, str]) -> None:
    """One that was left over would stop the next run at once."""
    if profile.stop.file:
        try:
            (folder / filled(profile.stop.file, values)).unlink()
        except FileNotFoundError:
            pass


def make_stop_file(profile: Any, folder: Path, values: Mapping[str, str]) -> None:
    """What tells it to stop. Raises OSError."""
    (folder / filled(profile.stop.file, values)).write_text(profile.stop.text, encoding="utf-8")


def _same(before: bytes, now: bytes) -> int:
    """How many bytes from the beginning on are as they were: all, or whole lines."""
    if now.startswith(before):
        return len(before)
    differs = next((at for at, (old, new) in enumerate(zip(before, now)) if old != new), len(now))
    return now.rfind(b"\n", 0, differs) + 1


def _newer(path: Path, began_ns: int) -> bool:
    try:
        return path.stat().st_mtime_ns >= began_ns
    except OSError:
        return False
