"""Parameters of a policy, declared once: type, default, bounds, unit and documentation stand where the field stands.

The queue's settings (TOML, `ejb queue set`, REST), the simulator's options and settings, and a job's own words are made
from what :func:`declared` finds; nothing else has a list of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum, StrEnum
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

from ejbd.core.delta import Delta, DeltaByDegree, delta_from_json, delta_to_json, least_of, parse_delta
from ejbd.core.progress import degree
from ejbd.core.rungs import Rungs, rate_on

UNLIMITED = math.inf
ANYWHERE = -1  # no node limit

_SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
JOB_WORDS = (
    "restartable",
    "rerunnable",
    "best-effort",
    "stages",
    "engine",
    "mpi",
    "elastic",
    "checkpoint",
    "app",
    "walltime",
    "widths",
    "ntasks-max",
    "profile",
)
"""What a job says in words that are no policy's: no parameter that a job may say can be called so."""


class _Unsaid(Enum):
    UNSAID = 0


UNSAID = _Unsaid.UNSAID


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """What is said of a field of :class:`Parameters` that people may set.

    `says` documents it in a few words, `more` in as many as it takes (docs/configuration.md). Bounds are those of a
    queue; a simulation may go down to `simulated_least` and up without an end. `queue`: a queue's default where it is
    not the field's own, which is the paper's; `simulated`: that of `ejb sim`. `key`: its name in the simulator where
    that is not the field's without `_s`, with `-` for `_`. `per_job`: a job may say otherwise. `formerly`: what it was
    called before. `simulated_only`: tables need it, and no queue should be run with it: no queue has it.
    """

    says: str
    more: str = ""
    least: float = -math.inf
    most: float = math.inf
    simulated_least: float | None = None
    unit: str = ""
    queue: Any = UNSAID
    simulated: Any = UNSAID
    key: str = ""
    per_job: bool = False
    formerly: str = ""
    simulated_only: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """One parameter of a policy: its field and what is said of it. `kind` is bool, int, float, str or a StrEnum.

    `by_degree`: a simulation, or what was measured, may have one figure for each of some degrees in the place of one.
    """

    name: str
    kind: type[Any]
    default: Any
    about: Parameter
    by_degree: bool = False

    @property
    def key(self) -> str:
        """Its name in the simulator's settings and options."""
        return self.about.key or self.name.removesuffix("_s").replace("_", "-")

    @property
    def queue_default(self) -> Any:
        return self.default if self.about.queue is UNSAID else self.about.queue

    @property
    def simulated_default(self) -> Any:
        return self.default if self.about.simulated is UNSAID else self.about.simulated

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be, where it is one of some words."""
        return tuple(word.value for word in self.kind) if issubclass(self.kind, StrEnum) else ()

    @property
    def simulated_least(self) -> float:
        about = self.about
        return about.least if about.simulated_least is None else about.simulated_least

    def in_a_job(self, text: str) -> Any:
        """What a job says, within the bounds of a queue; nothing at all is "on" where it is a switch.

        Raises ValueError that says what it has to be.
        """
        about, given = self.about, text.strip()
        if self.kind is bool:
            if (given.lower() or "on") not in _SWITCH:
                raise ValueError("on or off")
            return _SWITCH[given.lower() or "on"]
        if self.choices:
            if given not in self.choices:
                raise ValueError(f"one of {', '.join(self.choices)}")
            return self.kind(given)
        if self.kind not in (int, float):
            return self.kind(text)
        try:
            value = self.kind(given)
        except ValueError:
            value = math.nan
        if not about.least <= value <= about.most or "_" in given or math.isinf(value):
            raise ValueError(("a whole number" if self.kind is int else "a number") + self._bounds())
        return value

    def _bounds(self) -> str:
        """As " from 1 to 9"; what has no end is left out."""
        ends = (("from", self.about.least), ("to", self.about.most))
        return "".join(f" {word} {end:g}" for word, end in ends if math.isfinite(end))

    def parse(self, text: str) -> Any:
        """What a simulation is told by a text. Raises ValueError for what is no such value."""
        if self.kind is bool:
            if text not in _SWITCH:
                raise ValueError(text)
            return _SWITCH[text]
        if self.by_degree:
            delta = parse_delta(text)
            if not least_of(delta) >= self.simulated_least:
                raise ValueError(f"it is below {self.simulated_least:g}")
            return delta
        value = self.kind(text)
        if self.kind in (int, float) and not value >= self.simulated_least:
            raise ValueError(text)
        return value


@dataclass(frozen=True, slots=True)
class Parameters:
    """What every policy is asked with: what a queue says, a job's own word, and what was measured, in that order.

    `giving_back_s`: from when processors are not needed any more until they are free. `pace`: by how much longer than
    in its own shape the application computes on subjobs, whatever their degree. Both are measured. `runs_s`: how long
    the work of this cluster lasts (:mod:`ejbd.core.lasting`); 0: it is not known. Other fields
    without a :class:`Parameter` are the batch system's: subjobs come in multiples of `processor_quantum`, their
    walltimes of `walltime_quantum_s`; `max_walltime_s` is the longest that the queue takes, and a slot that lasts that
    long is as good as one without an end. `node_limit`: all processes of a job have to stay on one node, and no node
    has more than this many processors; negative: they may be anywhere. A job's own limit comes before it. `rungs` are
    those of an application that is reshaped; None: it keeps its ranks, and Eq. 2 says how fast it is.
    """

    omax: Annotated[
        int,
        Parameter(
            says="highest degree of over-subscription: most ranks on a processor (O_max)",
            least=1,
            most=1024,
            per_job=True,
        ),
    ] = 8
    lambda_s: Annotated[
        float,
        Parameter(
            says="what one move costs (lambda), until the application's own moves were measured. It decides whether "
            "growing pays, and how long before its end a subjob is left",
            more="no guess is believed below it (docs/operators.md)",
            least=0,
            most=86400,
            unit="s",
            per_job=True,
        ),
    ] = 120.0
    delta: Annotated[
        Delta,
        Parameter(
            says="overhead of over-subscription (Delta of Eq. 2), until the application's own was measured",
            more="docs/operators.md says how",
            least=1,
            most=100,
            simulated_least=0.01,
            per_job=True,
        ),
    ] = 1.0
    start_up_s: Annotated[
        float,
        Parameter(
            says="what a further subjob costs beside lambda: from its start until ranks can run on it. Its processors "
            "are held meanwhile",
            more="the ranks go on where they are",
            least=0,
            most=86400,
            unit="s",
            key="startup",
        ),
    ] = 0.0
    giving_back_s: float = 0.0
    pace: float = 1.0
    runs_s: float = 0.0
    processor_quantum: int = 1
    walltime_quantum_s: float = 1.0
    max_walltime_s: float = UNLIMITED
    node_limit: int = ANYWHERE
    rungs: Rungs | None = None

    def rate_on(self, processes: int, processors: int) -> float:
        """Work per second of a job on so many processors, without the pace; 0 on none."""
        return rate_on(processes, processors, self.delta, self.rungs)

    def ranks_each(self, processes: int, processors: int) -> int:
        """Ranks on the fullest processor: 1 for what is reshaped. `processors` is at least 1."""
        return degree(processes, processors) if self.rungs is None else 1

    def move_to_s(self, processes: int, processors: int) -> float:
        """What a move to so many processors costs, in seconds: lambda, unless the job's rungs tell widths apart."""
        return self.lambda_s if self.rungs is None else self.rungs.move_to_s(processors, self.lambda_s)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values by their names; what has no end becomes None (null)."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "rungs":  # few jobs have any
                plain |= {} if value is None else {"rungs": value.to_json()}
                continue
            value = delta_to_json(value) if isinstance(value, DeltaByDegree) else value
            plain[field.name] = None if isinstance(value, float) and math.isinf(value) else value
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The parameters that `to_json` wrote, or an older version; TypeError or ValueError where they are none."""
        given: dict[str, Any] = {}
        for key, value in cls.renewed(data).items():
            one = declared(cls).get(key)
            if one is not None and one.choices:
                value = one.kind(value)
            if one is not None and one.by_degree:
                value = delta_from_json(value)
            if key == "rungs":
                value = Rungs.from_json(value)
            given[key] = UNLIMITED if value is None else value
        return cls(**given)

    @classmethod
    def renewed(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """The same under the names of today."""
        names = {one.about.formerly: one.name for one in declared(cls).values() if one.about.formerly}
        return {names.get(key, key): value for key, value in data.items()}


def said_by_job(of: type[Parameters], settings: Mapping[str, str]) -> dict[str, Any]:
    """What a job's own words (key: text) come to under a policy, by the names of the fields.

    Words that the policy does not know, or would refuse, are left out: the queue's policy may be another one than that
    by which the job was taken.
    """
    found = {}
    for name, one in declared(of).items() if settings else ():
        if one.about.per_job and one.key in settings:
            try:
                found[name] = one.in_a_job(settings[one.key])
            except ValueError:
                continue
    return found


def simulated(of: type[Parameters]) -> Parameters:
    """The parameters of a policy with the defaults of `ejb sim`."""
    return of(**{name: one.simulated_default for name, one in declared(of).items()})


def per_job() -> Mapping[str, Declared]:
    """What a job may say of its own, whatever its queue's policy, by the names of the fields."""
    return {name: one for name, one in declared(Parameters).items() if one.about.per_job}


def of_queues(of: type[Parameters]) -> Mapping[str, Declared]:
    """What a queue may set of a policy's parameters, by the names of the fields."""
    return {name: one for name, one in declared(of).items() if not one.about.simulated_only}


_DECLARED: dict[type[Parameters], Mapping[str, Declared]] = {}


def declared(of: type[Parameters]) -> Mapping[str, Declared]:
    """The parameters of a policy that people may set, by their names, in the order of their declaration."""
    if of in _DECLARED:
        return _DECLARED[of]
    hints = get_type_hints(of, include_extras=True)
    found = {}
    for field in fields(of):
        hint = hints[field.name]
        about = next((a for a in get_args(hint)[1:] if isinstance(a, Parameter)), None)
        if get_origin(hint) is not Annotated or about is None:
            continue
        if field.default is MISSING:
            raise TypeError(f"{of.__name__}.{field.name} needs a default")
        kind = get_args(hint)[0]
        by_degree = kind == Delta
        found[field.name] = Declared(field.name, float if by_degree else kind, field.default, about, by_degree)
    _DECLARED[of] = found
    return found
