"""Sequences of walltimes without a daemon: a law in words, and what is best for it."""

from __future__ import annotations

import math
from typing import Any

from ejbd.errors import Code, EjbError

MOST_POINTS = 2000
MOST_WITH_WORK = 400  # points where work is backfilled: states grow with their cube
MOST_WITH_CHECKPOINTS = 400


def sequence_for(
    law: str,
    *,
    points: int | None = None,
    zeta: float = 0.0,
    checkpoint: str | None = None,
    restart: str | None = None,
    limit: str | None = None,
) -> dict[str, Any]:
    """The best sequence for a law in words (`ejbd.core.speculation.laws`). Raises EjbError (INVALID).

    With `checkpoint` or `restart` (times in words) a reservation may end with a checkpoint.
    """
    from ejbd.core.speculation.checkpointed import checkpointed_plan_of
    from ejbd.core.speculation.laws import Law, law_of
    from ejbd.core.speculation.sequence import finishing, plan_of

    known: Law = _asked("--law", lambda: law_of(law))
    limit_s = math.inf if limit is None else time_of("--limit", limit)
    if limit_s <= 0.0:
        raise EjbError(Code.INVALID, "a limit is above 0", where="--limit")
    with_checkpoints = checkpoint is not None or restart is not None
    most = MOST_WITH_CHECKPOINTS if with_checkpoints else MOST_WITH_WORK if zeta else MOST_POINTS
    if points is not None and not 1 <= points <= most:
        raise EjbError(Code.INVALID, f"1 to {most} points are worked out here, not {points}", where="--points")
    told: dict[str, Any] = {"law": known.words(), "mean_s": known.mean}
    if with_checkpoints:
        if zeta:
            raise EjbError(Code.INVALID, "--zeta and --checkpoint do not go together", hint="leave one of them out")
        checkpoint_s, restart_s = time_of("--checkpoint", checkpoint or "0"), time_of("--restart", restart or "0")
        plan = _asked(
            "--checkpoint",
            lambda: checkpointed_plan_of(
                known, checkpoint_s=checkpoint_s, restart_s=restart_s, limit_s=limit_s, points=points or 100
            ),
        )
        return told | {
            "sequence_s": list(plan.sequence_s),
            "expected_cost_s": plan.expected_cost_s,
            "progress_s": [one.until_s for one in plan.reservations],
            "checkpoint": [one.checkpoint for one in plan.reservations],
        }
    found = _asked("--zeta", lambda: plan_of(known, points=points, zeta=zeta, limit_s=limit_s))
    return told | {
        "sequence_s": list(found.sequence_s),
        "expected_cost_s": found.expected_cost_s,
        "finishes": list(finishing(known, found.sequence_s)),
    }


def time_of(where: str, text: str) -> float:
    """A time in words, 0 s or more. Raises EjbError (INVALID)."""
    from ejbd.core.speculation.laws import seconds_of

    value: float = _asked(where, lambda: seconds_of(text))
    if value < 0.0:
        raise EjbError(Code.INVALID, f"{text!r} is below 0", where=where)
    return value


def _asked(where: str, question: Any) -> Any:
    try:
        return question()
    except (ValueError, OverflowError) as error:
        raise EjbError(Code.INVALID, str(error), where=where) from None
