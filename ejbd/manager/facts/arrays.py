"""Arrays and heterogeneous jobs: many batch jobs under the one id that their submission was answered with.

The batch system forgets elements some time after their end, while others wait and run for days. What became of each is
therefore kept in the subjob's row: state -> indices, in the notation of `--array`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ClusterShell.RangeSet import RangeSet, RangeSetException
from sqlalchemy import Row

from ejbd.batch.base import BatchEnd
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.store.models import Subjob

# An array is what the worst of its elements is.
_WORST_FIRST = (
    BatchState.FAILED,
    BatchState.NODE_FAIL,
    BatchState.PREEMPTED,
    BatchState.TIMEOUT,
    BatchState.CANCELLED,
    BatchState.COMPLETED,
)


def indices(array: str) -> RangeSet:
    """The indices of `--array` (`1,3-5,7-20:2%4`). Raises ValueError."""
    try:
        return RangeSet(array.partition("%")[0].replace(":", "/"))
    except RangeSetException as error:
        raise ValueError(f"{array!r} names no indices: {error}") from error


def new_elements(array: str | None) -> dict[str, Any] | None:
    """What is kept of an array at first: which elements there are; None of a job that is none, or cannot be read."""
    if array is None:
        return None
    try:
        return {"all": str(indices(array)), "ended": {}, "code": 0}
    except ValueError:
        return None


def families(view: ClusterView) -> dict[str, list[BatchJobView]]:
    """The rows of a listing that are elements or components, by the id of the whole."""
    found: dict[str, list[BatchJobView]] = {}
    for job in view.jobs:
        if "_" in job.id or "+" in job.id:
            found.setdefault(job.base_id, []).append(job)
    return found


def note(
    subjob: Subjob,
    rows: Sequence[BatchJobView],
    outcomes: Mapping[str, BatchEnd],
    *,
    lately: bool = False,
    all_listed: bool = False,
) -> dict[str, Any]:
    """With what is said of the elements: by a listing, or by the accounts of those that are listed no more.

    `lately`: the listing before this one is so fresh that one that began since would be listed. Slurm forgets at once
    an element that is cancelled while others of its array wait with it. `all_listed`: so also where those others have
    begun before any listing saw them wait.
    """
    kept = subjob.elements or {"all": None, "ended": {}, "code": 0}
    ended = {state: RangeSet(text) for state, text in kept["ended"].items()}
    code = int(kept["code"])
    living, running, ahead = RangeSet(), RangeSet(), RangeSet()
    whole = bool(rows)  # whether the listing tells of each
    told = [(row.id, row.state, row.exit_code) for row in rows]
    told += [(id, outcome.state, outcome.exit_code) for id, outcome in outcomes.items()]
    for id, state, exit_code in told:
        index = _index(id)
        if index is None:
            if state.ended:  # cancelled before any of them began
                ended.setdefault(state.value, RangeSet()).update(_indices(id))
            else:
                ahead |= _indices(id)
                whole = whole and bool(_indices(id))
            continue
        for others in ended.values():
            others.discard(index)  # it may have been started again
        if state.ended:
            ended.setdefault(state.value, RangeSet()).add(index)
            code = max(code, exit_code or 0)
        else:
            living.add(index)
            if state.holds_processors:
                running.add(index)
    before = kept.get("ahead", kept["all"] if ahead or all_listed else None)  # only Slurm tells of those that wait
    if whole and lately and before:
        gone = RangeSet(before) - ahead - living
        for others in ended.values():
            gone -= others
        if gone:
            ended.setdefault(BatchState.CANCELLED.value, RangeSet()).update(gone)
    return {
        **kept,
        "ended": {state: str(indices) for state, indices in sorted(ended.items()) if indices},
        "code": code,
        "running": sum(1 for row in rows if row.state.holds_processors),
        "now": str(running),
        **({"ahead": str(ahead)} if ahead or (rows and "ahead" in kept) else {}),
    }


def as_one(subjob: Subjob | Row[Any], rows: Sequence[BatchJobView]) -> BatchJobView | None:
    """The whole as one batch job, as far as a listing and what was kept of earlier ones tell; None: not known.

    It runs from its first element's start until none is left; then it is what the worst of them is.
    """
    kept = subjob.elements or {"all": None, "ended": {}, "code": 0}
    live = [row for row in rows if not row.state.ended]
    holding = [row for row in live if row.state.holds_processors]
    ended = {**kept["ended"]}
    starts = [row.start_s for row in rows if row.start_s is not None]
    ends = [row.end_s for row in rows if row.end_s is not None]
    like = rows[0] if rows else None
    if live:
        begun = holding or ended or any(row.state.ended for row in rows)
        state = BatchState.RUNNING if begun else live[0].state
        return replace(
            live[0],
            id=live[0].base_id,
            state=state,
            processors=sum(row.processors for row in holding),
            start_s=min(starts, default=None),
            end_s=max((row.end_s for row in holding if row.end_s is not None), default=None),
            nodes=tuple(dict.fromkeys(node for row in holding for node in row.nodes)),
            reason=counted(kept, len(holding)) if begun else live[0].reason,
        )
    states = {BatchState(state) for state in ended} | {row.state for row in rows}
    if not states or not _complete(kept, ended, rows):
        return None
    worst = next(state for state in _WORST_FIRST if state in states)
    codes = [row.exit_code or 0 for row in rows]
    base = like or BatchJobView(subjob.batch_id or "", "", "", "", worst, subjob.processors, tag=subjob.tag)
    return replace(
        base,
        id=base.base_id,
        state=worst,
        exit_code=max([int(kept["code"]), *codes]),
        start_s=min(starts, default=subjob.start_s),
        end_s=max(ends, default=None),
        reason=counted(kept, 0),
    )


def _complete(kept: Mapping[str, Any], ended: Mapping[str, str], rows: Sequence[BatchJobView]) -> bool:
    """Whether the end of each element is known."""
    if kept["all"] is None:
        return True  # a heterogeneous job (its components end together), or an array that could not be read
    known = RangeSet()
    for text in ended.values():
        known |= RangeSet(text)
    for row in rows:
        if (index := _index(row.id)) is not None:
            known.add(index)
        elif row.state.ended:
            known |= _indices(row.id)
    return bool(RangeSet(kept["all"]) <= known)


def rest_ended(subjob: Subjob, state: BatchState) -> dict[str, Any] | None:
    """The whole has ended so: with it those elements of which nothing was told, since they never began."""
    kept = subjob.elements
    if kept is None or kept["all"] is None:
        return kept
    rest = RangeSet(kept["all"])
    for text in kept["ended"].values():
        rest -= RangeSet(text)
    if not rest:
        return kept
    if state.value in kept["ended"]:
        rest |= RangeSet(kept["ended"][state.value])
    return {**kept, "ended": {**kept["ended"], state.value: str(rest)}, "running": 0, "now": ""}


def counts(kept: Mapping[str, Any]) -> dict[str, int]:
    """How many elements are in each state; the rest waits."""
    found = {str(state): len(RangeSet(text)) for state, text in kept["ended"].items()}
    if kept.get("running"):
        found["running"] = int(kept["running"])
    if kept["all"] is not None:
        waiting = len(RangeSet(kept["all"])) - sum(found.values())
        if waiting > 0:
            found["waiting"] = waiting
    return found


def which(kept: Mapping[str, Any]) -> dict[str, str]:
    """State -> the indices that are in it; those that are neither running nor over wait."""
    found = {str(state): str(indices) for state, indices in kept["ended"].items() if indices}
    if kept.get("now"):
        found["running"] = kept["now"]
    waiting = RangeSet(kept["all"])
    for text in found.values():
        waiting -= RangeSet(text)
    return {**found, "waiting": str(waiting)} if waiting else found


def counted(kept: Mapping[str, Any], running: int) -> str:
    """The counts in words, with the indices of those that did not end well."""
    parts = []
    for state, number in counts({**kept, "running": running}).items():
        which = f" ({kept['ended'][state]})"[:80] if state in kept["ended"] and state != "completed" else ""
        parts.append(f"{number} {state}{which}")
    return "elements: " + ", ".join(parts)


def _indices(id: str) -> RangeSet:
    """`12_[4-9]` -> 4 to 9; none where a listing cuts what stands there."""
    word = id.partition("_")[2]
    try:
        return indices(word[1:-1]) if word.startswith("[") and word.endswith("]") else RangeSet()
    except ValueError:
        return RangeSet()


def _index(id: str) -> int | None:
    """`12_3` -> 3, `12+1` -> 1; None for what stands for several that wait (`12_[4-9]`)."""
    word = id.partition("_")[2] or id.partition("+")[2]
    return int(word) if word.isascii() and word.isdigit() else None
