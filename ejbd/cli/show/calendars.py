"""Windows of the week of a queue, in sentences."""

from __future__ import annotations

from typing import Any

from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import clock


def tell_calendar(queue: dict[str, Any], out: Output) -> None:
    """A line for each window of a queue, and one for how long what is in force now stays so."""
    calendar = queue["calendar"]
    for window in calendar["windows"]:
        settings = " ".join(f"{key}={value}" for key, value in window["settings"].items())
        state = "in force" if window["in_force"] else "not now"
        out.line(printable(f"queue {queue['name']}, {window['when']} ({calendar['time_zone']}): {settings}; {state}"))
    if calendar["windows"]:
        until = calendar["until_s"]
        how_long = f"until {clock(until)}" if until is not None else "for good: no edge changes anything"
        out.line(printable(f"queue {queue['name']}: the settings above are in force {how_long}"))
