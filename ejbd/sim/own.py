"""A policy of one's own: the engine asks a Python function what to do about each elastic job, and does it.

The questions are those that the live manager asks (`ejbd.core.question`), in the engine's order; EASY schedules. Moves
off subjobs that end, and back to waiting, stay the engine's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ejbd.core.bundling.candidates import GO_ON, MOVE, START_OVER
from ejbd.core.bundling.guard import COMPUTES_S, LOOKED_AT
from ejbd.core.bundling.parameters import LEAST_WORK, BundlingParameters, rules_of
from ejbd.core.decision import Decision, DecisionKind, SubjobRequest
from ejbd.core.fairshare import Account, in_fair_order
from ejbd.core.lending import Borrower, Lending, Waiting
from ejbd.core.malleable.parameters import MalleableParameters
from ejbd.core.parameters import Parameters
from ejbd.core.policy import Policy as ElasticPolicy
from ejbd.core.policy import Situation, UnknownPolicy
from ejbd.core.question import Question
from ejbd.core.shapes import BackfillSlot
from ejbd.core.state import ElasticState, HeldSubjob
from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import BUNDLING, known_policy
from ejbd.sim import progress
from ejbd.sim.cluster import EJB, schedule, start_rigid
from ejbd.sim.elastic import advance, become_elastic, carry_out_placeholder, held_processors
from ejbd.sim.engine import BATCH_TIES, next_of_jobs, next_time, take_event
from ejbd.sim.invariants import check
from ejbd.sim.malleable import run_malleable
from ejbd.sim.metrics import Outcome
from ejbd.sim.offering import (
    add_subjob,
    begin_on_slots,
    begin_to_grow,
    check_and_plan_next,
    find_slots,
    is_giving_back,
    sort_visits,
    suspend_for_another,
)
from ejbd.sim.run import Policy, Ties, outcome_of, refuse_fault
from ejbd.sim.workload import Workload
from ejbd.sim.world import (
    DONE,
    ELASTIC,
    FAULT,
    FREE,
    FRESH,
    NEXT,
    NOW,
    QUEUED,
    RIGID,
    RUNNING,
    RUNS_S,
    STAYS_RIGID,
    TOO_MANY_ELASTIC,
    TOO_MANY_SUBJOBS,
    VISITS,
    WAITING,
    new_world,
)

OwnPolicy = Callable[[Question], Decision]
_PLACEHOLDER = {
    DecisionKind.KEEP_SUBJOBS: GO_ON,
    DecisionKind.MOVE_TO_PLACEHOLDER: MOVE,
    DecisionKind.START_ON_PLACEHOLDER: START_OVER,
}
_TOLD_EVERY = 1000  # events
_SLACK = 1e-6


def run_own(
    workload: Workload,
    policy: OwnPolicy,
    *,
    candidates: Any,
    ties: Ties = Ties.PAPER,
    parameters: Parameters | None = None,
    checking: bool = False,
    named: ElasticPolicy | None = None,
) -> Outcome:
    """Simulate every job to its end; `policy` answers for the jobs that `candidates` flags.

    `parameters` are in every question; of them the engine itself uses lambda, Delta, O_max (for moves off subjobs) and
    the order of visits, unless there is a policy that is `named`. Raises EjbError for an answer that cannot be carried
    out: it says which, and why.
    """
    begin = time.perf_counter()
    rows, width = 512, 64
    while True:
        game = _Asking(workload, policy, candidates, parameters or BundlingParameters(), rows, width, named)
        game.play(int(ties), checking)
        if game.w.count[FAULT] == TOO_MANY_ELASTIC:
            rows *= 4
        elif game.w.count[FAULT] == TOO_MANY_SUBJOBS:
            width *= 2
        else:
            break
    refuse_fault(game.w)
    outcome = outcome_of(game.w, time.perf_counter() - begin)
    never = np.flatnonzero(outcome.end < 0)
    if never.size:
        number = int(workload.jobs.id[never[0]])
        raise EjbError(Code.INVALID, f"the policy left job {number} without J0 and without a subjob: it never ends")
    return outcome


def run_policy(
    workload: Workload,
    policy: str,
    *,
    candidates: Any,
    ties: Ties = Ties.PAPER,
    parameters: Parameters | None = None,
    checking: bool = False,
) -> Outcome:
    """Simulate under a policy by its name, asked as the live manager asks it. Raises EjbError as :func:`run_own` does,
    and for a policy that is not known."""
    try:
        of = known_policy(policy)
    except UnknownPolicy as error:
        hint = "or easy, conservative, fcfs, ejb (which is bundling), or a function"
        raise EjbError(Code.INVALID, str(error), hint=hint) from None
    chosen = of(parameters or of.declares())
    if isinstance(chosen.parameters, MalleableParameters):  # it has no J0, and EASY does not schedule
        return run_malleable(workload, chosen.parameters, candidates=candidates, checking=checking)
    return run_own(
        workload,
        Question.answer,
        candidates=candidates,
        ties=ties,
        parameters=chosen.parameters,
        checking=checking,
        named=chosen,
    )


def half_life_of(parameters: Parameters) -> float:
    """After which half of what a user has used is forgotten; 0: the policy tells no users apart."""
    return float(getattr(parameters, "fair_half_life_s", 0.0))


class _Asking:
    """The engine's loop (`ejbd.sim.engine.react`), with questions in the place of the kernels' decisions."""

    def __init__(
        self,
        workload: Workload,
        policy: OwnPolicy,
        candidates: Any,
        parameters: Parameters,
        rows: int,
        width: int,
        named: ElasticPolicy | None = None,
    ) -> None:
        wanted = np.where(candidates, ELASTIC, STAYS_RIGID)
        self.w = new_world(
            workload.jobs, workload.processors, wanted, elastic_rows=rows, width=width, plain=True
        )  # fmt: skip
        self.name = f"{workload.name}, a policy of one's own"
        self.numbers = workload.jobs.id.tolist()
        self.ask = policy
        if parameters.rungs is not None:  # growth beyond what was asked for is the kernels' alone
            parameters = replace(parameters, rungs=parameters.rungs.within())
        self.parameters, self.rules = parameters, rules_of(parameters)
        self.named = named
        self.users = np.arange(len(workload)) if workload.users is None else workload.users
        half_life_s = half_life_of(parameters)
        self.account = Account[int](half_life_s, 0.0) if half_life_s and workload.users is not None else None
        self.open: dict[int, float] = {}  # jobs that have come -> of what they used, the processor-seconds charged
        self.came = 0

    def play(self, ties: int, checking: bool) -> None:
        w, events = self.w, 0
        while next_time(w) < math.inf and w.count[FAULT] == 0:
            take_event(w, ties, self.rules)
            if ties == BATCH_TIES:
                while next_of_jobs(w) <= w.clock[NOW]:
                    take_event(w, ties, self.rules)
            self.react()
            if checking:
                check(w, EJB, self.rules)
            events += 1
            if events % _TOLD_EVERY == 0:
                progress.tell(self.name, w.count[NEXT] / len(w.submit))

    def react(self) -> None:
        w, again = self.w, True
        while again and w.count[FAULT] == 0:
            again = False
            started = [w.started[index] for index in range(schedule(w, Policy.EJB))]
            for job in started:
                if w.mode[job] == RIGID:
                    start_rigid(w, job)
                elif w.mode[job] != DONE:
                    again = self.placeholder_started(job) or again
            while w.count[FRESH] < w.count[NEXT]:
                job = w.count[FRESH]
                w.count[FRESH] += 1
                if w.candidate[job] != STAYS_RIGID and w.start[job] < 0.0:
                    become_elastic(w, job)
            if again:
                continue
            self.give_back()
            if w.count[VISITS] > 0 and w.count[FREE] > 0 and not is_giving_back(w):
                again = self.offer_slots()

    def question(self, situation: Situation, job: int, slots: tuple[BackfillSlot, ...]) -> Question:
        w, number, now = self.w, str(self.numbers[job]), self.w.clock[NOW]
        held: Sequence[HeldSubjob] = ()
        if w.row[job] >= 0:
            ends, processors = w.held.ends[w.row[job]], w.held.processors[w.row[job]]
            held = [HeldSubjob(f"{number}.{i + 1}", processors[i], ends[i]) for i in range(w.held_count[job])]
        stalled = w.stalled[job] if w.stalled[job] > now else None
        state = ElasticState(number, w.processors[job], w.walltime[job], w.work[job], tuple(held), stalled)
        named = BUNDLING if self.named is None else self.named.name
        return Question(situation, state, slots, now, self.parameters_of(job), named)

    def parameters_of(self, job: int) -> Parameters:
        """As far as the memory of the job's ranks lets it follow them."""
        omax, runs_s = min(self.parameters.omax, self.w.most_ranks[job]), self.w.clock[RUNS_S]
        if (omax, runs_s) == (self.parameters.omax, self.parameters.runs_s):
            return self.parameters
        return replace(self.parameters, omax=omax, runs_s=runs_s)

    def asked(self, question: Question) -> Decision:
        """Its answer, if it is one."""
        decision = self.ask(question)
        if not isinstance(decision, Decision):
            _refuse(question, f"{decision!r} is no decision")
        return decision

    def give_back(self) -> None:
        """Of a policy that is named: jobs are asked for what they borrow, as the manager asks them."""
        w, policy = self.w, self.named
        if policy is None or w.count[QUEUED] == 0:
            return
        now, coming = w.clock[NOW], 0
        found: dict[str, int] = {}
        borrowers: list[Borrower] = []
        for job in [w.visits[index] for index in range(w.count[VISITS])]:
            if w.mode[job] != RUNNING:
                continue
            if w.leaving[job] > 0:
                coming += sum(w.held.processors[w.row[job]][at] for at in range(w.leaving[job]))
            elif w.stalled[job] + COMPUTES_S <= now:
                advance(w, job, self.rules)
                state = self.question(Situation.ASKED_BACK, job, ()).state
                borrower = of_job(policy, self.parameters_of(job)).borrows(state, now)
                if borrower is not None:
                    found[borrower.job] = job
                    borrowers.append(borrower)
        if not borrowers:
            return
        waiting = tuple(
            Waiting(str(self.numbers[job]), "", w.processors[job], w.walltime[job], served=w.mode[job] == RUNNING)
            for job in [w.queue[at] for at in range(min(w.count[QUEUED], LOOKED_AT))]
        )
        lending = Lending(waiting, w.count[FREE] + coming, coming, tuple(borrowers))
        for job in found.values():
            question = replace(self.question(Situation.ASKED_BACK, job, ()), lending=lending)
            if self.asked(question).kind is DecisionKind.SUSPEND:
                suspend_for_another(w, job, self.rules)

    def placeholder_started(self, job: int) -> bool:
        advance(self.w, job, self.rules)
        question = self.question(Situation.PLACEHOLDER_STARTED, job, ())
        decision = self.asked(question)
        choice = _PLACEHOLDER.get(decision.kind)
        if choice is None or (choice == GO_ON and not question.state.subjobs):
            allowed = ", ".join(kind.value for kind, code in _PLACEHOLDER.items() if code != GO_ON or choice is None)
            _refuse(question, f"{decision.kind.value} is no answer to a J0 that has started: {allowed} are")
        return carry_out_placeholder(self.w, job, choice, math.inf, self.rules)

    def slots(self) -> tuple[BackfillSlot, ...]:
        w = self.w
        found = range(find_slots(w, self.rules))
        return tuple(BackfillSlot(w.slot_processors[index], w.slot_durations[index]) for index in found)

    def offer_slots(self) -> bool:
        w, took, slots = self.w, False, self.slots()
        queued = w.count[QUEUED]
        if slots and self.named is not None:
            self.sort_visits(self.named)
        elif slots and self.rules.order == LEAST_WORK:
            sort_visits(w, self.rules)
        for job in [w.visits[index] for index in range(w.count[VISITS])]:
            if not slots or w.count[FAULT] != 0 or w.count[QUEUED] < queued:
                break
            if w.mode[job] not in (WAITING, RUNNING):
                continue
            advance(w, job, self.rules)
            waits = w.mode[job] == WAITING
            question = self.question(Situation.WAIT if waits else Situation.RUNNING, job, slots)
            decision = self.asked(question)
            if decision.requests:
                self.give(job, question, decision, waits)
                took, slots = True, self.slots()
        return took and w.count[FAULT] == 0

    def sort_visits(self, policy: ElasticPolicy) -> None:
        """By the policy's own key, of equals the first to come."""
        w = self.w

        def key(job: int) -> tuple[tuple[float, float], int]:
            advance(w, job, self.rules)
            left = max(0.0, w.walltime[job] - w.work[job])
            return policy.visit_key(w.mode[job] == WAITING, w.processors[job], left), job

        jobs = sorted((w.visits[at] for at in range(w.count[VISITS])), key=key)
        for place, job in enumerate(self.fairly(jobs)):
            w.visits[place] = job

    def fairly(self, jobs: list[int]) -> list[int]:
        """Waiting ones in a fair order between their users, on the places that they have; as the manager does it."""
        w = self.w
        if self.account is None:
            return jobs
        self.charge(self.account)
        waiting = [job for job in jobs if w.mode[job] == WAITING]
        left = [w.processors[job] * max(0.0, w.walltime[job] - w.work[job]) for job in waiting]
        work = dict(zip(waiting, left, strict=True))
        turns = iter(in_fair_order(waiting, self.users.__getitem__, work.__getitem__, self.account.of))
        return [next(turns) if w.mode[job] == WAITING else job for job in jobs]

    def charge(self, account: Account[int]) -> None:
        """What jobs have used since they were charged last, spread over that time."""
        w, now, held = self.w, self.w.clock[NOW], []
        while self.came < w.count[NEXT]:
            self.open[self.came] = 0.0
            self.came += 1
        since_s = account.as_of_s
        for job, charged in list(self.open.items()):
            used = w.used[job]
            if w.mode[job] == RIGID and w.start[job] >= 0.0:
                used = w.processors[job] * (now - w.start[job])
            elif w.mode[job] not in (RIGID, DONE):
                used += held_processors(w, job) * (now - w.as_of[job])
            if used > charged and now > since_s:
                held.append((int(self.users[job]), (used - charged) / (now - since_s), since_s, now))
                self.open[job] = used
            if w.mode[job] == DONE:
                del self.open[job]
        account.charge(held, now)

    def give(self, job: int, question: Question, decision: Decision, waits: bool) -> None:
        """The subjobs that are asked for, which fit."""
        w = self.w
        kind = DecisionKind.START if waits else DecisionKind.EXPAND
        if decision.kind is not kind:
            _refuse(question, f"{decision.kind.value} has requests, which only {kind.value} may have here")
        _refuse_misfits(question, decision.requests, held_processors(w, job), w.most_ranks[job])
        if waits:
            begin_on_slots(w, job, self.rules)
        else:
            begin_to_grow(w, job, self.rules)
        for request in decision.requests:
            if w.count[FAULT] == 0:
                add_subjob(w, job, request.processors, request.length_s, math.inf, self.rules)
        if w.count[FAULT] == 0:
            check_and_plan_next(w, job, self.rules)


def of_job(policy: ElasticPolicy, parameters: Parameters) -> ElasticPolicy:
    """The policy with what it is asked about one job with."""
    return policy if parameters is policy.parameters else type(policy)(parameters)


def _refuse_misfits(question: Question, requests: tuple[SubjobRequest, ...], held: int, most_ranks: int) -> None:
    """The subjobs must fit into the slots side by side, be no more than the job has processes, and hold their
    memory."""
    for request in requests:
        if request.processors < 1 or not 0 < request.length_s < math.inf:
            _refuse(question, f"{request.processors} processors for {request.length_s:g} s are no subjob")
    if held + sum(request.processors for request in requests) > question.state.processes:
        _refuse(question, f"more processors than its {question.state.processes} processes can use")
    if (held + sum(request.processors for request in requests)) * most_ranks < question.state.processes:
        _refuse(question, f"the memory of a processor holds {most_ranks} of its ranks, and more would share one")
    longest = max(slot.duration_s for slot in question.slots)
    for request in requests:
        if request.length_s > longest + _SLACK:
            _refuse(question, f"{request.length_s:g} s asked for, and no slot lasts longer than {longest:g} s")
    for slot in question.slots:
        shorter = max((s.duration_s for s in question.slots if s.duration_s < slot.duration_s), default=0.0)
        asked = sum(request.processors for request in requests if request.length_s > shorter + _SLACK)
        if asked > slot.processors:
            _refuse(question, f"{asked} processors asked for beyond {shorter:g} s, and {slot.processors} can be used")


def _refuse(question: Question, what: str) -> NoReturn:
    raise EjbError(
        Code.INVALID,
        f"the policy's answer about job {question.state.job} at {question.now_s:g} s ({question.situation.value}) "
        f"cannot be carried out: {what}",
    )
