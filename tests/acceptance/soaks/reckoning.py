"""What each job of a soak should have been told, and whether it was: pure, so that the judge can be judged.

The batch system's own records come first, then what the job's program left behind, then what was done to the job. What
EJB says is only what is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.acceptance.soaks.records import Story
from tests.acceptance.soaks.sent import OF_ITSELF, Sent

Told = tuple[str, int | None]
ANY_CODE = None
KILLED = 137
PEER_GONE = 1
"""What the ranks of the program end with where another one has gone. That of another node may be heard of first, and
the first failure that is heard of is the launch's code, as it is mpirun's."""
TAKEN_AWAY = ("worker killed", "worker stopped", "node lost", "controller killed", "scancel")
"""What takes a batch job, or what runs in it, away: a script that cannot begin again does not outlive it."""
_BREATH_S = 3.0  # between an act and its time-stamp here, on a busy machine


@dataclass(frozen=True, slots=True)
class Left:
    """What is there of a job when it is over."""

    state: str
    code: int | None
    reason: str
    result: bool | None  # right, wrong, or None: there is none
    runs: int  # how often its script began
    output: str | None  # what is in its output file; None: there is none
    j0: frozenset[str]  # batch ids of its place holders
    doubled: Sequence[str] = ()  # ranks that were seen in two live copies
    alone: str = ""  # tag of the place holder that began it while no daemon was there
    as_it_is: bool = False  # it was too small to be elastic, and was passed through


def wrong_with(sent: Sent, stories: Sequence[Story], left: Left) -> Iterator[str]:
    """Everything that does not hold for this job, a sentence each."""
    allowed = should(sent, stories, left)
    if not any(_matches((left.state, left.code), one) for one in allowed):
        yield f"told wrongly: should be one of {sorted(map(str, allowed))}"
    if left.doubled:
        yield f"doubled: two live copies, {list(left.doubled[:3])}"
    if left.state == "completed":
        yield from _wrong_work(sent, left)
    yield from _wrong_runs(sent, stories, left)
    live = [f"{story.tag} ({story.id})" for story in stories if story.live]
    if live and not sent.suffered("controller killed"):
        yield f"left behind: batch jobs {live}"


def should(sent: Sent, stories: Sequence[Story], left: Left) -> set[Told]:
    """What the job may have been told: mostly one thing; more where two things were done at one moment."""
    own = OF_ITSELF[sent.kind]
    if left.alone:  # it is a passed-through job, of one batch job
        stories = [story for story in stories if story.tag == left.alone]
    as_it_is = sent.passed_through or left.as_it_is or bool(left.alone)
    allowed = _as_the_batch_system_says(sent, stories, own) if as_it_is else {own}
    if sent.suffered("cancel"):
        # The order stands. The job's own end, where that came before it.
        return {("cancelled", ANY_CODE), *(allowed if _may_have_ended_before(sent, "cancel", left) else ())}
    if sent.suffered("cancel asked"):  # the daemon may have died between the order and its answer
        allowed.add(("cancelled", ANY_CODE))
    if as_it_is:
        return allowed
    cancelled = {done.to for done in sent.suffered("scancel")}
    of_j0 = [s for s in stories if s.id in left.j0 and s.tag in cancelled and _cancelled(s, "ended")]
    if sent.suffered("controller killed") and any(s.id in left.j0 and s.ran and _cancelled(s) for s in stories):
        # Slurm takes what runs for what waits, starts it once more, cannot, and gives it up as cancelled.
        allowed.add(("cancelled", ANY_CODE))
    if of_j0:
        allowed.add(("cancelled", ANY_CODE))
        if not _may_have_ended_before(sent, "scancel", left):
            allowed.discard(own)
    if any(s.id in left.j0 and s.ran and any(e.state == "timeout" for e in s.ends) for s in stories):
        allowed.add(("timeout", ANY_CODE))  # Slurm says so, and something ran in it
    if sent.suffered("rank killed"):
        allowed |= {("failed", KILLED), ("failed", PEER_GONE)}
    if sent.kind == "script" and sent.suffered(*TAKEN_AWAY, "rank killed"):
        allowed.add(("failed", ANY_CODE))
    if sent.kind == "restartable" and sent.suffered("rank killed"):
        allowed.add(("failed", ANY_CODE))
    return allowed


def _cancelled(story: Story, *or_else: str) -> bool:
    """Whether the batch system says so; PBS says no more than that it `ended`."""
    return any(end.state in ("cancelled", *or_else) for end in story.ends)


def _as_the_batch_system_says(sent: Sent, stories: Sequence[Story], own: Told) -> set[Told]:
    told: dict[str, Told] = {
        "timeout": ("timeout", ANY_CODE),
        "cancelled": ("cancelled", ANY_CODE),
        "lost": ("failed", ANY_CODE),
    }
    found: set[Told] = set()
    for story in stories:
        # A double that EJB has cancelled, and a retry that never ran, say nothing about the job.
        for end in story.ends if story.ran or len(stories) == 1 else ():
            if end.state == "completed":
                found.add(("completed", 0))
            elif end.state == "failed":
                found.add(("failed", end.code))
            elif end.state == "ended":  # PBS, or no code: its killer is in `done`
                found.add(own)
                if sent.suffered("scancel"):
                    found.add(("cancelled", ANY_CODE))
            else:
                found.add(told[end.state])
    if any(story.live for story in stories) or not found:
        if sent.suffered("controller killed"):  # which has forgotten it, or how it ended
            return found | {own, ("unknown", ANY_CODE), ("failed", ANY_CODE), ("cancelled", ANY_CODE)}
        return found or {own}
    return found


def _may_have_ended_before(sent: Sent, what: str, left: Left) -> bool:
    """Whether the program may have been through when it was ended; its result says so, where it has one."""
    first = min(done.at for done in sent.suffered(what))
    if sent.over_at is not None and sent.over_at < first - _BREATH_S:
        return True
    return left.result is True or (left.output or "").rstrip().endswith("end") or sent.kind in ("failing", "late")


def _wrong_work(sent: Sent, left: Left) -> Iterator[str]:
    """A job that is told to be complete has its work done, and all of it told."""
    if sent.kind in ("application", "none", "script", "restartable", "cancelled") and left.result is not True:
        yield f"lost: completed, and its result is {'wrong' if left.result is False else 'missing'}"
    if sent.kind in ("script", "restartable", "rigid"):
        lines = (left.output or "").split("\n")
        begins, ends = lines.count("begin"), lines.count("end")
        again = sent.kind == "restartable" or bool(sent.suffered("controller killed", "node lost"))
        if not ends or not begins or (begins > 1 and not again):
            yield f"lost: completed, and its output is {(left.output or '')[:200]!r}"


def _wrong_runs(sent: Sent, stories: Sequence[Story], left: Left) -> Iterator[str]:
    if not (sent.passed_through or sent.kind in ("script", "restartable")):
        return
    most = 1 + max((story.restarts for story in stories), default=0)
    if sent.suffered("controller killed") or sent.kind == "restartable":
        most = max(left.runs, most)  # Slurm may begin one again that it has forgotten; restartable ones are
    if left.runs > most:
        yield f"doubled: its script began {left.runs} times"
    if left.state in ("completed", "timeout") and not left.runs:
        yield "lost: its script never began"


def open_subjobs(job: Mapping[str, Any], states: Mapping[tuple[str, str], str]) -> tuple[list[str], list[str]]:
    """Of a job that is over, in words: what EJB has left behind, and what the batch system itself is at.

    `job`: as EJB tells it; `states`: what the batch system calls its jobs, by their ids and tags: a controller that
    was killed may have forgotten a job, and given its id to another. One that is COMPLETING is cancelled, and has not
    ended: where a slurmd was killed under an Epilog, Slurm asks it again only after a minute or so. A passed-through
    job that a killed controller has forgotten is `unknown`, and EJB goes on asking for it: nothing is there, and its
    subjob stays open on purpose.
    """
    left: list[str] = []
    ending: list[str] = []
    for subjob in job["subjobs"]:
        state = states.get((str(subjob["batch_id"]), f"ejb-{subjob['id']}"), "not listed")
        asked_for = job["state"] == "unknown" and state == "not listed"
        if subjob["state"] in ("planned", "pending", "running", "suspended") and not asked_for:
            said = f"subjob {subjob['id']} {subjob['state']} (batch job {subjob['batch_id']}: {state})"
            (ending if state == "COMPLETING" else left).append(said)
    return left, ending


def _matches(told: Told, one: Told) -> bool:
    return told[0] == one[0] and one[1] in (ANY_CODE, told[1])
