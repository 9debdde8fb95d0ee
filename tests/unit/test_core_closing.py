"""A queue that closes up keeps its order, and says which jobs have left it."""

from __future__ import annotations

import random

from ejbd.core.closing import queue_closes, vector_closes


def test_those_that_stay_keep_their_order_and_those_that_leave_are_told() -> None:
    dice = random.Random(7)
    for count in range(1, 9):
        for _ in range(20):
            queue = [dice.randrange(100, 999) for _ in range(count)] + [-1, -1]
            processors, walltimes, reserved = [7 * n for n in queue], [n / 4 for n in queue], [float(n) for n in queue]
            leave = sorted(dice.sample(range(count), dice.randint(1, count)))
            places = [*leave, 0, 0]
            before = list(queue)
            vector_closes(reserved, places, len(leave), count)
            kept = queue_closes(queue, processors, walltimes, places, len(leave), count)
            stay = [before[at] for at in range(count) if at not in leave]
            assert (queue[:kept], places[: len(leave)]) == (stay, [before[at] for at in leave])
            assert (processors[:kept], walltimes[:kept]) == ([7 * n for n in stay], [n / 4 for n in stay])
            assert reserved[:kept] == [float(n) for n in stay] and queue[count:] == [-1, -1]
