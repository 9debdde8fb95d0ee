"""Every option of sbatch, and what EJB makes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Use(StrEnum):
    """What happens to an option."""

    UNDERSTOOD = "understood"  # read into the JobSpec
    SHARED = "shared"  # handed on to every subjob
    SOFT = "soft"  # kept by a passed-through job; an elastic one does without it, and the answer says so
    FITTED = "fitted"  # read into the JobSpec of an elastic job; a passed-through one keeps it as it is
    SHAPED = "shaped"  # handed on to J0 and to subjobs of the very same shape: the job is started and moved whole
    FIRST = "first"  # of J0 alone: when the job may start
    RIGID = "rigid"  # only a passed-through job can keep it
    DROPPED = "dropped"  # EJB has its own way: never handed on, and the answer says so
    REFUSED = "refused"  # never taken, elastic or not


class Argument(StrEnum):
    """Whether an option has an argument, as in getopt_long."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"  # only as --name=value


@dataclass(frozen=True, slots=True)
class Option:
    """One option: long name, letter ("" for none), what follows it, what becomes of it, and why."""

    name: str
    short: str
    argument: Argument
    use: Use
    why: str = ""

    @property
    def spelling(self) -> str:
        return f"--{self.name}"


_NO, _REQ, _OPT = Argument.NONE, Argument.REQUIRED, Argument.OPTIONAL
_ONE_CLUSTER = "EJB looks after one cluster"
_DAEMON_READS = "the file would be read by the daemon instead of by you"
_PLACED = "subjobs run wherever processors are idle"
_DEVICES = "it is not seen how many of them are free"
_SEEN = "each rank of an elastic job sees all devices of its node"
_TIME = "an elastic job begins as soon as processors are idle"
_CLIENT = "it concerns sbatch itself"

_TABLE: tuple[tuple[Use, Argument, str, str], ...] = (
    # use, argument, "letter:name" words, why
    (Use.UNDERSTOOD, _REQ, "D:chdir e:error J:job-name n:ntasks N:nodes ntasks-per-node", ""),
    (Use.UNDERSTOOD, _REQ, "o:output p:partition t:time export c:cpus-per-task comment", ""),
    (Use.UNDERSTOOD, _NO, "H:hold requeue no-requeue", ""),
    (Use.SHARED, _REQ, "A:account q:qos wckey priority", ""),
    (Use.SHARED, _OPT, "nice propagate", ""),
    (Use.SHARED, _NO, "s:oversubscribe share", ""),
    (Use.SOFT, _REQ, "acctg-freq profile", "it would be taken for each subjob alone"),
    (Use.DROPPED, _NO, "v:verbose Q:quiet parsable ignore-pbs", _CLIENT),
    (Use.DROPPED, _NO, "W:wait", "write `ejb submit --wait`"),
    (Use.REFUSED, _NO, "test-only", "write `ejb submit --dry-run`"),
    (Use.REFUSED, _NO, "h:help usage V:version", _CLIENT),
    (Use.REFUSED, _REQ, "wrap", "write `ejb submit -- COMMAND`"),
    (Use.REFUSED, _REQ, "uid gid", "a job runs as the user that submits it"),
    (Use.REFUSED, _REQ, "M:clusters cluster-constraint", _ONE_CLUSTER),
    (Use.REFUSED, _REQ, "bbf F:nodefile export-file", _DAEMON_READS),
    (Use.FITTED, _REQ, "C:constraint w:nodelist x:exclude mem mem-per-cpu", ""),
    (Use.FITTED, _OPT, "exclusive", ""),
    (Use.FITTED, _REQ, "a:array d:dependency kill-on-invalid-dep signal mail-type mail-user open-mode", ""),
    (Use.FIRST, _REQ, "b:begin deadline", ""),
    (Use.SHAPED, _REQ, "G:gpus gpus-per-node gres gpus-per-socket cpus-per-gpu mem-per-gpu gres-flags", ""),
    (Use.SHAPED, _REQ, "tmp mem-bind", ""),
    (Use.SHAPED, _REQ, "mincpus sockets-per-node cores-per-socket threads-per-core B:extra-node-info hint", ""),
    (Use.SHAPED, _REQ, "ntasks-per-core ntasks-per-socket ntasks-per-board m:distribution", ""),
    (Use.SHAPED, _NO, "contiguous", ""),
    (Use.RIGID, _REQ, "L:licenses bb", _DEVICES),
    (Use.RIGID, _REQ, "gpus-per-task gpu-bind gpu-freq ntasks-per-gpu", _SEEN),
    (Use.RIGID, _REQ, "tres-per-task tres-bind ntasks-per-tres", _SEEN),
    (Use.RIGID, _REQ, "prefer batch switches", _PLACED),
    (Use.RIGID, _REQ, "reservation", "its nodes count as taken, and room on them is not seen"),
    (Use.RIGID, _NO, "spread-job use-min-nodes O:overcommit", _PLACED),
    (Use.RIGID, _REQ, "S:core-spec thread-spec cpu-freq network power mcs-label container container-id", _PLACED),
    (Use.RIGID, _REQ, "delay-boot wait-all-nodes", _TIME),
    (Use.RIGID, _NO, "reboot", _TIME),
    (Use.RIGID, _REQ, "time-min", "it is planned by the time that is asked for, which Slurm would shorten"),
    (Use.RIGID, _OPT, "k:no-kill", "EJB restarts the application without the node that failed"),
    (Use.RIGID, _OPT, "get-user-env", "an elastic job runs in the environment it was submitted in"),
    (Use.RIGID, _REQ, "i:input", "ranks that move cannot go on reading a standard input"),
)


def _options() -> tuple[Option, ...]:
    found = []
    for use, argument, words, why in _TABLE:
        for word in words.split():
            short, _, name = word.rpartition(":")
            found.append(Option(name, short, argument, use, why))
    return tuple(found)


OPTIONS: tuple[Option, ...] = _options()
ALIASES = {"tasks-per-node": "ntasks-per-node"}  # second names; `--tasks` is a beginning of the first
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_LETTER: dict[str, Option] = {option.short: option for option in OPTIONS if option.short}


def matching(name: str) -> list[Option]:
    """The option of that long name, or those that begin with it (getopt_long takes an unambiguous beginning)."""
    exact = BY_NAME.get(name)
    if exact or not name:
        return [exact] if exact else []
    other_names = [BY_NAME[option] for other, option in ALIASES.items() if other.startswith(name)]
    return [option for option in OPTIONS if option.name.startswith(name)] or other_names


_EXPORTED = re.compile(r"""(?:[^,'"]|'[^']*'|"[^"]*")+""")


def export_parts(value: str) -> list[str]:
    """The names and NAME=value of an `--export`: commas separate them but for those in quotes."""
    return _EXPORTED.findall(value)
