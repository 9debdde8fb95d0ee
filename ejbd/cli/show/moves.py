"""The hops of moves, in words."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ejbd.cli.output import Output, printable
from ejbd.cli.show.words import clock

_LONG = 4  # so many hops of a move, the longest, are marked
_NOTED_S = 0.05  # ... if they take that long


def moves(found: dict[str, Any], out: Output) -> None:
    """Every start, move and end of a job: when each hop was there, and how long after the one before."""
    if not found["moves"]:
        out.line(f"job {found['job']}: its ranks have not been anywhere yet")
    for number, one in enumerate(found["moves"]):
        if number:
            out.line()
        _move(one, out)


def _move(one: dict[str, Any], out: Output) -> None:
    hops = one["hops"]
    begun_s = hops[0]["at_s"] if hops else None
    out.line(f"{_heading(one)}{', ' + clock(begun_s) if hops else ''}")
    for name, words in (
        ("seen_to_running_s", "from when the last new subjob was known to run until all ranks ran"),
        ("started_to_running_s", "from the batch system's start of that subjob until all ranks ran"),
        ("still_s", "ranks stood still, from the asking for a checkpoint until all ran again"),
        ("end_to_free_s", "from the last rank's end until its processors were seen to be free"),
    ):
        if one[name] is not None:
            out.line(f"  {one[name]:8.3f} s {words}")
    gaps = [hop["at_s"] - before["at_s"] for before, hop in pairwise(hops)]
    long = sorted(gaps, reverse=True)[: min(_LONG, len(gaps))]
    for hop, gap in zip(hops, [0.0, *gaps], strict=True):
        mark = "*" if gap >= _NOTED_S and gap in long else " "
        where = "".join(f"  {hop[key]}" for key in ("subjob", "node") if hop[key])
        out.line(printable(f"{mark} {hop['at_s'] - begun_s:8.3f}  +{gap:7.3f}  {hop['what']}{where}"))


def _heading(one: dict[str, Any]) -> str:
    if one["kind"] == "end":
        return f"end: {one['before']} processors given back"
    if one["kind"] == "move":
        return f"move to placement {one['epoch']}: from {one['before']} processors to {one['processors']}"
    return f"start of placement {one['epoch']}: on {one['processors']} processors"
