"""The page for a director of a centre, from what :mod:`ejbd.studies.value.worth` found on one log or several."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ejbd.sim.fairness import Shift
from ejbd.sim.grid import Cell, table_of
from ejbd.sim.report import markdown_table, write_csv
from ejbd.studies.value import figures
from ejbd.studies.value.worth import FEW_JOBS, NOTICED, OfUser, Value, break_even, told

POLL_S = 5.0  # of a daemon that is not told otherwise
_RESERVATIONS = 60  # looks an hour at what the site has reserved, at the most
_TOLD_USERS = 8
_HOUR_S = 3600.0


def write_page(folder: Path, values: Sequence[Value], command: str) -> list[Path]:
    """Write `value.md`, and its tables and plots into `value/` beside it; the files, the page first."""
    parts = folder / "value"
    parts.mkdir(parents=True, exist_ok=True)
    plots = [
        *figures.gains(parts, values),
        *figures.by_width_and_length(parts, values),
        *figures.by_user(parts, values),
        *figures.when_it_stops(parts, values),
    ]
    page = _Page(parts)
    page.say("# What elastic jobs are worth to a centre", keep=True)
    page.say(_answer(values))
    page.say(_terms(values))
    _gains_and_losses(page, values)
    _grid(page, values)
    _users(page, values)
    _when(page, values)
    _price(page, values)
    _commands(page, values)
    _fine_print(page, values, command)
    path = folder / "value.md"
    path.write_text("\n\n".join(page.text) + "\n", encoding="utf-8")
    return [path, *page.paths, *plots]


class _Page:
    """Paragraphs as they come into being, and the tables that are written as CSV beside."""

    def __init__(self, parts: Path) -> None:
        self.parts = parts
        self.text: list[str] = []
        self.paths: list[Path] = []

    def say(self, words: str, *, keep: bool = False) -> None:
        self.text.append(words if keep else textwrap.fill(words, 120, break_on_hyphens=False, break_long_words=False))

    def table(self, name: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        write_csv(self.parts / f"{name}.csv", head, rows)
        self.paths.append(self.parts / f"{name}.csv")
        self.text.append(markdown_table(head, rows).rstrip("\n"))

    def plot(self, name: str, what: str) -> None:
        self.text.append(f"![{what}](value/{name}.png)")


def _answer(values: Sequence[Value]) -> str:
    """A sentence each: what it gives to all jobs and to elastic ones, which jobs pay for it, and when it stops."""
    return f"{_gains(values)}. {_pays(values)}. {_stops(values)}."


def _gains(values: Sequence[Value]) -> str:
    if len(values) > 1:
        return (
            "With EJB the mean time from submission to end changes by "
            f"{_listed(values, lambda value: value.groups['all'].change_percent)} for all jobs. For the elastic ones "
            f"it changes by {_listed(values, lambda value: value.groups['elastic'].change_percent)}"
        )
    mean, elastic = values[0].groups["all"], values[0].groups["elastic"]
    return (
        f"With EJB a job takes {_hours(mean.after_s)} from its submission to its end on average instead "
        f"of {_hours(mean.before_s)} ({_signed(mean.change_percent)}). An elastic one takes "
        f"{_hours(elastic.after_s)} instead of {_hours(elastic.before_s)} ({_signed(elastic.change_percent)})"
    )


def _pays(values: Sequence[Value]) -> str:
    others = _listed(values, lambda value: value.groups["others"].change_percent)
    losing = [value for value in values if value.groups["others"].change_percent > NOTICED]
    first = f"The others pay for it (by {others})" if losing else f"The others change by {others}"
    worst = [(value, cell) for value in values if (cell := _worst_cell(value)) is not None]
    if not worst:
        return first
    where = ", ".join(
        f"{_signed(cell.change_percent)} for {cell.width} processors and runs of {cell.length}"
        + (f" on {value.name}" if len(values) > 1 else "")
        for value, cell in worst
    )
    return f"{first}. Some of them lose, most of all {where}"


def _worst_cell(value: Value) -> Cell | None:
    """The width and length that lose most, of those that have at least one job in a hundred."""
    jobs = sum(cell.jobs for cell in value.cells)
    losing = [cell for cell in value.cells if cell.jobs >= jobs / 100 and cell.change_percent > NOTICED]
    return max(losing, key=lambda cell: cell.change_percent, default=None)


def _stops(values: Sequence[Value]) -> str:
    highest = max(delta for delta, _ in values[0].points)
    limits = [(value, break_even(value, _lambda(value))) for value in values]
    reached = [(value, limit) for value, limit in limits if limit is not None]
    if not reached:
        return f"It pays even where over-subscription costs a factor (Delta) of {highest:g} at every degree"
    if len(values) == 1:
        return f"It stops paying where over-subscription costs a factor (Delta) of {reached[0][1]:.2g} at every degree"
    where = ", ".join(f"{limit:.2g} on {value.name}" for value, limit in reached)
    rest = "" if len(reached) == len(values) else f", and on the other logs it pays even at {highest:g}"
    return f"It stops paying where over-subscription costs a factor (Delta) of {where} at every degree{rest}"


def _listed(values: Sequence[Value], of: Callable[[Value], float]) -> str:
    """`-9, -26 and -13 % on CTC, SDSC and BLUE`; of one log its figure alone."""
    figures = [f"{of(value):+.0f}" for value in values]
    if len(values) == 1:
        return f"{figures[0]} %"
    names = [value.name for value in values]
    return f"{', '.join(figures[:-1])} and {figures[-1]} % on {', '.join(names[:-1])} and {names[-1]}"


def _terms(values: Sequence[Value]) -> str:
    setting = values[0].setting
    parameters = setting.parameters
    return (
        "An *elastic* job may start at once on what stands idle: on fewer processors than it has processes, several "
        "processes on each. It moves onto more as they come free, and keeps its place in the queue. "
        f"Here every job of {setting.choice.min_processors} processors and more may, and is if it cannot start at "
        "once. *Delta* is what sharing a processor costs beyond the sharing itself. 1 is nothing; with 1.5 two "
        f"processes that share a processor take three times as long. Taken here is {told(parameters.delta)}, the "
        "degree being the processes on a processor. *Lambda*, "
        f"{parameters.lambda_s:g} s here, is for how long a job stands still when it moves. *Turnaround* is the time "
        "from submission to end. Your own figures of Delta and lambda are in `ejb explain` once EJB runs; "
        "[operators.md](operators.md) says how they are measured. All of it is simulated from the log, without EJB "
        "(EASY backfilling) and with it."
    )


def _gains_and_losses(page: _Page, values: Sequence[Value]) -> None:
    page.say("## Which jobs gain", keep=True)
    rows = []
    for value in values:
        for group in value.groups.values():
            rows.append(
                [value.name, group.name, f"{group.jobs:,}", _hours(group.wait_before_s), _hours(group.wait_s),
                 _hours(group.before_s), _hours(group.after_s), _signed(group.change_percent)]
            )  # fmt: skip
    head = ["log", "jobs", "count", "wait without", "with EJB", "turnaround without", "with EJB", "change"]
    page.table("gains", head, rows)
    page.plot("gains", "Mean turnaround of all jobs, elastic ones and others, without and with EJB")
    page.say("## Which jobs lose", keep=True)
    page.say(
        "No decision delays a start that the batch system plans. But a job that comes later may miss processors that "
        "an elastic job took, and each start or end that moves, moves others. So some jobs are later than without EJB, "
        "and others earlier. `by` is the mean of the difference, and `95 %` is what 95 of 100 of them stay below."
    )
    rows = []
    for value in values:
        rows.append([value.name, "others: start", *_shifted(value.others_start)])
        rows.append([value.name, "elastic: end", *_shifted(value.elastic_end)])
    page.table("losses", ["log", "what", "later", "by", "95 %", "earlier", "by", "95 %"], rows)


def _shifted(found: Shift) -> list[str]:
    cells = []
    for percent, side in ((found.later_percent, found.later), (found.earlier_percent, found.earlier)):
        cells += [f"{percent:.1f} %", _hours(side.mean_s), _hours(side.p95_s)] if side.jobs else ["0 %", "", ""]
    return cells


def _grid(page: _Page, values: Sequence[Value]) -> None:
    page.say("## By width and length", keep=True)
    page.say(
        "The change of the mean turnaround by the processors of a job and its run time, and how many jobs that is. "
        "Wide jobs wait longest without EJB, and gain most; what few jobs say is chance."
    )
    for value in values:
        if len(values) > 1:
            page.say(f"{value.name}:")
        head, rows = table_of(list(value.cells))
        page.table(_file(values, value, "by-width-and-length"), head, rows)
    page.plot("by-width-and-length", "Change of the mean turnaround by width and length")


def _users(page: _Page, values: Sequence[Value]) -> None:
    page.say("## By user", keep=True)
    rows = []
    for value in values:
        changes = np.array([user.change_percent for user in value.users])
        if not changes.size:
            rows.append([value.name, "0", "", "", "", ""])
            continue
        gain, lose = int((changes < -NOTICED).sum()), int((changes > NOTICED).sum())
        rows.append(
            [value.name, f"{changes.size}", f"{gain} ({100 * gain / changes.size:.0f} %)",
             f"{lose} ({100 * lose / changes.size:.0f} %)", _signed(float(np.median(changes))),
             _signed(float(changes.max()))]
        )  # fmt: skip
    page.say(
        f"Users with {FEW_JOBS} jobs and more. A user gains or loses where the mean turnaround of all their jobs "
        f"changes by more than {NOTICED:g} %."
    )
    page.table("by-user", ["log", "users", "gain", "lose", "median change", "worst"], rows)
    page.plot("by-user", "Change of the mean turnaround of each user, those that gain most first")
    rows = [
        [value.name, user.user, f"{user.jobs:,}", f"{user.elastic:,}", _hours(user.before_s), _hours(user.after_s),
         _signed(user.change_percent)]
        for value in values
        for user in _named(value.users)
    ]  # fmt: skip
    if rows:
        page.say(f"Those of them with the most jobs, and of these those that lose most ({_TOLD_USERS} in all):")
        page.table("users", ["log", "user", "jobs", "elastic", "without", "with EJB", "change"], rows)


def _named(users: Sequence[OfUser]) -> list[OfUser]:
    most = list(users[: _TOLD_USERS // 2])
    rest = sorted(users[_TOLD_USERS // 2 : 50], key=lambda one: -one.change_percent)
    return most + rest[: _TOLD_USERS - len(most)]


def _when(page: _Page, values: Sequence[Value]) -> None:
    page.say("## When it would stop paying", keep=True)
    lambdas = sorted({at_s for _, at_s in values[0].points})
    deltas = sorted({delta for delta, _ in values[0].points})
    page.say(
        "The change of the mean turnaround for other Deltas (the same for every degree) and lambdas. Before the bar "
        "it is that of all jobs, behind it that of jobs that are not elastic. A single simulation of so many elastic "
        "jobs is chaotic: a point more or less means nothing."
    )
    rows = [
        [value.name, f"{delta:g}", *(f"{value.points[delta, at_s][0]:+.0f} / {value.points[delta, at_s][1]:+.0f} %"
                                     for at_s in lambdas)]
        for value in values
        for delta in deltas
    ]  # fmt: skip
    page.table("when-it-stops", ["log", "Delta", *(f"lambda {at_s:g} s" for at_s in lambdas)], rows)
    page.plot("when-it-stops", "Change of the mean turnaround of all jobs over Delta, for several lambdas")
    rows = []
    for value in values:
        limits = [break_even(value, at_s) for at_s in lambdas]
        rows.append([value.name, *(_limit(limit, max(deltas)) for limit in limits)])
    page.say("It stops paying, for all jobs together, from this Delta on:")
    page.table("break-even", ["log", *(f"lambda {at_s:g} s" for at_s in lambdas)], rows)


def _limit(limit: float | None, highest: float) -> str:
    return f"not up to {highest:g}" if limit is None else f"{limit:.2g}"


def _price(page: _Page, values: Sequence[Value]) -> None:
    page.say("## What it costs in processors", keep=True)
    page.say(
        "Moves and over-subscription use processors that make no progress. They stood idle before, or were another "
        "job's a little earlier: utilisation goes up, and not all of that is work. The last column is what was spent "
        "for each second by which some job ended earlier, all jobs taken together."
    )
    rows = []
    for value in values:
        price = value.price
        more = price.after - price.before
        per = f"{more / price.gained_s:.1f} s" if price.gained_s > 0 else "nothing was gained"
        rows.append(
            [value.name, f"{100 * price.utilization_before:.1f} %", f"{100 * price.utilization:.1f} %",
             f"{price.before / _HOUR_S:,.0f} h", f"{more / _HOUR_S:+,.0f} h", _signed(price.more_percent, 1), per]
        )  # fmt: skip
    head = ["log", "utilisation without", "with EJB", "processor-hours without", "more", "change", "a second gained"]
    page.table("price", head, rows)


def _commands(page: _Page, values: Sequence[Value]) -> None:
    page.say("## What it asks of the batch system", keep=True)
    looks = round(2 * _HOUR_S / POLL_S)
    page.say(
        f"EJB looks at the cluster by two commands every {POLL_S:g} s (`poll_s`): {looks:,} an hour, whatever the "
        f"number of jobs. At what is reserved it looks {_RESERVATIONS} times an hour at the most. A job is submitted "
        "once, as without EJB. On top come its subjobs: one submission each, and they end by themselves. The place "
        "holder is cancelled once where the job did not need it. At the most that is:"
    )
    rows = []
    for value in values:
        asked = value.asked
        both = asked.submissions + asked.cancellations
        rows.append(
            [value.name, f"{asked.elastic:,}", f"{asked.submissions:,}", f"{asked.cancellations:,}",
             f"{both / max(1, asked.elastic):.1f}", f"{asked.most}", f"{both / max(1e-9, asked.hours):.1f}",
             f"{len(value.workload) / max(1e-9, asked.hours):.1f}"]
        )  # fmt: skip
    head = ["log", "elastic jobs", "submissions", "cancellations", "for each of them", "submissions for one, most",
            "an hour", "jobs an hour without EJB"]  # fmt: skip
    page.table("commands", head, rows)


def _fine_print(page: _Page, values: Sequence[Value], command: str) -> None:
    page.say("## How this was made", keep=True)
    trimmed = values[0].setting.trimmed
    page.say(
        ("Jobs of the first 1 % and those that end after the last submission do not count. " if trimmed else "")
        + "Everything else is as a queue of EJB has it by default. [simulator.md](simulator.md) says what a log leaves "
        "open, and [sim-to-real.md](sim-to-real.md) how near the simulation is to a real Slurm. It does not know of "
        "memory, of nodes, or of programs that cannot be moved. The tables are beside this page as CSV. For a log of "
        "your own, an SWF file or what `sacct` prints:"
    )
    page.say(
        "    sacct -a -P -S 2024-01-01 -o JobID,User,Submit,Start,End,NNodes,NCPUS,TimelimitRaw,State > jobs.txt\n"
        "    ejb sim value jobs.txt --procs 4096 --out DIR",
        keep=True,
    )
    page.say("This page:")
    page.say(textwrap.indent(command, "    "), keep=True)


def _file(values: Sequence[Value], value: Value, name: str) -> str:
    return f"{name}-{values.index(value) + 1}" if len(values) > 1 else name


def _lambda(value: Value) -> float:
    """The simulated lambda that is nearest to the one that is taken."""
    return min({at_s for _, at_s in value.points}, key=lambda at_s: abs(at_s - value.setting.parameters.lambda_s))


def _hours(seconds: float) -> str:
    """Seconds in the unit in which they are read at a glance."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _signed(percent: float, places: int = 0) -> str:
    return f"{percent:+.{places}f} %"
