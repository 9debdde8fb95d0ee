"""What Slurm's own squeue and sacct say of the batch jobs of EJB's jobs, put to EJB's rows.

A batch job's comment tells of which job it is. Accounts do not keep comments everywhere, and users change them: there
the user and the time of the submission do. So a number that Slurm has given anew, or another batch system gave, brings
in no other job's row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ejbd.cli.links import real
from ejbd.cli.links.fields import BY_LETTER
from ejbd.cli.links.rows import Details, Row, indices_of, is_array, job_of_tag
from ejbd.cli.links.states import LIVING, word_of
from ejbd.wire.kinds import JobKind
from ejbd.wire.payloads import JobView
from ejbd.wire.states import JobState

MOST_AT_ONCE = 2000  # numbers a command
_BETWEEN, _BEHIND = "\x1f", "\x1e\n"  # columns, rows: free text has line breaks
_LETTERS = "iAFKTkCDrSeNapZuVjw"  # asked always: which row it is, how it is with it, and what is asked for
_ACCOUNTS = (
    *("JobID", "JobIDRaw", "JobName", "User", "Submit", "State", "ReqCPUS", "AllocCPUS", "NNodes", "ReqNodes"),
    *("Reason", "Eligible", "Cluster", "Account", "WorkDir", "Comment"),
)
_ID = re.compile(r"(?P<base>[0-9]+)(?:_(?P<index>[0-9]+|\[[^]]*\]))?(?:\+[0-9]+)?(?:\.(?P<step>.+))?")
_NOBODYS = "ejb: no job has this name"
_SAME_SUBMISSION_S = 600.0  # between EJB's and Slurm's, of a job that is passed through at once
_WIDE = frozenset({"numnodes", "numcpus", "numtasks", "tres-alloc", "maxcpus", "maxnodes", "priority", "prioritylong"})
"""What only J0 asks for as the job does, not the subjobs."""


@dataclass(slots=True)
class Answer:
    """Slurm's rows by the number of the whole, its headings by what was asked for, and its complaints.

    A row has the number of the whole (`base`), which element and which step it is about ("": none).
    """

    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    headings: dict[str, str] = field(default_factory=dict)
    complaints: str = ""
    cluster: str = ""  # what squeue prints of a cluster that is named


def _numbers(rows: Iterable[Row]) -> list[str]:
    """Of the batch jobs of these rows. Those of PBS have a server's name behind them."""
    known = (id for row in rows for id in row.job["batch_ids"])
    return [id for id in dict.fromkeys(known) if id.isdigit()]


def ask_squeue(rows: Sequence[Row], asked: Sequence[str], words: Sequence[str], *, long: bool) -> Answer:
    """What squeue has in these fields, letters or (`long`) names; `words`: further options of its."""
    names = [*asked, *(BY_LETTER[letter].name if long else letter for letter in _LETTERS)]
    one = (f"{name}:{_BETWEEN}" if long else f"%{name}{_BETWEEN}" for name in names)
    format = (",".join(one) if long else "".join(one)) + _BEHIND[0]
    keys = [name.lower() if long else _key_of(name) for name in names]
    found, numbers = Answer(), _numbers(rows)
    for at in range(0, len(numbers), MOST_AT_ONCE):
        some = f"--jobs={','.join(numbers[at : at + MOST_AT_ONCE])}"
        done = real.query("squeue", [*words, "--all", "--states=all", some, f"--{'Ff'[not long]}ormat={format}"])
        if done is None or done.returncode:
            found.complaints = "" if done is None or "Invalid job id" in done.stderr else done.stderr
            continue
        heading, *lines = done.stdout.split(_BEHIND)
        cluster, line_break, rest = heading.partition("\n")
        if line_break and cluster.startswith("CLUSTER: "):
            found.cluster, heading = cluster, rest
        if heading.count(_BETWEEN) != len(names):
            continue
        found.headings = dict(zip(asked, heading.split(_BETWEEN), strict=False))
        found.complaints = done.stderr
        for line in lines:
            if line.count(_BETWEEN) >= len(names):
                _keep(found, dict(zip(keys, line.split(_BETWEEN), strict=False)), "jobarrayid")
    return found


def ask_squeue_headings(asked: Sequence[str], *, long: bool) -> Answer:
    """What squeue has above these columns, without any row; letters or (`long`) names."""
    one = (f"{name}:{_BETWEEN}" if long else f"%{name}{_BETWEEN}" for name in asked)
    format = (",".join(one) if long else "".join(one)) + _BEHIND[0]
    done = real.query("squeue", ["--me", f"--name={_NOBODYS}", f"--{'Ff'[not long]}ormat={format}"])
    cells = done.stdout.partition(_BEHIND)[0].split(_BETWEEN) if done is not None and not done.returncode else []
    if done is None or len(cells) != len(asked) + 1:
        return Answer()
    return Answer(headings=dict(zip(asked, cells, strict=False)), complaints=done.stderr)


def ask_sacct_widths(asked: Sequence[str]) -> dict[str, int]:
    """How wide sacct's columns of these fields are, where it tells: to the left where that is negative."""
    done = real.query("sacct", ["--jobs=0", f"--format={','.join(asked)}"])
    if done is None or done.returncode or done.stdout.count("\n") < 2:
        return {}
    heading, rule = done.stdout.split("\n")[:2]
    widths, at = {}, 0
    for name, line in zip(asked, rule.split(), strict=False):
        cell = heading[at : at + len(line)].ljust(len(line))
        widths[name] = -len(line) if cell[:1] != " " and cell.endswith(" ") else len(line)
        at += len(line) + 1
    return widths


def _keep(found: Answer, cells: dict[str, str], id: str) -> None:
    match = _ID.fullmatch(cells[id])
    if match is not None:
        own = {"base": match["base"], "index": match["index"] or "", "step": match["step"] or ""}
        found.rows.setdefault(match["base"], []).append({**cells, **own})


def _key_of(letter: str) -> str:
    return BY_LETTER[letter].name.lower() if letter in BY_LETTER else f"%{letter}"


def ask_sacct(rows: Sequence[Row], asked: Sequence[str], words: Sequence[str]) -> Answer | None:
    """What sacct has in these fields, of jobs and their steps; None where the site keeps no accounts, or has no sacct.

    Complaints without any row: what it refuses of this line.
    """
    found, numbers = Answer(), _numbers(rows)
    names = [*asked, *_ACCOUNTS]
    for at in range(0, len(numbers), MOST_AT_ONCE):
        some = f"--jobs={','.join(numbers[at : at + MOST_AT_ONCE])}"
        line = [*words, "--allusers", "--parsable2", f"--delimiter={_BETWEEN}", some, f"--format={','.join(names)}"]
        done = real.query("sacct", line)
        if done is None:
            return None
        if done.returncode:
            if "field requested" not in done.stderr:
                return None
            found.complaints = done.stderr
            return found
        heading, *lines = done.stdout.split("\n")
        keys = [name.lower() for name in heading.split(_BETWEEN)]
        found.headings = dict(zip(asked, heading.split(_BETWEEN), strict=False))
        text = ""
        for line_ in lines:  # what was typed at a submission may have line breaks
            text += line_
            if text.count(_BETWEEN) >= len(keys) - 1:
                _keep(found, dict(zip(keys, text.split(_BETWEEN), strict=False)), "jobid")
                text = ""
            elif text:
                text += "\n"
    return found


# -- put to EJB's rows ------------------------------------------------------------------------------------------------


def with_slurms(
    rows: Iterable[Row], answer: Answer, details: Details, elements: Mapping[str, set[int] | None]
) -> Iterator[Row]:
    """EJB's rows with Slurm's; of an array of the batch system's own Slurm's rows instead, as far as it has them.

    `elements`: which are named of a job, where not all are.
    """
    done: set[str] = set()
    grouped: dict[str, list[Row]] = {}
    rows = [replace(row, details=details) for row in rows]
    for row in rows:
        grouped.setdefault(row.job["id"], []).append(row)
    for row in rows:
        job = row.job
        if is_array(job) and job["kind"] != JobKind.ARRAY:
            if job["id"] not in done:
                done.add(job["id"])
                yield from _of_array(grouped[job["id"]], _slurms(job, answer), elements.get(job["id"]))
        else:
            yield _of_one(row, _slurms(job, answer))


def _slurms(job: JobView, answer: Answer) -> list[dict[str, str]]:
    """Slurm's rows of this job's batch jobs: first that of the number by which it goes."""
    ids = sorted(job["batch_ids"], key=lambda id: id != job["number"])
    return [cells for id in ids for cells in answer.rows.get(id, ()) if not cells["step"] and is_of(job, cells)]


def is_of(job: JobView, cells: Mapping[str, str]) -> bool:
    """Whether a row of Slurm's is of this job of EJB's."""
    told = job_of_tag(cells.get("comment", ""))
    if told is not None:
        return told == job["id"]
    if cells.get("user", cells.get("username")) != job["user"]:
        return False
    try:
        at_s = datetime.fromisoformat(cells.get("submit", cells.get("submittime", ""))).timestamp()
    except ValueError:
        return False
    last_s = job["submit_s"] + _SAME_SUBMISSION_S if job["end_s"] is None else job["end_s"]
    return job["submit_s"] - 1 <= at_s <= max(last_s, job["submit_s"] + 1) or job["end_s"] is None


def _of_one(row: Row, found: Sequence[dict[str, str]]) -> Row:
    job = row.job
    if not found or (row.index is not None and job["array"] is None):
        return row
    if not job["elastic"]:
        return _taken(row, found[-1])
    cells = found[0]
    if cells["base"] not in (job["number"], job["batch_ids"][0]):
        cells = {name: text for name, text in cells.items() if name not in _WIDE}
    return replace(row, slurm=cells)


def _taken(row: Row, cells: Mapping[str, str]) -> Row:
    """The row of a job that is passed through: Slurm's; but an end or a cancel that EJB knows before Slurm is one."""
    state = cells["state"].partition(" ")[0]
    if state in LIVING and (row.state not in LIVING or row.job["final_state"] == JobState.CANCELLED):
        return replace(row, slurm=cells)
    return replace(row, slurm=cells, theirs=True, state=state)


def _narrowed(cells: Mapping[str, str], index: int) -> dict[str, str]:
    """The row of elements that wait together, of one of them."""
    return {**cells, "jobarrayid": f"{cells['base']}_{index}", "arraytaskid": str(index)}


def _of_array(rows: Sequence[Row], found: Sequence[dict[str, str]], wanted: set[int] | None) -> Iterator[Row]:
    whole = replace(rows[0], index=None, state=word_of(rows[0].job))
    told: set[int] = set()
    waits = False
    for cells in found:
        index = cells["index"]
        here = {int(index)} if index.isdigit() else indices_of(index.strip("[]").partition(",...")[0])
        told |= here or set()
        waits = waits or index.startswith("[")
        if wanted is None or not here:
            yield _taken(replace(whole, index=index or None), cells)
        elif index.isdigit() and here <= wanted:
            yield _taken(replace(whole, index=index), cells)
        elif not index.isdigit():
            for one in sorted(here & wanted):
                yield _taken(replace(whole, index=str(one)), _narrowed(cells, one))
    for row in rows:
        index = row.index or ""
        if not (waits and index.startswith("[")) and not (indices_of(index.strip("[]")) or set()) <= told:
            yield row
