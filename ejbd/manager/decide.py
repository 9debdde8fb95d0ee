"""The policies of `ejbd.core`, asked once a poll for every elastic job in the queue's order, and carried into intents.

Each decision is stored with its reasons when it does something, or says something new.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import structlog
from sqlalchemy import select

from ejbd.config import Elasticity, Order
from ejbd.core.bundling.candidates import visit_key
from ejbd.core.bundling.handlers import next_shrink
from ejbd.core.bundling.plan import BundlingParameters, Shrink
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.question import Question, Situation
from ejbd.core.shapes import BackfillSlot
from ejbd.core.view import BatchState
from ejbd.core.windows import Windows, windows
from ejbd.manager import application, ending, movability, periodic, setbacks, together
from ejbd.manager.context import Context, JobWorld, holds_shell, work_now
from ejbd.manager.roster import JobRow, WaitingJob
from ejbd.manager.subjobs import TAG_PREFIX, add_subjob, release
from ejbd.store.models import Job, Subjob
from ejbd.store.states import JobState, SubjobState
from ejbd.store.transitions import add_event, move_job

log = structlog.get_logger(__name__)

START_UP_POLLS = 3.0  # polls that pass until a subjob's ranks run: it is seen, its workers come, siblings are awaited
SUSPENSION_POLLS = 2.0  # a suspension begins that much before its lambda: the next look, and the way to the workers
_RULES = {order: BundlingParameters(least_work_first=order is Order.LEAST_WORK).rules for order in Order}
_FIGURES = re.compile(r"\d+")


class Decider:
    """One poll's decisions. Slots that a job takes are gone for those behind it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self._windows: dict[str, Windows] = {}
        self._listed = {job.mark for job in ctx.view.jobs} if ctx.view else set()

    def turn(self, job: JobRow) -> tuple[int, float]:
        """When a job's turn comes to look for room."""
        left = max(0.0, job.walltime_s - work_now(cast(Job, job), self.ctx.now))
        rules = _RULES[self.ctx.queue_settings(job.queue).order]
        return visit_key(job.state == JobState.WAITING, job.processes, left, rules)

    def goes_on_waiting(self, world: JobWorld) -> bool:
        """Whether all that there is to do is to note why: the many, for whom a savepoint each would be most of a poll.

        A fault is left for :meth:`decide` to meet again, where it is reported.
        """
        job = world.job
        if job.state != JobState.WAITING:
            return False
        if not job.elastic:
            return True
        j0 = world.placeholder
        if job.members or j0 is None or j0.state == SubjobState.RUNNING:
            return False
        if self._not_now(world):
            return True
        try:
            question = self.ask(world, Situation.WAIT)
            decision = question.answer()
        except Exception:
            return False
        if decision.kind is not DecisionKind.NOTHING:
            return False
        record(world, question, decision)
        return True

    def _not_now(self, world: JobWorld) -> bool:
        """Whether no subjob is to be asked for at this time, whatever the windows.

        Not before the batch system shows J0: the windows know nothing of its reservation until then.
        """
        j0 = world.placeholder
        unseen = j0 is not None and j0.state == SubjobState.PENDING and j0.tag not in self._listed
        unsent = j0 is not None and j0.state == SubjobState.PLANNED
        kept_back = unseen or unsent or world.job.held or bool(world.awaited)
        return kept_back or self.ctx.now < world.job.not_before_s

    def decide(self, world: JobWorld) -> None:
        """One job: what its policy says, then whatever its application can do now."""
        job = world.job
        if job.elastic and job.state == JobState.WAITING:
            self._wait(world)
        elif job.elastic and job.state == JobState.RUNNING:
            self._run(world)
            periodic.checkpoint_in_time(world)
            _try_first_checkpoint(world)
        if job.elastic and (job.members or job.state in (JobState.RUNNING, JobState.ENDING)):
            application.advance(world)

    # -- the three situations of section 3 ----------------------------------------------------------------------------

    def receive(self, world: JobWorld) -> None:
        """The job in its original shape goes into the queue first: as J0, or as it is where it is passed through."""
        job = world.job
        add_subjob(world, "placeholder" if job.elastic else "rigid", job.processes, job.walltime_s)
        move_job(self.ctx.session, job, JobState.WAITING, self.ctx.now)

    def _wait(self, world: JobWorld) -> None:
        job = world.job
        j0 = world.placeholder
        if j0 is not None and j0.state == SubjobState.RUNNING:
            if j0.id not in job.members:
                question = self.ask(world, Situation.PLACEHOLDER_STARTED)
                record(world, question, question.answer())
                _go_to_placeholder(world, j0)
            return
        if j0 is None:
            setbacks.ensure_placeholder(world)
            return
        if job.members or self._not_now(world):
            return
        question = self.ask(world, Situation.WAIT)
        decision = question.answer()
        if decision.kind is DecisionKind.START and self._fits_as_it_is(world, j0, decision):
            return
        record(world, question, decision)
        if decision.kind is DecisionKind.START:
            self._request(world, question.situation, decision)

    def _fits_as_it_is(self, world: JobWorld, j0: Subjob, decision: Decision) -> bool:
        """Whether J0 itself fits into what is free: the batch system is about to start it, unless it is kept back."""
        job = world.job
        waited = self.ctx.now - (j0.submit_s if j0.submit_s is not None else self.ctx.now)
        slots = [decision.slots[r.slot_index] for r in decision.requests if r.processors >= job.processes]
        fits = any(slot.duration_s >= job.walltime_s for slot in slots)
        return fits and waited <= START_UP_POLLS * self.ctx.settings.poll_s

    def _run(self, world: JobWorld) -> None:
        job, now = world.job, self.ctx.now
        parameters = world.parameters()
        j0 = world.placeholder
        if j0 is not None and j0.state == SubjobState.RUNNING and j0.id not in job.members:
            self._placeholder_started(world, j0)
            return
        if j0 is not None and j0.id in job.members:
            return
        if world.moving:
            if not parameters.act_in_migration:
                return
        elif self._overrun(world, parameters) or self._leaves_in_time(world, parameters):
            return
        settings = self.ctx.queue_settings(job.queue)
        if world.awaited or now < job.not_before_s or len(job.members) >= settings.max_subjobs:
            return
        question = self.ask(world, Situation.RUNNING)
        decision = question.answer()
        record(world, question, decision)
        room = settings.max_subjobs - len(job.members)
        if decision.kind is DecisionKind.EXPAND and len(decision.requests) <= room:
            self._request(world, question.situation, decision)

    def present(self, world: JobWorld) -> Decision:
        """What the policy says now about a job that waits or runs."""
        running = world.job.state == JobState.RUNNING
        return self.ask(world, Situation.RUNNING if running else Situation.WAIT).answer()

    def ask(self, world: JobWorld, situation: Situation) -> Question:
        """What the policy is asked about this job now."""
        started = situation is Situation.PLACEHOLDER_STARTED
        slots = () if started else self.windows(world.job.queue).slots()
        parameters = world.parameters()
        left_out_s = self._submission_s + self._not_for_ranks(world, situation)
        slots = shortened(slots, left_out_s, parameters.max_walltime_s)
        state = world.elastic_state(application.can_move(world), together.node_room(world, situation))
        return Question(situation, state, slots, self.ctx.now, parameters)

    def _not_for_ranks(self, world: JobWorld, situation: Situation) -> float:
        """Seconds of a subjob that no plan counts on: for the last checkpoint beyond lambda; for the start-up of a job
        that has work kept, lest what a suspension has just left look worth coming back to.
        """
        resumes = situation is Situation.WAIT and world.job.start_s is not None
        start_up_s = START_UP_POLLS * self.ctx.settings.poll_s if resumes else 0.0
        return world.cost.tail_s + start_up_s

    @property
    def _submission_s(self) -> float:
        """A slot is seen by a poll and used a little later: what asks for all of it would end after it."""
        return self.ctx.settings.poll_s

    def windows(self, queue: str) -> Windows:
        """What can be used now, less what jobs before this one have just asked for."""
        found = self._windows.get(queue)
        if found is None:
            found = windows(self.ctx.view, queue, self.ctx.now) if self.ctx.view else Windows(self.ctx.now, ())
            found = self._less_what_starts_next(queue, found)
            found = self._less_what_is_coming(queue, found)
            self._windows[queue] = found
        return found

    def _less_what_starts_next(self, queue: str, found: Windows) -> Windows:
        """Processors that came free a moment ago go to the waiting jobs that fit, at the batch system's next pass.

        One that fits and does not start waits for something else than room, and holds nobody up for long.
        """
        fitting: dict[str, float] = {}
        if self.ctx.view is not None and found.available(0.0):  # else nobody fits, however many wait
            for job in self.ctx.view.jobs:
                waits = job.queue == queue and job.state is BatchState.PENDING and not job.blocked
                if not waits or job.mark.startswith(TAG_PREFIX) or job.walltime_s is None:
                    continue
                if job.processors <= found.available(job.walltime_s):
                    since = fitting[job.id] = self.ctx.fitting.get((queue, job.id), self.ctx.now)
                    if self.ctx.now - since <= START_UP_POLLS * self.ctx.settings.poll_s:
                        found = found.take(job.processors, job.walltime_s)
        for known in [known for known in self.ctx.fitting if known[0] == queue]:
            del self.ctx.fitting[known]
        self.ctx.fitting.update({(queue, id): since for id, since in fitting.items()})
        return found

    def _less_what_is_coming(self, queue: str, found: Windows) -> Windows:
        """Subjobs that were asked for and have not started will take what the view still shows as free."""
        query = select(Subjob).join(Job, Subjob.job_id == Job.id)
        coming = query.where(
            Job.queue == queue,
            Subjob.role == "subjob",
            Subjob.state.in_((SubjobState.PLANNED, SubjobState.PENDING)),
            Subjob.releasing.is_(False),
        )
        for subjob in self.ctx.session.scalars(coming):
            available = min(found.available(subjob.usable_s), subjob.processors)
            if available:
                found = found.take(available, subjob.usable_s)
        return found

    def _request(self, world: JobWorld, situation: Situation, decision: Decision) -> None:
        """Ask for the subjobs of a START or EXPAND, and take their room."""
        job = world.job
        begins_shell = holds_shell(job) and job.script_run == 0
        longest = max(decision.requests, key=lambda r: r.length_s)
        cost = world.cost
        taken = self.windows(job.queue)
        for request in decision.requests:
            limit_s = decision.slots[request.slot_index].duration_s + self._not_for_ranks(world, situation)
            queue = self.ctx.view.queue(job.queue) if self.ctx.view else None
            if queue is not None and queue.max_walltime_s:
                limit_s = min(limit_s, queue.max_walltime_s)
            subjob = add_subjob(
                world,
                "subjob",
                request.processors,
                request.length_s,
                slack_s=cost.kept_s + START_UP_POLLS * self.ctx.settings.poll_s,
                limit_s=limit_s,
                anchor=begins_shell and request is longest,
            )
            fits = min(subjob.processors, taken.available(subjob.usable_s))
            taken = taken.take(fits, subjob.usable_s)
        self._windows[job.queue] = taken

    # -- J0 starts, subjobs end ---------------------------------------------------------------------------------------

    def _placeholder_started(self, world: JobWorld, j0: Subjob) -> None:
        if world.moving:
            return  # the move that is under way is brought to its end first
        question = self.ask(world, Situation.PLACEHOLDER_STARTED)
        decision = question.answer()
        record(world, question, decision)
        if decision.kind is DecisionKind.KEEP_SUBJOBS:
            release(world, j0, "the job completes earlier without J0")
        elif decision.kind is DecisionKind.START_ON_PLACEHOLDER:
            epoch = world.live_epoch
            if epoch is not None:
                setbacks.start_over(world, epoch, "starting over on J0")
            _go_to_placeholder(world, j0)
        else:
            _go_to_placeholder(world, j0)

    def _leaves_in_time(self, world: JobWorld, parameters: BundlingParameters) -> bool:
        """Move off the subjobs that end next; where nobody would stay, keep the work and wait again. False: not yet."""
        now, poll_s = self.ctx.now, self.ctx.settings.poll_s
        can_move = application.can_move(world)
        shrink = next_shrink(world.elastic_state(can_move), now, parameters)
        if shrink is None:
            return False
        if not can_move and movability.may_begin_anew(world):
            self._begins_anew(world, shrink)
            return True
        if shrink.stays and can_move:
            if now + poll_s < shrink.begin_s:
                return False
            self._tell_leaving(world, "shrink", shrink)
            world.job.members = [m for m in world.job.members if m in shrink.stays]
            return True
        suspends = parameters.suspend and can_move
        if now + (SUSPENSION_POLLS if suspends else 1.0) * poll_s < shrink.begin_s:
            return False
        if suspends:
            self._tell_leaving(world, "suspend", shrink)
            self._suspend(world)
            return True
        if self._cut_short(world) and not self._savable(world):
            return False  # the batch system's doing: it ends the subjob, and J0 keeps the job's place
        self._tell_leaving(world, "shrink", shrink)
        if now >= shrink.begin_s:
            self._give_up_room(world, shrink.reason)
        return True

    def _begins_anew(self, world: JobWorld, shrink: Shrink) -> None:
        """Off subjobs that do not carry to its end what cannot be moved: begun anew on those that do, or by J0."""
        epoch = world.live_epoch
        if epoch is not None and movability.begins_anew_now(world, epoch, shrink.end_s):
            self._tell_leaving(world, "anew", shrink)
            setbacks.start_over(world, epoch, f"{shrink.reason}, and it cannot be moved")

    def _tell_leaving(self, world: JobWorld, what: str, shrink: Shrink) -> None:
        job = world.job
        add_event(
            self.ctx.session,
            f"decision.{what}",
            self.ctx.now,
            job_id=job.id,
            leaves=list(shrink.leaves),
            stays=list(shrink.stays),
            end_s=shrink.end_s,
            work_s=work_now(job, self.ctx.now),
            reason=shrink.reason,
        )

    def _suspend(self, world: JobWorld) -> None:
        """Checkpoint and wait again, for J0 or for more room, with the work kept. It is no overrun: it was planned."""
        world.job.members = []
        epoch = world.live_epoch
        if epoch is not None:
            application.begin_checkpoint(world, epoch)

    def _overrun(self, world: JobWorld, parameters: BundlingParameters) -> bool:
        """The application is slower than what it asked for allows: its subjobs end before it does, against the plan."""
        held = [s for s in world.open_subjobs if s.id in world.job.members and s.state == SubjobState.RUNNING]
        end = world.leave_by if self._can_save(world) else world.usable_end
        if not held or self.ctx.now < max(map(end, held)) or self._cut_short(world):
            return False
        if parameters.suspend and self._planned_to_leave(world, parameters):
            return False  # it was to be suspended here, and the look at it that should have done so came late
        self._give_up_room(world, "the application outlived the time that was planned for it")
        return True

    def _planned_to_leave(self, world: JobWorld, parameters: BundlingParameters) -> bool:
        """Whether the present placement was not to carry the job to its end, as things stood when its ranks began."""
        epoch = world.live_epoch
        if epoch is None or epoch.running_s is None or not application.can_move(world):
            return False
        state = replace(world.elastic_state(True), work_s=epoch.work_at_start_s, stalled_until_s=None)
        return next_shrink(state, epoch.running_s, parameters) is not None

    def _cut_short(self, world: JobWorld) -> bool:
        """Whether a subjob that the job is on is taken away before its time: then nothing has outlived its plan."""
        held = [s for s in world.open_subjobs if s.id in world.job.members and s.state == SubjobState.RUNNING]
        return any(map(world.cut_short, held))

    def _savable(self, world: JobWorld) -> bool:
        return application.can_move(world) and world.live_epoch is not None and not holds_shell(world.job)

    def _can_save(self, world: JobWorld) -> bool:
        """Whether a job that outlives its plan goes back to waiting with its work kept."""
        return self._savable(world) and not world.job.overruns

    def _give_up_room(self, world: JobWorld, why: str) -> None:
        """Back to waiting for J0 with the last state saved, once; then, as a rigid job would, the end by time-out."""
        job, epoch = world.job, world.live_epoch
        planned = not self._cut_short(world)
        if epoch is None or not (self._can_save(world) if planned else self._savable(world)):
            asked = f"{job.walltime_s:g} s at full width"
            ending.end_job(world, JobState.TIMEOUT, None, f"{why} (it asked for {asked})")
            return
        job.overruns += planned
        job.members = []
        application.begin_checkpoint(world, epoch)


def _try_first_checkpoint(world: JobWorld) -> None:
    """Checkpoint an application that never was, and restart it where it is, while little is lost if that goes wrong."""
    epoch = world.epoch
    if epoch is None or not movability.try_due(world):
        return
    why = "the application's first checkpoint, early, to know whether it can be moved"
    add_event(
        world.ctx.session, "decision.checkpoint", world.ctx.now,
        job_id=world.job.id, epoch=epoch.number, work_s=work_now(world.job, world.ctx.now), reason=why,
    )  # fmt: skip
    application.begin_checkpoint(world, epoch)


def _go_to_placeholder(world: JobWorld, j0: Subjob) -> None:
    """J0 alone is wanted from now on. What runs now is released once J0 runs it; what never ran anything, at once."""
    for subjob in world.open_subjobs:
        if subjob.role == "subjob" and not subjob.joined and not (subjob.anchor and world.job.script_run):
            release(world, subjob, "J0 has started")
    world.job.members = [j0.id]


def shortened(slots: tuple[BackfillSlot, ...], tail_s: float, max_walltime_s: float) -> tuple[BackfillSlot, ...]:
    """Slots without their last `tail_s`, which the last checkpoint may need beyond lambda; those that have an end."""
    if tail_s <= 0:
        return slots
    cut = (s if s.duration_s >= max_walltime_s else BackfillSlot(s.processors, s.duration_s - tail_s) for s in slots)
    return tuple(slot for slot in cut if slot.duration_s > 0)


def verdict(decision: Decision) -> str:
    """What a decision says, without its figures."""
    weighed = ",".join(f"{c.name}{'+' if c.feasible else '-'}" for c in decision.candidates)
    return f"{decision.kind.value}:{weighed or _FIGURES.sub('#', decision.reason)}"


def record(world: JobWorld, question: Question, decision: Decision) -> None:
    """Store a decision that does something, or whose verdict is another than that of the last one stored."""
    key, job = verdict(decision), world.job
    if decision.kind is DecisionKind.NOTHING and key == job.decision_key:
        return
    job.decision_key, job.expected_completion_s = key, decision.expected_completion_s
    kind = f"decision.{decision.kind.value}"
    data: dict[str, Any] = {
        "decision": decision.to_json(),
        "question": question.to_json(),
        "cost": world.cost.to_json(),
        "penalty": world.penalty.to_json(),
    }
    if isinstance(job, WaitingJob):
        job.told = (kind, data)
    else:
        add_event(world.ctx.session, kind, world.ctx.now, job_id=job.id, **data)


def elasticity(ctx: Context, queue: str, processes: int, wanted: bool | None) -> tuple[bool, str]:
    """Whether a job that arrives now is made elastic, and why (or why not)."""
    settings = ctx.queue_settings(queue)
    if wanted is False:
        return False, "the job asked for elastic=off"
    if settings.elasticity is Elasticity.OFF:
        return False, f"elasticity is off in queue {queue}"
    if processes < settings.min_processors:
        return False, f"{processes} processors are fewer than the queue's minimum of {settings.min_processors}"
    if settings.elasticity is Elasticity.AUTO:
        waiting = sum(1 for j in ctx.view.jobs if j.queue == queue and j.state == "pending") if ctx.view else 0
        threshold = settings.auto_queue_length
        if waiting < threshold:
            return False, f"{waiting} jobs wait in queue {queue}; elasticity begins at {threshold}"
        return True, f"{waiting} jobs wait in queue {queue}, at least {threshold}"
    return True, f"elasticity is on in queue {queue}"


def guarded(world: JobWorld, action: Callable[[JobWorld], None]) -> None:
    """Run `action(world)` so that a fault in it undoes and stops nothing but itself."""
    session = world.ctx.session
    nested = session.begin_nested()
    try:
        action(world)
        session.flush()
        nested.commit()
    except Exception as error:
        nested.rollback()
        session.expire_all()
        _report_fault(world.ctx, world.job.id, error)


def _report_fault(ctx: Context, job_id: str, error: Exception) -> None:
    log.error("job-fault", job=job_id, error=repr(error), exc_info=error)
    add_event(ctx.session, "job.fault", ctx.now, job_id=job_id, error=str(error))
