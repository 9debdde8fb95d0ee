"""The worker's operation table: one result for each number, whatever the handler or the daemon does."""

from __future__ import annotations

from typing import Any

from workers.ejb_worker.operations import Operations, Reply


class Worker:
    """The table with a handler that keeps its replies for later, and one that replies and then fails."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.reports: list[dict[str, Any]] = []
        self.under_way: set[int] = set()
        handlers = {"later": lambda payload, reply: self.replies.append(reply), "late-failure": self._fail}
        self.table = Operations(handlers, self._report, self.under_way.__contains__)

    def _report(self, kind: str, **fields: Any) -> int:
        assert kind == "result"
        self.reports.append(fields)
        return len(self.reports)

    def _fail(self, payload: dict[str, Any], reply: Reply) -> None:
        reply(True, "", {"done": 1})
        raise OSError("the disk went away after the answer")

    def deliver(self, *numbers: int, kind: str = "later") -> None:
        self.table.deliver([{"seq": number, "kind": kind, "payload": {}} for number in numbers])

    def told(self) -> list[tuple[int, bool]]:
        return [(one["seq"], one["ok"]) for one in self.reports]


def test_a_second_answer_of_a_handler_changes_nothing() -> None:
    worker = Worker()
    worker.deliver(1)
    worker.replies[0](True, "", {})
    worker.replies[0](False, "too late", {})
    worker.deliver(2, kind="late-failure")
    assert worker.told() == [(1, True), (2, True)]
    worker.deliver(2)
    assert worker.reports[-1] == {"seq": 2, "ok": True, "error": "", "data": {"done": 1}}


def test_what_is_delivered_again_is_carried_out_once_and_told_again_unless_its_result_is_under_way() -> None:
    worker = Worker()
    worker.deliver(1)
    worker.deliver(1)
    assert len(worker.replies) == 1 and not worker.reports
    worker.replies[0](True, "", {})
    worker.under_way.add(1)
    worker.deliver(1)
    assert worker.told() == [(1, True)]
    worker.under_way.clear()
    worker.deliver(1)
    assert worker.told() == [(1, True)] * 2 and len(worker.replies) == 1


def test_answered_is_the_last_number_before_the_first_that_waits() -> None:
    worker = Worker()
    worker.deliver(3, 1, 2)
    assert worker.table.answered() == 0
    worker.replies[1](True, "", {})
    assert worker.table.answered() == 0
    worker.replies[0](True, "", {})
    assert worker.table.answered() == 2
    worker.replies[2](True, "", {})
    assert worker.table.answered() == 3
    worker.deliver(4, kind="unheard")
    assert worker.table.answered() == 4 and worker.reports[-1]["ok"] is False
