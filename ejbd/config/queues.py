"""Settings of a queue, with the parameters of its policy, and what may be changed while the daemon runs."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ejbd.core.parameters import Declared, Parameters, declared, of_queues
from ejbd.core.policy import Policy, UnknownPolicy
from ejbd.core.shortruns import PLAIN_BELOW
from ejbd.plugins.batches import on_or_off
from ejbd.plugins.policies import BUNDLING, known_policy, queue_policies


class Elasticity(StrEnum):
    """Whether jobs of a queue are made elastic."""

    OFF = "off"  # passed through as ordinary jobs, and still tracked
    ON = "on"
    AUTO = "auto"  # while at least `auto_queue_length` jobs are waiting in the queue


OTHERS_DAYS = 4.0  # a day is replayed until a day after it, and from a day before it on


def _of_others(days: float) -> float:
    if 0 < days < OTHERS_DAYS:
        raise PydanticCustomError("others", "a replay needs 4 days of other jobs: it is 0, or 4 at least")
    return days


ACCOUNT_WORD = r"^[A-Za-z0-9_.+@-]{0,128}$"  # a name among Slurm's accounts, which cannot be read as an option


class QueueSettings(BaseModel):
    """What a queue's settings have in common: elasticity, and the choice of a policy.

    The parameters of the policy are settings beside these. They are declared with the policy (`ejbd.core.parameters`):
    :func:`settings_model` makes the model that has them all, and it is that which validation returns.
    """

    model_config = ConfigDict(extra="forbid")

    elasticity: Annotated[
        Elasticity,
        Field(
            description="`off`: jobs are passed through as ordinary ones and still tracked. `on`. `auto`: on once "
            "`auto_queue_length` jobs wait, and off again when fewer than half as many do. A change "
            "reaches waiting jobs (docs/operators.md)"
        ),
    ] = Elasticity.OFF
    auto_queue_length: Annotated[int, Field(ge=1, description="jobs waiting at or above which `auto` is on")] = 10
    policy: Annotated[
        str, Field(description="what decides when jobs start, grow and move: a policy's name (docs/policies.md)")
    ] = BUNDLING
    lambda_floor_s: Annotated[
        float, Field(ge=0, le=86400, description="a move is never planned as cheaper than this, whatever was measured")
    ] = 1.0
    checkpoint_every: Annotated[
        Literal["off", "auto"] | Annotated[float, Field(ge=1, le=31 * 86400, allow_inf_nan=False)],
        Field(
            description="checkpoints against lost nodes: `off`, or seconds of computing between two. `auto`: Daly's "
            "optimum from what a move of the application costs and from `node_mtbf_s` "
            "(docs/operators.md). A job may say otherwise"
        ),
    ] = "off"
    first_checkpoint_s: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            description="when an application that engine `dmtcp` has never moved tries its first checkpoint: "
            "seconds after its ranks began. What fails at it is never moved (docs/faults.md). 0: not "
            "before it has to move",
        ),
    ] = 10.0
    node_mtbf_s: Annotated[
        float,
        Field(
            ge=1,
            le=1e11,
            description="mean time between failures of one node; on n nodes the job meets one every `node_mtbf_s`/n. "
            "Used by `auto` alone",
        ),
    ] = 365 * 86400.0
    min_processors: Annotated[int, Field(ge=1, description="smaller jobs are passed through")] = 2
    in_place: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether ranks take the processors of a further subjob on a node where they run, and leave "
            "them again, without a checkpoint. A worker refuses where it is held to its own CPUs: its job moves then "
            "(docs/malleable.md)"
        ),
    ] = "off"
    short_runs: Annotated[
        float,
        Field(
            ge=0,
            le=1000,
            description="a job that could start at once is passed through if its application's runs were short. That "
            "is below so many times what elastic starts and ends took here (docs/policies.md); 0: none is",
        ),
    ] = 0.0
    plain_below: Annotated[
        float,
        Field(
            ge=0,
            le=1000,
            description="J0 also runs a job that can be moved without workers if its application's runs were short. "
            "That is below so many times what elastic starts and ends took here (docs/policies.md). 0: none is",
        ),
    ] = PLAIN_BELOW
    plain_j0: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether J0 runs a job as sbatch would, without workers. Only what has not begun before, "
            "and needs no wire-up: what cannot be moved, and short runs (docs/policies.md). Slurm alone; never where "
            "`alone_after_s` is 0"
        ),
    ] = "on"
    stop_when_late: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether a queue stops where most of its latest elastic jobs ended later than J0 could hope "
            "to. Then no job is made elastic or started early for an hour and more (docs/policies.md)"
        ),
    ] = "off"
    walltime: Annotated[
        Literal["own", "auto"],
        Field(
            description="which walltime is asked for: the user's `own`, or `auto`: learned from earlier runs of the "
            "application. The first of these is asked for, and the next after a time-out "
            "(docs/speculation.md). A job may say otherwise"
        ),
    ] = "own"
    plan_by: Annotated[
        Literal["request", "learned"],
        Field(
            description="which run time plans an elastic job with its user's own walltime. `request`: that "
            "walltime. `learned`: the time by which 95 of 100 earlier runs of the application were over "
            "(docs/speculation.md)"
        ),
    ] = "request"
    weigh_by: Annotated[
        Literal["request", "learned"],
        Field(
            description="which run time decides whether a further subjob, or a move to J0, pays. `request`: the "
            "user's. `learned`: the time by which one in twenty of the earlier runs that got so far was "
            "over (docs/speculation.md)"
        ),
    ] = "request"
    keep_place: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether the run with the next learned walltime is submitted as soon as one begins. It "
            "stands by in the queue and keeps that place for after a time-out. It counts as one more "
            "batch job of its user (docs/speculation.md)"
        ),
    ] = "on"
    gaps: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether waiting jobs that may be run again are sent into windows shorter than their request. "
            "8 of 10 runs like them were over by then (docs/speculation.md)"
        ),
    ] = "off"
    raised: Annotated[
        Literal["off", "rerunnable", "all"],
        Field(
            description="which waiting jobs are planned by their user's last two runs, and raised to their request "
            "before that is over. Only an operator of Slurm may raise (docs/speculation.md)"
        ),
    ] = "off"
    max_subjobs: Annotated[
        int, Field(ge=1, le=1000, description="most subjobs that one job runs on at once, J0 not counted")
    ] = 8
    subjob_qos: Annotated[
        str,
        Field(
            pattern=ACCOUNT_WORD,
            description="the QOS of subjobs on Slurm, in place of J0's. One with `UsageFactor=0` charges no fair "
            "share for them. It may have limits and a priority of its own (docs/slurm.md). Empty: J0's",
        ),
    ] = ""
    subjob_account: Annotated[
        str,
        Field(
            pattern=ACCOUNT_WORD,
            description="the account of subjobs on Slurm, in place of J0's (docs/slurm.md). Empty: J0's",
        ),
    ] = ""

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...

    def __new__(cls, **given: Any) -> Self:
        """`QueueSettings(...)` is one of the policy that is named; an unknown one is refused by validation."""
        try:
            model = settings_model(given.get("policy", BUNDLING)) if cls is QueueSettings else cls
        except UnknownPolicy:
            model = cls
        return cast(Self, super().__new__(model))

    @model_validator(mode="wrap")
    @classmethod
    def _with_the_policys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> QueueSettings:
        """By the model of the policy that is named."""
        if isinstance(data, Mapping):
            try:
                model = settings_model(data.get("policy", BUNDLING))
            except UnknownPolicy as error:
                raise PydanticCustomError("policy", "{why}", {"why": str(error)}) from None
            names = renamed(model)
            for key in names.keys() & data.keys():
                raise PydanticCustomError("renamed", "{why}", {"why": f"{key} is called {names[key]} now"})
            for key in simulated_only(model) & data.keys():
                raise PydanticCustomError("simulated", "{why}", {"why": f"{key} is a setting of ejb sim alone"})
            if cls is QueueSettings:
                return model.model_validate(data)
        return handler(data)

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The policy's parameters as the queue has them."""
        of = known_policy(self.policy).declares
        return of(**{name: getattr(self, name) for name in of_queues(of)})

    @property
    def has_plain_j0s(self) -> bool:
        """Whether J0 may run a job without workers; not where processors are lent, which takes workers."""
        return self.plain_j0 == "on" and self.in_place == "off"

    def renewed(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that were stored by any version, under the names of today."""
        names, gone = renamed(type(self)), simulated_only(type(self))
        return {names.get(key, key): value for key, value in stored.items() if names.get(key, key) not in gone}

    def having(self, changes: Mapping[str, Any]) -> QueueSettings:
        """The same with other values. Where they choose another policy, what that one knows not is left out.

        What was stored by another version, or with a policy that is not there now, is taken as far as it is known.
        """
        renewed = self.renewed(changes)
        if renewed.get("policy", self.policy) not in queue_policies():
            del renewed["policy"]
        model = settings_model(renewed.get("policy", self.policy))
        both = {**self.model_dump(), **renewed}
        return model.model_validate({key: value for key, value in both.items() if key in model.model_fields})


def _field(one: Declared) -> tuple[Any, Any]:
    """A parameter as a field of a model."""
    bounds: dict[str, Any] = {}
    if one.kind in (int, float):
        bounds = {k: v for k, v in (("ge", one.about.least), ("le", one.about.most)) if math.isfinite(v)}
    says = "; ".join(filter(None, (one.about.says, one.about.more)))
    return Annotated[one.kind, Field(description=says, **bounds)], one.queue_default


def settings_model(policy: str) -> type[QueueSettings]:
    """The settings of a queue under a policy.

    Raises UnknownPolicy where no queue can have one of that name, and ValueError where it declares what every queue
    has.
    """
    found = known_policy(policy)
    return _model_of(found)


@functools.cache
def _model_of(policy: type[Policy]) -> type[QueueSettings]:
    of = policy.declares
    fields: dict[str, Any] = {one.name: _field(one) for one in of_queues(of).values()}
    taken = sorted(set(fields) & set(QueueSettings.model_fields))
    if taken:
        raise ValueError(f"policy {policy.name} declares {', '.join(taken)}, which every queue has already")
    told = Annotated[str, QueueSettings.model_fields["policy"]]
    return create_model("QueueSettings", __base__=QueueSettings, policy=(told, policy.name), **fields)


def renamed(model: type[QueueSettings]) -> dict[str, str]:
    """Settings by the names that they had before, and their names now."""
    of = known_policy(model.model_fields["policy"].default).declares
    return {one.about.formerly: one.name for one in of_queues(of).values() if one.about.formerly}


def simulated_only(model: type[QueueSettings]) -> set[str]:
    """Parameters of the policy that no queue may set."""
    of = known_policy(model.model_fields["policy"].default).declares
    return set(declared(of)) - set(of_queues(of))


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise ValidationError for settings that no queue could have, whatever its policy; None stands for any value."""
    given = {key: value for key, value in changes.items() if value is not None}
    faults = []
    policies = queue_policies()
    for name in [given["policy"]] if "policy" in given else list(policies):
        known = settings_model(name).model_fields if name in policies else changes
        reset = dict.fromkeys(key for key, value in changes.items() if value is None and key not in known)
        try:
            QueueSettings(**{**given, **reset, "policy": name})
            return
        except ValidationError as error:
            faults.append(error)
    raise faults[0]


def settings_schema() -> dict[str, Any]:
    """The JSON schema of a queue's settings: those of EJB's own policy; another one has parameters of its own."""
    schema = settings_model(BUNDLING).model_json_schema()
    return {**schema, "title": "QueueSettings", "additionalProperties": True}


def changes_schema() -> dict[str, Any]:
    """The JSON schema of changes to a queue's settings, each of which may be null."""
    schema = settings_schema()
    maybe = {
        name: {"anyOf": [{k: v for k, v in field.items() if k != "default"}, {"type": "null"}]}
        for name, field in schema["properties"].items()
    }
    return {**schema, "title": "QueueChanges", "properties": maybe}
