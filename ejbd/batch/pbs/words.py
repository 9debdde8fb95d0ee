"""What a submission asks for beside processors and time, in qsub's words: sbatch's options, and those of #PBS lines."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ejbd.batch.pbs.states import Dialect
from ejbd.core.needs import features_of
from ejbd.errors import BatchError

# What means the same to both and needs no more than another word.
_SAME = {"account": "-A", "mail-user": "-M", "priority": "-p", "reservation": "-q"}
_MAIL = {"NONE": "n", "BEGIN": "b", "END": "e", "FAIL": "a", "ALL": "abe", "REQUEUE": "", "TIME_LIMIT": ""}
_WITHOUT_EFFECT = frozenset(
    {"comment", "wckey", "requeue", "no-requeue", "open-mode", "parsable", "quiet", "verbose", "ignore-pbs", "wait"}
)
_LAID_OUT = frozenset({"nodes", "cpus-per-task"})  # said by the request itself
_PLACED = frozenset({"mem", "mem-per-cpu", "constraint", "nodelist", "exclusive", "gpus-per-node", "gres"})
_SAID = {"qos": "qos=", "reservation": "advres="}
_SHAPES = ("select=", "nodes=", "ncpus=", "procs=", "place=")
_DEPENDENCY = re.compile(
    r"(?:after(?:ok|notok|any)?(?::[0-9]{1,15})+)(?:,after(?:ok|notok|any)?(?::[0-9]{1,15})+)*", re.ASCII
)
_ISO = re.compile(
    r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})T(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.ASCII
)
_MONTH = re.compile(r"(?:(?P<m>[0-9]{2})/(?P<d>[0-9]{2})-)?(?P<clock>[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)", re.ASCII)
_MEMORY = re.compile(r"(?P<count>[0-9]{1,12})(?P<unit>[KMGT]?)B?", re.ASCII | re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:,[A-Za-z0-9][A-Za-z0-9._-]*)*", re.ASCII)


@dataclass(slots=True)
class Words:
    """`argv` of qsub; what goes into each chunk or group of nodes (`each`, by its processors: `each_mb`); `hosts` by
    name. `shape`: the resources as a #PBS line has them, instead of all that.
    """

    argv: list[str] = field(default_factory=list)
    each: list[str] = field(default_factory=list)
    mb_per_processor: int = 0
    mb_per_node: int = 0
    exclusive: bool = False
    hosts: list[str] = field(default_factory=list)
    shape: list[str] = field(default_factory=list)


def words(dialect: Dialect, options: Sequence[str], lines: Sequence[str]) -> Words:
    """Of sbatch's `options` (--name=value), and of the words that #PBS `lines` had. Raises BatchError."""
    found = Words()
    _of_lines(dialect, lines, found)
    for word in options:
        if not word.startswith("--"):
            found.argv.append(word)
            continue
        name, _, value = word[2:].partition("=")
        if name in _WITHOUT_EFFECT or name in _LAID_OUT or (found.shape and name in _PLACED):
            continue
        if name in _SAID and any(line.startswith(_SAID[name]) for line in lines):
            continue
        if name == "mail-type":
            letters = "".join(dict.fromkeys("".join(_MAIL.get(kind.upper(), "") for kind in value.split(","))))
            found.argv += ["-m", letters or "n"]
        elif name in _SAME and value:
            found.argv += [_SAME[name], value]
        elif not _further(dialect, name, value, found):
            raise BatchError(
                f"PBS has nothing that does what {word[:80]!r} does in Slurm",
                transient=False,
                hint="leave it out, or write a #PBS line with what the site has instead",
            )
    return found


def _further(dialect: Dialect, name: str, value: str, found: Words) -> bool:
    """Take an option that is more than another word; False: PBS has no such thing."""
    torque = dialect is Dialect.TORQUE
    if name == "dependency" and _DEPENDENCY.fullmatch(value):
        found.argv += ["-W", f"depend={value}"]
    elif name == "kill-on-invalid-dep" or (name == "dependency" and not value):
        pass  # PBS ends such a job by itself; it waits for nothing
    elif name == "begin" and (match := _ISO.fullmatch(value) or _MONTH.fullmatch(value)):
        parts = match.groupdict()
        date = "".join(parts.get(part) or "" for part in "ymd")
        hours, minutes, *seconds = parts["clock"].split(":")
        found.argv += ["-a", f"{date}{hours}{minutes}{'.' if seconds else ''}{''.join(seconds)}"]
    elif name == "qos" and torque and _NAMES.fullmatch(value):
        found.argv += ["-l", f"qos={value}"]
    elif name in ("mem-per-cpu", "mem") and (match := _MEMORY.fullmatch(value)):
        size = math.ceil(int(match["count"]) * _MEGABYTES[match["unit"].upper()])
        if name == "mem":
            found.mb_per_node = size
        else:
            found.mb_per_processor = size
    elif name == "exclusive" and not value:
        found.exclusive = True
    elif name == "nodelist" and _NAMES.fullmatch(value):
        found.hosts = value.split(",")
    elif name == "constraint" and (features := features_of(value)) is not None and features[1]:
        found.each += [word if torque or "=" in word else f"{word}=True" for word in features[0]]
    elif name in ("gpus-per-node", "gres") and re.fullmatch(r"(?:gpu:)?[0-9]{1,6}", value):
        found.each.append(f"{'gpus' if torque else 'ngpus'}={value.removeprefix('gpu:')}")
    else:
        return False
    return True


def _of_lines(dialect: Dialect, lines: Sequence[str], found: Words) -> None:
    for letter, value in zip(lines[::2], lines[1::2], strict=True):
        if letter != "-l":
            found.argv += [letter, value]
        elif value.startswith("walltime="):
            continue
        elif dialect is Dialect.TORQUE and value.startswith(("select=", "place=")):
            if "+" in value:
                text = "Torque has no select, and would run the job on one node"
                raise BatchError(text, transient=False, hint="write -l nodes=N:ppn=M+...")
        else:
            found.argv += ["-l", value]
            if value.startswith(_SHAPES):
                found.shape.append(value)
