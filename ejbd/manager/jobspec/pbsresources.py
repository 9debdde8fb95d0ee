"""What `-l` of a #PBS line asks for, in sbatch's words: nodes and ppn, select and place, procs, ncpus, memory, time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ejbd.manager.jobspec.findings import Given, Refusal, invalid, shortened
from ejbd.manager.jobspec.values import MOST_PROCESSES

FREE = "pbs:free"
"""A setting without a value: chunks may lie on any nodes, several of them on one."""

_SIZE = re.compile(r"(?P<count>[0-9]{1,15})(?P<unit>[kmgtp]?)(?P<of>[bw]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_MB = 1024 * 1024
_COUNT = re.compile(r"[0-9]{1,9}", re.ASCII)
_TIME = re.compile(r"[0-9]{1,9}(?::[0-9]{1,9}){0,3}(?:\.[0-9]{1,9})?", re.ASCII)
_PLACES = frozenset({"free", "pack", "scatter", "vscatter"})
_SHARINGS = frozenset({"excl", "exclhost", "shared"})
_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_EXCLUSIVE = frozenset({"singlejob", "singleuser", "uniqueuser"})
_MEMORY = ("mem", "vmem", "pmem", "pvmem")


@dataclass(frozen=True, slots=True)
class Resource:
    """One `NAME=VALUE` of a `-l`, and where it stands."""

    name: str
    value: str
    where: str


@dataclass(slots=True)
class Resources:
    """`given` in sbatch's words; `words`: as they stand, for a PBS that is handed them."""

    given: list[Given] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """One kind of chunk or node: how many, ranks and processors of each, what else is said of it."""

    count: int
    ranks: int
    processors: int
    gpus: int = 0
    memory_mb: int = 0
    host: str = ""
    features: tuple[str, ...] = ()


def split(value: str, where: str) -> Iterator[Resource]:
    """The parts of one `-l`. Raises EjbError (INVALID) for what is none."""
    for word in value.split(","):
        name, equals, text = word.strip().partition("=")
        if not name or (not equals and not _PROPERTY.fullmatch(name)):
            raise invalid(
                where, f"-l {shortened(value)} is no list of resources", "such as nodes=2:ppn=8,walltime=1:00:00"
            )
        yield Resource(name, text, where)


def read(resources: Iterable[Resource]) -> Resources:
    """All of them together, the last of each name. Raises EjbError (INVALID) for values that are none."""
    named = {one.name: one for one in resources}
    found = Resources(words=[f"{one.name}={one.value}" if one.value else one.name for one in named.values()])
    shapes = [named[name] for name in ("select", "nodes", "procs", "ncpus") if name in named]
    if "select" in named and "nodes" in named:
        raise invalid(named["nodes"].where, "select and nodes are two ways to say the same", "keep one of them")
    parts = _shape(shapes[0], named.get("place"), found) if shapes else []
    for name, one in named.items():
        if name in _PLAIN:
            _PLAIN[name](one, found)
        elif name not in _SHAPES and name not in _MEMORY:
            message = f"an elastic job cannot keep -l {shortened(name)}: only PBS itself knows what it is"
            found.refusals.append(Refusal(one.where, message))
    _memory(named, parts, found)
    return found


def seconds(text: str, where: str) -> int:
    """Of a walltime as qsub reads it: seconds, mm:ss, hh:mm:ss, dd:hh:mm:ss; a part of a second is a whole one."""
    if not _TIME.fullmatch(text):
        raise invalid(where, f"{shortened(text)} is no walltime of PBS", "seconds, mm:ss, hh:mm:ss or dd:hh:mm:ss")
    whole, point, rest = text.partition(".")
    total = 0
    for number, scale in zip(reversed(whole.split(":")), (1, 60, 3600, 86400), strict=False):
        total += int(number) * scale
    total += bool(point and rest.strip("0"))
    if not total:
        raise invalid(where, "a walltime of 0 leaves no time to run")
    return total


def megabytes(text: str, where: str) -> int:
    """A size as PBS reads it (8gb, 512mb, 100 bytes, w for words of 8 bytes), rounded up."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise invalid(where, f"{shortened(text)} is not a size of PBS", "such as 4gb or 500mb")
    size = int(match["count"]) * _SCALE[match["unit"].lower()] * (8 if match["of"].lower() == "w" else 1)
    return -(-size // _MB)


def _walltime(one: Resource, found: Resources) -> None:
    total = seconds(one.value, one.where)
    days, rest = divmod(total, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    found.given.append(Given("time", f"{days}-{clock}" if days else clock, one.where))


def _qos(one: Resource, found: Resources) -> None:
    found.given.append(Given("qos", one.value, one.where))


def _feature(one: Resource, found: Resources) -> None:
    found.given.append(Given("constraint", one.value.replace(":", "&"), one.where))


def _reservation(one: Resource, found: Resources) -> None:
    found.given.append(Given("reservation", one.value, one.where))


def _access(one: Resource, found: Resources) -> None:
    if one.value.lower() in _EXCLUSIVE:
        found.given.append(Given("exclusive", None, one.where))


_PLAIN: dict[str, Callable[[Resource, Resources], None]] = {
    "walltime": _walltime,
    "qos": _qos,
    "feature": _feature,
    "advres": _reservation,
    "naccesspolicy": _access,
}
_SHAPES = frozenset({"select", "nodes", "procs", "ncpus", "place"})


def _shape(one: Resource, place: Resource | None, found: Resources) -> list[_Part]:
    if one.name == "nodes":
        parts, apart = _nodes(one), True
    elif one.name == "select":
        parts, apart = _chunks(one), False
    else:
        count = _whole(one.value, one.name, one.where)
        parts, apart = ([_Part(count, 1, 1)], False) if one.name == "procs" else ([_Part(1, 1, count)], False)
    if place is not None:
        apart = _place(place, parts, found) or apart
    give = found.given.append
    ranks = sum(part.count * part.ranks for part in parts)
    if ranks > MOST_PROCESSES:
        raise invalid(one.where, f"{ranks} processes are more than {MOST_PROCESSES}")
    first, like = parts[0], {(part.ranks, part.processors, part.gpus, part.features) for part in parts}
    give(Given("ntasks", str(ranks), one.where))
    hosts = [part.host for part in parts if part.host]
    if hosts:
        give(Given("nodelist", ",".join(hosts), one.where))
    if len(like) > 1:
        message = "an elastic job is of like ranks, and cannot keep parts that differ"
        found.refusals.append(
            Refusal(one.where, message, "ask for like parts, or pass the job through with --elastic off")
        )
        if apart:
            give(Given("nodes", str(sum(part.count for part in parts)), one.where))
        return parts
    if first.processors % first.ranks:
        message = f"{first.ranks} ranks do not share {first.processors} processors evenly"
        found.refusals.append(Refusal(one.where, message, "let ncpus be a multiple of mpiprocs, or --elastic off"))
    elif (threads := first.processors // first.ranks) > 1:
        give(Given("cpus-per-task", str(threads), one.where))
    if apart:
        give(Given("nodes", str(sum(part.count for part in parts)), one.where))
    if apart or first.ranks > 1:
        give(Given("ntasks-per-node", str(first.ranks), one.where))
    if not apart:
        give(Given(FREE, None, one.where))
    if first.features:
        give(Given("constraint", "&".join(first.features), one.where))
    if first.gpus:
        give(Given("gpus-per-node", str(first.gpus), one.where))
    return parts


def _place(place: Resource, parts: list[_Part], found: Resources) -> bool:
    """Whether each chunk is to be on a node of its own."""
    words = place.value.split(":")
    apart = False
    for word in words:
        if word in _SHARINGS:
            if word != "shared":
                found.given.append(Given("exclusive", None, place.where))
        elif word.startswith("group="):
            found.refusals.append(Refusal(place.where, f"an elastic job cannot keep place={shortened(word)}"))
        elif word not in _PLACES:
            raise invalid(place.where, f"place={shortened(place.value)} is none that PBS has", "such as scatter:excl")
        elif word == "pack":
            if sum(part.count for part in parts) > 1:
                message = "an elastic job moves over several nodes, and cannot stay packed on one"
                found.refusals.append(Refusal(place.where, message))
        else:
            apart = word != "free"
    return apart


def _nodes(one: Resource) -> list[_Part]:
    """`2:ppn=4+n7:ppn=2:gpus=1:fast`."""
    parts = []
    for text in one.value.partition("#")[0].split("+"):
        head, *rest = text.strip().split(":")
        count, host = (_whole(head, "nodes", one.where), "") if head[:1].isdigit() else (1, head)
        ppn, gpus, features = 1, 0, []
        for word in rest:
            name, equals, value = word.partition("=")
            if name in ("ppn", "gpus") and equals:
                number = _whole(value, name, one.where)
                ppn, gpus = (number, gpus) if name == "ppn" else (ppn, number)
            elif not equals and _PROPERTY.fullmatch(name):
                features.append(name)
            else:
                raise invalid(
                    one.where, f"nodes={shortened(one.value)} cannot be read at {shortened(word)}", _NODES_HINT
                )
        if host and not _PROPERTY.fullmatch(host):
            raise invalid(one.where, f"nodes={shortened(one.value)} is not a number of nodes", _NODES_HINT)
        parts.append(_Part(count, ppn, ppn, gpus, 0, host, tuple(features)))
    return parts


_NODES_HINT = "such as nodes=4:ppn=16"
_SELECT_HINT = "such as select=4:ncpus=16:mpiprocs=16"


def _chunks(one: Resource) -> list[_Part]:
    """`2:ncpus=8:mpiprocs=4:mem=4gb+1:ncpus=1`. Without mpiprocs a chunk is one rank."""
    parts = []
    for text in one.value.split("+"):
        head, *rest = text.strip().split(":")
        count = 1
        if head[:1].isdigit():
            count = _whole(head, "select", one.where)
        else:
            rest = [head, *rest]
        said: dict[str, str] = {}
        for word in rest:
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise invalid(
                    one.where, f"select={shortened(one.value)} cannot be read at {shortened(word)}", _SELECT_HINT
                )
            said[name] = value
        ranks = _whole(said.pop("mpiprocs", "1"), "mpiprocs", one.where)
        processors = _whole(said.pop("ncpus", "1"), "ncpus", one.where)
        said.pop("ompthreads", "")
        gpus = _whole(said.pop("ngpus", "0"), "ngpus", one.where, least=0)
        memory = megabytes(said.pop("mem"), one.where) if "mem" in said else 0
        host = said.pop("host", "") or said.pop("vnode", "")
        # What is left are resources of the site's own. `fast=True` is what sbatch calls a feature.
        features = []
        for name, value in said.items():
            features.append(name if value.lower() == "true" else f"{name}={value}")
        parts.append(_Part(count, ranks, max(processors, ranks), gpus, memory, host, tuple(features)))
    return parts


def _whole(text: str, what: str, where: str, least: int = 1) -> int:
    if not _COUNT.fullmatch(text) or not least <= int(text) <= MOST_PROCESSES:
        raise invalid(where, f"{what} must be a whole number from {least} to {MOST_PROCESSES}, not {shortened(text)}")
    return int(text)


def _memory(named: dict[str, Resource], parts: list[_Part], found: Resources) -> None:
    """What each processor's part is: of a rank (pmem, pvmem), of a chunk, or of the whole job (mem, vmem)."""
    processors = sum(part.count * part.processors for part in parts) or 1
    ranks = sum(part.count * part.ranks for part in parts) or 1
    for name in ("pmem", "pvmem"):
        if name in named:
            of_rank = megabytes(named[name].value, named[name].where)
            _give_memory(-(-of_rank * ranks // processors), named[name].where, found)
            return
    if parts and parts[0].memory_mb:
        where = named["select"].where
        _give_memory(-(-parts[0].memory_mb // parts[0].processors), where, found)
        return
    for name in ("mem", "vmem"):
        if name in named:
            of_job = megabytes(named[name].value, named[name].where)
            _give_memory(-(-of_job // processors), named[name].where, found)
            return


def _give_memory(mb: int, where: str, found: Resources) -> None:
    if mb:
        found.given.append(Given("mem-per-cpu", f"{mb}M", where))
