"""The parameters of elastic job bundling, each declared here and nowhere else, and the form in which kernels take them.

The defaults are the paper's algorithm; a queue's are those that did best where many jobs are elastic
(docs/configuration.md).
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from ejbd.core.delta import Delta, deltas_for_kernels
from ejbd.core.kernel import Floats, Ints, kernel
from ejbd.core.parameters import Parameter, Parameters
from ejbd.core.rungs import Rungs


class Order(StrEnum):
    """In which order elastic jobs look for room."""

    ARRIVAL = "arrival"  # as the paper has it
    LEAST_WORK = "least-work"  # waiting jobs before running ones, the least P * (R - W) first


class Guard(StrEnum):
    """Whether room is borrowed only (`ejbd.core.bundling.guard`)."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


ARRIVAL, LEAST_WORK = (list(Order).index(order) for order in (Order.ARRIVAL, Order.LEAST_WORK))  # for kernels
OVER_SUBSCRIBED, BY_LAW, BY_TABLE = 0, 1, 2  # the form of a job's rungs, for kernels


@dataclass(frozen=True, slots=True)
class BundlingParameters(Parameters):
    """What bundling goes by. What goes beyond the paper is off unless it is asked for."""

    suspend: Annotated[
        bool,
        Parameter(
            says="use room that is too short to finish in. Before the room ends the job is checkpointed, and waits "
            "again with its work and its place (J0)",
            more="going on later costs one lambda",
            queue=True,
        ),
    ] = False
    grow_to_suspend: Annotated[
        bool,
        Parameter(
            says="with `suspend`, a run that will be suspended all the same takes more processors where they make more "
            "work until then",
            more="it has to be worth a move",
            simulated_only=True,
        ),
    ] = True
    order: Annotated[
        Order,
        Parameter(
            says="which jobs look for room first. `least-work`: waiting jobs before running ones, the least processors "
            "x seconds left first; `arrival`: the first to come, whatever it does",
            queue=Order.LEAST_WORK,
        ),
    ] = Order.ARRIVAL
    fair_half_life_s: Annotated[
        float,
        Parameter(
            says="waiting jobs look for room user by user, before `order` counts. First comes the user that has "
            "used the least, half of which is forgotten within this time (docs/policies.md)",
            more="0: users are not told apart",
            least=0,
            most=366 * 86400,
            unit="s",
            queue=86400.0,
        ),
    ] = 0.0
    whole_slots: Annotated[
        bool,
        Parameter(
            says="take all processors of the room, not the fewest that give the same degree of over-subscription",
            simulated_only=True,
        ),
    ] = False
    act_in_move: Annotated[
        bool,
        Parameter(
            says="look for more room while a move is under way",
            more="what starts before the ranks do joins that move, what starts later costs another",
            formerly="act_in_migration",
            simulated_only=True,
        ),
    ] = False
    min_left_s: Annotated[
        float,
        Parameter(
            says="no growth for a job that will be done within this time",
            more="a move's lambda is the least in any case",
            least=0,
            most=31 * 86400,
            unit="s",
            simulated_only=True,
        ),
    ] = 0.0

    guard: Annotated[
        Guard,
        Parameter(
            says="elastic jobs must not cost the others (`auto`: where `suspend` is on). Over-subscribed ones give "
            "back what a waiting job would fit into",
            more="none borrows where moves are long beside the runs of this cluster (docs/policies.md)",
            queue=Guard.ON,
            simulated=Guard.AUTO,
        ),
    ] = Guard.OFF

    j0_in_turn: Annotated[
        bool,
        Parameter(
            says="no elastic job starts on its J0 before its turn under plain EASY while others wait beyond theirs",
            more="it goes with the guard (docs/policies.md)",
            queue=True,
        ),
    ] = False

    @property
    def rules(self) -> Rules:
        """The same for the kernels, every figure of its one type."""
        return rules_of(self)

    @classmethod
    def renewed(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        found = super(BundlingParameters, cls).renewed(data)
        if "least_work_first" in found:  # logs of before
            found["order"] = Order.LEAST_WORK if found.pop("least_work_first") else Order.ARRIVAL
        found.setdefault("guard", Guard.OFF)  # logs of before it
        return found


_NOT = ("rungs", "fair_half_life_s")  # of them kernels have another form, or do without

if TYPE_CHECKING:

    class Rules(BundlingParameters):
        """:class:`BundlingParameters` for kernels: words by their places among the choices, Delta by degree, rungs by
        their form (one of the above) with a law or a table."""

        order: int  # type: ignore[assignment]
        guard: int  # type: ignore[assignment]  # 1 where it is on
        delta: Floats  # type: ignore[assignment]  # by degree, as :func:`ejbd.core.progress.stretch_by` takes it
        form: int
        alpha: float
        widths: Ints
        stretches: Floats
        moves_s: Floats
        above: int  # how many of the widths are beyond the one that was asked for
        beyond: float  # by a law: up to how many times that width; 1: no width is beyond it

else:
    _OF_RUNGS = ("form", "alpha", "widths", "stretches", "moves_s", "above", "beyond")
    Rules = namedtuple("Rules", [one.name for one in fields(BundlingParameters) if one.name not in _NOT] + [*_OF_RUNGS])


def _number(kind: type[Any]) -> Callable[[Any], Any]:
    """How a value becomes the number that a kernel takes; Delta becomes a vector, with the pace."""
    if kind == Delta:
        return lambda value: value
    if not issubclass(kind, StrEnum):
        return kind
    places = {word: place for place, word in enumerate(kind)}
    return places.__getitem__


_HINTS = get_type_hints(BundlingParameters)
_NUMBERS = tuple(
    (field.name, _number(_HINTS[field.name]), field.default)
    for field in fields(BundlingParameters)
    if field.name not in _NOT
)


def rules_of(parameters: Parameters) -> Rules:
    """The parameters of any policy for the kernels: what a policy does not have is as the paper has it."""
    values = [number(getattr(parameters, name, default)) for name, number, default in _NUMBERS]
    rules = Rules(*values, *_form(parameters.rungs))  # type: ignore[call-arg]
    deltas = deltas_for_kernels(parameters.delta, parameters.pace)
    guard = getattr(parameters, "guard", Guard.OFF)
    guards = guard is Guard.ON or (guard is Guard.AUTO and bool(rules.suspend))
    in_turn = bool(guards) and bool(rules.j0_in_turn)
    return rules._replace(delta=deltas, guard=int(guards), j0_in_turn=in_turn)  # type: ignore[attr-defined,no-any-return]


def keeps_turns(parameters: Parameters) -> bool:
    """Whether J0s may have to stay (:mod:`ejbd.core.bundling.turns`)."""
    return bool(rules_of(parameters).j0_in_turn)


def _form(rungs: Rungs | None) -> tuple[int, float, list[int], list[float], list[float], int, float]:
    if rungs is None:
        return OVER_SUBSCRIBED, 0.0, [], [], [], 0, 1.0
    lists = list(rungs.widths), list(rungs.stretches), list(rungs.moves_s)
    if rungs.alpha > 0.0:
        return BY_LAW, rungs.alpha, *lists, 0, rungs.beyond
    above = rungs.above
    return BY_TABLE, rungs.alpha, *lists, above, 2.0 if above else 1.0


@kernel
def rules_of_one(rules: Rules, omax: int, runs_s: float) -> Rules:
    """The same rules with O_max no higher than `omax`, which is a job's own, and what is known of runs by now."""
    return Rules(  # type: ignore[call-arg]
        omax=min(rules.omax, omax),
        lambda_s=rules.lambda_s,
        delta=rules.delta,  # type: ignore[arg-type]
        start_up_s=rules.start_up_s,
        giving_back_s=rules.giving_back_s,
        pace=rules.pace,
        runs_s=runs_s,
        processor_quantum=rules.processor_quantum,
        walltime_quantum_s=rules.walltime_quantum_s,
        max_walltime_s=rules.max_walltime_s,
        node_limit=rules.node_limit,
        suspend=rules.suspend,
        grow_to_suspend=rules.grow_to_suspend,
        order=rules.order,  # type: ignore[arg-type]
        whole_slots=rules.whole_slots,
        act_in_move=rules.act_in_move,
        min_left_s=rules.min_left_s,
        guard=rules.guard,  # type: ignore[arg-type]
        j0_in_turn=rules.j0_in_turn,
        form=rules.form,
        alpha=rules.alpha,
        widths=rules.widths,
        stretches=rules.stretches,
        moves_s=rules.moves_s,
        above=rules.above,
        beyond=rules.beyond,
    )
