"""Short runs: what hardly lasts longer than an elastic start and end take is worth no worker.

An elastic job that its J0 begins pays its workers' start, and giving back, for nothing. Where runs are long that is
little. So where the latest runs of an application were *short*, beside what starts and ends were measured to cost here,
J0 runs its next job without workers, or it is passed through if it could start at once. As long as it waits it is
elastic: an earlier start is worth more.

Kernels for both worlds: the daemon counts the runs of an application of a user, the simulator those of a user, since a
log names no programs. Those at the job's own width count, and where they are too few those at every width.
"""

from __future__ import annotations

from ejbd.core.kernel import kernel

FEWEST_RUNS = 5  # that have to have ended: a job that is wrongly taken for a short one runs as sbatch would have it
NEWEST_RUNS = 50  # that count
SHORT_PART = 0.9  # of these have to be short
PLAIN_BELOW = 20.0  # times what starts and ends cost: J0 needs no workers for such a run, as queues have it


@kernel
def is_short(run_s: float, cost_s: float, times: float) -> bool:
    """Whether a run was short where a start and an end cost so much together; `times` 0: none is."""
    return run_s < times * cost_s


@kernel
def runs_are_short(runs: int, short: int) -> bool:
    """Whether the next run is taken for a short one, where so many of the newest runs were."""
    return runs >= FEWEST_RUNS and short >= SHORT_PART * runs


@kernel
def taken_for_short(runs: int, short: int, all_runs: int, all_short: int) -> bool:
    """The same by the runs at the job's own width; where these are too few by those at every width."""
    if runs >= FEWEST_RUNS:
        return runs_are_short(runs, short)
    return runs_are_short(all_runs, all_short)


@kernel
def learned(bits: int, runs: int, short: int, one: bool) -> tuple[int, int, int]:
    """One more run is over: a bit for each of the newest, how many they are, and how many of these were short."""
    oldest = 0
    if runs == NEWEST_RUNS:
        oldest = (bits >> (NEWEST_RUNS - 1)) & 1
        bits -= oldest << (NEWEST_RUNS - 1)
    more = 1 if one else 0
    return (bits << 1) + more, min(NEWEST_RUNS, runs + 1), short + more - oldest
