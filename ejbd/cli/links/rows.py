"""Jobs as squeue and sacct list them: one row a job, and of an array one for each element that is not just waiting."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ejbd.cli.links.options import Line
from ejbd.cli.links.states import word_of, word_of_state
from ejbd.client.client import Client
from ejbd.client.messages import job_path
from ejbd.errors import Code, EjbError
from ejbd.wire.kinds import JobKind
from ejbd.wire.numbers import is_number, may_be_slurms
from ejbd.wire.payloads import JobDetail, JobView, StepView
from ejbd.wire.states import JobState

TO_COME = "to come"  # elements that are no jobs yet
_FILTERS = ("user", "queue")
MOST_AT_ONCE = 100  # numbers a request
_NAMED = re.compile(r"(?P<number>[0-9]+)(?:_(?:(?P<one>[0-9]+)|\[(?P<some>[0-9,:%-]+)\]))?(?:\+[0-9]+)?(?:\..*)?")

_ID = re.compile(r"[0-9a-f]{8}(?:_[0-9]+)?")


_TAG = re.compile(r"(?:^| )ejb-(?P<job>[0-9a-f]{8}(?:_[0-9]+)?)\.[0-9]+$")


def without_tag(comment: str) -> str:
    """A batch job's comment as its user wrote it: EJB's own word is the last one."""
    return _TAG.sub("", comment)


def without_tags(shown: str) -> str:
    """What scontrol shows of jobs, without EJB's words in their comments."""
    alone = re.sub(r"\s+Comment=ejb-[0-9a-f]{8}(?:_[0-9]+)?\.[0-9]+(?=\s)", "", shown)
    return re.sub(r"(?m)(\sComment=.*?) ejb-[0-9a-f]{8}(?:_[0-9]+)?\.[0-9]+(?=\s)", r"\1", alone)


def job_of_tag(comment: str) -> str | None:
    """The id of the job of EJB's that a batch job is of, by its comment; None: of none."""
    match = _TAG.search(comment)
    return match["job"] if match else None


class Details:
    """What lists do not hold of jobs: asked of the daemon where a field needs it, once a job."""

    def __init__(self, daemon: Client) -> None:
        self.daemon = daemon
        self._known: dict[str, JobDetail] = {}

    def of(self, id: str) -> JobDetail:
        """Raises EjbError (NOT_FOUND) for a job that is forgotten."""
        if id not in self._known:
            self._known[id] = self.daemon.get(job_path(id))
        return self._known[id]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a listing.

    `index`: of an array which element, or which elements (`[4-9]`). `slurm`: what Slurm's own command prints of one of
    the job's batch jobs, by the fields' names in small letters; `base` is that job's number. `theirs`: the job is
    passed through, and Slurm's word counts. `step_id`: the row is about a step, `step`: what EJB knows of a launch.
    """

    job: JobView
    state: str  # as Slurm writes it, in full
    index: str | None = None
    slurm: Mapping[str, str] = field(default_factory=dict)
    theirs: bool = False
    step_id: str = ""
    step: StepView | None = None
    details: Details | None = field(default=None, compare=False)

    @property
    def number(self) -> str:
        """The job's own number; its id, by which its user knows it, where it has none yet."""
        return self.job["number"] or self.job["id"]

    @property
    def array(self) -> str:
        """The number of the whole."""
        return self.job["array_number"] or self.number

    @property
    def id(self) -> str:
        whole = self.number if self.index is None else f"{self.array}_{self.index}"
        return f"{whole}.{self.step_id}" if self.step_id else whole

    @property
    def raw_id(self) -> str:
        return f"{self.number}.{self.step_id}" if self.step_id else self.number

    @property
    def same_number(self) -> bool:
        """Whether the job goes by the number by which Slurm has it."""
        return self.slurm.get("base") == self.array

    @property
    def name(self) -> str:
        """By Slurm's word, where a user may change it."""
        told = self.slurm.get("name", self.slurm.get("jobname"))
        return self.job["name"] if told is None or not self.same_number else told

    @property
    def detail(self) -> Mapping[str, Any]:
        """All that the daemon knows of the job; of one that it has forgotten what the list held."""
        if self.details is None:
            return self.job
        try:
            return self.details.of(self.job["id"])
        except EjbError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return self.job

    @property
    def start_s(self) -> float | None:
        return self.job["start_s"] if self.step is None else self.step["start_s"]

    @property
    def end_s(self) -> float | None:
        return self.job["end_s"] if self.step is None else self.step["end_s"]

    def asked(self, *names: str) -> str:
        """What the job asks of Slurm, by the row of its J0, which is as wide as the job; "" where none is there."""
        if self.slurm.get("base") not in (self.job["number"], *self.job["batch_ids"][:1]):
            return ""
        return next((self.slurm[name] for name in names if name in self.slurm), "")

    def number_of(self, id: str) -> str:
        """The number by which the job of this id of EJB's goes."""
        if self.details is None:
            return id
        try:
            return self.details.of(id)["number"] or id
        except EjbError:
            return id


@dataclass(frozen=True, slots=True)
class Named:
    """Jobs as a line names them: those that are EJB's, and the words for others.

    `elements`: the indices that are named of a job; None: all of it.
    """

    rows: list[Row]
    others: list[str]
    elements: dict[str, set[int] | None] = field(default_factory=dict)


def named(daemon: Client, words: Sequence[str], *, apart: bool = True) -> Named:
    """What these words mean: numbers, `N_7`, `N_[1-3]`; an array with its elements (`apart`).

    A row for several elements that wait together stands for those alone that a word names. Raises EjbError (INVALID)
    for a number that no job can have. The site's own command would cut it to 32 bits, and take another job for it.
    """
    matches = {word: _NAMED.fullmatch(word) for word in words}
    for word, match in matches.items():
        if match is not None and not may_be_slurms(match["number"]):
            raise EjbError(Code.INVALID, f"Invalid job id specified: {word}")
    numbers = dict.fromkeys(m["number"] for m in matches.values() if m and is_number(m["number"]))
    jobs = by_number(daemon, list(numbers))
    rows: dict[tuple[str, str | None], Row] = {}
    others: list[str] = []
    elements: dict[str, set[int] | None] = {}
    for word, match in matches.items():
        job = jobs.get(match["number"]) if match else None
        if job is None:
            job = _of_id(daemon, word)
        if job is None:
            others.append(word)
            continue
        wanted = indices_of(match["one"] or match["some"]) if match else None
        before = elements.get(job["id"], set())
        elements[job["id"]] = None if wanted is None or before is None else before | wanted
        for row in rows_of(daemon, job) if apart or wanted is not None else [Row(job, word_of(job))]:
            if (meant := row if wanted is None else _narrowed(row, wanted)) is not None:
                rows.setdefault((row.job["id"], meant.index), meant)
    return Named(list(rows.values()), others, elements)


def _narrowed(row: Row, wanted: set[int]) -> Row | None:
    """The row for those of its elements that are wanted; None where none is."""
    some = sorted(wanted & (indices_of((row.index or "").strip("[]")) or set()))
    if not some:
        return None
    index = ",".join(map(str, some))
    return replace(row, index=index if len(some) == 1 else f"[{index}]")


def _of_id(daemon: Client, word: str) -> JobView | None:
    """The job of this id of EJB's, which `ejb submit` prints."""
    if _ID.fullmatch(word) is None or is_number(word):
        return None
    try:
        job: JobView = daemon.get(job_path(word))
    except EjbError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None
    return job


def by_number(daemon: Client, numbers: Sequence[str]) -> dict[str, JobView]:
    """The jobs of EJB that have these numbers; a job that goes by another one has had this in the batch system."""
    found: dict[str, JobView] = {}
    for at in range(0, len(numbers), MOST_AT_ONCE):
        some = numbers[at : at + MOST_AT_ONCE]
        page: list[JobView] = daemon.get("/v1/jobs", number=list(some))["jobs"]
        found |= {number: job for job in page if (number := job["number"]) is not None and number in some}
        missing = [number for number in some if number not in found]
        if len(some) == 1 and page:
            found[some[0]] = page[0]
        elif len(some) > 1 and len(page) > len(some) - len(missing):
            for number in missing:
                found |= by_number(daemon, [number])
    return found


def rows_of(daemon: Client, job: JobView) -> Iterator[Row]:
    """The rows of a job: of an array one for each element, and one for all that wait together."""
    if job["array"] is not None:
        yield Row(job, word_of(job), str(job["index"]))
        return
    if not is_array(job):
        yield Row(job, word_of(job))
        return
    detail: JobDetail = daemon.get(job_path(job["id"]))
    states = detail["element_indices"] or {}
    if job["kind"] == JobKind.ARRAY:
        made: set[int | None] = set()
        for element in daemon.jobs(array=job["id"]):
            made.add(element["index"])
            yield Row(element, word_of(element), str(element["index"]))
        for index in sorted((indices_of(states.get(JobState.CANCELLED, "")) or set()) - made):
            yield Row(job, "CANCELLED", str(index))  # before it was a job
        if ahead := states.get(TO_COME):
            most = detail.get("most_at_once")
            yield Row(job, "PENDING", f"[{ahead}%{most}]" if most else f"[{ahead}]")
        return
    for state, indices in states.items():
        if state == JobState.WAITING:
            yield Row(job, "PENDING", f"[{indices}]" if not indices.isdigit() else indices)
            continue
        for index in sorted(indices_of(indices) or ()):
            yield Row(job, word_of_state(JobState(state)), str(index))


def is_array(job: JobView) -> bool:
    """Whether a job stands for elements: of EJB's own array, or one of the batch system's."""
    return job["kind"] == JobKind.ARRAY or job["elements"] is not None


def apart(row: Row) -> list[Row]:
    """A row for each of the elements that wait together."""
    if row.index is None or not row.index.startswith("["):
        return [row]
    return [replace(row, index=str(index)) for index in sorted(indices_of(row.index.strip("[]")) or ())]


def indices_of(text: str | None) -> set[int] | None:
    """`1-3,7,9-20:2%4`; None for no text."""
    if text is None:
        return None
    found: set[int] = set()
    for part in filter(None, text.partition("%")[0].split(",")):
        ends, _, step = part.partition(":")
        first, dash, last = ends.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1, int(step or 1)))
    return found


def listed(daemon: Client, most_ended: int | None, line: Line, *, all_users: bool = False) -> Iterator[JobView]:
    """Jobs that live and, as many as that, those that have ended, of the users and queues of a line.

    Each of these may be a list. Without a user they are one's own, or those of `all_users`. What the batch system never
    took is none of its jobs.
    """
    wanted = {key: (line.value(key) or "").split(",") for key in _FILTERS if line.has(key)}
    if "user" in wanted:
        wanted["user"] = [_user(word) for word in wanted["user"]]
    query: dict[str, Any] = {key: values[0] for key, values in wanted.items() if len(values) == 1}
    if "user" not in wanted and not all_users:
        query["mine"] = "true"
    found = daemon.jobs(alive="true", **query)
    both = found if most_ended is None else chain(found, daemon.jobs(most_ended, alive="false", **query))
    taken = (job for job in both if job["number"] is not None or job["state"] != JobState.FAILED)
    return (job for job in taken if all(job[key] in values for key, values in wanted.items()))  # type: ignore[literal-required]


def _user(word: str) -> str:
    """The name of a user that is given by name or by number."""
    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdigit() else word
    except KeyError:
        return word
