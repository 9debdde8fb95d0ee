"""Whole lives of elastic jobs on a small simulated EASY cluster, with the invariants checked at every event.

The simulator is as plain as can be: whole seconds, one list of everything, no index. Its batch system is `easy_pass`,
its slots come from `windows`, every decision from the policies; it alone knows the true run times.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ejbd.core.bundling.handlers import plan_completion, plan_placeholder_start, plan_running, plan_wait
from ejbd.core.bundling.parameters import BundlingParameters
from ejbd.core.bundling.plan import expected_completion, next_shrink
from ejbd.core.decision import Decision, DecisionKind
from ejbd.core.delta import Delta, rate_with
from ejbd.core.easy import ActiveJob, EasyPass, QueuedJob, easy_pass
from ejbd.core.room.windows import Windows, windows
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, QueueView, Reservations
from tests.nightly import examples

SLACK = 1e-6


@dataclass
class Elastic:
    """One elastic job's truth: P, R, the true run time, and what it holds."""

    id: str
    processes: int
    requested: int
    true_run: int
    arrival: int
    subjobs: dict[str, HeldSubjob] = field(default_factory=dict)
    work: float = 0.0
    as_of: float = 0.0
    stalled_until: float = 0.0
    on_placeholder: bool = False
    began: float | None = None
    ended: float | None = None
    submitted: int = 0
    leaving: set[str] = field(default_factory=set)
    expected: float = math.inf
    moves: int = 0

    @property
    def processors(self) -> int:
        return sum(subjob.processors for subjob in self.subjobs.values())

    def advance(self, now: float, delta: Delta) -> None:
        running = max(0.0, now - max(self.as_of, self.stalled_until))
        speed = rate_with(self.processes, self.processors, delta)
        work = self.work + running * speed
        assert self.work <= work < self.true_run + speed + SLACK, "progress falls or passes 100 % by a whole second"
        self.work = min(work, self.true_run)
        self.as_of = now

    def completes_at(self, delta: Delta) -> float:
        """If nothing changes: the first whole second at which the true work is done."""
        speed = rate_with(self.processes, self.processors, delta)
        if speed == 0.0:
            return math.inf
        return math.ceil(max(self.as_of, self.stalled_until) + (self.true_run - self.work) / speed - SLACK)

    def state(self, now: float) -> ElasticState:
        stalled = self.stalled_until if self.stalled_until > now else None
        held = tuple(self.subjobs.values())
        return ElasticState(self.id, self.processes, self.requested, self.work, held, stalled, self.on_placeholder)


@dataclass(frozen=True)
class Rigid:
    id: str
    processors: int
    walltime: int
    true_run: int
    arrival: int


class Cluster:
    """The simulated world. `run` plays it to the end and checks as it goes."""

    def __init__(self, processors: int, rigid: list[Rigid], elastic: list[Elastic], params: BundlingParameters) -> None:
        self.total = processors
        self.params = params
        self.rigid = {job.id: job for job in rigid}
        self.elastic = {job.id: job for job in elastic}
        self.queue: list[QueuedJob] = []
        self.active: dict[str, ActiveJob] = {}
        self.true_ends: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.decisions: list[Decision] = []

    @property
    def free(self) -> int:
        return self.total - sum(job.processors for job in self.active.values())

    def run(self) -> None:
        arrivals: list[Rigid | Elastic] = [*self.rigid.values(), *self.elastic.values()]
        arrivals.sort(key=lambda job: (job.arrival, job.id))
        now = 0.0
        for _ in range(20_000):
            times = [float(arrivals[0].arrival)] if arrivals else []
            times += self.true_ends.values()
            for job in self.elastic.values():
                if job.subjobs:
                    times.append(job.completes_at(self.params.delta))
                    shrink = next_shrink(job.state(now), now, self.params)
                    times += [] if shrink is None or shrink.begin_s <= now else [shrink.begin_s]
                    times += [job.stalled_until] if job.stalled_until > now else []
                    times += [subjob.end_s for subjob in job.subjobs.values()]
            if not times:
                break
            now = min(times)
            self.step(now, arrivals)
        assert self.active == {}
        assert self.queue == []
        assert all(job.ended is not None for job in self.elastic.values())

    def step(self, now: float, arrivals: list[Rigid | Elastic]) -> None:
        for job in self.elastic.values():
            job.advance(now, self.params.delta)
            if job.subjobs and job.true_run - job.work <= SLACK:
                self.complete(job, now)
        for id in [id for id, end in self.true_ends.items() if end <= now]:
            del self.true_ends[id], self.active[id]
            self.ended[id] = now
        for job in self.elastic.values():
            self.leave(job, now)
        while arrivals and arrivals[0].arrival <= now:
            new = arrivals.pop(0)
            if isinstance(new, Rigid):
                self.queue.append(QueuedJob(new.id, new.processors, new.walltime))
            else:
                self.queue.append(QueuedJob(f"{new.id}/J0", new.processes, new.requested))
        while self.schedule(now) or self.offer(now):
            pass
        assert self.free >= 0

    def leave(self, job: Elastic, now: float) -> None:
        """Begin the move off subjobs that end, and release them when it is over."""
        shrink = next_shrink(job.state(now), now, self.params)
        if shrink is not None and shrink.begin_s <= now <= shrink.end_s and not job.leaving:
            assert shrink.stays, shrink.reason
            job.moves += 1
            job.stalled_until = shrink.end_s
            job.leaving = set(shrink.leaves)
        if job.leaving and job.stalled_until <= now:
            for id in job.leaving:  # those that end a little later are left in the same move
                del job.subjobs[id], self.active[id]
            job.leaving = set()
        assert all(subjob.end_s > now for subjob in job.subjobs.values()), "killed by its own subjob's walltime"

    def schedule(self, now: float) -> bool:
        result = self.easy(now)
        jobs = {job.id: job for job in self.queue}
        for id in result.starts:
            self.start(jobs[id], now)
        for id in result.starts:
            if id.endswith("/J0"):
                self.placeholder_started(self.elastic[id.removesuffix("/J0")], now)
        return bool(result.starts)

    def easy(self, now: float) -> EasyPass:
        return easy_pass(self.queue, self.active.values(), self.free, now)

    def start(self, job: QueuedJob, now: float) -> None:
        self.queue.remove(job)
        self.active[job.id] = ActiveJob(job.id, job.processors, now + job.walltime_s)
        if job.id in self.rigid:
            self.true_ends[job.id] = now + self.rigid[job.id].true_run

    def slots(self, now: float) -> Windows:
        promise = self.easy(now)
        assert promise.starts == (), "ordinary jobs go first"
        jobs = [
            BatchJobView(a.id, a.id, "u", "q", BatchState.RUNNING, a.processors, end_s=a.end_s)
            for a in self.active.values()
        ]
        jobs += [
            BatchJobView(
                w.id,
                w.id,
                "u",
                "q",
                BatchState.PENDING,
                w.processors,
                w.walltime_s,
                planned_start_s=promise.shadow_s if w.id == promise.head else None,
            )
            for w in self.queue
        ]
        node = NodeView("n", self.total, self.free, True, ("q",))
        queue = QueueView("q", True, None, 1, self.total)
        return windows(ClusterView(now, (node,), tuple(jobs), (queue,), Reservations.PROCESSORS), "q", now)

    def offer(self, now: float) -> bool:
        """Visit elastic jobs in the order of their arrival; True as soon as one took a slot."""
        for job in self.elastic.values():
            if job.ended is not None or job.arrival > now:
                continue
            seen = self.slots(now)
            plan = plan_running if job.subjobs else plan_wait
            decision = plan(job.state(now), seen.slots(), now, self.params)
            if decision.requests:
                self.decisions.append(decision)
                self.take(job, decision, seen, now)
                return True
        return False

    def take(self, job: Elastic, decision: Decision, seen: Windows, now: float) -> None:
        before = self.easy(now)
        for request in decision.requests:
            seen = seen.take(request.processors, request.length_s)
            job.submitted += 1
            subjob = QueuedJob(f"{job.id}/{job.submitted}", request.processors, request.length_s)
            self.queue.append(subjob)
            assert self.easy(now).starts == (subjob.id,), "a subjob that was fitted to a slot does not start at once"
            self.start(subjob, now)
            job.subjobs[subjob.id] = HeldSubjob(subjob.id, request.processors, now + request.length_s)
        assert job.processors <= job.processes, "more processors than processes"
        promised = self.easy(now)
        if before.head is not None and promised.shadow_s is not None and before.shadow_s is not None:
            assert (promised.head, promised.shadow_s) == (before.head, before.shadow_s), "the head was delayed"
        assert [(s.processors, s.duration_s) for s in seen.slots()] == [
            (s.processors, s.duration_s) for s in self.slots(now).slots()
        ], "taking from a window and looking again differ"
        if decision.kind is DecisionKind.EXPAND:
            job.moves += 1
            job.stalled_until = now + self.params.lambda_s
        elif job.began is None:
            job.began = now
        promise = decision.expected_completion_s
        if decision.kind is DecisionKind.START and len(decision.requests) == 2:
            done, _ = expected_completion(job.state(now), now, self.params)
            if done == now + decision.requests[1].length_s:
                # Done in the very second in which the wider slot ends: case 3 promises no more than after a move.
                assert promise is not None and promise >= done
                promise = done
        self.expect(job, promise, now)

    def expect(self, job: Elastic, promised: float | None, now: float) -> None:
        done, _ = expected_completion(job.state(now), now, self.params)
        assert promised == done
        assert done <= job.expected + SLACK, "a decision made the expected completion later"
        job.expected = done

    def placeholder_started(self, job: Elastic, now: float) -> None:
        decision = plan_placeholder_start(job.state(now), now, self.params)
        self.decisions.append(decision)
        placeholder = f"{job.id}/J0"
        if decision.kind is DecisionKind.KEEP_SUBJOBS:
            del self.active[placeholder]
            return
        for id in decision.cancel:
            del job.subjobs[id], self.active[id]
        if decision.kind is DecisionKind.MOVE_TO_PLACEHOLDER:
            job.moves += 1
            job.stalled_until = now + self.params.lambda_s
        else:
            job.work = 0.0
            job.stalled_until = now
        job.began = now if job.began is None else job.began
        job.on_placeholder = True
        job.leaving = set()
        job.subjobs = {placeholder: HeldSubjob(placeholder, job.processes, now + job.requested)}
        self.expect(job, decision.expected_completion_s, now)

    def complete(self, job: Elastic, now: float) -> None:
        decision = plan_completion(job.state(now), now, "completed")
        assert now <= job.expected + SLACK
        for id in decision.cancel:
            self.active.pop(id, None)
        self.queue = [queued for queued in self.queue if queued.id != f"{job.id}/J0"]
        job.subjobs = {}
        job.ended = now


def world(seed: int) -> Cluster:
    dice = random.Random(seed)
    total = dice.choice([8, 16, 32])
    rigid = []
    for i in range(dice.randint(3, 14)):
        walltime = dice.randint(30, 3000)
        run = dice.choice([walltime, dice.randint(1, walltime)])
        rigid.append(Rigid(f"r{i}", dice.randint(1, total), walltime, run, dice.randint(0, 3000)))
    elastic = []
    for i in range(dice.randint(1, 4)):
        requested = dice.randint(60, 3000)
        run = dice.choice([requested, dice.randint(1, requested)])
        elastic.append(Elastic(f"e{i}", dice.randint(2, total), requested, run, dice.randint(0, 2000)))
    elastic.sort(key=lambda job: job.arrival)
    params = BundlingParameters(
        omax=dice.choice([2, 8, 64]), lambda_s=dice.choice([0, 10, 120]), delta=dice.choice([1.0, 1.0, 1.5, 0.5])
    )
    return Cluster(total, rigid, elastic, params)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 10**9))
@example(8807)  # done in the very second in which a subjob ends
def test_the_invariants_hold_over_whole_lives(seed: int) -> None:
    world(seed).run()


def test_the_lives_see_every_kind_of_decision() -> None:
    """So that the property above cannot pass by nothing ever happening."""
    kinds: set[DecisionKind] = set()
    names: set[str] = set()
    moves = 0
    for seed in range(60):
        cluster = world(seed)
        cluster.run()
        kinds |= {decision.kind for decision in cluster.decisions}
        names |= {
            f"{d.kind.value} {c.name}"
            for d in cluster.decisions
            for c in d.candidates
            if c.requests == d.requests != ()
        }
        moves += sum(job.moves for job in cluster.elastic.values())
    assert kinds == {
        DecisionKind.START,
        DecisionKind.EXPAND,
        DecisionKind.MOVE_TO_PLACEHOLDER,
        DecisionKind.KEEP_SUBJOBS,
        DecisionKind.START_ON_PLACEHOLDER,
    }
    assert names == {f"{kind} case {n}" for kind in ("start", "expand") for n in (1, 2, 3)}
    assert moves > 0


def test_an_elastic_job_ends_before_the_rigid_one_would() -> None:
    """6 of 10 processors are busy until 1000; a job of 8 starts at 1 on two subjobs of 2 and moves to J0 at 1000.

    By then 989 s at degree 2 have done 494.5 of 600 s; the rest takes a move of 10 s and 105.5 s at full width.
    """
    busy = Rigid("busy", 6, 1000, 1000, 0)
    job = Elastic("e", 8, 600, 600, 1)
    Cluster(10, [busy], [job], BundlingParameters(lambda_s=10)).run()
    assert (job.began, job.ended, job.submitted, job.moves) == (1, 1116, 2, 2)

    rigid = Cluster(10, [busy, Rigid("r", 8, 600, 600, 1)], [], BundlingParameters(lambda_s=10))
    rigid.run()
    assert rigid.ended["r"] == 1600
