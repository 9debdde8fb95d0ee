"""What a job wants of its nodes beside processors: memory, nodes to itself, nodes of a kind, devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ejbd.core.needs import features_of
from ejbd.manager.jobspec import values
from ejbd.manager.jobspec.depends import Depends
from ejbd.manager.jobspec.findings import Given, Refusal, invalid, shortened
from ejbd.manager.jobspec.hostlists import hosts
from ejbd.wire.sizes import SIZE_HINT, kilobytes

_GRES_OF_NODE = ("gres", "gpus-per-node")


@dataclass(frozen=True, slots=True)
class Wants:
    """As it was asked for. Memory is in megabytes, of a processor or of a node (0: all of it), None: not said.

    `where`: words of sbatch by which every subjob finds nodes that fit. `nodelist`: names of nodes that J0 asks for as
    they are, and subjobs may use some of. `shape`: words that J0 and all subjobs ask for, which are then of J0's own
    shape (`whole`). `first`: words for J0 alone. `devices`: what of each node is a device, as far as windows count it.
    `unsized`: the number of ranks was not said, and is that of the processors where nodes are whole. `dependency`: as
    --dependency has it, and `kill_invalid`, whether what can never be met ends the job (None: as the site has it).
    """

    memory_per_processor_mb: int | None = None
    memory_per_node_mb: int | None = None
    whole_nodes: bool = False
    constraint: str = ""
    nodelist: str = ""
    exclude: str = ""
    shape: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    unsized: bool = False
    dependency: str = ""
    kill_invalid: bool | None = None

    @property
    def has_gpus(self) -> bool:
        return any("gpu" in word.partition(":")[0] for word in self.shape)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values of what was asked for; :meth:`from_json` is its inverse."""
        nothing = Wants()
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) != getattr(nothing, name)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, (list, tuple)) else value for name, value in (data or {}).items()
        }
        if "devices" in found:
            found["devices"] = tuple((str(name), int(count)) for name, count in found["devices"])
        return cls(**found)


def read_wants(
    settings: Mapping[str, Given], shape: tuple[str, ...], first: tuple[str, ...], unsized: bool
) -> tuple[Wants, tuple[Refusal, ...]]:
    """What the settings say, and why that cannot be elastic. Raises EjbError (INVALID) for what is no such value."""
    refusals: list[Refusal] = []
    of_processor, of_node = settings.get("mem-per-cpu"), settings.get("mem")
    if of_processor and of_node:  # the last one wins, as in sbatch
        last = [name for name in settings if name in ("mem", "mem-per-cpu")][-1]
        of_processor, of_node = (of_processor, None) if last == "mem-per-cpu" else (None, of_node)
    whole = False
    if exclusive := settings.get("exclusive"):
        if exclusive.value in (None, ""):
            whole = True
        elif exclusive.value not in ("user", "mcs"):
            raise invalid(exclusive.where, f"--exclusive={shortened(exclusive.value or '')} is none of user and mcs")
        else:
            message = f"EJB cannot see which nodes are free for --exclusive={exclusive.value}"
            refusals.append(Refusal(exclusive.where, message))
    constraint = settings.get("constraint")
    if constraint and features_of(constraint.value or "") is None:
        message = f"EJB cannot see which nodes fit the constraint {shortened(constraint.value or '')}"
        refusals.append(Refusal(constraint.where, message, "name features with & or | between them, or --elastic off"))
    dependency = settings.get("dependency")
    if dependency and dependency.value and Depends.read(dependency.value) is None:
        message = f"only the batch system can read the dependency {shortened(dependency.value)}"
        refusals.append(Refusal(dependency.where, message, "such as afterok:ID:ID or singleton, or --elastic off"))
    kill_invalid = settings.get("kill-on-invalid-dep")
    for name in ("nodelist", "exclude"):
        given = settings.get(name)
        if given is None or not given.value:
            continue
        if "/" not in given.value:
            hosts(given.value, given.where)
        else:
            refusals.append(Refusal(given.where, f"--{name} names a file, which the daemon would have to read"))
    wants = Wants(
        memory_per_processor_mb=megabytes(of_processor) if of_processor else None,
        memory_per_node_mb=megabytes(of_node) if of_node else None,
        whole_nodes=whole,
        constraint=_text(constraint),
        nodelist=_text(settings.get("nodelist")),
        exclude=_text(settings.get("exclude")),
        shape=shape,
        first=first,
        devices=_devices(settings),
        unsized=unsized,
        dependency=_text(dependency, empty=True),
        kill_invalid=values.switch(kill_invalid) if kill_invalid is not None else None,
    )
    return wants, tuple(refusals)


def _text(given: Given | None, *, empty: bool = False) -> str:
    return values.text(given, f"the value of --{given.name}", empty=empty) if given is not None else ""


def megabytes(given: Given) -> int:
    """A size as sbatch reads it (4G, 500M, 2000; K, M, G, T), rounded up; 0 is all of a node."""
    text = (given.value or "").strip()
    size_kb = kilobytes(text)
    if size_kb is None:
        raise invalid(given.where, f"{shortened(text)} is not a size of memory", SIZE_HINT)
    return -(-size_kb // 1024)


def _devices(settings: Mapping[str, Given]) -> tuple[tuple[str, int], ...]:
    """What of each node is asked for by name and number, as far as the options say it of nodes."""
    found: dict[str, int] = {}
    for option in _GRES_OF_NODE:
        given = settings.get(option)
        for word in (given.value or "").split(",") if given else ():
            name, *rest = (word if option == "gres" else f"gpu:{word}").strip().split(":")
            count = rest[-1] if rest and rest[-1].isascii() and rest[-1].isdigit() else "1"
            if name and name != "none":
                found[name] = found.get(name, 0) + int(count[:9])
    return tuple(found.items())
