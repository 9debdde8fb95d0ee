"""Times and amounts as people read them."""

from __future__ import annotations

import time
from typing import Any

from ejbd.wire.payloads import JobView


def duration(seconds: float | None) -> str:
    """[d-]h:mm:ss, or m:ss below an hour; `-` for None."""
    if seconds is None:
        return "-"
    total = max(0, round(seconds))
    minutes, rest = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def clock(at_s: float | None) -> str:
    """Local time of day, with the date where it is another day; `-` for None."""
    if at_s is None:
        return "-"
    then, now = time.localtime(at_s), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)


def elapsed(job: JobView, now_s: float | None = None) -> float | None:
    """Seconds since the job's first rank ran, until its end or now."""
    if job["start_s"] is None:
        return None
    end = job["end_s"] if job["end_s"] is not None else now_s or time.time()
    return float(end) - float(job["start_s"])


def slots(found: list[dict[str, Any]]) -> str:
    """A staircase of slots in words."""
    if not found:
        return "nothing is free"
    parts = []
    for slot in found:
        until = "without an end" if slot["duration_s"] is None else f"for {duration(slot['duration_s'])}"
        why = f" ({slot['why']})" if slot.get("why") else ""
        parts.append(f"{slot['processors']} {until}{why}")
    return ", ".join(parts)
