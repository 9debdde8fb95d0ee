"""The commands that act on jobs, and those that ask about their ends and the site: argument list and pure parser."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ejbd.batch.base import LIMITS, AsAsked, BatchEnd, SubmitRequest, tag_in, with_tag
from ejbd.batch.slurm import states
from ejbd.core.view import KILL_WAIT_S, PASS_S, MemoryRules
from ejbd.core.walltime import format_walltime
from ejbd.errors import BatchError
from ejbd.wire.hostlists import fold

_ID = re.compile(r"[0-9]+(_[0-9]+)?", re.ASCII)

# Options that would make another thing of a submission than one job that runs the script on standard input here.
_REFUSED = ("wrap", "array", "test-only", "wait", "clusters", "help", "usage", "version")
_REFUSED_SHORT = ("-a", "-W", "-M", "-V", "-h")


def checked_ids(ids: Sequence[str]) -> list[str]:
    """The ids themselves. Raises BatchError for what is no job id (and might be read as an option)."""
    for id in ids:
        if not _ID.fullmatch(id):
            raise BatchError(f"{id!r} is not a job id of Slurm", transient=False)
    return list(ids)


@dataclass(frozen=True, slots=True)
class Sbatch:
    """Submit one job, the script on standard input.

    `environment_file`: from which sbatch reads the job's environment. `exported`: what else it is to have, as
    `--export` has it. `test_only`: it is only asked whether Slurm would take it.
    """

    request: SubmitRequest
    timeout_s: float = 30.0
    environment_file: str = ""
    exported: str = ""
    test_only: bool = False

    def argv(self) -> list[str]:
        """User's options come first: Slurm takes the last of two, so that ours hold. Raises BatchError, ValueError."""
        request = self.request
        _check_text(request)
        if request.asked is not None:
            return self._as_asked(request.asked)
        _check_options(request.options)
        argv = ["sbatch", *request.options, "--parsable", "--no-requeue", "--export=ALL"]
        argv += self._environment_options()
        argv += [f"--job-name={request.name or request.tag}", f"--comment={with_tag(request.comment, request.tag)}"]
        if request.queue:  # otherwise the site's default
            argv.append(f"--partition={request.queue}")
        argv.append(f"--ntasks={request.processors // request.threads}")
        if request.threads > 1:
            argv.append(f"--cpus-per-task={request.threads}")
        if request.walltime_s is not None:
            argv.append(f"--time={format_walltime(request.walltime_s)}")
        argv += [f"--chdir={request.workdir}", f"--output={request.output}"]
        if request.error is not None:
            argv.append(f"--error={request.error}")
        if request.nodes is not None:
            argv.append(f"--nodes={request.nodes}")
        if request.tasks_per_node is not None:
            argv.append(f"--ntasks-per-node={request.tasks_per_node}")
        if request.hold:
            argv.append("--hold")
        argv += _beginning(request)
        if self.test_only:
            argv.append("--test-only")
        if request.exclude:
            argv.append(f"--exclude={fold(request.exclude)}")
        return [*argv, *self.operands()]

    def operands(self) -> list[str]:
        """What stands behind the options: the script's file, and its arguments."""
        asked, args = self.request.asked, self.request.args
        if asked is not None and asked.file is not None:
            return [str(asked.file), *args]
        return ["/dev/stdin", *args] if args else []

    def _as_asked(self, asked: AsAsked) -> list[str]:
        """As the user would have typed it, with no more added than what finds the job again."""
        request = self.request
        argv = ["sbatch", *asked.options, "--parsable", f"--comment={with_tag(request.comment, request.tag)}"]
        if asked.name is not None:
            argv.append(f"--job-name={asked.name}")
        if request.hold:
            argv.append("--hold")
        argv += _beginning(request)
        if asked.export is None:  # what counts without it, too, but sbatch 26.05 then takes nothing from the file
            argv.append("--export=ALL")
        argv += self._environment_options()
        if self.test_only:
            argv.append("--test-only")
        return [*argv, *self.operands()]

    def _environment_options(self) -> list[str]:
        said = {"--export-file": self.environment_file, "--export": self.exported}
        return [f"{option}={value}" for option, value in said.items() if value]

    def parse(self, text: str) -> str | None:
        """The job's id; None where the answer holds none. `--parsable` writes `id` or `id;cluster`."""
        first = text.strip().partition(";")[0].strip()
        return first if _ID.fullmatch(first) else None


NOT_YET = "now+1000days"


def _in(seconds: float) -> str:
    """By the clock and in the time zone of the controller."""
    return f"now+{math.ceil(seconds)}" if seconds > 0 else "now"


def _beginning(request: SubmitRequest) -> list[str]:
    """When it may begin. What stands by has two locks.

    A dependency would let the job begin after any failure, so that a begin far ahead has to be taken off, too. A job
    that is held would lose its place (priority/basic puts what it releases at the end).
    """
    if not request.stands_by_for:
        return [f"--begin={_in(request.begin_in_s)}"] if request.begin_in_s > 0 else []
    (other,) = checked_ids([request.stands_by_for])
    return [f"--dependency=afternotok:{other}", "--kill-on-invalid-dep=yes", f"--begin={NOT_YET}"]


def _check_options(options: Sequence[str]) -> None:
    value_may_follow = False
    for word in options:
        if word.startswith("--"):
            name = word[2:].partition("=")[0]
            # sbatch takes any unambiguous beginning of an option's name.
            if name in _REFUSED or (len(name) > 2 and any(full.startswith(name) for full in _REFUSED)):
                raise BatchError(f"the sbatch option {word!r} cannot be used here", transient=False)
            value_may_follow = "=" not in word and bool(name)
            if not name:
                raise BatchError("'--' cannot be used among the sbatch options", transient=False)
        elif word.startswith("-") and len(word) > 1:
            if word.startswith(_REFUSED_SHORT):
                raise BatchError(f"the sbatch option {word!r} cannot be used here", transient=False)
            value_may_follow = len(word) == 2
        elif value_may_follow:
            value_may_follow = False
        else:
            raise BatchError(f"{word!r} is not an sbatch option", transient=False)


def _check_text(request: SubmitRequest) -> None:
    texts = {
        "name": request.name,
        "tag": request.tag,
        "comment": request.comment,
        "queue": request.queue,
        "script": request.script,
    }
    paths = {"workdir": request.workdir, "output": request.output, "error": request.error}
    texts |= {name: str(path) for name, path in paths.items() if path is not None}
    texts |= {"arguments": "".join(request.args)}
    for name, text in texts.items():
        if "\0" in text:
            raise BatchError(f"the {name} of a job cannot hold a null character", transient=False)
    if not request.tag:
        raise BatchError("a job without a tag could not be found again", transient=False)


@dataclass(frozen=True, slots=True)
class Scancel:
    """Cancel jobs, pending or running."""

    ids: Sequence[str]

    def argv(self) -> list[str]:
        return ["scancel", *checked_ids(self.ids)]


@dataclass(frozen=True, slots=True)
class Shorten:
    """Give a job a new walltime, counted from its start; an owner may shorten only, an operator raise it, too."""

    id: str
    walltime_s: float

    def argv(self) -> list[str]:
        (id,) = checked_ids([self.id])
        return ["scontrol", "update", f"JobId={id}", f"TimeLimit={format_walltime(self.walltime_s)}"]


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold a pending job as its user (also as root: the user can release it again), or release it."""

    id: str
    hold: bool

    def argv(self) -> list[str]:
        return ["scontrol", "uhold" if self.hold else "release", *checked_ids([self.id])]


@dataclass(frozen=True, slots=True)
class Begins:
    """Put the begin of a pending job far ahead, or take that off; its priority stays. Refused of one that runs."""

    id: str
    begins: bool

    def argv(self) -> list[str]:
        (id,) = checked_ids([self.id])
        return ["scontrol", "update", f"JobId={id}", f"StartTime={'now' if self.begins else NOT_YET}"]


@dataclass(frozen=True, slots=True)
class BeginsIn:
    """Let a pending job begin after so many seconds; its priority stays. Refused of one that runs."""

    id: str
    seconds: float

    def argv(self) -> list[str]:
        (id,) = checked_ids([self.id])
        return ["scontrol", "update", f"JobId={id}", f"StartTime={_in(self.seconds)}"]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Which jobs the waiting jobs of all users wait for."""

    separator: str
    timeout_s: float = 20.0

    _WAITS_FOR = re.compile(r":([0-9]+)(?=[_+:(,?]|$)", re.ASCII)

    def argv(self) -> list[str]:
        return ["squeue", "--noheader", "--states=PENDING", f"--Format=Dependency:{self.separator}"]

    def parse(self, text: str) -> set[str]:
        """`afterok:12(unfulfilled),after:13+5(unfulfilled)` -> their numbers; of an array's elements the array's."""
        return set(self._WAITS_FOR.findall(text.replace(self.separator, ",")))


@dataclass(frozen=True, slots=True)
class Reduce:
    """Make a pending job one that backfilling starts at once. `memory`: the site gives it out like processors.

    The begin comes first, and is refused of a job that runs: of such a one Slurm would take nodes away.
    """

    id: str
    memory: bool = False

    LEAST_MB = 32  # a shell needs no more, and Slurm's own plugin for memory limits nothing below 30

    def argvs(self) -> list[list[str]]:
        least = ["NumNodes=1-1", "NumTasks=1", "NumCPUs=1", "MinCPUsNode=1", "TimeLimit=1"]
        least += [f"MinMemoryNode={self.LEAST_MB}"] if self.memory else []
        return [Begins(self.id, True).argv(), ["scontrol", "update", f"JobId={self.id}", *least]]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Put a running job back into the queue, held."""

    id: str

    def argvs(self) -> list[list[str]]:
        (id,) = checked_ids([self.id])
        return [["scontrol", "update", f"JobId={id}", "Requeue=1"], ["scontrol", "requeuehold", id]]


@dataclass(frozen=True, slots=True)
class Accounted:
    """A row of the accounts. `tag`: "" where the site keeps no comments. `end`: None where it has not ended."""

    id: str
    tag: str
    submit_s: float | None
    end: BatchEnd | None


@dataclass(frozen=True, slots=True)
class Sacct:
    """How jobs ended, from the accounting database: it remembers them longer than the controller does.

    All jobs that have had a number are told, the latest last. `separator`: as of a listing, since comments are free
    text. Of a comment of several lines only the first is read.
    """

    ids: Sequence[str]
    separator: str
    timeout_s: float = 30.0

    FIELDS = ("JobID", "State", "ExitCode", "End", "Submit", "Comment")

    def argv(self) -> list[str]:
        ids = ",".join(checked_ids(self.ids))
        return [
            "sacct",
            "--noheader",
            "--parsable2",
            f"--delimiter={self.separator}",
            "--duplicates",
            "--allocations",
            f"--jobs={ids}",
            "--format=" + ",".join(self.FIELDS),
        ]

    def parse(self, text: str) -> tuple[list[Accounted], int]:
        """The rows, and the number of lines that could not be read."""
        found: list[Accounted] = []
        unparsed = 0
        for line in filter(None, text.splitlines()):
            try:
                id, word, code, end_s, submit_s, comment = line.split(self.separator)
                state = states.job_state(word)
                end = None
                if state.ended:
                    why = states.more_than(word, state)
                    exit_code, signal = states.exit_of(code)
                    end = BatchEnd(state, exit_code, states.epoch_s(end_s), "accounting", why, signal)
                found.append(Accounted(id, tag_in(comment), states.epoch_s(submit_s), end))
            except ValueError:
                unparsed += 1
        return found, unparsed


@dataclass(frozen=True, slots=True)
class ShowConfig:
    """The site's settings."""

    timeout_s: float = 20.0

    def argv(self) -> list[str]:
        return ["scontrol", "show", "config"]

    def parse(self, text: str) -> dict[str, str]:
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}


def memory_rules(config: Mapping[str, str]) -> MemoryRules:
    """What the site's settings say of memory. A partition's own are not read."""

    def megabytes(name: str) -> int | None:
        text = config.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and int(text) else None

    return MemoryRules(
        "MEMORY" in config.get("SelectTypeParameters", "").upper(),
        megabytes("DefMemPerCPU"),
        megabytes("DefMemPerNode"),
        megabytes("MaxMemPerCPU"),
    )


def kill_wait_s(config: Mapping[str, str]) -> float:
    """From TERM to KILL where a job is ended (seconds)."""
    word = config.get("KillWait", "").partition(" ")[0]
    return float(word) if word.isascii() and word.isdigit() else KILL_WAIT_S


def pass_s(config: Mapping[str, str]) -> float:
    """How often backfilling visits the waiting jobs (bf_interval, seconds)."""
    word = scheduler_parameters(config).get("bf_interval", "")
    return float(word) if word.isascii() and word.isdigit() and int(word) > 0 else PASS_S


def kills_unmet(config: Mapping[str, str]) -> bool:
    """Whether the site ends jobs that wait for what can never be (DependencyParameters; SchedulerParameters once)."""
    said = ",".join(config.get(name, "") for name in ("DependencyParameters", "SchedulerParameters"))
    return "kill_invalid_depend" in said.lower().split(",")


def propagated_limits(config: Mapping[str, str]) -> list[str]:
    """The resource limits that the site takes from a submission to its job, by the names of :data:`LIMITS`."""
    settings = ("PropagateResourceLimits", "PropagateResourceLimitsExcept")
    only, never = (set(config.get(setting, "").lower().split(",")) - {"", "(null)"} for setting in settings)
    if "none" in only or "all" in never:
        return []
    return [name for name in LIMITS if name not in never and (not only or "all" in only or name in only)]


def is_nice_propagated(config: Mapping[str, str]) -> bool:
    """Whether tasks have the niceness of what starts them (PropagatePrioProcess)."""
    return config.get("PropagatePrioProcess", "0").strip() not in ("", "0", "(null)")


def has_preemption(config: Mapping[str, str]) -> bool:
    """Whether jobs may be preempted (PreemptType), and be told so by TERM before."""
    return config.get("PreemptType", "").strip() not in ("", "preempt/none", "(null)")


def scheduler_parameters(config: Mapping[str, str]) -> dict[str, str]:
    """`bf_interval=1,defer` -> {"bf_interval": "1", "defer": ""}"""
    pairs = (word.partition("=") for word in config.get("SchedulerParameters", "").split(",") if word)
    return {name: value for name, _, value in pairs}
