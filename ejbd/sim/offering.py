"""EJB in the simulated world: free slots are shown to the elastic jobs in turn, and what they take is theirs."""

from __future__ import annotations

from ejbd.core.bundling.beyond import to_give_back
from ejbd.core.bundling.candidates import (
    ADD_TWO,
    GROWS,
    SUSPENDED_RUN,
    TWO_SUBJOBS,
    WHOLE_MOVE,
    going_on,
    running_options,
    visit_key,
    wait_options,
)
from ejbd.core.bundling.guard import COMPUTES_S, LOOKED_AT, give_back, may_give_back
from ejbd.core.bundling.parameters import LEAST_WORK, Rules
from ejbd.core.bundling.rungs import widest
from ejbd.core.kernel import kernel
from ejbd.core.progress import whole_units
from ejbd.core.room.slots import Margins, easy_slots, in_whole_units, left_out, shorten
from ejbd.core.room.walltimes import asked_walltime, length_for_ranks, longest_walltime
from ejbd.sim.cluster import dequeue, head_at, hold
from ejbd.sim.elastic import (
    advance,
    has_stopped,
    held_processors,
    hold_subjob,
    is_late,
    leave_what_is_held,
    left_by_weight,
    others_wait,
    plan_next,
    rules_of_job,
    take_row,
    work_left,
)
from ejbd.sim.world import (
    DUE,
    FAULT,
    FREE,
    LATER,
    LAUNCH_S,
    NOW,
    ON_PLACE_HOLDER,
    OVERCOMMITTED,
    POLL_S,
    QUEUED,
    RUNNING,
    SLACK_S,
    START_UP_S,
    TAIL_S,
    TOO_WIDE,
    UNIT,
    VISITS,
    WAITING,
    WITHOUT_J0,
    World,
)


@kernel
def find_slots(w: World, rules: Rules) -> int:
    """The slots that there are, as a live manager has them of its windows: how many."""
    at = head_at(w)
    head = w.queue_processors[at] if at >= 0 else 0
    slots = easy_slots(
        head, w.ends, w.freed, w.count[DUE], w.count[FREE], w.clock[NOW], w.slot_processors, w.slot_durations,
        w.count[UNIT],
    )  # fmt: skip
    return in_whole_units(
        w.slot_processors, w.slot_durations, slots,
        rules.processor_quantum, rules.walltime_quantum_s, rules.max_walltime_s,
    )  # fmt: skip


@kernel
def show_slots(w: World, slots: int, resumes: bool, rules: Rules) -> int:
    """What of the slots a decision may use: how many, the first ones, for `shown_durations`."""
    return shorten(w.slot_durations, slots, left_out(resumes, margins(w)), rules.max_walltime_s, w.shown_durations)


@kernel
def resumes(w: World, job: int) -> bool:
    """Whether a job waits with work kept."""
    return w.mode[job] == WAITING and w.start[job] >= 0.0


@kernel
def margins(w: World) -> Margins:
    return Margins(w.clock[POLL_S], w.clock[START_UP_S], w.clock[TAIL_S])


@kernel
def sort_visits(w: World, rules: Rules) -> None:
    """Order of visits by core's key; nearly sorted from the last time."""
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        advance(w, job, rules)
        first, second = visit_key(w.mode[job] == WAITING, w.processors[job], work_left(w, job), rules)
        place = index
        while place > 0:
            other = w.visits[place - 1]
            other_first, other_second = visit_key(
                w.mode[other] == WAITING, w.processors[other], work_left(w, other), rules
            )
            if (other_first, other_second, other) <= (first, second, job):
                break
            w.visits[place] = other
            place -= 1
        w.visits[place] = job


@kernel
def offer_slots(w: World, rules: Rules) -> bool:
    """Show the slots to every elastic job in turn; True if one took something."""
    slots = find_slots(w, rules)
    if slots == 0:
        return False
    queued = w.count[QUEUED]
    if rules.order == LEAST_WORK:
        sort_visits(w, rules)
    took = False
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        mode = w.mode[job]
        if mode == WAITING and not has_stopped(w):
            taken = _visit_waiting(w, job, slots, rules)
        elif mode == RUNNING or (mode == ON_PLACE_HOLDER and rules.beyond > 1.0):
            taken = _visit_running(w, job, slots, rules)
        else:
            taken = False
        if taken:
            took = True
            if w.count[FAULT] != 0:
                return False
            if w.count[QUEUED] < queued:  # a cancelled J0 may have held others up: the batch system looks first
                break
            slots = find_slots(w, rules)
            if slots == 0:
                break
    return took


@kernel
def _visit_waiting(w: World, job: int, slots: int, rules: Rules) -> bool:
    o = w.options
    processes = w.processors[job]
    again = resumes(w, job)
    shown = show_slots(w, slots, again, rules)
    _, best = wait_options(
        processes, w.work[job], work_left(w, job), left_by_weight(w, job), w.slot_processors, w.shown_durations, shown,
        rules_of_job(w, job, rules), o,
    )  # fmt: skip
    if best < 0:
        return False
    launch_s = begin_on_slots(w, job, rules)
    if w.count[FAULT] != 0:
        return True
    _add(w, job, best, o.kind[best] == TWO_SUBJOBS, again, rules)
    w.expected[job] += launch_s
    if w.candidate[job] == WITHOUT_J0 and o.kind[best] != SUSPENDED_RUN:
        dequeue(w, job)
    return True


@kernel
def begin_on_slots(w: World, job: int, rules: Rules) -> float:
    """A waiting job begins, or resumes; its subjobs are to be added. The seconds that its launch takes."""
    now = w.clock[NOW]
    take_row(w, job)
    if w.count[FAULT] != 0:
        return 0.0
    w.as_of[job] = now
    w.mode[job] = RUNNING
    launch_s = w.clock[LAUNCH_S] if w.work[job] <= 0.0 else 0.0
    w.stalled[job] = now + rules.start_up_s + (rules.lambda_s if w.work[job] > 0.0 else launch_s)
    w.meanwhile_until[job] = now
    if w.start[job] < 0.0:
        w.start[job] = now
    return launch_s


@kernel
def _visit_running(w: World, job: int, slots: int, rules: Rules) -> bool:
    o = w.options
    advance(w, job, rules)
    row = w.row[job]
    shown = show_slots(w, slots, False, rules)
    code, _, best = running_options(
        w.processors[job],
        work_left(w, job),
        left_by_weight(w, job),
        w.stalled[job],
        True,
        w.mode[job] == ON_PLACE_HOLDER,
        rules.beyond > 1.0 and not others_wait(w, job),
        w.held.ends[row],
        w.held.processors[row],
        w.anchors,
        w.held_count[job],
        w.slot_processors,
        w.shown_durations,
        shown,
        w.clock[NOW],
        rules_of_job(w, job, rules),
        w.scratch,
        o,
    )
    if code != GROWS or best < 0:
        return False
    begin_to_grow(w, job, rules)
    if o.kind[best] == WHOLE_MOVE:
        leave_what_is_held(w, job)
    _add(w, job, best, o.kind[best] == ADD_TWO, False, rules)
    return True


@kernel
def begin_to_grow(w: World, job: int, rules: Rules) -> None:
    """A running job moves to further subjobs, which are to be added."""
    now = w.clock[NOW]
    begins = now + rules.start_up_s + rules.lambda_s
    w.meanwhile_until[job] = now
    if w.held_count[job] > 0:
        have = held_processors(w, job)
        begin = max(now, w.stalled[job])
        done = going_on(w.processors[job], have, w.held.ends[w.row[job]], begin, now, begins, rules)
        if done > 0.0:
            w.meanwhile[job] = done / rules.start_up_s
            w.meanwhile_until[job] = now + rules.start_up_s
    w.stalled[job] = begins
    w.leaving[job] = 0
    w.moves[job] += 1


@kernel
def computes(w: World, job: int) -> bool:
    """Whether the job's ranks run, stay where they are, and have done so for a while."""
    return w.mode[job] == RUNNING and w.leaving[job] == 0 and w.stalled[job] + COMPUTES_S <= w.clock[NOW]


@kernel
def borrowers(w: World, rules: Rules) -> int:
    """Running jobs that may be made to give back what they hold, to `w.giving`: how many."""
    now = w.clock[NOW]
    count = 0
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if not computes(w, job):
            continue
        held = held_processors(w, job)
        room_s = w.held.ends[w.row[job]][w.held_count[job] - 1] - now
        if may_give_back(w.processors[job], held, w.expected[job] - now, room_s, rules):
            w.giving.job[count] = job
            w.giving.held[count] = held
            w.giving.room_s[count] = room_s
            w.giving.move_s[count] = rules.lambda_s
            count += 1
    return count


@kernel
def coming_free(w: World, waiting: int) -> int:
    """How many processors are being given back by now.

    The first of those that wait are flagged in `w.giving.served`.
    """
    coming = 0
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if w.mode[job] == RUNNING:
            for at in range(w.leaving[job]):
                coming += w.held.processors[w.row[job]][at]
    for at in range(waiting):
        w.giving.served[at] = 1 if w.mode[w.queue[at]] == RUNNING else 0
    return coming


@kernel
def choose_givers(w: World, waiting: int, count: int) -> int:
    """Which of the first `count` jobs in `w.giving` give, by `w.giving.gives`: how many do."""
    coming = coming_free(w, waiting)
    return give_back(
        w.queue_processors, w.queue_walltime, w.giving.served, waiting, w.count[FREE] + coming, coming,
        w.giving.held, w.giving.room_s, w.giving.move_s, count, w.giving.gives,
    )  # fmt: skip


@kernel
def give_back_room(w: World, rules: Rules) -> None:
    """Over-subscribed jobs are suspended, and give back their room, where a waiting one would fit into it."""
    waiting = min(w.count[QUEUED], LOOKED_AT)
    if rules.guard == 0 or waiting == 0:
        return
    count = borrowers(w, rules)
    if count == 0:
        return
    choose_givers(w, waiting, count)
    for index in range(count):
        if w.giving.gives[index] >= 0:
            suspend_for_another(w, w.giving.job[index], rules)


@kernel
def give_back_beyond(w: World, rules: Rules) -> None:
    """What jobs hold beyond the width that they asked for is left, where another job waits."""
    if rules.beyond <= 1.0 or w.count[QUEUED] == 0:
        return
    now = w.clock[NOW]
    for index in range(w.count[VISITS]):
        job = w.visits[index]
        if w.mode[job] != RUNNING and w.mode[job] != ON_PLACE_HOLDER:
            continue
        if w.leaving[job] > 0 or w.stalled[job] + COMPUTES_S > now or not others_wait(w, job):
            continue
        if held_processors(w, job) <= w.processors[job]:
            continue
        advance(w, job, rules)
        row = w.row[job]
        leaves = to_give_back(
            w.processors[job], work_left(w, job), w.held.ends[row], w.held.processors[row], w.anchors,
            w.held_count[job], now, rules, w.scratch,
        )  # fmt: skip
        if leaves > 0:
            w.meanwhile_until[job] = now
            w.leaving[job] = leaves
            w.leave_at[job] = now + rules.lambda_s
            w.stalled[job] = w.leave_at[job]
            w.moves[job] += 1
            plan_next(w, job, rules)


@kernel
def suspend_for_another(w: World, job: int, rules: Rules) -> None:
    """All that the job holds is given back once its ranks are checkpointed."""
    advance(w, job, rules)
    now = w.clock[NOW]
    w.meanwhile_until[job] = now
    w.leaving[job] = w.held_count[job]
    w.leave_at[job] = now + rules.lambda_s
    w.stalled[job] = w.leave_at[job]
    w.moves[job] += 1
    w.gives_back[job] = 1
    plan_next(w, job, rules)


@kernel
def is_giving_back(w: World) -> bool:
    """Whether room is on its way to a waiting job: no other takes any meanwhile."""
    found = False
    for index in range(w.count[VISITS]):
        found = found or w.gives_back[w.visits[index]] != 0
    return found


@kernel
def _add(w: World, job: int, best: int, two: bool, again: bool, rules: Rules) -> None:
    """Submit the subjobs of an option. `again`: the job had waited with work kept."""
    o = w.options
    expected = w.clock[NOW] + o.seconds[best]
    limit = longest_walltime(w.shown_durations[o.slot[best]], again, margins(w), rules.max_walltime_s)
    add_subjob(w, job, o.processors[best], o.length[best], limit, rules)
    if two:
        limit = longest_walltime(w.shown_durations[o.slot_2[best]], again, margins(w), rules.max_walltime_s)
        add_subjob(w, job, o.processors_2[best], o.length_2[best], limit, rules)
    if is_late(w, job, expected, rules):
        w.count[FAULT] = LATER
    w.expected[job] = expected
    check_and_plan_next(w, job, rules)


@kernel
def add_subjob(w: World, job: int, processors: int, length: float, limit: float, rules: Rules) -> None:
    """Submit a subjob; it fits, so it starts at once."""
    now = w.clock[NOW]
    walltime = asked_walltime(length, w.clock[SLACK_S], limit, rules.walltime_quantum_s)
    for_ranks = walltime
    if w.clock[SLACK_S] > 0.0:
        for_ranks = length_for_ranks(walltime, length, rules.lambda_s + w.clock[TAIL_S])
    hold(w, processors, now + walltime)
    hold_subjob(w, job, processors, now + min(for_ranks, walltime - w.clock[TAIL_S]), now + walltime)


@kernel
def check_and_plan_next(w: World, job: int, rules: Rules) -> None:
    """After subjobs were added: no job has too many processors, and the job's next event is another one."""
    if held_processors(w, job) > whole_units(widest(w.processors[job], rules), rules.processor_quantum):
        w.count[FAULT] = TOO_WIDE
    if w.count[FREE] < 0:
        w.count[FAULT] = OVERCOMMITTED
    plan_next(w, job, rules)
