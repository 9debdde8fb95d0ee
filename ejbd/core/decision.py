"""A decision is a value that carries its reasons: the slots seen, the candidates weighed, the one chosen and why.

`ejb explain` prints exactly this, the event log stores exactly this, and the simulator asserts on exactly this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from ejbd.core.shapes import UNLIMITED, BackfillSlot
from ejbd.core.timeline import PlannedTimeline, timeline_from_json


class DecisionKind(StrEnum):
    """What is to be done about one elastic job."""

    NOTHING = "nothing"  # stay as it is: wait on, or run on
    START = "start"  # submit `requests` and begin (or resume) on them
    EXPAND = "expand"  # submit `requests` and spread over them as well
    MOVE_TO_PLACEHOLDER = "move_to_placeholder"  # move to J0 with the work kept, then release `cancel`
    KEEP_SUBJOBS = "keep_subjobs"  # go on as it is and cancel J0
    START_ON_PLACEHOLDER = "start_on_placeholder"  # begin anew on J0; work done so far is given up, `cancel` released
    LEAVE = "leave"  # move off `cancel`, which end before the application does, from `begin_s` to `end_s`
    SUSPEND = "suspend"  # nothing held lasts: checkpoint in that time, and go back to waiting with the work kept
    GIVE_UP = "give_up"  # nothing held lasts, and the policy does not suspend: the job outlives its plan
    COMPLETE = "complete"  # the application has ended: cancel `cancel`
    AGAIN = (
        "again"  # it has ended, and the job is queued anew: for how long a request says, where `queue`; or as before
    )


class ReasonCode(StrEnum):
    """Why EJB's own policy decided as it did. Programs go by the code; the sentence beside it is for people alone."""

    NO_ROOM = "no_room"  # no processor can be used now
    TOO_NARROW = "too_narrow"  # what is free is less than O_max lets the job run on
    NONE_LASTS = "none_lasts"  # no slot carries the job to its end
    NO_SUBJOB = "no_subjob"  # the job holds none
    NOT_MOVABLE = "not_movable"
    ON_PLACEHOLDER = "on_placeholder"  # it runs at full width there
    MOVING = "moving"  # a move is under way
    FULL_WIDTH = "full_width"  # every process has a processor
    NEARLY_DONE = "nearly_done"
    NO_GAIN = "no_gain"  # none of what was weighed is done earlier
    EARLIEST = "earliest"  # of all that was weighed
    NOTHING_DONE = "nothing_done"  # J0 has started, and nothing was done elsewhere
    LASTS = "lasts"  # what is held carries the job to its end
    ENDS_BEFORE = "ends_before"  # what is held, or a part of it, ends before the job does
    ENDED = "ended"  # the application has ended
    GIVES_NOTHING = "gives_nothing"  # the job holds nothing that would be worth giving back
    NONE_FITS = "nobody_fits"  # no waiting job, into what it holds
    COSTS_PLACE = "costs_place"  # by fair share it would cost J0 more than it gains
    STANDS_ON_LIMIT = "stands_on_limit"  # a job that could start but for what this one runs on
    ONE_FITS = "somebody_fits"  # a waiting job, into what it holds
    FITS = "fits"  # the head of a pool's queue, into what is free
    FOLDED = "folded"  # the head of a pool's queue fits once jobs are folded, it among them perhaps
    IN_VAIN = "in_vain"  # not even folding all that may be folded would let the head start
    NOT_FREE = "not_free"  # what the job was folded away from


@dataclass(frozen=True, slots=True)
class SubjobRequest:
    """A subjob to be submitted: processors, walltime in seconds, and the slot (index into `slots`) it is meant for."""

    processors: int
    length_s: float
    slot_index: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possibility that was weighed.

    `completion_s` is the expected completion (absolute seconds, None where there is none) and `why` says in a few words
    how that figure came about, or why the candidate is not feasible. `name` says which one it is, without figures: like
    a decision's code it is compared.
    `price`: processor-seconds that it spends for each second that it gains: of the job's own work, which J0 need not do
    then, for a waiting job; beside the present plan for a running one. None where there is nothing to gain.
    """

    name: str
    feasible: bool
    completion_s: float | None
    requests: tuple[SubjobRequest, ...]
    why: str
    price: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about `job` at `now_s`, from which slots, among which candidates, and why.

    `reason` is a sentence for people, which nothing goes by. `code` is the same for programs, a word of the policy's
    own (EJB's: :class:`ReasonCode`). A decision that does nothing is stored again only where its code, or what was
    weighed, is another one.
    `expected_completion_s` is what may be expected once the decision is carried out (None: not known, as for a job that
    keeps waiting). `cancel` names subjobs that the decision gives up: for MOVE_TO_PLACEHOLDER and START_ON_PLACEHOLDER
    once J0 runs the application, for COMPLETE at once. `timeline` is what is planned once the decision is carried out.
    LEAVE, SUSPEND and GIVE_UP: what has to be done begins at `begin_s`, which may lie in the past, to be over by
    `end_s`, when `cancel` end. `folds`: jobs of a pool that are folded first, each onto half of its processors.
    `queue`: of AGAIN, the queue into which the job goes ("": the one that it is in).
    """

    kind: DecisionKind
    job: str
    now_s: float
    reason: str
    requests: tuple[SubjobRequest, ...] = ()
    expected_completion_s: float | None = None
    candidates: tuple[Candidate, ...] = ()
    slots: tuple[BackfillSlot, ...] = ()
    cancel: tuple[str, ...] = ()
    timeline: PlannedTimeline = ()
    begin_s: float | None = None
    end_s: float | None = None
    code: str = ""
    folds: tuple[str, ...] = ()
    queue: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as JSON-safe plain values; an unlimited duration becomes None (null)."""
        return {
            "kind": self.kind.value,
            "job": self.job,
            "now_s": self.now_s,
            "reason": self.reason,
            "code": str(self.code),
            "requests": _requests_to_json(self.requests),
            "expected_completion_s": self.expected_completion_s,
            "candidates": [
                {
                    "name": c.name,
                    "feasible": c.feasible,
                    "completion_s": c.completion_s,
                    "requests": _requests_to_json(c.requests),
                    "why": c.why,
                    "price": c.price,
                }
                for c in self.candidates
            ],
            "slots": [{"processors": s.processors, "duration_s": _finite(s.duration_s)} for s in self.slots],
            "cancel": list(self.cancel),
            "timeline": [interval.to_json() for interval in self.timeline],
            "begin_s": self.begin_s,
            "end_s": self.end_s,
            **({"folds": list(self.folds)} if self.folds else {}),
            **({"queue": self.queue} if self.queue else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The decision that `to_json` wrote. Raises KeyError or ValueError where `data` is not such a document."""
        return cls(
            kind=DecisionKind(data["kind"]),
            job=data["job"],
            now_s=data["now_s"],
            reason=data["reason"],
            requests=_requests_from_json(data["requests"]),
            expected_completion_s=data["expected_completion_s"],
            candidates=tuple(
                Candidate(
                    name=c["name"],
                    feasible=c["feasible"],
                    completion_s=c["completion_s"],
                    requests=_requests_from_json(c["requests"]),
                    why=c["why"],
                    price=c.get("price"),
                )
                for c in data["candidates"]
            ),
            slots=tuple(
                BackfillSlot(s["processors"], UNLIMITED if s["duration_s"] is None else s["duration_s"])
                for s in data["slots"]
            ),
            cancel=tuple(data["cancel"]),
            timeline=timeline_from_json(data.get("timeline", ())),  # decisions of before had none
            begin_s=data.get("begin_s"),
            end_s=data.get("end_s"),
            code=data.get("code", ""),  # decisions of before had none
            folds=tuple(data.get("folds", ())),
            queue=data.get("queue", ""),
        )


def no_room(job: str, now_s: float) -> Decision:
    """What every policy answers about a waiting job while nothing is free: there is nothing that it could ask for."""
    return Decision(DecisionKind.NOTHING, job, now_s, "no processor can be used now", code=ReasonCode.NO_ROOM)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None


def _requests_to_json(requests: tuple[SubjobRequest, ...]) -> list[dict[str, Any]]:
    return [{"processors": r.processors, "length_s": _finite(r.length_s), "slot_index": r.slot_index} for r in requests]


def _requests_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[SubjobRequest, ...]:
    return tuple(
        SubjobRequest(r["processors"], UNLIMITED if r["length_s"] is None else r["length_s"], r["slot_index"])
        for r in data
    )
