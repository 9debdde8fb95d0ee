"""The one protocol that every batch system's adapter fills, and what the contract suite holds them all to."""

from __future__ import annotations

import math
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from ejbd.batch.process import CommandCount
from ejbd.core.sitelimits import SiteRules
from ejbd.core.view import BatchJobView, BatchState, ClusterView
from ejbd.errors import BatchError

_TAG = re.compile(r"ejb-[0-9a-f]{1,32}(?:_[0-9]{1,7})?\.[0-9]{1,9}", re.ASCII)


def with_tag(comment: str, tag: str) -> str:
    """The comment that a batch job bears: the user's own, and behind it the tag."""
    return f"{comment} {tag}".strip()


def tag_in(comment: str) -> str:
    """The tag that :func:`with_tag` wrote, or "": the last word, where it looks like one of ours."""
    word = comment.strip().rpartition(" ")[2]
    return word if _TAG.fullmatch(word) else ""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a batch job is known by beside its number: a controller that lost its state gives numbers again.

    `tag`: the one that it was submitted with ("": none). `submit_s`: when it was submitted, by the batch system's own
    clock, as told while its tag was seen (epoch seconds; None: not told). That counts where it bears no tag any more,
    since users may change comments.
    """

    tag: str
    submit_s: float | None = None

    def is_on(self, mark: str, submit_s: float | None) -> bool:
        """Whether a batch job that is shown with this mark, and was submitted then, is the one that is meant."""
        if self.tag and mark == self.tag:
            return True
        return not _TAG.fullmatch(mark) and submit_s is not None and submit_s == self.submit_s


NO_MARKS: Mapping[str, Mark] = {}


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """A batch job to be submitted.

    `tag` stands in its comment, by which it is found again after a crash, and is its name where the batch system has no
    comments. `name` is what its user calls it, and what the batch system lists where it can find the tag elsewhere ("":
    the tag). `processors` is always given, in tasks of `threads` processors of one node each. `walltime_s` None is the
    batch system's own default, and `nodes` and `tasks_per_node` are there only where a layout was asked for. `options`
    are further options of the batch system's own submit command, as argv words (account, QoS, ...). `script` is fed on
    standard input, `args` are its arguments. `output` and `error` are patterns of the batch system: a per cent sign in
    a name is written twice. `umask` and soft `limits` (by :data:`LIMITS`; -1 is unlimited) are those of the submitter
    (None, missing: ours).

    `native`: letters of the batch system's own submit command, each with its value behind it, as lines of the script
    have them (#PBS). Of another batch system they mean nothing.

    `exclude`: nodes on which it must not start; only where the traits of the batch system say that it can
    (`ejbd.config.BatchTraits.excludes_nodes`).

    `stands_by_for`: the batch job that has to fail before this one may begin. It waits in the queue, where it has its
    place from now on. It does not begin before :meth:`BatchSystem.update` lets it, either.

    `begin_in_s`: it may not begin before so many seconds have passed (0: at once), and waits in the queue meanwhile.

    `folds`: while it runs it may be left with half of its processors, and its workers will keep to them. Of a batch
    system that takes no processors of running jobs it means nothing.

    `moves`: it saves its work where its end is moved forward, and goes on elsewhere.

    `asked`, of a passed-through job: what its user would have typed. An adapter gives its own submit command just that
    where it can, and leaves the rest of this to it.
    """

    tag: str
    comment: str
    queue: str
    processors: int
    walltime_s: float | None
    script: str
    workdir: Path
    output: Path
    nodes: int | None = None
    tasks_per_node: int | None = None
    error: Path | None = None
    options: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False
    stands_by_for: str = ""
    begin_in_s: float = 0.0
    args: Sequence[str] = ()
    umask: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    asked: AsAsked | None = None
    exclude: Sequence[str] = ()
    threads: int = 1
    native: Sequence[str] = ()
    name: str = ""
    folds: bool = False
    moves: bool = False

    @property
    def processors_per_node(self) -> int | None:
        """Of the layout that was asked for, if one was."""
        return None if self.tasks_per_node is None else self.tasks_per_node * self.threads


@dataclass(frozen=True, slots=True)
class Identity:
    """The user that the batch system is asked to act for: the job is or becomes theirs.

    Every call that acts names one. An adapter that can act for its own process's user alone refuses every other
    (:func:`refuse_others`); one with a privileged helper would hand it on.
    """

    user: str

    @classmethod
    def own(cls) -> Identity:
        """That of this process."""
        return cls(_name_of(os.geteuid()))


@cache
def _name_of(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


def refuse_others(identity: Identity) -> None:
    """Raise BatchError, which will not pass, unless this process may act for `identity`: nothing runs as another."""
    own = Identity.own()
    if identity != own:
        raise BatchError(
            f"this daemon acts as {own.user!r} at the batch system, and not for {identity.user!r}",
            transient=False,
            hint="start an ejbd as that user",
        )


def refuse_no_walltime(walltime_s: float) -> None:
    """Raise BatchError, which will not pass, for what no job could be shortened to."""
    if not 0 < walltime_s < math.inf:
        raise BatchError(f"{walltime_s:g} s is no walltime that a job could be shortened to", transient=False)


LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as")
"""The resource limits that go along with a job, by their names in `resource.RLIMIT_...`."""


@dataclass(frozen=True, slots=True)
class AsAsked:
    """A submission as a user would have typed it: `options`, in their order, and `file` (None: standard input).

    The job will be called `job_name`, which is `name`, too, where the command could not know it. `directory`: where it
    is typed, in this `environment`, of which the job gets what an option says: `export`, its value (None: all of it).
    `told`: the variables by which the command itself passes other options to a job. `element`: those that tell an
    element of an array which it is, where the batch system knows of no array. `tasks_asked`: it says how many tasks.
    """

    options: Sequence[str]
    file: Path | None
    directory: Path
    name: str | None
    environment: Mapping[str, str]
    export: str | None
    job_name: str
    told: Mapping[str, str] = field(default_factory=dict)
    element: Mapping[str, str] = field(default_factory=dict)
    tasks_asked: bool = False


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """How a batch job ended, and what said so (`listing`, `accounting`, `controller`, `jobcomp`, `exit-file`).

    `why`: the batch system's own words for it (`OutOfMemory`, `NonZeroExitCode`), "" where it has none. `exit_signal`:
    that ended its script, where it is known not to be an exit code of 128 and more.
    """

    state: BatchState
    exit_code: int | None
    end_s: float | None
    source: str
    why: str = ""
    exit_signal: int | None = None


@dataclass(frozen=True, slots=True)
class Mailing:
    """What sends mails: a program, called as `PROGRAM -s SUBJECT RECIPIENT` ("": nothing does), and the `domain` of
    recipients that have none."""

    program: str
    domain: str = ""


TOLD_FILE = "told"
"""In the spool, beside the worker: a J0 that runs its job without workers writes into it, if it is there."""
END_FILE = "end"


class BatchSystem(Protocol):
    """Hands on one batch system. Every call has its own time-out and raises :class:`ejbd.errors.BatchError`.

    What acts on a job, or looks for those of one user, gets the user; `observe` and `outcomes` read all users' jobs.

    Absence is not an end: a job that is missing from `observe` is unknown until `outcomes` says more.

    What acts on a job takes a number, and does not ask what bears it. Its caller has looked at that just before
    (:meth:`list_jobs`).
    """

    name: str

    @property
    def command_counts(self) -> Mapping[str, CommandCount]:
        """How often each of the batch system's commands was run so far; empty where it needs none."""
        ...

    async def observe(self) -> ClusterView:
        """The whole cluster in a number of batch commands that does not depend on the number of jobs.

        At most 3: a third one for what changes more slowly, as what the site has reserved does. Once a minute or less
        often three more may tell what the limits of accounts leave.
        """
        ...

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        """Submit once and return the batch job's id.

        Raises SubmitOutcomeUnknown when the batch system may have taken it, BatchError when it has surely not.
        """
        ...

    async def check(self, identity: Identity, request: SubmitRequest, timeout_s: float) -> Sequence[str] | None:
        """Ask whether it would be taken; nothing is submitted. Sentences for its user, where something is to be said.

        Raises BatchError if it would not, or if that is not known.
        """
        ...

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        """Tag -> batch id of the user's jobs (pending, running or recently ended) with these names; one batch command.

        Raises BatchError where the batch system does not answer: only a successful answer proves absence.
        """
        ...

    async def list_jobs(self, ids: Sequence[str]) -> Sequence[BatchJobView]:
        """These batch jobs, and elements of these arrays, as they are at this moment; one batch command.

        A job that is not known is left out, and one that has ended may be. Raises BatchError where the batch system
        does not answer.
        """
        ...

    async def cancel(self, identity: Identity, ids: Sequence[str]) -> None:
        """Cancel these jobs, in one batch command. A job that has ended or is not known is not an error."""
        ...

    async def update(
        self,
        identity: Identity,
        id: str,
        *,
        walltime_s: float | None = None,
        hold: bool | None = None,
        begins: bool | None = None,
        begin_in_s: float | None = None,
    ) -> None:
        """Give a job another walltime (a longer one where its user may), or hold or release a pending one.

        Or let a pending one begin after so many seconds (`begin_in_s`; 0: now), or keep it from beginning, and let it.
        With both it is kept from beginning for so many seconds, where the batch system can do that, and else until it
        is let. What is kept from beginning keeps its place in the queue; a job that runs is left alone (BatchError).
        """
        ...

    async def waited_for(self, identity: Identity, ids: Sequence[str]) -> set[str]:
        """Those of these jobs that any user's waiting job names in a dependency; one batch command."""
        ...

    async def reduce(self, identity: Identity, id: str, *, held: bool) -> None:
        """Make a waiting job so small and short that it begins soon: one processor, a minute. `held`: let it begin.

        Raises BatchError where the batch system does not let it, as of a job that runs.
        """
        ...

    async def set_aside(self, identity: Identity, id: str) -> None:
        """Take a running job off its processors, and keep it in the queue, under its number, without beginning.

        Repeatable. Raises BatchError, which will not pass, where the batch system lets no user do so.
        """
        ...

    async def outcomes(self, ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        """How jobs that are no longer listed ended: batch id -> the exit file that the job writes (may be missing).

        `marks`, by batch id: an end that the batch system tells of another job under that number is left out. At most
        one batch command whatever the number of ids. A job that is not known is left out.
        """
        ...

    def worker_script(self, request: WorkerScript) -> str:
        """The script of a subjob: starts one worker a node and writes its exit code to a file at the end."""
        ...

    def rigid_command(self, argv: Sequence[str], processors: int) -> str:
        """The body of an ordinary (non-elastic) job's script that runs `argv` on that many processors."""
        ...

    async def mailing(self) -> Mailing:
        """What sends its own mails, where a program does."""
        ...

    async def doctor(self) -> list[tuple[str, bool, str]]:
        """Checks for `ejb doctor`: (what was checked, good or not, what was found and how to mend it)."""
        ...

    async def close(self) -> None:
        """Let go of connections. Jobs live on."""
        ...


@runtime_checkable
class TellsChanges(Protocol):
    """A batch system that says by itself when it has changed, so that no poll has to find it out."""

    async def changed(self, since: int) -> int:
        """Until what runs, and on what, is another than when `since` was returned; -1: at once. BatchError as ever.

        It may return the same number after a while.
        """
        ...


@runtime_checkable
class SendsSignals(Protocol):
    """A batch system with an adapter that sends signals, for there is no command of its own that a user could type."""

    async def signal(self, identity: Identity, id: str, number: int, to: str) -> None:
        """Send a signal to what its launcher has started (`ranks`), to the `script`, or to `all` of a running job.

        A job that has ended or is not known is not an error. Raises BatchError.
        """
        ...


@runtime_checkable
class TellsRules(Protocol):
    """A batch system that tells the limits of all users, accounts and QOS, for a replay of a past day."""

    async def site_rules(self) -> SiteRules:
        """As they are now. Raises BatchError."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerScript:
    """What a subjob's script must start.

    `python` runs on the compute node (3.8 or later), `worker` is the zipapp in the spool, `subjob_dir` the subjob's own
    folder there (token, exit file, log). `exit_file` gets the exit code in decimal by an atomic rename. Where
    `end_file` is there when the script begins, the script starts nothing, and ends with the code in that file.
    `at_once`: the job's own script is to begin before any worker, if its standing order says so yet. `at_once_if`: it
    is if there is a byte in that file by then. `python_at`: a path that is taken in place of `python` on nodes that
    have it ("": none is).
    """

    python: str
    worker: Path
    subjob_dir: Path
    exit_file: Path
    at_once: bool = False
    at_once_if: Path | None = None
    python_at: str = ""

    @property
    def end_file(self) -> Path:
        return self.subjob_dir / END_FILE

    @property
    def told_file(self) -> Path:
        return self.worker.parent / TOLD_FILE

    @property
    def begun_file(self) -> Path:
        """There once the job's own script is what runs."""
        return self.subjob_dir / "alone" / "begun"

    @property
    def claim_file(self) -> Path:
        """There once the standing order is carried out, or void."""
        return self.subjob_dir / "alone" / "claim.json"


async def mailing(own: str | None, batch: BatchSystem) -> Mailing:
    """What sends mails here: `own`, the site's setting (None: there is none), else the batch system's program.

    Raises BatchError where that has to be asked for and is not answered.
    """
    if own == "":
        return Mailing("")
    found = await batch.mailing()
    return found if own is None else Mailing(own, found.domain)
