"""The options of `ejb submit`, said once: the command, its help and completion, and its quick start read this table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple


class Kind(Enum):
    """What an option takes."""

    TEXT = "text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    FLAG = "nothing"
    SWITCH = "nothing, and has an opposite"
    TEXTS = "text, each time that it is given"


class Option(NamedTuple):
    """An option. `offers`: what the shell offers for its value, as ejbd.cli.completion calls it."""

    name: str
    spellings: tuple[str, ...]
    kind: Kind
    help: str
    metavar: str | None = None
    offers: str = ""

    @property
    def opposites(self) -> tuple[str, ...]:
        """The spellings that say no."""
        return tuple(f"--no-{one.removeprefix('--')}" for one in self.spellings) if self.kind is Kind.SWITCH else ()

    @property
    def takes_value(self) -> bool:
        return self.kind not in (Kind.FLAG, Kind.SWITCH)


_TEXT, _WHOLE, _NUMBER, _FLAG = Kind.TEXT, Kind.WHOLE, Kind.NUMBER, Kind.FLAG

# What the request overrides of the script, in the order of the help.
OVERRIDES = (
    Option("ntasks", ("-n", "--ntasks"), _WHOLE, "Start so many processes (ranks)."),
    Option("nodes", ("-N", "--nodes"), _WHOLE, "Use so many nodes."),
    Option("ntasks_per_node", ("--ntasks-per-node",), _WHOLE, "Start so many processes on each node."),
    Option("time", ("-t", "--time"), _TEXT, "Ask for this walltime, as sbatch takes it."),
    Option("partition", ("-p", "--partition", "--queue"), _TEXT, "Submit to this queue.", offers="queues"),
    Option("name", ("-J", "--job-name"), _TEXT, "Give the job this name."),
    Option("account", ("-A", "--account"), _TEXT, "Charge this account."),
    Option("qos", ("-q", "--qos"), _TEXT, "Ask for this quality of service."),
    Option("output", ("-o", "--output"), _TEXT, "Write standard output to this file."),
    Option("error", ("-e", "--error"), _TEXT, "Write standard error to this file."),
    Option("chdir", ("-D", "--chdir"), _TEXT, "Run in this directory."),
    Option("export", ("--export",), _TEXT, "Pass this environment on: ALL, NONE, or NAME,NAME=value,..."),
    Option(
        "elastic",
        ("--elastic",),
        _TEXT,
        "Make the job elastic or not; auto: as the queue says.",
        "on|off|auto",
        "elasticities",
    ),
    Option(
        "engine", ("--engine",), _TEXT, "Checkpoint the job by this engine.", "auto|application|dmtcp|none", "engines"
    ),
    Option("mpi", ("--mpi",), _TEXT, "Wire the ranks up for this MPI.", "auto|mpich|openmpi|none|PROFILE", "mpis"),
    Option("omax", ("--omax",), _WHOLE, "Put so many ranks on a processor at most."),
    Option("ntasks_max", ("--ntasks-max",), _WHOLE, "Grow to so many ranks while no other job waits."),
    Option("lambda_s", ("--lambda",), _NUMBER, "Plan with a move of so many seconds."),
    Option("delta", ("--delta",), _NUMBER, "Plan with this overhead of over-subscription."),
    Option("checkpoint", ("--checkpoint",), _TEXT, "Checkpoint the job against lost nodes.", "off|auto|SECONDS"),
    Option("app", ("--app",), _TEXT, "Learn the run time of this application.", "NAME[:CLASS]"),
    Option(
        "walltime",
        ("--walltime",),
        _TEXT,
        "Ask for -t (own), or for less, learned from earlier runs (auto).",
        "auto|own",
    ),
    Option(
        "profile", ("--profile",), _TEXT, "Hold these widths, one after the other (docs/evolving.md).", "N:TIME,..."
    ),
    Option("best_effort", ("--best-effort",), Kind.SWITCH, "Ask for the widths of a profile as they come."),
    Option("stages", ("--stages",), Kind.SWITCH, "Let each launch of the script have a width of its own."),
    Option("rerunnable", ("--rerunnable",), Kind.SWITCH, "Let the job be run again from its beginning."),
    Option("restartable", ("--restartable",), Kind.SWITCH, "Let the script be started again."),
    Option("hold", ("-H", "--hold"), _FLAG, "Do not start the job until `ejb release`."),
    Option("settings", ("--setting",), Kind.TEXTS, "Set this of the queue's policy, as #EJB has it.", "NAME=VALUE"),
    Option(
        "options", ("-O", "--option"), Kind.TEXTS, "Pass an option of sbatch in one word (--mem=4G alone does, too)."
    ),
)
# What concerns the command itself.
OWN = (
    Option(
        "idempotency_key",
        ("--idempotency-key",),
        _TEXT,
        "Submit under this key; the same key again gives the same job.",
    ),
    Option("dry_run", ("--dry-run",), _FLAG, "Show what would be done, and why."),
    Option("test_only", ("--test-only",), _FLAG, "Do as --dry-run does, as sbatch calls it."),
    Option("wrap", ("--wrap",), _TEXT, "Submit a shell command instead of a script."),
    Option("numbered", ("--numbered",), _FLAG, "Print the job's number, as sbatch does (SLURM_JOB_ID)."),
    Option("parsable", ("--parsable",), _FLAG, "Print the job's id alone."),
    Option("pool", ("--pool",), _TEXT, "Run the job in this pool of yours (ejb pool list).", "NAME"),
    Option("wait", ("-W", "--wait"), _FLAG, "Wait for the job's end; exit as the job does."),
    Option("as_json", ("--json",), _FLAG, "Print one JSON document."),
    Option("quiet", ("--quiet",), _FLAG, "Print nothing but what a script needs."),
    Option("verbose", ("-v", "--verbose"), _FLAG, "Print every note on the job, a line each."),
)
OPTIONS = (*OVERRIDES, *OWN)
HELP = ("-h", "--help")

BY_SPELLING = {spelling: option for option in OPTIONS for spelling in (*option.spellings, *option.opposites)}
KNOWN = {**{word: option.takes_value for word, option in BY_SPELLING.items()}, **dict.fromkeys(HELP, False)}
"""Every spelling that the command knows, and whether a value follows it."""


class Typed(NamedTuple):
    """A line as it was typed: the options by their names, and the words behind them, which a `--` makes a command."""

    given: dict[str, Any]
    words: list[str]
    is_command: bool


def is_command(words: Sequence[str]) -> bool:
    """Whether a `--` stands before the words that are no options."""
    return words_behind(words)[:1] == ["--"]


def words_behind(words: Sequence[str]) -> list[str]:
    """What stands behind the options of a line."""
    rest = list(words)
    for _ in _options(rest):
        pass
    return rest


def read(words: Sequence[str]) -> Typed | None:
    """A line that is as plain as most are. None: not for this reader, as help, an odd value or a mistake is."""
    rest = list(words)
    given: dict[str, Any] = {}
    for spelling, value in _options(rest):
        option = BY_SPELLING.get(spelling)
        if option is None or option.takes_value is (value is None):
            return None
        found = _value(option, spelling, value)
        if found is None:
            return None
        given[option.name] = [*given.get(option.name, ()), found] if option.kind is Kind.TEXTS else found
    command = rest[:1] == ["--"]
    if not all(map(_is_text, rest)):
        return None
    return Typed(given, rest[1:] if command else rest, command)


def _options(rest: list[str]) -> Iterator[tuple[str, str | None]]:
    """Take the options off the front of `rest`: each one's spelling, with its value where it has one."""
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "--"):
        word = rest.pop(0)
        value: str | None
        if word.startswith("--"):
            spelling, equals, value = word.partition("=")
            attached = bool(equals)
        else:
            spelling, value = word[:2], word[2:]
            attached = bool(value)
        if not attached:
            value = rest.pop(0) if KNOWN.get(spelling) and rest else None
        yield spelling, value


def _value(option: Option, spelling: str, text: str | None) -> Any:
    """The value of an option; None where it is not plain."""
    if text is None:
        return spelling not in option.opposites
    if option.kind is Kind.WHOLE:
        return int(text) if _digits(text) else None
    if option.kind is Kind.NUMBER:
        whole, point, rest = text.partition(".")
        return float(text) if _digits(whole) and (not point or _digits(rest)) else None
    return text if _is_text(text) else None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
