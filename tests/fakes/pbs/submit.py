"""qsub, as each dialect reads its words and the #PBS lines of a script, and as each refuses them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.pbs.world import Job, World, chunks_of

_VALUED = {"openpbs": "aAcCeIjJklmMNopPqrRSuvW", "torque": "aAbcCdDejkKlmMNopPqrStTuvwWF"}
_BARE = {"openpbs": "fhIVXz", "torque": "hIVxXz"}
_RESOURCES = {"walltime", "nodes", "procs", "ncpus", "select", "place", "mem", "pmem", "vmem", "cput", "file", "nice"}
_LENGTH = {"openpbs": r"[0-9]+(:[0-9]+){0,2}(\.[0-9]+)?", "torque": r"[0-9]+(:[0-9]+){0,3}(\.[0-9]+)?"}
_NAME = r"[A-Za-z0-9_+.<-][^\s]{0,%d}"
_LONGEST = {"openpbs": 229, "torque": 14}


class Refused(Exception):
    """With what is written on stderr, and the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text, self.code = text, code


@dataclass
class Options:
    """What the words come to; of one said twice on the command line the last counts, and a script's count less."""

    values: dict[str, str] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    rest: list[str] = field(default_factory=list)
    command: bool = False


def parse(words: list[str], dialect: str) -> Options:
    found, left = Options(), list(words)
    while left:
        word = left.pop(0)
        if word == "--" and dialect == "openpbs":
            found.command = True
            break
        if not word.startswith("-") or word == "-":
            left.insert(0, word)
            break
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in _BARE[dialect]:
                found.flags.add(letter)
            elif letter in _VALUED[dialect]:
                value = letters or (left.pop(0) if left else "")
                letters = ""
                _take(found, letter, value, dialect)
            else:
                raise usage(f"qsub: invalid option -- '{letter}'", dialect)
    found.rest = left
    return found


def _take(found: Options, letter: str, value: str, dialect: str) -> None:
    if letter == "l":
        for part in value.split(","):
            key, _, each = part.partition("=")
            found.resources[key] = each
        return
    if letter == "N" and not re.fullmatch(_NAME % _LONGEST[dialect], value):
        raise usage(wrong(f"qsub: illegal -{letter} value", dialect), dialect)
    if letter == "W":
        for part in value.split(","):
            key, _, each = part.partition("=")
            kind = each.partition(":")[0]
            if key == "depend" and not re.fullmatch(r"(after|before)(ok|notok|any|start)?|on|synccount", kind):
                text = f"illegal -W dependency value: '{each}'" if dialect == "torque" else "illegal -W value"
                raise usage(wrong(f"qsub: {text}", dialect), dialect)
            found.values[f"W{key}"] = each
        return
    found.values[letter] = f"{found.values[letter]},{value}" if letter == "v" and "v" in found.values else value


def wrong(text: str, dialect: str) -> str:
    return f"[{text}]" if dialect == "torque" else text


def usage(text: str, dialect: str) -> Refused:
    gap = "\n" if dialect == "torque" else ""
    return Refused(f"{text}\n{gap}usage: qsub [-a date_time] [-A account_string] ... [script]\n{gap}", 2)


def directives(script: str, prefix: str = "#PBS") -> list[str]:
    """The words of the lines that begin with the prefix, up to the first line that is neither empty nor a comment."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith(prefix):
            words += line[len(prefix) :].split()
        elif line.strip() and not line.lstrip().startswith(("#", ":")):
            break
    return words


def job_of(world: World, request: dict[str, Any], now: float) -> Job:
    """The job that a submission makes. Raises Refused."""
    dialect, cwd = world.dialect, Path(request["cwd"])
    line = parse(request["words"], dialect)
    arguments: list[str] = []
    if line.command:
        script, name = "#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in line.rest), "STDIN"
    elif line.rest and line.rest[0] != "-":
        file = cwd / line.rest[0]
        arguments = line.rest[1:]
        try:
            script, name = file.read_bytes().decode(errors="surrogateescape"), file.name
        except OSError:
            text = f"script file '{line.rest[0]}' cannot be loaded -" if dialect == "torque" else "script file::"
            raise Refused(f"qsub: {text} No such file or directory\n", 1) from None
    else:
        script, name = request["stdin"], "STDIN"
    if "F" in line.values:
        arguments = line.values["F"].split()
    said = parse(directives(script, line.values.get("C", "#PBS")), dialect)
    values = {**said.values, **line.values}
    asked = {**said.resources, **line.resources}
    if "select" in line.resources and "nodes" not in line.resources:
        asked.pop("nodes", None)
    flags = said.flags | line.flags
    _check(world, values, asked)
    environment = request["environment"]
    variables = {f"PBS_O_{key}": environment.get(key, "") for key in ("HOME", "LOGNAME", "PATH", "SHELL", "LANG")}
    queue = values.get("q", world.default_queue)
    variables |= {"PBS_O_WORKDIR": str(cwd), "PBS_O_HOST": world.head, "PBS_O_QUEUE": queue}
    if "V" in flags:
        variables |= environment
    variables |= listed(values.get("v", ""), environment)
    number, world.next = world.next, world.next + 1
    name = values.get("N", name[:15])
    indices = array_indices(values["J"]) if "J" in values and dialect == "openpbs" else []
    behind = f"{number}.^array_index^" if indices else str(number)
    output = target(values.get("o"), cwd, f"{name}.o{behind}")
    length = asked.get("walltime")
    holds = ("u" if "h" in flags or "h" in values else "") + ("s" if values.get("Wdepend") else "")
    begin = float(values["a"]) if re.fullmatch(r"[0-9]{9,}", values.get("a", "")) else 0.0
    return Job(
        number=number,
        name=name,
        owner=request["user"],
        asked=asked,
        chunks=chunks_of(asked, dialect),
        variables=variables,
        walltime_s=seconds(length) if length else 3600.0,
        submitted_s=now,
        changed_s=now,
        arguments=" ".join(request["words"]),
        output=output,
        error=target(values.get("e"), cwd, f"{name}.e{behind}"),
        join=values.get("j", "n"),
        script=script,
        directory=values.get("d", ""),
        queue=queue,
        submitted_to=queue,
        indices=indices,
        remaining=list(indices),
        state="H" if holds else "W" if begin > now or values.get("a") == "2359" else "Q",
        holds=holds,
        depend=values.get("Wdepend", ""),
        begin_s=begin or (now + 86400 if "a" in values else 0.0),
        shell_args=arguments,
        rerunable=values.get("r", "y") != "n",
    )


def target(value: str | None, cwd: Path, default: str) -> str:
    path = cwd / (value if value is not None else default)
    if ":" in str(path.name) and value is not None and not value.startswith("/"):
        path = cwd / value.partition(":")[2]
    return str(path / default if path.is_dir() else path)


def listed(text: str, environment: dict[str, str]) -> dict[str, str]:
    """`A=1,B="x,y",C`: quotes and backslashes as qsub has them; a name alone is that of qsub's own environment."""
    words, word, quote, escaped = [], "", "", False
    for c in text:
        if escaped:
            word, escaped = word + c, False
        elif c == "\\":
            escaped = True
        elif quote:
            quote, word = ("", word) if c == quote else (quote, word + c)
        elif c in "'\"":
            quote = c
        elif c == ",":
            words.append(word)
            word = ""
        else:
            word += c
    found = {}
    for each in filter(None, [*words, word]):
        name, equals, value = each.partition("=")
        found[name] = value if equals else environment.get(name, "")
    return found


def array_indices(text: str) -> list[int]:
    """`0-9`, `1-7:2`."""
    span, _, step = text.partition("%")[0].partition(":")
    first, _, last = span.partition("-")
    return list(range(int(first), int(last or first) + 1, int(step or 1)))


def seconds(text: str) -> float:
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + float(part)
    return total


def _check(world: World, values: dict[str, str], asked: dict[str, str]) -> None:
    torque = world.dialect == "torque"

    def submit_error(openpbs: str, openpbs_code: int, its: str, its_code: int) -> Refused:
        return (
            Refused(f"qsub: submit error ({its})\n", its_code)
            if torque
            else Refused(f"qsub: {openpbs}\n", openpbs_code)
        )

    queue = world.queues.get(values.get("q", world.default_queue))
    if queue is None:
        raise submit_error("Unknown queue", 170, "Unknown queue MSG=requested queue not found", 172)
    if queue.from_route_only:
        raise Refused("qsub: Access to queue is denied\n", 174)
    for key in asked:
        if key not in _RESOURCES:
            raise submit_error(
                f"Unknown resource Resource_List.{key}", 187, f"Unknown resource type  Resource_List.{key}", 189
            )
    if "walltime" in asked and not re.fullmatch(_LENGTH[world.dialect], asked["walltime"]):
        where = "Resource_List.walltime"
        wanted = "Illegal attribute or resource value"
        raise submit_error(f"{wanted} {where}", 166, f"{wanted} for {where}", 168)
    if not torque and "select" in asked and "nodes" in asked:
        raise Refused("qsub: Cannot be used with select or place: nodes\n", 6)
    try:
        chunks = chunks_of(asked, world.dialect)
    except ValueError:
        where = "Resource_List.nodes" if torque else "Resource_List.select"
        raise submit_error(
            f"Illegal attribute or resource value {where}", 166, f"Illegal attribute or resource value for {where}", 168
        ) from None
    if torque and "nodes" in asked:
        named = [head for head in re.findall(r"(?:^|\+)([^:+]+)", asked["nodes"]) if not head.isdigit()]
        # pbs_server counts nodes; as many tasks of one processor as there are processors go, too.
        width = sum(count * each for count, each in chunks)
        wide = max(each for _, each in chunks) > world.processors
        if wide or width > world.processors * len(world.nodes) or any(n not in world.nodes for n in named):
            raise Refused(
                "qsub: submit error (Job exceeds queue resource limits MSG=cannot locate feasible nodes "
                "(nodes file is empty, all systems are busy, or no nodes have the requested feature))\n",
                190,
            )
    if "Wgroup_list" in values and values["Wgroup_list"].startswith("nosuch"):
        group = values["Wgroup_list"]
        raise submit_error(
            "Bad GID for job execution",
            197,
            f"Bad GID for job execution MSG=cannot locate group {group} in server group file",
            199,
        )
    depend = values.get("Wdepend", "")
    if torque and depend:
        ids = [id.partition(".")[0] for id in depend.partition(":")[2].split(":")]
        if any(not id.isdigit() or int(id) not in world.jobs or world.jobs[int(id)].ended for id in ids):
            raise Refused("qsub: submit error (Invalid Job Dependency)\n", 208)
