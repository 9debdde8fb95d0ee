"""Reports on their way to the manager: numbered from 1, kept until accepted, with a copy in the subjob's folder.

The copy is for the manager: should the worker end while the manager is away, it finds there what it has not been told.
A copy that cannot be written (full disk) is done without: the worker's memory has every report, and the application
does not stop for it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List

Report = Dict[str, Any]

_BATCH = 100
_MOST_LOGS = 1000
_COPY_LIMIT = 256 * 1024  # a copy longer than this is begun anew once nothing in it is needed


class ReportBuffer:
    """Thread-safe. `wait` lets one sender sleep until there is something to send."""

    def __init__(self, folder: str, node: str, boot: str) -> None:
        self.path = os.path.join(folder, "reports", "%s-%s.jsonl" % (node.replace("/", "_"), boot))
        self._reports: Deque[Report] = deque()
        self._last = 0
        self._logs = 0
        self._condition = threading.Condition()
        self._hurried = False
        self._copied = 0

    def add(self, kind: str, fields: Dict[str, Any]) -> int:
        with self._condition:
            if kind == "log":
                if self._logs >= _MOST_LOGS:
                    return self._last
                self._logs += 1
            self._last += 1
            report: Report = {"n": self._last, "kind": kind, "told_s": round(time.time(), 3)}
            report.update(fields)
            self._reports.append(report)
            self._copy(report)
            self._condition.notify_all()
            return self._last

    def batch(self) -> List[Report]:
        with self._condition:
            return [report for report, _ in zip(self._reports, range(_BATCH))]

    def last_accepted(self) -> int:
        """The number of the last report that a manager has stored."""
        with self._condition:
            return int(self._reports[0]["n"]) - 1 if self._reports else self._last

    def accepted(self, n: int) -> None:
        """The manager has stored every report up to `n`."""
        with self._condition:
            while self._reports and self._reports[0]["n"] <= n:
                if self._reports.popleft()["kind"] == "log":
                    self._logs -= 1
            if not self._reports and self._copied > _COPY_LIMIT:
                self._remove_copy()

    def give_up(self, n: int, message: str) -> None:
        """The manager cannot take report `n`: a log entry goes in its place, so that no number is missing."""
        with self._condition:
            log: Report = {"n": n, "kind": "log", "level": "error", "message": message}
            self._reports = deque(log if report["n"] == n else report for report in self._reports)
            self._logs += 1

    def pending(self) -> int:
        with self._condition:
            return len(self._reports)

    def is_pending(self, n: int) -> bool:
        with self._condition:
            return any(report["n"] == n for report in self._reports)

    def wait(self, seconds: float) -> None:
        """Until there is a report, `hurry` was called, or `seconds` are over."""
        with self._condition:
            if not self._reports and not self._hurried:
                self._condition.wait(seconds)
            self._hurried = False

    def hurry(self) -> None:
        with self._condition:
            self._hurried = True
            self._condition.notify_all()

    def close(self) -> None:
        """The copy is removed if the manager has everything."""
        with self._condition:
            if not self._reports:
                self._remove_copy()

    def _copy(self, report: Report) -> None:
        data = json.dumps(report, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError:
            return
        self._copied += len(data)

    def _remove_copy(self) -> None:
        try:
            os.unlink(self.path)
        except OSError:
            pass
        self._copied = 0
