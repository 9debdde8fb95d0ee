"""Arrays of EJB's own: one job stands for all elements, and each becomes a job of its own when there is use for it.

What is no job yet is a range of indices in the array's row. So storing an array costs the same
however large it is. An element's row and what is left of that range are one transaction: none is lost or made twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ejbd.errors import Code, EjbError
from ejbd.manager.effects import Effects, InsertRows, TellAll, Wake, note
from ejbd.manager.facts.context import Context
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.jobspec.indices import Indices, chosen, folded, ranges, unfolded
from ejbd.manager.rules.linked import dependencies
from ejbd.store.models import Array, Dependency, Job
from ejbd.store.states import JobState
from ejbd.store.transitions import NEW_JOBS_TOPIC
from ejbd.wire.kinds import EventKind, JobKind

_MOST = "max_run_subjobs="  # OpenPBS's -W: elements at a time
TO_COME = "to come"  # elements that are no jobs yet, where their states are told
WORST_FIRST = (JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED, JobState.COMPLETED)
_COPIED = (
    *("name", "user", "queue", "elastic", "engine", "application", "processes", "walltime_s", "spec"),
    *("held", "submit_s", "walltimes", "unread"),
)


def new_array(job_id: str, array: str) -> dict[str, Any]:
    """The row beside the job that stands for an array."""
    found = Indices.read(array)
    assert found is not None  # the reader of submissions has seen to it
    columns = {"dropped": "", "open": 0, "cancelled_by": None, "changed": True}
    return {"job_id": job_id, "ahead": folded(found.all), "most": found.most, **columns}


def one_by_one(spec: JobSpec) -> JobSpec:
    """The job as each element is submitted: only EJB knows of the array.

    Raises EjbError (INVALID) for indices that cannot be read.
    """
    asked, array = spec.asked, spec.array or ""
    if asked is not None:
        if "%" not in array:
            array += next((f"%{word[len(_MOST) :]}" for word in asked.qsub if word.startswith(_MOST)), "")
        options = tuple(word for word in asked.options if word.partition("=")[0] != "--array")
        asked = replace(asked, array=None, options=options, qsub=_without_array(asked.qsub))
    if Indices.read(array) is None:
        hint = "such as 0-99%10 or 1,3,5-9:2"
        raise EjbError(Code.INVALID, f"{array!r} names no indices of an array", where="--array", hint=hint)
    rigid = tuple(word for word in spec.rigid_options if word.partition("=")[0] != "--array")
    return replace(spec, array=array, asked=asked, rigid_options=rigid, qsub=_without_array(spec.qsub))


def _without_array(words: Sequence[str]) -> tuple[str, ...]:
    """Of qsub's words, letters and their values in turns, those that are not of an array."""
    pairs = zip(words[::2], words[1::2], strict=True)
    kept = ((letter, value) for letter, value in pairs if letter not in ("-J", "-t") and not value.startswith(_MOST))
    return tuple(word for pair in kept for word in pair)


def element_id(array_id: str, index: int) -> str:
    return f"{array_id}_{index}"


def unfold(ctx: Context, array: Array, job: Job, most: int) -> Effects[int]:
    """Make the next elements jobs, at most so many; how many there were."""
    ahead = unfolded(array.ahead)
    room = min(array.most or ctx.settings.limits.array_jobs, ctx.settings.limits.array_jobs) - array.open
    some = [index for index, _ in zip(ahead.intiter(), range(min(most, room)), strict=False)] if room > 0 else []
    if not some:
        return 0
    like = {name: getattr(job, name) for name in _COPIED}
    like |= {"kind": job.spec["kind"], "state": JobState.RECEIVED.value, "incarnation": 1, "reason": "", "members": []}
    told = {"queue": job.queue, "elastic": job.elastic, "reason": "", "array": job.id}
    ids = {index: element_id(job.id, index) for index in some}
    yield InsertRows(Job, [{**like, "id": id, "array_id": job.id, "array_index": at} for at, id in ids.items()])
    yield TellAll(
        [
            {"kind": EventKind.JOB_RECEIVED.value, "at_s": ctx.now, "job_id": id, "data": {**told, "index": at}}
            for at, id in ids.items()
        ]
    )
    waits = dependencies.of_elements(ctx.session, JobSpec.from_json(job.spec), some)
    yield InsertRows(
        Dependency, [{"job_id": ids[at], "conditions": text, "never": False} for at, text in waits.items()]
    )
    ahead.difference_update(ranges(some))
    yield note(array, ahead=folded(ahead), open=array.open + len(some))
    yield Wake((NEW_JOBS_TOPIC,))
    return len(some)


def drop(array: Array, wanted: str | None) -> Effects[int]:
    """Cancel elements that are no jobs yet (None: all of them); how many there were."""
    ahead = unfolded(array.ahead)
    gone = chosen(wanted, list(ahead.intiter())) if wanted is not None else ahead
    yield note(
        array,
        dropped=folded(ranges((*unfolded(array.dropped).intiter(), *gone.intiter()))),
        ahead=folded(ranges((ahead - gone).intiter())),
        changed=True,
    )
    return len(gone)


# -- how it is with an array ------------------------------------------------------------------------------------------


def counts(session: Session, jobs: Sequence[Job]) -> dict[str, dict[str, int]]:
    """Of those jobs that stand for arrays: how many elements are in each state."""
    ids = [job.id for job in jobs if job.kind == JobKind.ARRAY]
    found: dict[str, dict[str, int]] = {id: {} for id in ids}
    if not ids:
        return found
    query = select(Job.array_id, Job.state, func.count()).where(Job.array_id.in_(ids))
    for id, state, count in session.execute(query.group_by(Job.array_id, Job.state)):
        found[id or ""][state] = count
    for array in session.scalars(select(Array).where(Array.job_id.in_(ids))):
        states = found[array.job_id]
        if gone := len(unfolded(array.dropped)):
            states[JobState.CANCELLED] = states.get(JobState.CANCELLED, 0) + gone
        if ahead := len(unfolded(array.ahead)):
            states[TO_COME] = ahead
    return {id: _sorted(states) for id, states in found.items()}


def most_at_once(session: Session, array_id: str) -> int | None:
    """How many elements may run at once; None: the array has no limit of its own."""
    return session.get_one(Array, array_id).most


def indices(session: Session, array_id: str) -> dict[str, str]:
    """State -> the indices of the elements that are in it, as --array has them."""
    array = session.get_one(Array, array_id)
    states: dict[str, list[int]] = {}
    for state, index in session.execute(select(Job.state, Job.array_index).where(Job.array_id == array_id)):
        states.setdefault(state, []).append(index or 0)
    states.setdefault(JobState.CANCELLED, []).extend(unfolded(array.dropped).intiter())
    states[TO_COME] = list(unfolded(array.ahead).intiter())
    return _sorted({state: folded(found) for state, found in states.items() if found})


def _sorted(states: Mapping[str, Any]) -> dict[str, Any]:
    order = [*JobState, TO_COME]
    return {state: states[state] for state in order if state in states}


def in_words(which: Mapping[str, str]) -> str:
    """The counts of :func:`indices`, with the indices of those that did not end well."""
    parts = []
    for state, those in which.items():
        bad = state in (JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED)
        parts.append(f"{len(unfolded(those))} {state}" + (f" ({those})"[:80] if bad else ""))
    return "elements: " + ", ".join(parts)


def check_size(array: str, most: int) -> None:
    """Raise EjbError (INVALID) for an array that is larger than the site takes."""
    found = Indices.read(array)
    if found is None or (found.last < most and found.count <= most):
        return
    if found.last < most:
        message = f"the array names {found.count} indices, some of them more than once"
        raise EjbError(Code.INVALID, message, where="--array", hint="name each once")
    raise EjbError(
        Code.INVALID,
        f"the array index {found.last} is not below {most}, which is the largest array that is taken",
        where="--array",
        hint="split it, or have limits.max_array_size raised",
    )
