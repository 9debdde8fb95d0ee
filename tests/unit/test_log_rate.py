"""A log that says the same thing over and over, as one did that wrote 376 MB of it."""

from __future__ import annotations

import io
import logging

import structlog

from ejbd.log.rate import EACH, MOST_KINDS, WITHIN_S, Equal, EqualRecords, Rate


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_of_equal_lines_the_first_few_are_written_and_the_rest_is_counted() -> None:
    clock, out = Clock(), io.StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(out), processors=[Equal(Rate(clock)), structlog.processors.LogfmtRenderer()]
    )
    for number in range(300):
        log.error("accept-failed", error="no file can be opened")
        log.error("other", number=number)
    lines = out.getvalue().splitlines()
    assert sum("accept-failed" in line for line in lines) == EACH
    assert sum("event=other" in line for line in lines) == 300  # none of those is equal to another
    clock.now_s = WITHIN_S
    log.error("accept-failed", error="no file can be opened")
    assert out.getvalue().splitlines()[-1].endswith(f"equal_lines_left_out={300 - EACH}")


def test_what_libraries_say_is_limited_as_well() -> None:
    clock, out = Clock(), io.StringIO()
    logger = logging.Logger("asyncio")
    logger.addHandler(logging.StreamHandler(out))
    logger.addFilter(EqualRecords(Rate(clock)))
    for _ in range(500):
        logger.error("socket.accept() out of system %s", "resource")
    assert len(out.getvalue().splitlines()) == EACH
    clock.now_s = WITHIN_S + 1
    logger.error("socket.accept() out of system %s", "resource")
    assert out.getvalue().endswith(f"({500 - EACH} equal lines left out)\n")


def test_what_is_remembered_is_bounded() -> None:
    rate = Rate(Clock())
    for number in range(3 * MOST_KINDS):
        assert rate.passes(number) == 0
    assert len(rate._seen) <= MOST_KINDS
