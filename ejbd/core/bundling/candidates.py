"""What an elastic job could do with the slots that it sees, in numbers; `ejbd.core.bundling` puts it into words.

The handlers of Liu & Weissman (SC'15, section 3.2 and 3.3) as kernels: each lists every possibility with the completion
that it leads to, and says which is the best. Slots are a staircase: processors grow while durations shrink.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ejbd.core.bundling.guard import comes_late, is_dear, worth_suspending_s
from ejbd.core.bundling.parameters import LEAST_WORK, Rules
from ejbd.core.bundling.plan import carrying, walk_plan
from ejbd.core.bundling.rungs import last_rung, move_to_s, rung_on, stretch_at, stretch_on, widest, width_of
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.progress import ROUNDING_SLACK_S, round_up, whole_units

WHOLE_RUN, TWO_SUBJOBS, SUSPENDED_RUN = 1, 2, 3  # kinds of options for a waiting job
ADD_ONE, ADD_TWO, WHOLE_MOVE = 4, 5, 6  # and for a running one
FEASIBLE, TOO_LATE, TOO_SHORT, NO_EARLIER, MORE_WORK, LATE, DEAR = 1, 0, 2, 3, 4, 5, 6
MOVE, GO_ON, START_OVER = 1, 2, 3


class Options(NamedTuple):
    """Room for a list of options, one entry of each vector an option; the kernels fill it.

    `kind`, `verdict`: the codes above. `slot`, `processors`, `length`: the subjob on the longer slot; `slot_2` and so
    on: the second subjob, -1 where there is none. `degree`, `degree_2`: the rung on the first, and on both; of
    over-subscribed jobs that is their degree.
    `seconds`: from now to the completion, in whole seconds; infinite where it is not reached. `spent`: the
    processor-seconds that it takes, of a running job beyond what its present plan takes.
    """

    kind: Ints
    verdict: Ints
    slot: Ints
    processors: Ints
    length: Floats
    slot_2: Ints
    processors_2: Ints
    length_2: Floats
    degree: Ints
    degree_2: Ints
    seconds: Floats
    spent: Floats


def room_for(count: int) -> Options:
    """Empty options for plain Python."""
    i = [[-1] * count for _ in range(8)]
    f = [[0.0] * count for _ in range(4)]
    return Options(i[0], i[1], i[2], i[3], f[0], i[4], i[5], f[1], i[6], i[7], f[2], f[3])


@kernel
def visit_key(waiting: bool, processes: int, work_left_s: float, rules: Rules) -> tuple[int, float]:
    """Elastic jobs look for slots in the order of this key, equal ones in the order of arrival."""
    if rules.order != LEAST_WORK:
        return 0, 0.0
    return (0 if waiting else 1), processes * work_left_s


@kernel
def wait_options(
    processes: int,
    work_s: float,
    work_left_s: float,
    weighed_left_s: float,
    slot_processors: Ints,
    slot_durations: Floats,
    slots: int,
    rules: Rules,
    options: Options,
) -> tuple[int, int]:
    """A waiting job's options (section 3.2.1): (how many, index of the best or -1).

    First one subjob for the whole run on each slot worth using, that is, one that reaches a lower degree than every
    longer slot (cases 1 and 2); then two subjobs on every two of those slots (case 3). What is taken has to last for
    `work_left_s`; of that the one which is done first by `weighed_left_s` wins, of equals the first. Where nothing
    carries the job to its end and `suspend` is on, one more option is to use a slot until it ends: the one that makes
    the most work, if that is worth more than a move (where moves are long and the guard is on: than up to twelve).
    """
    steps = 0
    best = -1
    least_s = math.inf
    lowest = last_rung(processes, rules) + 1
    for slot in range(slots):
        offered = _on_a_node(slot_processors[slot], rules)
        if offered <= 0:
            continue
        reached = rung_on(processes, min(offered, processes), rules)
        if reached >= lowest:
            continue
        resume = rules.start_up_s + (move_to_s(reached, rules) if work_s > 0.0 else 0.0)
        processors = whole_units(width_of(processes, reached, rules), rules.processor_quantum)
        if processors > offered:
            continue
        if rules.whole_slots:
            whole = offered // rules.processor_quantum * rules.processor_quantum
            processors = min(whole, whole_units(processes, rules.processor_quantum))
        needed = resume + stretch_at(processes, reached, rules) * work_left_s
        options.kind[steps] = WHOLE_RUN
        options.slot[steps] = slot
        options.processors[steps] = processors
        options.degree[steps] = reached
        options.slot_2[steps] = -1
        options.length[steps] = round_up(needed, rules.walltime_quantum_s)
        options.seconds[steps] = round_up(needed, 1.0)
        fits = _fits(options.length[steps], slot_durations[slot], rules)
        options.verdict[steps] = FEASIBLE if fits else TOO_LATE
        options.spent[steps] = processors * (needed + rules.giving_back_s)
        if fits and is_dear(processes, reached, needed, rules):
            options.verdict[steps] = DEAR
            fits = False
        elif fits and comes_late(processes, reached, needed, rules):
            options.verdict[steps] = LATE
            fits = False
        weighed_s = round_up(resume + stretch_at(processes, reached, rules) * weighed_left_s, 1.0)
        if fits and (best < 0 or weighed_s < least_s):
            best = steps
            least_s = weighed_s
        steps += 1
        lowest = reached
        if reached == 1:
            break

    count = steps
    pairs = steps if rules.node_limit < 0 else 0  # two subjobs are two nodes
    for base in range(pairs):
        for wide in range(base + 1, steps):
            resume = rules.start_up_s + (move_to_s(options.degree[wide], rules) if work_s > 0.0 else 0.0)
            _two_subjobs(processes, base, wide, count, resume, work_left_s, slot_durations, rules, options)
            if options.verdict[count] == FEASIBLE and is_dear(processes, options.degree[base], math.inf, rules):
                options.verdict[count] = DEAR
            elif options.verdict[count] == FEASIBLE and comes_late(processes, options.degree[base], math.inf, rules):
                options.verdict[count] = LATE
            if options.verdict[count] == FEASIBLE:
                short = slot_durations[options.slot[wide]]
                weighed_s = round_up(
                    _two_take(
                        processes, options.degree[base], options.degree[wide], short, resume, weighed_left_s, rules
                    ),
                    1.0,
                )
                if best < 0 or weighed_s < least_s:
                    best = count
                    least_s = weighed_s
            count += 1

    if best < 0 and rules.suspend:
        most = worth_suspending_s(rules)
        for step in range(steps):
            duration = slot_durations[options.slot[step]]
            if comes_late(processes, options.degree[step], duration, rules):
                continue
            resume = rules.start_up_s + (move_to_s(options.degree[step], rules) if work_s > 0.0 else 0.0)
            made = (duration - rules.lambda_s - resume) / stretch_at(processes, options.degree[step], rules)
            if made > most:
                most = made
                best = count
                options.kind[count] = SUSPENDED_RUN
                options.verdict[count] = FEASIBLE
                options.slot[count] = options.slot[step]
                options.processors[count] = options.processors[step]
                options.degree[count] = options.degree[step]
                options.length[count] = duration
                options.slot_2[count] = -1
                options.seconds[count] = math.inf
                options.spent[count] = options.processors[step] * duration
        if best >= 0:
            count += 1
    return count, best


@kernel
def _on_a_node(processors: int, rules: Rules) -> int:
    """What of a slot the ranks could use: under a node limit whole units of one node."""
    if rules.node_limit < 0:
        return processors
    return min(processors, rules.node_limit) // rules.processor_quantum * rules.processor_quantum


@kernel
def _fits(length: float, duration: float, rules: Rules) -> bool:
    return length < duration or (length == duration and duration >= rules.max_walltime_s)


@kernel
def _two_subjobs(
    processes: int,
    base: int,
    wide: int,
    at: int,
    resume: float,
    work_left_s: float,
    slot_durations: Floats,
    rules: Rules,
    options: Options,
) -> None:
    """Run on both slots, move off the shorter before it ends, and finish on the longer."""
    short = slot_durations[options.slot[wide]]
    options.kind[at] = TWO_SUBJOBS
    options.slot[at] = options.slot[base]
    options.slot_2[at] = options.slot[wide]
    options.processors[at] = options.processors[base]
    options.processors_2[at] = options.processors[wide] - options.processors[base]
    options.degree[at] = options.degree[base]
    options.degree_2[at] = options.degree[wide]
    options.length_2[at] = short
    if short - rules.lambda_s - resume <= 0.0:
        options.verdict[at] = TOO_SHORT
        options.seconds[at] = math.inf
        return
    needed = _two_take(processes, options.degree[base], options.degree[wide], short, resume, work_left_s, rules)
    options.spent[at] = (options.processors[at] + options.processors_2[at]) * min(needed, short)
    if needed > short:
        options.spent[at] += options.processors[at] * (needed - short)
    options.length[at] = round_up(needed, rules.walltime_quantum_s)
    options.seconds[at] = round_up(needed, 1.0)
    fits = _fits(options.length[at], slot_durations[options.slot[base]], rules)
    options.verdict[at] = FEASIBLE if fits else TOO_LATE


@kernel
def _two_take(
    processes: int, base: int, both: int, short_s: float, resume: float, work_left_s: float, rules: Rules
) -> float:
    """Seconds on two subjobs, by their rungs: on both, and once the shorter has ended after `short_s` on one."""
    faster = stretch_at(processes, both, rules)
    needed = resume + faster * work_left_s
    if needed > short_s + ROUNDING_SLACK_S:
        left = work_left_s - (short_s - rules.lambda_s - resume) / faster
        needed = short_s + left * stretch_at(processes, base, rules)
    return needed


GROWS, NO_SUBJOB, NOT_MOVABLE, ON_PLACE_HOLDER, MOVING, FULL_WIDTH, NEARLY_DONE, NO_SLOT = 0, 1, 2, 3, 4, 5, 6, 7


class Scratch(NamedTuple):
    """Room to work in: `levels` and the three vectors of a plan for two more subjobs than are held; an empty `log`."""

    levels: Ints
    ends: Floats
    held: Ints
    anchors: Ints
    log: Floats


def scratch_for(count: int) -> Scratch:
    """Scratch for plain Python."""
    return Scratch([0] * (count + 3), [0.0] * (count + 3), [0] * (count + 3), [0] * (count + 3), [])


@kernel
def running_options(
    processes: int,
    work_left_s: float,
    weighed_left_s: float,
    stalled_until_s: float,
    movable: bool,
    on_placeholder: bool,
    alone: bool,
    ends: Floats,
    held: Ints,
    anchors: Ints,
    count: int,
    slot_processors: Ints,
    slot_durations: Floats,
    slots: int,
    now: float,
    rules: Rules,
    scratch: Scratch,
    options: Options,
) -> tuple[int, int, int]:
    """A running job's options (section 3.2.2): (GROWS or why growing is out of the question, how many, the best or -1).

    Case 1 is a subjob that lasts to the completion, case 2 one that has to be left before, case 3 one of each. Every
    level of the plan, now and after each planned shrink, is considered for the fewest processors that reach the lowest
    degree there. Only what completes strictly earlier than the present plan is feasible, by `work_left_s` and by
    `weighed_left_s`; the earliest completion by the latter wins, then the fewest processors, then the first.
    With `suspend` and `grow_to_suspend`, where neither the present plan nor any other completes, the one that leaves
    the least work at its end is best, if that is worth a move. Under a node limit a job grows by leaving its subjob for
    a wider one, as a whole. The first `count` of `ends`, `held` and `anchors` are the subjobs in the order of their
    ends.

    A job that has all that it asked for, on J0 (the last of them) or elsewhere, may grow beyond it where its rungs say
    so and it is `alone`: no other waits. On J0 it has to be done before J0 ends, and what is added is left by then.
    """
    if count == 0:
        return NO_SUBJOB, 0, -1
    if not movable:
        return NOT_MOVABLE, 0, -1
    most_used = widest(processes, rules) if alone else processes
    if on_placeholder and (most_used <= processes or rules.node_limit >= 0):
        return ON_PLACE_HOLDER, 0, -1
    if stalled_until_s > now and not rules.act_in_move:
        return MOVING, 0, -1
    have = carrying(held, count, rules)
    if have >= most_used:
        return FULL_WIDTH, 0, -1
    last_s = (
        ends[count - 1] - now - rules.lambda_s - 1.0 if on_placeholder else math.inf
    )  # before J0 is all that is left
    begin = max(now, stalled_until_s)
    weighs = weighed_left_s < work_left_s
    weighed = 0.0
    if weighs:
        weighed, _, _, _, _ = walk_plan(
            processes, weighed_left_s, ends, held, anchors, count, begin, rules, scratch.levels, scratch.log
        )
    done, told, _, stuck, before = walk_plan(
        processes, work_left_s, ends, held, anchors, count, begin, rules, scratch.levels, scratch.log
    )
    present = round_up(done - now, 1.0)
    weighs = weighs and present < math.inf
    weighed_s = round_up(weighed - now, 1.0) if weighs else present
    if weighed_s <= max(rules.lambda_s + rules.start_up_s, rules.min_left_s):
        return NEARLY_DONE, 0, -1
    if slots == 0:
        return NO_SLOT, 0, -1

    if rules.node_limit < 0:
        listed = _expansions(processes, have, slot_processors, slots, scratch.levels, told, most_used, rules, options)
    else:
        listed = _whole_moves(processes, have, slot_processors, slots, rules, options)
    best = -1
    best_s = math.inf
    most = -1
    least = stuck - rules.lambda_s - rules.start_up_s  # more work has to be worth a move
    before += have * (begin - now)
    for at in range(listed):
        wide = added(options, at) + (0 if options.kind[at] == WHOLE_MOVE else have)
        begins = now + rules.start_up_s + move_to_s(rung_on(processes, wide, rules), rules)
        meanwhile = going_on(processes, have, ends, begin, now, begins, rules)
        planned = _merge(ends, held, anchors, count, options.kind[at] == WHOLE_MOVE, scratch)
        duration = min(slot_durations[options.slot[at]], last_s)
        if duration <= rules.start_up_s + rules.lambda_s:
            options.verdict[at] = TOO_LATE
            options.seconds[at] = math.inf
            continue
        _insert(scratch, planned, now + duration, options.processors[at])
        planned += 1
        if options.kind[at] == ADD_TWO:
            _insert(scratch, planned, now + min(slot_durations[options.slot_2[at]], last_s), options.processors_2[at])
            planned += 1
        done, _, _, left, spent = walk_plan(
            processes,
            work_left_s - meanwhile,
            scratch.ends,
            scratch.held,
            scratch.anchors,
            planned,
            begins,
            rules,
            scratch.levels,
            scratch.log,
        )
        if math.isinf(done):
            options.verdict[at] = TOO_LATE
            options.seconds[at] = math.inf
            more_work = rules.grow_to_suspend and math.isinf(present) and left < least - ROUNDING_SLACK_S
            if rules.suspend and not on_placeholder and more_work:
                least = left
                most = at
            continue
        options.seconds[at] = round_up(done - now, 1.0)
        length = round_up(done - now, rules.walltime_quantum_s)
        options.length[at] = min(length, duration)
        if options.kind[at] == ADD_TWO:
            options.length_2[at] = min(length, slot_durations[options.slot_2[at]], last_s)
        # the degree's field tells whether the (first) subjob has to be left before the completion
        options.degree[at] = 1 if duration < done - now else 0
        sooner_s = options.seconds[at]
        if weighs:
            weighed, _, _, _, _ = walk_plan(
                processes, max(0.0, weighed_left_s - meanwhile), scratch.ends, scratch.held, scratch.anchors, planned,
                begins, rules, scratch.levels, scratch.log,
            )  # fmt: skip
            sooner_s = round_up(weighed - now, 1.0)
        if options.seconds[at] >= present or sooner_s >= weighed_s:
            options.verdict[at] = NO_EARLIER
            continue
        options.verdict[at] = FEASIBLE
        more = added(options, at) * (rules.start_up_s + rules.lambda_s + rules.giving_back_s)
        options.spent[at] = spent + have * (begins - now) + more - before
        if best < 0 or sooner_s < best_s or (sooner_s == best_s and added(options, at) < added(options, best)):
            best = at
            best_s = sooner_s
    if best < 0 and most >= 0:
        best = most
        options.verdict[best] = MORE_WORK
        options.length[best] = slot_durations[options.slot[best]]
        if options.kind[best] == ADD_TWO:
            options.length_2[best] = slot_durations[options.slot_2[best]]
        if math.isinf(options.length[best]):  # of use as long as any of the others, then the job is suspended
            last = ends[count - 1] - now
            if options.kind[best] == ADD_TWO:
                last = max(last, options.length_2[best])
            options.length[best] = round_up(last, rules.walltime_quantum_s)
    return GROWS, listed, best


@kernel
def going_on(
    processes: int, have: int, ends: Floats, begin_s: float, now: float, until_s: float, rules: Rules
) -> float:
    """Work done where the ranks are while further subjobs start up: none where they stand still or must leave before
    the move to come is over."""
    if rules.start_up_s <= 0.0 or begin_s > now or ends[0] < until_s:
        return 0.0
    return rules.start_up_s / stretch_on(processes, have, rules)


@kernel
def added(options: Options, at: int) -> int:
    """Processors that an expansion adds in all."""
    return options.processors[at] + (options.processors_2[at] if options.kind[at] == ADD_TWO else 0)


@kernel
def _expansions(
    processes: int,
    have: int,
    slot_processors: Ints,
    slots: int,
    levels: Ints,
    told: int,
    most_used: int,
    rules: Rules,
    options: Options,
) -> int:
    """List what could be added, from each slot and from the longest together with a wider one; how many there are."""
    unit = rules.processor_quantum
    room = whole_units(processes if have < processes else most_used, unit) - have
    singles = 0
    most = 0
    for slot in range(slots):
        available = min(slot_processors[slot], room) // unit * unit
        if available <= most:
            continue
        most = available
        for at in range(told):
            level = levels[at]
            processors = available
            if not rules.whole_slots:
                least = width_of(processes, rung_on(processes, level + available, rules), rules)
                processors = whole_units(least - level, unit)
            if not 1 <= processors <= available or _listed(options, singles, processors):
                continue
            options.kind[singles] = ADD_ONE
            options.slot[singles] = slot
            options.processors[singles] = processors
            options.slot_2[singles] = -1
            singles += 1
    count = singles
    for wide in range(singles):
        if options.slot[wide] == 0:
            continue
        for base in range(singles):
            if options.slot[base] != 0 or options.processors[base] >= options.processors[wide]:
                continue
            options.kind[count] = ADD_TWO
            options.slot[count] = 0
            options.processors[count] = options.processors[base]
            options.slot_2[count] = options.slot[wide]
            options.processors_2[count] = options.processors[wide] - options.processors[base]
            count += 1
    return count


@kernel
def _whole_moves(processes: int, have: int, slot_processors: Ints, slots: int, rules: Rules, options: Options) -> int:
    """List where all ranks could go together: each slot that reaches a lower degree than every longer one."""
    unit = rules.processor_quantum
    lowest = min(last_rung(processes, rules) + 1, rung_on(processes, have, rules))
    count = 0
    for slot in range(slots):
        available = min(_on_a_node(slot_processors[slot], rules), whole_units(processes, unit))
        if available <= 0 or rung_on(processes, min(available, processes), rules) >= lowest:
            continue
        lowest = rung_on(processes, min(available, processes), rules)
        options.kind[count] = WHOLE_MOVE
        options.slot[count] = slot
        needs = whole_units(width_of(processes, lowest, rules), unit)
        options.processors[count] = available if rules.whole_slots else needs
        options.slot_2[count] = -1
        options.degree_2[count] = lowest
        count += 1
    return count


@kernel
def _listed(options: Options, count: int, processors: int) -> bool:
    found = False
    for at in range(count):
        found = found or options.processors[at] == processors
    return found


@kernel
def _merge(ends: Floats, held: Ints, anchors: Ints, count: int, leaves: bool, scratch: Scratch) -> int:
    """Copy what is held, how many; of what is left as a whole only the anchors, which carry no rank then."""
    if not leaves:
        for index in range(count):
            scratch.ends[index] = ends[index]
            scratch.held[index] = held[index]
            scratch.anchors[index] = anchors[index]
        return count
    kept = 0
    for index in range(count):
        if anchors[index] != 0:
            scratch.ends[kept] = ends[index]
            scratch.held[kept] = 0
            scratch.anchors[kept] = anchors[index]
            kept += 1
    return kept


@kernel
def _insert(scratch: Scratch, count: int, end: float, processors: int) -> None:
    """Put one more subjob into a plan of `count`, in the order of their ends."""
    place = count
    while place > 0 and scratch.ends[place - 1] > end:
        scratch.ends[place] = scratch.ends[place - 1]
        scratch.held[place] = scratch.held[place - 1]
        scratch.anchors[place] = scratch.anchors[place - 1]
        place -= 1
    scratch.ends[place] = end
    scratch.held[place] = processors
    scratch.anchors[place] = 0


@kernel
def placeholder_choice(
    requested_s: float, work_s: float, count: int, present_s: float, movable: bool, rules: Rules
) -> tuple[int, float]:
    """What to do once J0 has started (section 3.3): (MOVE, GO_ON or START_OVER, seconds to the completion).

    `count` subjobs are held and lead to completion in `present_s` seconds (infinite: never). On a tie going on wins,
    then moving.
    """
    choice = START_OVER
    best = round_up(requested_s, 1.0)
    if movable and (work_s > 0.0 or count > 0):
        moved = round_up(move_to_s(1, rules) + max(0.0, requested_s - work_s), 1.0)
        if moved <= best:
            choice = MOVE
            best = moved
    if count > 0 and present_s < math.inf and present_s <= best:
        choice = GO_ON
        best = present_s
    return choice, best
