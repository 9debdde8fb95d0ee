"""What a worker sees of its ranks from outside: memory, progress that they report, when they write a checkpoint."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, Optional, Tuple

WRITING_POLL_S = 0.2
"""How often a checkpoint folder is read until the first file is there."""

FIRST_SAMPLE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Samples are taken after 1, 2, 4, ... s, and from then on every minute."""
SECOND_LOOK_S = 1.0
"""What keeps ranks from being moved is reported once it was seen twice in a row, so much later."""
TELLING_CHANGE = 0.1
"""The part by which memory has to change before it is reported again."""
_PROGRESS_TAIL = 4096


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that these processes have in use. Shared pages count for each of them."""
    total = 0
    for pid in pids:
        try:
            with open("/proc/%d/statm" % pid, encoding="ascii") as statm:
                total += int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return total


def progress_file(launch_file: str) -> str:
    """Where the ranks of a launch report how far they are; the same in all of its epochs."""
    return os.path.splitext(launch_file)[0] + ".progress"


def read_progress(path: str) -> Optional[Tuple[float, Optional[float], float]]:
    """(done, total or None, when it was written by the file's own clock), or None where nothing is reported.

    It is the last whole line that counts: one number, or two with blanks or a slash between them.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - _PROGRESS_TAIL))
            lines = file.read(_PROGRESS_TAIL).decode("ascii", "replace").split("\n")
    except OSError:
        return None
    words = next((line.replace("/", " ").split() for line in reversed(lines[:-1]) if line.strip()), [])
    try:
        numbers = [float(word) for word in words[:2]]
    except ValueError:
        return None
    if not numbers or not all(0 <= number < 1e15 for number in numbers):  # NaN is not either
        return None
    return numbers[0], numbers[1] if len(numbers) > 1 else None, found.st_mtime


class Samples:
    """What is reported about one epoch's ranks now and then: only what has changed."""

    def __init__(self, epoch: int, progress: Optional[str]) -> None:
        self.pause_s = self._usual_s = FIRST_SAMPLE_S
        self._epoch = epoch
        self._progress = progress
        self._resident = 0
        self._done: Optional[float] = None
        self._obstacle = ""  # as reported
        self._suspected = False  # seen at the last look

    def with_obstacle(self, obstacle: str) -> Dict[str, Any]:
        """The fields of a `sample` report that says what keeps the ranks from being moved."""
        self._obstacle, self._suspected = obstacle, True
        nothing = {"done": None, "total": None, "at_s": None}
        return {"epoch": self._epoch, "resident": self._resident, **nothing, "obstacle": obstacle}

    def take(self, resident_bytes: int, obstacle: str = "") -> Optional[Dict[str, Any]]:
        """The fields of a `sample` report, or None where there is nothing new.

        `obstacle`: what is seen now. Many pass: one is reported once it is seen twice, and so is that it is gone.
        """
        passed = bool(self._obstacle) and not obstacle and not self._suspected
        first = bool(obstacle) and not self._suspected
        looks_again = first or (bool(self._obstacle) and self._suspected and not obstacle)
        self._suspected = bool(obstacle)
        if looks_again:
            self.pause_s = min(SECOND_LOOK_S, self._usual_s)
        else:
            self._usual_s = min(LONGEST_PAUSE_S, 2 * self._usual_s)
            self.pause_s = self._usual_s
        told = self._obstacle if first or not obstacle else obstacle
        found = read_progress(self._progress) if self._progress is not None else None
        done, total, at_s = found if found is not None else (None, None, None)
        grown = abs(resident_bytes - self._resident) > TELLING_CHANGE * self._resident
        if not grown and done == self._done and told == self._obstacle and not passed:
            return None
        self._resident, self._done = resident_bytes, done
        self._obstacle = "" if passed else told
        fields = {"epoch": self._epoch, "resident": resident_bytes, "done": done, "total": total, "at_s": at_s}
        return {**fields, "obstacle": self._obstacle, **({"passed": True} if passed else {})}

    def last(self) -> Optional[Dict[str, Any]]:
        """The same before the ranks end or stop, where they have reported more of their progress by then."""
        found = read_progress(self._progress) if self._progress is not None else None
        if found is None or found[0] == self._done or not self._resident:
            return None
        self._done = found[0]
        done, total, at_s = found
        fields = {"epoch": self._epoch, "resident": self._resident, "done": done, "total": total, "at_s": at_s}
        return {**fields, "obstacle": ""}


class Writing:
    """For how long files are being written into a checkpoint folder: since it was last seen without a new one.

    And whether they still grow.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._before = set(self._files())
        self._bytes: Optional[int] = None
        self._without_s = time.monotonic()
        self._seen = False

    def seen(self) -> bool:
        """Whether there is a new file by now."""
        if not self._seen:
            now = time.monotonic()
            self._seen = bool(self._files().keys() - self._before)
            if not self._seen:
                self._without_s = now
        return self._seen

    def seconds(self) -> float:
        """Up to now: rather a little too long (by the time between two readings) than too short."""
        return time.monotonic() - self._without_s

    def grows(self) -> bool:
        """Whether there is more in the folder than at the last call. At the first one that is to be seen yet: True."""
        now, before = sum(self._files().values()), self._bytes
        self._bytes = now
        return before is None or now > before

    def _files(self) -> Dict[str, int]:
        """The files in the folder and in its folders, with their sizes in bytes."""
        found: Dict[str, int] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        with os.scandir(entry.path) as inner:
                            found.update((os.path.join(entry.name, one.name), _size(one)) for one in inner)
                    else:
                        found[entry.name] = _size(entry)
        except OSError:
            return found
        return found


def _size(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:  # it has just been renamed
        return 0
