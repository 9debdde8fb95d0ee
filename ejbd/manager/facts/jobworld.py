"""One job as the policies see it: what it holds, how far it has come, what a move and over-subscription cost it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property

from sqlalchemy import select

from ejbd.core.cost import Guess, MoveCost, Source, move_cost, moves_to
from ejbd.core.delta import Delta, DeltaByDegree, delta_at, delta_from_json
from ejbd.core.evolving.course import Course, profile_from_json
from ejbd.core.evolving.profiles import Profile
from ejbd.core.needs import Needs, quantum
from ejbd.core.overhead import Hop, Overheads, overheads
from ejbd.core.parameters import Parameters, said_by_job
from ejbd.core.penalty import AtDegree, Penalty, penalty
from ejbd.core.policy import Policy, policy_named
from ejbd.core.progress import degree
from ejbd.core.rungs import Rungs, Shape, parse_widths, rungs_of
from ejbd.core.shapes import UNLIMITED
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.view import BatchState
from ejbd.manager.facts.batchjob.fitting import least_by_memory, ranks_a_node
from ejbd.manager.facts.jobrows import JobRows
from ejbd.manager.facts.missed import missed_s
from ejbd.manager.facts.past.history import work_of
from ejbd.manager.facts.placing.appprofile import why_not
from ejbd.manager.facts.times import CLOCKS_S, expected_left_s, planned_s, usable_end, walltime_end, work_now
from ejbd.manager.hands.spool import Spool
from ejbd.store.models import Epoch, Job, Launch, Subjob
from ejbd.store.states import EpochState, JobState, SubjobState
from ejbd.wire.kinds import EpochCode, JobKind, SubjobRole

TRIES_AS_ASKED = 2  # of a restart with all ranks: one may be a node's doing, and the job is slower without that width


@dataclass
class JobWorld(JobRows):
    """A job with the rows that belong to it, and what the policies are told of it."""

    _cost: MoveCost | None = None
    _overheads: Overheads | None = None

    @property
    def spool(self) -> Spool:
        """Where its files are: its user's."""
        return self.ctx.hands.spool_of(self.job.user)

    @cached_property
    def needs(self) -> Needs:
        """What each of its ranks takes of a node: policies count such places."""
        return Needs.from_json(self.job.spec.get("needs"))

    @property
    def evolving(self) -> Profile | None:
        """The widths that it has one after the other, in places; None: it does not evolve."""
        stored = self.job.spec.get("evolving")
        return None if stored is None else profile_from_json(stored)

    @property
    def staged(self) -> bool:
        """Whether each launch of its script has a width of its own, and the script one place between them."""
        return bool((self.job.spec.get("evolving") or {}).get("stages"))

    @property
    def course(self) -> Course | None:
        """When an evolving job has each of its widths; None before it has begun."""
        stored = self.job.spec.get("evolving") or {}
        return Course.from_json(stored) if "starts_s" in stored else None

    @property
    def plan(self) -> Course | None:
        """The course that an evolving job is to have, by what was known when its widths were queued."""
        stored = (self.job.spec.get("evolving") or {}).get("planned")
        return None if stored is None else Course.from_json(stored)

    @property
    def as_one(self) -> bool:
        """Whether it is started and moved whole, in the very shape of J0, and never over-subscribed."""
        return bool((self.job.spec.get("wants") or {}).get("shape"))

    @property
    def not_movable(self) -> str:
        """Why a job of engine `dmtcp` or `profile` is not moved, by what is known of it or of its launch, or ""."""
        job = self.job
        if job.engine == "profile" and not job.not_movable:
            return self.no_profile
        if job.engine != "dmtcp" or job.not_movable:
            return job.not_movable
        epoch = self.epoch if job.state == JobState.RUNNING else None
        if epoch is not None and epoch.restart_from is not None:
            return ""  # it was moved itself, and knows better
        known = self.ctx.history.obstacle(job.application or "")
        if not known and epoch is not None and EpochState(epoch.state).live and self.runs_under(epoch) == "none":
            return "it was begun without DMTCP, since its application could not be moved then"
        return known

    @property
    def no_profile(self) -> str:
        """Why the launch that is under way is not run by the job's profile; "" where it is, or none is under way."""
        profile, launch = self.job.spec.get("profile"), self.launch
        if profile is None or launch is None:
            return ""
        return why_not(launch.file, json.dumps(profile), self.ctx.hands.read)

    @property
    def cost(self) -> MoveCost:
        """What the job's next move costs, as far as is known."""
        if self._cost is None:
            settings = self.ctx.queue_settings(self.job.queue)
            epoch = self.live_epoch if self.job.state == JobState.RUNNING else None
            moves = self.ctx.history.moves(self.job.application or "")
            self._cost = move_cost(
                moves,
                epoch.processors if epoch is not None else None,
                None if moves or epoch is None else self._guess(epoch),
                configured_s=settings.parameters.lambda_s,
                floor_s=settings.lambda_floor_s,
                job_s=self.job.spec.get("lambda_s"),
                look_s=self.ctx.settings.poll_s,
            )
        return self._cost

    def _guess(self, epoch: Epoch) -> Guess | None:
        """By the memory of the ranks, once every worker has told, and by the speed of the spool."""
        ids = {seat.worker for seat in epoch.placement}
        sizes = [w.resident_bytes for w in self.workers if w.id in ids]
        known = [size for size in sizes if size is not None]
        if len(known) < len(ids):
            return None
        speed = self.ctx.history.bytes_per_s(self.job.user)
        return Guess(sum(known), speed) if speed else None

    @property
    def deltas(self) -> tuple[AtDegree, ...]:
        """Delta at each degree at which the job's application was measured."""
        return self.ctx.history.deltas(self.job.application or "")

    @property
    def delta(self) -> Delta:
        """Delta as the policy is told it: the job's own word, or by degree as measured, or the configured one."""
        told = self.job.spec.get("delta")
        if told is not None:
            return delta_from_json(told)
        measured = self.deltas
        if measured:
            return DeltaByDegree(tuple((one.degree, one.penalty.delta) for one in measured))
        return self.ctx.queue_settings(self.job.queue).parameters.delta

    @property
    def penalty(self) -> Penalty:
        """Delta for where the job's ranks are now (for any degree while they are nowhere), as far as is known."""
        epoch = self.live_epoch if self.job.state == JobState.RUNNING else None
        now = degree(epoch.size, epoch.processors) if epoch is not None else 1
        application, delta = self.job.application or "", self.delta
        found = penalty(
            self.ctx.history.ratios(application),
            now if now > 1 else None,
            calibrated=self.ctx.history.calibrations(application),
            configured=delta_at(self.ctx.queue_settings(self.job.queue).parameters.delta, now),
            told=None if self.job.spec.get("delta") is None else delta_at(delta, now),
        )
        if now <= 1 or found.source not in (Source.MEASURED, Source.CALIBRATED):
            return found
        exact = next((one.penalty for one in self.deltas if one.degree == now), None)
        return exact or replace(found, delta=round(delta_at(delta, now), 2), why=f"taken to degree {now}: {found.why}")

    @property
    def overheads(self) -> Overheads:
        """What the job's next start and its end cost beside lambda, as far as is known."""
        if self._overheads is None:
            history, job = self.ctx.history, self.job
            application, poll_s = job.application or "", self.ctx.settings.poll_s
            self._overheads = overheads(
                history.hops(Hop.READY, job.queue),
                history.hops(Hop.LAUNCH, job.queue, application),
                history.hops(Hop.BACK, job.queue),
                history.whole_runs(application),
                job.processes,
                ready_s=self.ctx.queue_settings(job.queue).parameters.start_up_s,
                poll_s=poll_s,
            )
        return self._overheads

    @property
    def rungs(self) -> Rungs | None:
        """Of an application that is restarted on the number of ranks that fits; None: it keeps its ranks."""
        said, profile = self.job.spec.get("widths"), self.job.spec.get("profile") or {}
        if not said or self.no_profile:
            return None
        shape, widths = parse_widths(said)
        least = int((profile.get("ranks") or {}).get("min", 1))
        most = self._most_ranks()
        return rungs_of(
            self.job.processes,
            shape=shape,
            widths=widths,
            least=max(least, self.least_by_memory),
            most=most,
            measured=self.measured_widths,
            moves_s=self._moves_to(),
            barred=self.broken_widths if profile else (),
            node=ranks_a_node(self.needs, self.ctx.view, self.job.queue) if shape is Shape.NODES else 0,
        )

    @property
    def least_by_memory(self) -> int:
        """With fewer ranks each would need more memory than a node has; 1: with any number it has enough."""
        return least_by_memory(self.needs, self.ctx.view, self.job.queue)

    def _most_ranks(self) -> int:
        """Up to how many it may grow (0: not beyond its own), within what its queue has.

        Before the first look after a start the queue is not known: what the job holds already is still used then.
        """
        queue = self.ctx.view.queue(self.job.queue) if self.ctx.view else None
        asked = int(self.job.spec.get("ntasks_max") or 0)
        return min(asked, self.needs.places(queue.total_processors)) if queue is not None else asked

    def _moves_to(self) -> dict[int, float]:
        """What a move to a width has cost; nothing where the job says it, or none was measured."""
        if self.job.spec.get("lambda_s") is not None:
            return {}
        moves = self.ctx.history.moves(self.job.application or "")
        return moves_to(moves, self.ctx.queue_settings(self.job.queue).lambda_floor_s)

    @property
    def measured_widths(self) -> dict[int, float]:
        """The speeds of the job's application by width, as far as they were measured."""
        application = self.job.application or ""
        return self.ctx.history.widths(application, work_of(self.job.user, self.spec)) if application else {}

    @property
    def broken_widths(self) -> set[int]:
        """Widths at which its state did not go on: they are not tried again.

        That which was asked for is one of them after two failures, where it has gone on at another one alone. Without
        it the job is slower than it was promised to be; with it the job would end.
        """
        if not self.job.setbacks:
            return set()
        ours = select(Epoch.size).where(Epoch.job_id == self.job.id)
        codes = (EpochCode.AT_RESTART, EpochCode.RIGHT_AFTER_RESTART)
        failed = list(self.ctx.session.scalars(ours.where(Epoch.state == EpochState.FAILED, Epoch.code.in_(codes))))
        asked = self.job.processes
        broken = {width for width in failed if width != asked}
        if failed.count(asked) >= TRIES_AS_ASKED:
            came_up = set(self.ctx.session.scalars(ours.where(Epoch.state == EpochState.STOPPED)))
            if asked not in came_up and came_up - broken:
                broken.add(asked)
        return broken

    @property
    def may_widen(self) -> bool:
        """Whether what it runs may be restarted on more ranks than it asked for."""
        launch, rungs = self.launch, self.rungs
        if rungs is None or launch is None or launch.size != self.job.processes or self.live_epoch is None:
            return False
        return rungs.widest(self.job.processes) > self.job.processes

    @property
    def others_wait(self) -> bool:
        """Whether any job but this one waits for processors, as far as is known."""
        view, own = self.ctx.view, {subjob.tag for subjob in self.subjobs}
        if view is None:
            return True
        return any(job.state is BatchState.PENDING and not job.blocked and job.mark not in own for job in view.jobs)

    def width_for(self, launch: Launch, places: int) -> int:
        """With how many ranks a launch is placed on so many places: as it asks for, unless it is reshaped."""
        rungs = self.rungs
        if rungs is None or launch.size != self.job.processes:
            return launch.size
        return rungs.width_on(launch.size, places) or rungs.widths[-1]

    def width_alone(self, places: int) -> int:
        """With how many ranks the job runs where it has so many places and no more; 0: with none."""
        rungs = self.rungs
        return places if rungs is None else rungs.width_on(self.job.processes, places)

    def parameters(self) -> Parameters:
        """The queue's policy parameters with the job's own on top, in the units of the queue."""
        asked = self.ctx.queue_settings(self.job.queue).parameters
        view = self.ctx.view
        queue = view.queue(self.job.queue) if view else None
        unit = self.job.processes if self.as_one else quantum(view, queue, self.needs) if view and queue else 1
        rungs = self.rungs
        omax = self.job.spec.get("omax") or asked.omax if rungs is None else self.job.processes
        asked = replace(asked, **said_by_job(type(asked), self.job.spec.get("settings") or {}))
        return replace(
            asked,
            omax=omax if self.needs.omax is None else min(omax, self.needs.omax),
            lambda_s=self.cost.lambda_s,
            delta=self.delta,
            start_up_s=self._start_up_s(),
            giving_back_s=self.overheads.giving_back.value,
            pace=self.overheads.pace.value,
            rungs=rungs,
            runs_s=self.ctx.history.lasting_s(),
            processor_quantum=unit,
            walltime_quantum_s=self.ctx.view.walltime_quantum_s if self.ctx.view else 1.0,
            max_walltime_s=queue.max_walltime_s if queue and queue.max_walltime_s else UNLIMITED,
        )

    def _start_up_s(self) -> float:
        """What the job's next subjob costs beside lambda: of a restart the launch is lambda's."""
        begins = self.job.state == JobState.WAITING and not work_now(self.job, self.ctx.now)
        return self.overheads.start_up_s if begins else self.overheads.ready.value

    @property
    def policy(self) -> Policy:
        """The queue's, with the parameters that hold for this job."""
        return policy_named(self.ctx.queue_settings(self.job.queue).policy)(self.parameters())

    def cut_short(self, subjob: Subjob) -> bool:
        """Whether a subjob has to be left before the job has had the walltime that was asked for.

        That is not the application's doing: an operator or a preemption has shortened it, or no daemon was there when
        it started.
        """
        asked = (subjob.start_s if subjob.start_s is not None else self.ctx.now) + subjob.walltime_s
        asked += missed_s(self, subjob)
        return walltime_end(subjob, self.ctx.now) < asked - CLOCKS_S and self.ctx.now < asked - CLOCKS_S

    def usable_end(self, subjob: Subjob) -> float:
        """Until when ranks may be planned on a subjob: so early that the lambda before it holds the last checkpoint."""
        end = usable_end(subjob, self.ctx.now)
        if subjob.role != SubjobRole.SUBJOB:
            return end  # J0 is the job as it was submitted: its end is the job's
        return min(end, walltime_end(subjob, self.ctx.now) - self.cost.tail_s)

    def leave_by(self, subjob: Subjob) -> float:
        """When the last checkpoint of ranks on a subjob has to begin at the latest, lest the end come first."""
        if subjob.role != SubjobRole.SUBJOB:
            return usable_end(subjob, self.ctx.now)
        return min(self.usable_end(subjob), walltime_end(subjob, self.ctx.now) - self.cost.reserve_s)

    def elastic_state(self, movable: bool, node_limit: int | None = None) -> ElasticState:
        """The job for `ejbd.core`: what it holds now and how far it has come."""
        held = tuple(
            HeldSubjob(s.id, self.needs.places(s.processors), self.usable_end(s), s.anchor)
            for s in self.open_subjobs
            if s.id in self.job.members and s.state == SubjobState.RUNNING
        )
        j0 = self.placeholder
        on_j0 = j0 is not None and j0.id in self.job.members
        if j0 is not None and on_j0 and len(held) > 1:  # J0 ends last: what else is held is left by then
            last_s = self.usable_end(j0) - 1.0
            held = tuple(h if h.id == j0.id else replace(h, end_s=min(h.end_s, last_s)) for h in held)
        work_s = work_now(self.job, self.ctx.now)
        return ElasticState(
            job=self.job.id,
            processes=self.job.processes,
            requested_s=planned_s(self.job, work_s),
            work_s=work_s,
            subjobs=held,
            stalled_until_s=self._stalled_until(),
            on_placeholder=on_j0,
            movable=movable,
            node_limit=node_limit,
            suspendable=not holds_shell(self.job),
            expected_left_s=expected_left_s(self.job, work_s),
            alone=self.may_widen and not self.others_wait,
        )

    def _stalled_until(self) -> float | None:
        """When the move that is under way should be over; None while the ranks compute, or none is placed."""
        epoch = self.epoch if self.moving else None
        if epoch is None:
            return None
        begun = epoch.created_s if epoch.state == EpochState.LAUNCHING else epoch.stopping_s
        return max(self.ctx.now, (self.ctx.now if begun is None else begun) + self.parameters().lambda_s)


def holds_shell(job: Job) -> bool:
    """Whether the user's shell is in one of the job's subjobs, and would be lost with it."""
    return job.kind == JobKind.SCRIPT and not job.spec.get("restartable")


def begins_again(job: Job) -> bool:
    """Whether the user's shell is started again, behind the launches that have ended, where its subjob is lost."""
    return job.kind == JobKind.SCRIPT and bool(job.spec.get("restartable") or job.spec.get("begins_again"))
