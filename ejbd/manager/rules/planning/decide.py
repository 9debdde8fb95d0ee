"""The policies of `ejbd.core`, asked once a poll for every elastic job in the queue's order, and carried into intents.

Each decision is stored with its reasons when it does something, or says something new.
"""

from __future__ import annotations

from functools import cached_property
from typing import cast

from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.policy import Policy, Situation, policy_named
from ejbd.core.question import Question
from ejbd.core.room.walltimes import longest_walltime, slack
from ejbd.manager.effects import (
    Advance,
    Ask,
    AskWhole,
    BeginCheckpoint,
    CheckpointInTime,
    Effects,
    EnsurePlaceholder,
    Evolve,
    GivesBackLate,
    LeavesBeyond,
    LeavesInTime,
    LeavesWhatEnds,
    MoveJob,
    Overruns,
    Release,
    SavesInTime,
    SetAside,
    SignalsInTime,
    StartOver,
    TryStart,
    Want,
    tell,
)
from ejbd.manager.facts import auto
from ejbd.manager.facts.batchjob.begins import is_guaranteed
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.homes import lives_elsewhere
from ejbd.manager.facts.jobworld import JobWorld, holds_shell
from ejbd.manager.facts.listing.rows import JobRow
from ejbd.manager.facts.losing import why_stopped
from ejbd.manager.facts.placing import movability as moving
from ejbd.manager.facts.queues import own_part, start_pauses
from ejbd.manager.facts.room.asking import answered, asked_of_start, resumes
from ejbd.manager.facts.room.windows import Room, margins
from ejbd.manager.facts.times import work_now
from ejbd.manager.rules.planning.decisions import is_news, record
from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.wire.kinds import EventKind, JobKind, SubjobRole

Said = tuple[Question, Decision]

IDLE_POLLS = 3.0  # before the end of a J0 on which nothing runs
TOO_EARLY = frozenset({"BeginTime", "Dependency", "DependencyNeverSatisfied"})  # as Slurm says it


class Decider:
    """One poll's decisions. Slots that a job takes are gone for those behind it. `remembers`: see :class:`Room`."""

    def __init__(self, ctx: Context, *, remembers: bool = False) -> None:
        self.room = Room(ctx, remembers=remembers)
        self._start_pauses: dict[tuple[str, str], float] | None = None
        self._policies: dict[str, Policy] = {}
        self._off: dict[str, bool] = {}

    @property
    def ctx(self) -> Context:
        """The transaction that is under way: a poll's decisions take several."""
        return self.room.ctx

    @ctx.setter
    def ctx(self, ctx: Context) -> None:
        self.room.ctx = ctx

    @cached_property
    def _listed(self) -> set[str]:
        return {job.mark for job in self.ctx.view.jobs} if self.ctx.view else set()

    @cached_property
    def _too_early(self) -> set[str]:
        """J0s that may not start yet, whatever room there is: by --begin, or by --dependency; or for their turn."""
        jobs = self.ctx.view.jobs if self.ctx.view else ()
        return {job.mark for job in jobs if job.blocked and job.reason in TOO_EARLY}

    def turn(self, job: JobRow) -> tuple[float, float]:
        """When a job's turn comes to look for room."""
        left = max(0.0, job.walltime_s - work_now(cast(Job, job), self.ctx.now))
        return self._policy(job.queue).visit_key(job.state == JobState.WAITING, job.processes, left)

    def _policy(self, queue: str) -> Policy:
        found = self._policies.get(queue)
        if found is None:
            settings = self.ctx.queue_settings(queue)
            found = self._policies[queue] = policy_named(settings.policy)(settings.parameters)
        return found

    def goes_on_waiting(self, world: JobWorld) -> tuple[bool, Said | None]:
        """Whether only a reason is to be noted, as of most jobs: a savepoint for each would be most of a poll.

        With it what is to be recorded, where that is news. A fault is left for :meth:`decide` to meet again, which
        reports it.
        """
        job = world.job
        if job.state != JobState.WAITING:
            return False, None
        if not job.elastic:
            return True, None
        j0 = world.placeholder
        if job.members or j0 is None or j0.state == SubjobState.RUNNING:
            return False, None
        if world.evolving is not None:
            return job.held or not is_guaranteed(job.spec), None
        if self._not_now(world):
            return True, None
        try:
            question, decision = answered(world, Situation.WAIT, self.room)
        except Exception:
            return False, None
        if decision.kind is not DecisionKind.NOTHING:
            return False, None
        return True, (question, decision) if is_news(world, decision) else None

    def _not_now(self, world: JobWorld) -> bool:
        """Whether no subjob is to be asked for at this time, whatever the windows.

        Not before the batch system shows J0: the windows know nothing of its reservation until then.
        """
        j0 = world.placeholder
        unseen = j0 is not None and j0.state == SubjobState.PENDING and j0.tag not in self._listed
        unsent = j0 is not None and j0.state == SubjobState.PLANNED
        early = j0 is not None and not j0.stays and j0.tag in self._too_early  # what stays for its turn may borrow
        kept_back = unseen or unsent or early or world.job.held or bool(world.awaited)
        early = kept_back or self.ctx.now < world.job.not_before_s
        return early or self._starts_paused(world.job) or self._is_off(world.job.queue)

    def _is_off(self, queue: str) -> bool:
        """Whether waiting jobs of this queue are not to be started early now; they wait for their J0."""
        if queue not in self._off:
            self._off[queue] = not auto.is_on(self.ctx, queue) or bool(why_stopped(self.ctx, queue))
        return self._off[queue]

    def _starts_paused(self, job: Job) -> bool:
        """Whether subjobs of this job's queue have come to nothing so often that none is asked for now."""
        if self._start_pauses is None:
            self._start_pauses = start_pauses(self.ctx.session)
        return self.ctx.now < self._start_pauses.get((job.queue, own_part(self.ctx, job)), 0.0)

    def decide(self, world: JobWorld) -> Effects[None]:
        """One job: what its policy says, then whatever its application can do now."""
        job = world.job
        if job.elastic and world.frozen and job.state != JobState.ENDING:
            return
        if job.elastic and world.evolving is not None:
            yield from _evolve(job)
        elif job.elastic and job.state == JobState.WAITING:
            yield from self._wait(world)
        elif job.elastic and job.state == JobState.RUNNING:
            yield from self._run(world)
            yield SignalsInTime()
            yield CheckpointInTime()
            yield from _try_first_checkpoint(world)
        if job.elastic and (job.members or job.state in (JobState.RUNNING, JobState.ENDING)):
            yield Advance()

    # -- the three situations of section 3 ----------------------------------------------------------------------------

    def receive(self, world: JobWorld) -> Effects[None]:
        """The job in its original shape goes into the queue first: as J0, or as it is where it is passed through."""
        job = world.job
        yield AskWhole()
        yield MoveJob(job, JobState.WAITING)
        if job.elastic and world.evolving is not None and world.ctx.view is not None:
            yield Evolve()  # what it needs later is queued with it

    def _wait(self, world: JobWorld) -> Effects[None]:
        job = world.job
        j0 = world.placeholder
        if j0 is not None and j0.state == SubjobState.RUNNING:
            if j0.id not in job.members:
                yield from _begin_on_j0(world, j0)
            return
        if j0 is None:
            yield EnsurePlaceholder()
            return
        if job.members or self._not_now(world):
            return
        question, decision = answered(world, Situation.WAIT, self.room)
        if decision.kind is DecisionKind.START and self._fits_as_it_is(world, j0, decision):
            return
        yield from record(world, question, decision)
        if decision.kind is DecisionKind.START:
            yield from self._request(world, question, decision)

    def _fits_as_it_is(self, world: JobWorld, j0: Subjob, decision: Decision) -> bool:
        """Whether J0 itself fits into what is free: the batch system is about to start it, unless it is kept back."""
        job = world.job
        waited = self.ctx.now - (j0.submit_s if j0.submit_s is not None else self.ctx.now)
        slots = [decision.slots[r.slot_index] for r in decision.requests if r.processors >= job.processes]
        fits = any(slot.duration_s >= job.walltime_s for slot in slots)
        return fits and waited <= margins(self.ctx, 0.0).start_up_s

    def _run(self, world: JobWorld) -> Effects[None]:
        job, now = world.job, self.ctx.now
        j0 = world.placeholder
        if j0 is not None and j0.state == SubjobState.RUNNING and j0.id not in job.members:
            yield from _placeholder_started(world, j0)
            return
        if (yield LeavesWhatEnds()) or (yield SavesInTime()):
            return
        on_j0 = j0 is not None and j0.id in job.members
        if j0 is not None and on_j0 and not world.may_widen:
            yield from self._leaves_idle_j0(world, j0)
            return
        if world.moving:
            if on_j0 or not self._policy(job.queue).acts_in_move:
                return
        elif (yield from _leaves(world, on_j0)):
            return
        settings = self.ctx.queue_settings(job.queue)
        if world.awaited or now < job.not_before_s or len(job.members) >= settings.max_subjobs:
            return
        if self._starts_paused(job) or self._begins(world):
            return
        question, decision = answered(world, Situation.RUNNING, self.room)
        yield from record(world, question, decision)
        room = settings.max_subjobs - len(job.members)
        if decision.kind is DecisionKind.EXPAND and len(decision.requests) <= room:
            yield from self._request(world, question, decision)

    def _begins(self, world: JobWorld) -> bool:
        """Whether a job is about to launch on what has begun since the last poll. It would wait for what it asks for
        now (:meth:`JobWorld.awaited`)."""
        if world.epoch is not None:
            return False
        came = [worker.registered_s for id in world.job.members for worker in world.workers_of(id)]
        return self.ctx.looked_s is None or max(came, default=0.0) > self.ctx.looked_s

    def present(self, world: JobWorld) -> tuple[Decision | None, str]:
        """What the policy says now about a job that waits or runs; else None, and in words what the job waits for
        ("": a pause, or elasticity is off)."""
        job, j0 = world.job, world.placeholder
        waits = job.state == JobState.WAITING
        if waits and (job.members or (j0 is not None and j0.state == SubjobState.RUNNING)):
            return None, "its processors are there, and its ranks are about to start"
        if world.frozen or (j0 is not None and j0.state == SubjobState.SUSPENDED):
            return None, "the batch system has suspended what it runs on"
        if not waits and world.moving:
            return None, "its ranks are being moved or started"
        if world.awaited:
            asked = sum(world.needs.places(subjob.processors) for subjob in world.awaited)
            return None, f"{'it' if waits else 'it runs, and'} waits for {asked} processors that were asked for"
        if waits and (j0 is None or j0.state == SubjobState.PLANNED or j0.tag not in self._listed):
            return None, "J0 is on its way into the queue"
        if waits and j0 is not None and not j0.stays and j0.tag in self._too_early:
            return None, "J0 may not start yet, by --begin or by --dependency"
        if (pause_s := job.not_before_s - self.ctx.now) > 0:
            return None, f"it asks for nothing more in the next {pause_s:.0f} s"
        if (waits and self._not_now(world)) or self._starts_paused(job):
            return None, ""
        decision = answered(world, Situation.WAIT if waits else Situation.RUNNING, self.room)[1]
        starts = waits and decision.kind is DecisionKind.START
        if starts and j0 is not None and self._fits_as_it_is(world, j0, decision):
            return None, "J0 fits into what is free, and is about to start there"
        if not waits and world.live_epoch is None and decision.kind is DecisionKind.NOTHING:
            idle = "no launch of its script runs" if job.kind == JobKind.SCRIPT else "its ranks are about to start"
            return None, idle if job.members else "it holds no processors at this time"
        return decision, ""

    def _request(self, world: JobWorld, question: Question, decision: Decision) -> Effects[None]:
        """Ask for the subjobs of a START or EXPAND, and take their room."""
        job, cost, again = world.job, world.cost, resumes(world, question.situation)
        begins_shell = holds_shell(job) and job.script_run == 0
        longest = max(decision.requests, key=lambda r: r.length_s)
        kept_free = margins(self.ctx, cost.tail_s)
        taken: list[tuple[int, float]] = []
        for request in decision.requests:
            slot = decision.slots[request.slot_index]
            limit_s = longest_walltime(slot.duration_s, again, kept_free, question.parameters.max_walltime_s)
            subjob = yield Ask(
                SubjobRole.SUBJOB,
                request.processors,
                request.length_s,
                slack_s=slack(cost.kept_s, kept_free),
                limit_s=limit_s,
                anchor=begins_shell and request is longest,
            )
            taken.append((subjob.processors, subjob.usable_s))
        self.room.take(world, taken)
        paused = (job.queue, own_part(self.ctx, job))
        if self._start_pauses and paused in self._start_pauses:
            self._start_pauses[paused] = yield TryStart(job)

    def _leaves_idle_j0(self, world: JobWorld, j0: Subjob) -> Effects[None]:
        """Before a J0 ends on which nothing runs, while the shell of the script goes on elsewhere: its number stays."""
        anchor = lives_elsewhere(world, j0)
        if anchor is None or j0.end_s is None or self.ctx.now + IDLE_POLLS * self.ctx.settings.poll_s < j0.end_s:
            return
        yield Want(world.job, [anchor.id])
        yield SetAside(j0, "it ends, nothing runs on it, and the script goes on in its own subjob")


def _leaves(world: JobWorld, on_j0: bool) -> Effects[bool]:
    """What has to be left now. J0 itself is not: its end is the job's."""
    if world.may_widen and (yield LeavesBeyond()):
        return True
    if on_j0:
        if len(world.job.members) < 2:
            return False
    elif (yield Overruns()):
        return True
    left: bool = yield LeavesInTime()
    return left


def _try_first_checkpoint(world: JobWorld) -> Effects[None]:
    """Checkpoint an application that never was, and restart it where it is, while little is lost if that goes wrong."""
    epoch = world.epoch
    if epoch is None or not moving.try_due(world):
        return
    why = "the application's first checkpoint, early, to know whether it can be moved"
    yield tell(
        EventKind.DECISION_CHECKPOINT,
        job_id=world.job.id,
        epoch=epoch.number,
        work_s=work_now(world.job, world.ctx.now),
        reason=why,
    )
    yield BeginCheckpoint(epoch)


def _evolve(job: Job) -> Effects[None]:
    """A job of widths that are known ahead follows them, and asks its policy nothing."""
    staged = (job.spec.get("evolving") or {}).get("stages")  # nothing of it is left before its end
    if job.state == JobState.RUNNING and not staged and (yield LeavesWhatEnds()):
        return
    if job.state in (JobState.WAITING, JobState.RUNNING):
        yield Evolve()
    if job.state == JobState.RUNNING:
        yield SignalsInTime()
        yield CheckpointInTime()


def begin_on_j0(world: JobWorld, j0: Subjob) -> Effects[None]:
    """As :class:`~ejbd.manager.effects.BeginOnJ0`: what a poll does about a J0 that has begun."""
    job = world.job
    if not job.elastic or j0.id in job.members:
        return
    if job.state == JobState.WAITING:
        yield from _begin_on_j0(world, j0)
    elif job.state == JobState.RUNNING:
        yield from _placeholder_started(world, j0)


def _begin_on_j0(world: JobWorld, j0: Subjob) -> Effects[None]:
    if (yield GivesBackLate(j0)):
        return
    question = asked_of_start(world)
    yield from record(world, question, question.answer())
    yield from _go_to_placeholder(world, j0)


def _placeholder_started(world: JobWorld, j0: Subjob) -> Effects[None]:
    """A job that runs on subjobs has its J0."""
    if world.moving:
        return  # the move that is under way is brought to its end first
    question = asked_of_start(world)
    decision = question.answer()
    yield from record(world, question, decision)
    if decision.kind is DecisionKind.KEEP_SUBJOBS:
        yield SetAside(j0, "the job completes earlier without J0")
    elif decision.kind is DecisionKind.START_ON_PLACEHOLDER:
        epoch = world.live_epoch
        if epoch is not None:
            yield StartOver(epoch, "starting over on J0")
        yield from _go_to_placeholder(world, j0)
    else:
        yield from _go_to_placeholder(world, j0)


def _go_to_placeholder(world: JobWorld, j0: Subjob) -> Effects[None]:
    """J0 alone is wanted from now on. What runs now is released once J0 runs it; what never ran anything, at once."""
    for subjob in world.open_subjobs:
        if subjob.role == SubjobRole.SUBJOB and not subjob.joined and not (subjob.anchor and world.job.script_run):
            yield Release(subjob, "J0 has started")
    yield Want(world.job, [j0.id])
