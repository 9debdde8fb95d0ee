"""EJB in the simulated world: core's decisions carried out, with the true progress that only the engine knows."""

from __future__ import annotations

import math

from ejbd.core.bundling.candidates import (
    GO_ON,
    MOVE,
    placeholder_choice,
)
from ejbd.core.bundling.parameters import Rules, rules_of_one
from ejbd.core.bundling.plan import NONE_LEAVES, SOME_STAY, shrink_plan, walk_plan
from ejbd.core.bundling.rungs import stretch_on
from ejbd.core.bundling.weighing import weighed_left
from ejbd.core.kernel import kernel
from ejbd.core.lasting import FEWEST_RUNS
from ejbd.core.lateness import FEWEST_ENDS, is_later, loses, promised_start, stop_s
from ejbd.core.progress import round_up
from ejbd.core.shortruns import learned
from ejbd.sim.cluster import (
    APPLICATION_ENDS,
    JOB_ENDS,
    MOVE_ENDS,
    SHRINKS,
    dequeue,
    give_back,
    hold,
    is_taken_for_short,
    learn_run,
)
from ejbd.sim.heap import drop_event, set_event
from ejbd.sim.turns import turns_learn
from ejbd.sim.world import (
    ASKED,
    BROKEN_PROGRESS,
    DONE,
    DUE,
    FAULT,
    FREE,
    KEEP_S,
    LATE,
    LATE_BITS,
    LATE_ENDS,
    LATER,
    LAUNCH_S,
    NOW,
    ON_PLACE_HOLDER,
    PLAIN_J0S,
    PLAIN_LAUNCH_S,
    PLAIN_RELEASE_S,
    QUEUED,
    RELEASE_S,
    RELEASING,
    RUNS,
    RUNS_S,
    SLACK_S,
    SPARE,
    STAYS_RIGID,
    STOPPED_S,
    STOPS,
    TOO_MANY_ELASTIC,
    TOO_MANY_SUBJOBS,
    USED,
    VISITS,
    WAITING,
    WATCHES,
    WEIGHED,
    World,
)

_SLACK = 1e-6


@kernel
def held_processors(w: World, job: int) -> int:
    """Processors that the job holds now."""
    if w.row[job] < 0:
        return 0
    held = w.held.processors[w.row[job]]
    total = 0
    for index in range(w.held_count[job]):
        total += held[index]
    return total


@kernel
def rules_of_job(w: World, job: int, rules: Rules) -> Rules:
    """The rules as far as the memory of the job's ranks lets it follow them, with what has been learned of runs."""
    return rules_of_one(rules, w.most_ranks[job], w.clock[RUNS_S])


@kernel
def others_wait(w: World, job: int) -> bool:
    """Whether any job but this one is queued."""
    queued = w.count[QUEUED]
    return queued > 1 or (queued == 1 and w.queue[0] != job)


@kernel
def become_elastic(w: World, job: int) -> None:
    """The job could not start in its own shape: J0 stays queued, and EJB looks for slots."""
    if w.count[WATCHES] != 0:
        if has_stopped(w):
            w.candidate[job] = STAYS_RIGID
            return
        count = 1
        while w.queue[count - 1] != job:
            count += 1
        w.promised[job] = promised_start(
            w.queue_processors, w.queue_walltime, count, w.ends, w.freed, w.count[DUE], w.count[FREE], w.clock[NOW],
            w.profile_times, w.profile_levels,
        )  # fmt: skip
    w.mode[job] = WAITING
    w.as_of[job] = w.clock[NOW]
    w.expected[job] = math.inf
    w.visits[w.count[VISITS]] = job
    w.count[VISITS] += 1


@kernel
def has_stopped(w: World) -> bool:
    """Whether elastic jobs have lately been late, so that none is started early now."""
    return w.count[WATCHES] != 0 and w.clock[NOW] < w.clock[STOPPED_S]


@kernel
def watch_end(w: World, job: int) -> None:
    """An elastic job has ended: later than J0 was promised to, or not."""
    if w.count[WATCHES] == 0 or has_stopped(w) or w.promised[job] == math.inf:
        return
    part = w.clock[USED] / w.clock[ASKED] if w.count[RUNS] >= FEWEST_RUNS else 1.0
    late = is_later(w.clock[NOW], w.submit[job], w.promised[job], part, w.run[job])
    w.count[LATE_BITS], w.count[LATE_ENDS], w.count[LATE] = learned(
        w.count[LATE_BITS], w.count[LATE_ENDS], w.count[LATE], late
    )
    if loses(w.count[LATE_ENDS], w.count[LATE]):
        w.clock[STOPPED_S] = w.clock[NOW] + stop_s(w.count[STOPS])
        w.count[STOPS] += 1
        w.count[LATE_BITS] = 0
        w.count[LATE_ENDS] = 0
        w.count[LATE] = 0
    elif w.count[LATE_ENDS] >= FEWEST_ENDS and 2 * w.count[LATE] < w.count[LATE_ENDS]:
        w.count[STOPS] = 0


@kernel
def advance(w: World, job: int, rules: Rules) -> None:
    """Bring the true progress up to now."""
    now = w.clock[NOW]
    since = w.as_of[job]
    if now <= since:
        return
    w.as_of[job] = now
    processors = held_processors(w, job)
    if processors == 0:
        return
    running = now - max(since, min(w.stalled[job], now))
    if w.meanwhile_until[job] > since:
        before = min(w.meanwhile_until[job], now) - since
        w.work[job] += before * w.meanwhile[job]
        w.moved[job] -= before
    w.work[job] += running * speed_of(w, job, processors, rules)
    w.moved[job] += (now - since) - running
    w.used[job] += processors * (now - since)


@kernel
def speed_of(w: World, job: int, processors: int, rules: Rules) -> float:
    """Work a second on so many processors; J0 is the job in its own shape."""
    if w.mode[job] == ON_PLACE_HOLDER and processors <= w.processors[job]:
        return 1.0
    return 1.0 / stretch_on(w.processors[job], processors, rules) if processors > 0 else 0.0


@kernel
def work_left(w: World, job: int) -> float:
    """Full-speed seconds still to do by what the job is planned with, which is all that a decision knows.

    It is the requested walltime, or what was learned until that is outlived.
    """
    planned = w.planned[job]
    if w.work[job] >= planned:
        planned = w.walltime[job]
    return max(0.0, planned - w.work[job])


@kernel
def left_by_weight(w: World, job: int) -> float:
    """Full-speed seconds still to do by which a decision is weighed."""
    return weighed_left(w.points[job], w.work[job], work_left(w, job), w.clock[WEIGHED])


@kernel
def _completes(w: World, job: int, rules: Rules) -> float:
    """The first whole second at which the true work is done, if nothing changes."""
    now = w.clock[NOW]
    speed = speed_of(w, job, held_processors(w, job), rules)
    begin = max(now, w.stalled[job])
    left = w.run[job] - w.work[job]
    before = w.meanwhile_until[job] - now
    if before > 0.0:
        if before * w.meanwhile[job] >= left:
            return max(now, now + round_up(left / w.meanwhile[job], 1.0))
        left -= before * w.meanwhile[job]
    return max(now, begin + round_up(left / speed, 1.0))


@kernel
def plan_next(w: World, job: int, rules: Rules) -> None:
    """Set the job's next event: the application's end, a move's end, or the beginning of a shrink."""
    if w.mode[job] == WAITING:
        drop_event(w, job)
        return
    now = w.clock[NOW]
    time = math.inf
    rank = SHRINKS
    if w.leaving[job] > 0:
        time = w.leave_at[job]
        rank = MOVE_ENDS
    else:
        code = NONE_LEAVES  # J0 lasts as long as the job may
        if w.mode[job] != ON_PLACE_HOLDER or w.held_count[job] > 1:
            code, _ = _shrink(w, job, rules)
        if code != NONE_LEAVES or may_outlive(w, job):
            time = max(now, w.held.ends[w.row[job]][0] - rules.lambda_s)
    if w.stalled[job] > now and w.stalled[job] <= time:
        time = w.stalled[job]
        rank = MOVE_ENDS
    done = _completes(w, job, rules)
    if done <= time:
        time = done
        rank = JOB_ENDS if ends_as_batch_job(w, job, rules) else APPLICATION_ENDS
    set_event(w, job, time, rank)


@kernel
def ends_as_batch_job(w: World, job: int, rules: Rules) -> bool:
    """Whether a job that ends now is to the batch system like any that never was elastic: it has run on J0 alone.

    Of what ends within one second the paper's applications come before terminations, and which job backfills depends on
    that. With the guard a queue where nothing is borrowed is to be plain EASY's, down to that order.
    """
    return rules.guard != 0 and w.mode[job] == ON_PLACE_HOLDER and w.subjobs[job] == 1


@kernel
def may_outlive(w: World, job: int) -> bool:
    """Whether the job may run longer than it is planned to: not with its request, nor with the truth."""
    return w.planned[job] < w.walltime[job] and w.planned[job] != w.run[job]


@kernel
def _shrink(w: World, job: int, rules: Rules) -> tuple[int, int]:
    row = w.row[job]
    return shrink_plan(
        w.processors[job],
        work_left(w, job),
        w.held.ends[row],
        w.held.processors[row],
        w.anchors,
        w.held_count[job],
        max(w.clock[NOW], w.stalled[job]),
        rules_of_job(w, job, rules),
    )


@kernel
def application_event(w: World, job: int, rank: int, rules: Rules) -> None:
    """An event of an elastic job that runs."""
    if w.mode[job] == RELEASING:
        _released(w, job)
        return
    advance(w, job, rules)
    if rank <= JOB_ENDS:
        complete(w, job, rules)
        return
    now = w.clock[NOW]
    if w.leaving[job] > 0 and w.leave_at[job] <= now:
        _leave(w, job)
    elif rank == SHRINKS:
        if may_outlive(w, job):
            w.planned[job] = w.walltime[job]
        code, leaving = _shrink(w, job, rules)
        if code != NONE_LEAVES:
            end = w.held.ends[w.row[job]][0]
            w.leaving[job] = leaving if code == SOME_STAY else w.held_count[job]
            w.leave_at[job] = end
            if end > w.stalled[job]:  # within a move that is under way anyway it is no move of its own
                w.stalled[job] = end
                w.moves[job] += 1
    plan_next(w, job, rules)


@kernel
def _leave(w: World, job: int) -> None:
    """A move off subjobs is over; where nothing is left the job waits again, with its work kept."""
    row = w.row[job]
    ends = w.held.ends[row]
    until = w.held.walltime_ends[row]
    held = w.held.processors[row]
    leaving = w.leaving[job]
    for index in range(leaving):
        give_back(w, held[index], until[index], w.clock[NOW])
    for index in range(leaving, w.held_count[job]):
        ends[index - leaving] = ends[index]
        until[index - leaving] = until[index]
        held[index - leaving] = held[index]
        w.held.folded[row][index - leaving] = w.held.folded[row][index]
    w.held_count[job] -= leaving
    w.leaving[job] = 0
    w.gives_back[job] = 0
    if w.held_count[job] == 0:
        w.mode[job] = WAITING
        w.expected[job] = math.inf


@kernel
def _release_all(w: World, job: int) -> None:
    if w.row[job] < 0:
        return
    until = w.held.walltime_ends[w.row[job]]
    held = w.held.processors[w.row[job]]
    for index in range(w.held_count[job]):
        give_back(w, held[index], until[index], w.clock[NOW])
    w.held_count[job] = 0
    w.leaving[job] = 0
    w.gives_back[job] = 0


@kernel
def _keep_for_a_while(w: World, job: int) -> None:
    """The subjobs that are left for J0 hold their processors until the move is known to have succeeded."""
    if w.row[job] < 0:
        return
    until = w.held.walltime_ends[w.row[job]]
    held = w.held.processors[w.row[job]]
    now = w.clock[NOW]
    for index in range(w.held_count[job]):
        end = min(until[index], now + w.clock[KEEP_S])
        if end > now:
            give_back(w, held[index], until[index], now)
            hold(w, held[index], end)
            w.used[job] += held[index] * (end - now)
    w.held_count[job] = 0


@kernel
def leave_what_is_held(w: World, job: int) -> None:
    """The job moves off everything that it holds: given back now, or once the move is known to have succeeded."""
    if w.clock[KEEP_S] > 0.0:
        _keep_for_a_while(w, job)
    _release_all(w, job)


@kernel
def is_late(w: World, job: int, time: float, rules: Rules) -> bool:
    """Whether `time` is later than the completion that was expected.

    It may be where a manager has costs that its decisions do not count: subjobs then last longer than they were planned
    to, and are left at other times; and where the job may run for longer than was thought.
    """
    if (
        w.clock[LAUNCH_S] > 0.0
        or w.clock[SLACK_S] > 0.0
        or rules.start_up_s > 0.0
        or rules.pace > 1.0
        or rules.guard != 0
        or rules.beyond > 1.0
        or len(w.points[job]) > 0
    ):
        return False
    return w.expected[job] + _SLACK < time


@kernel
def complete(w: World, job: int, rules: Rules) -> None:
    """The application is done: its J0 is cancelled if it waits, its subjobs end now or when they are released."""
    now = w.clock[NOW]
    second = max(1.0, speed_of(w, job, held_processors(w, job), rules))
    if abs(w.work[job] - w.run[job]) > second + _SLACK:  # whole seconds: at most the last is not needed in full
        w.count[FAULT] = BROKEN_PROGRESS
    if is_late(w, job, now, rules):
        w.count[FAULT] = LATER
    if w.mode[job] != ON_PLACE_HOLDER:
        dequeue(w, job)
    count = w.count[VISITS]
    kept = 0
    for index in range(count):
        if w.visits[index] != job:
            w.visits[kept] = w.visits[index]
            kept += 1
    w.count[VISITS] = kept
    drop_event(w, job)
    turns_learn(w, job, now)
    release_s = w.clock[RELEASE_S] if w.without_workers[job] == 0 else w.clock[PLAIN_RELEASE_S]
    if release_s > 0.0:
        w.mode[job] = RELEASING
        set_event(w, job, now + release_s, APPLICATION_ENDS)
    else:
        _released(w, job)


@kernel
def _released(w: World, job: int) -> None:
    """The subjobs of a job that is done have ended."""
    learn_run(w, job)
    watch_end(w, job)
    w.used[job] += held_processors(w, job) * (w.clock[NOW] - w.as_of[job])
    _release_all(w, job)
    w.end[job] = w.clock[NOW]
    w.mode[job] = DONE
    w.spare[w.count[SPARE]] = w.row[job]
    w.count[SPARE] += 1
    w.row[job] = -1


@kernel
def take_row(w: World, job: int) -> None:
    if w.row[job] >= 0:
        return
    if w.count[SPARE] == 0:
        w.count[FAULT] = TOO_MANY_ELASTIC
        return
    w.count[SPARE] -= 1
    w.row[job] = w.spare[w.count[SPARE]]


@kernel
def hold_subjob(w: World, job: int, processors: int, end: float, walltime_end: float) -> None:
    """One more subjob in the job's row, in the order of their ends."""
    row = w.row[job]
    ends = w.held.ends[row]
    until = w.held.walltime_ends[row]
    held = w.held.processors[row]
    place = w.held_count[job]
    if place + 4 >= len(w.anchors):
        w.count[FAULT] = TOO_MANY_SUBJOBS
        return
    while place > 0 and ends[place - 1] > end:
        ends[place] = ends[place - 1]
        until[place] = until[place - 1]
        held[place] = held[place - 1]
        w.held.folded[row][place] = w.held.folded[row][place - 1]
        place -= 1
    ends[place] = end
    until[place] = walltime_end
    held[place] = processors
    w.held.folded[row][place] = 0
    w.held_count[job] += 1
    w.subjobs[job] += 1


@kernel
def done_in(w: World, job: int, left: float, rules: Rules) -> float:
    """Seconds until so much work is done on what the job holds."""
    now = w.clock[NOW]
    row = w.row[job]
    done, _, _, _, _ = walk_plan(
        w.processors[job],
        left,
        w.held.ends[row],
        w.held.processors[row],
        w.anchors,
        w.held_count[job],
        max(now, w.stalled[job]),
        rules_of_job(w, job, rules),
        w.scratch.levels,
        w.scratch.log,
    )
    return round_up(done - now, 1.0)


@kernel
def placeholder_started(w: World, job: int, rules: Rules) -> bool:
    """J0 has started: what core chooses among going on, moving and starting over. True: processors came free."""
    advance(w, job, rules)
    processes = w.processors[job]
    count = w.held_count[job]
    present = math.inf
    weighed = left_by_weight(w, job)
    if count > 0:
        present = done_in(w, job, work_left(w, job), rules)
        if present < math.inf and weighed < work_left(w, job):
            present = done_in(w, job, weighed, rules)
    movable = rules.node_limit < 0 or rules.node_limit >= processes  # J0 is on nodes as wide as any
    choice, seconds = placeholder_choice(w.work[job] + weighed, w.work[job], count, present, movable, rules)
    return carry_out_placeholder(w, job, choice, seconds, rules)


@kernel
def begin_on_j0(w: World, job: int, rules: Rules) -> None:
    """An elastic job has started in its own shape."""
    w.mode[job] = WAITING
    w.as_of[job] = w.clock[NOW]
    w.expected[job] = math.inf
    w.visits[w.count[VISITS]] = job
    w.count[VISITS] += 1
    placeholder_started(w, job, rules)


@kernel
def carry_out_placeholder(w: World, job: int, choice: int, seconds: float, rules: Rules) -> bool:
    """Do what was chosen about a J0 that has started; `seconds` to the completion expected. True: processors came
    free."""
    now = w.clock[NOW]
    processes = w.processors[job]
    end = now + w.walltime[job]
    count = w.held_count[job]
    if choice == GO_ON:
        give_back(w, processes, end, now)
        return True
    w.meanwhile_until[job] = now
    if choice == MOVE:
        leave_what_is_held(w, job)
    else:
        _release_all(w, job)
    take_row(w, job)
    if w.count[FAULT] != 0:
        return False
    hold_subjob(w, job, processes, end, end)
    w.mode[job] = ON_PLACE_HOLDER
    if choice == MOVE:
        w.stalled[job] = now + rules.lambda_s
        w.moves[job] += 1
    else:
        w.work[job] = 0.0
        if w.count[PLAIN_J0S] != 0 and w.start[job] < 0.0 and is_taken_for_short(w, job):
            w.without_workers[job] = 1
        launch_s = w.clock[LAUNCH_S] if w.without_workers[job] == 0 else w.clock[PLAIN_LAUNCH_S]
        w.stalled[job] = now + launch_s
        seconds += launch_s
    if w.start[job] < 0.0:
        w.start[job] = now
    w.expected[job] = now + seconds
    plan_next(w, job, rules)
    return count > 0
