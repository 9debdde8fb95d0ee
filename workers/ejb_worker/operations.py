"""The operation table: each `seq` is carried out once and has one result, however often it is delivered."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

_REMEMBERED = 1000

Reply = Callable[[bool, str, Dict[str, Any]], None]
Handler = Callable[[Dict[str, Any], Reply], None]


class Operations:
    """`handlers` by kind; a handler calls its reply once, now or later. Main thread only, but for `answered`."""

    def __init__(
        self, handlers: Mapping[str, Handler], report: Callable[..., Any], pending: Callable[[int], bool]
    ) -> None:
        """`pending(n)` says whether report `n` is still on its way: then its result need not be sent again."""
        self._handlers = handlers
        self._report = report
        self._pending = pending
        self._results: Dict[int, Optional[Dict[str, Any]]] = {}
        self._numbers: Dict[int, int] = {}
        self._answered = 0
        self._lock = threading.Lock()

    def answered(self) -> int:
        """The highest `seq` up to which every operation that was delivered has its result. Any thread."""
        with self._lock:
            return self._answered

    def deliver(self, operations: List[Dict[str, Any]]) -> None:
        for operation in sorted(operations, key=lambda one: int(one["seq"])):
            seq = int(operation["seq"])
            if seq in self._results:
                self._again(seq)
            elif seq > self._answered:
                with self._lock:
                    self._results[seq] = None
                self._carry_out(seq, operation)

    def _carry_out(self, seq: int, operation: Dict[str, Any]) -> None:
        kind = str(operation.get("kind"))
        payload = operation.get("payload") or {}

        def reply(ok: bool, error: str, data: Dict[str, Any]) -> None:
            self._answer(seq, {"seq": seq, "ok": ok, "error": error, "data": data})

        handler = self._handlers.get(kind)
        if handler is None:
            reply(False, "operation %s is not known to this worker" % kind, {})
            return
        try:
            handler(payload, reply)
        except OSError as error:
            reply(False, "%s: %s" % (kind, error), {})
        except (KeyError, TypeError, ValueError) as error:
            reply(False, "%s: the payload is not understood: %s: %s" % (kind, type(error).__name__, error), {})

    def _answer(self, seq: int, result: Dict[str, Any]) -> None:
        if self._results.get(seq) is not None:
            return
        with self._lock:
            self._results[seq] = result
            waiting = [s for s, r in self._results.items() if r is None]
            self._answered = min(waiting) - 1 if waiting else max(self._results)
            for old in sorted(self._results)[:-_REMEMBERED]:
                if self._results[old] is not None:
                    del self._results[old]
                    self._numbers.pop(old, None)
        self._numbers[seq] = self._report("result", **result)

    def _again(self, seq: int) -> None:
        result = self._results[seq]
        if result is not None and not self._pending(self._numbers[seq]):
            self._numbers[seq] = self._report("result", **result)
