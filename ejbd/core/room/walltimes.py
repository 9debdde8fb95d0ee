"""Between a length that is planned and the walltime that is asked for, and back; seconds. Kernels for both worlds."""

from __future__ import annotations

import math

from ejbd.core.kernel import kernel
from ejbd.core.progress import ROUNDING_SLACK_S, round_up
from ejbd.core.room.slots import Margins, not_for_ranks


@kernel
def slack(kept_s: float, margins: Margins) -> float:
    """What is asked for beyond a plan: the end that is kept for the last checkpoint, and a start-up."""
    return kept_s + margins.start_up_s


@kernel
def longest_walltime(slot_s: float, resumes: bool, margins: Margins, max_walltime_s: float) -> float:
    """The most that may be asked for on a slot that a policy was shown as lasting `slot_s`.

    Of what it was not shown all but the time of a poll, in which the slot has grown older.
    """
    return min(slot_s + not_for_ranks(resumes, margins), max_walltime_s)


@kernel
def asked_walltime(length_s: float, slack_s: float, limit_s: float, quantum_s: float) -> float:
    """Whole quanta for a plan's length and the slack, as far as `limit_s` lets; never less than the length."""
    wanted = round_up(length_s + slack_s, quantum_s)
    if wanted <= limit_s:
        return wanted
    return max(length_s, math.floor((limit_s + ROUNDING_SLACK_S) / quantum_s) * quantum_s)


@kernel
def length_for_ranks(walltime_s: float, length_s: float, kept_s: float) -> float:
    """How long ranks may be planned on a subjob: all but its last `kept_s`, and at least what was planned."""
    return max(min(length_s, walltime_s), walltime_s - kept_s)
