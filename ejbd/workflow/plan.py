"""A plan of stages as values. Widths are processors (tasks, one processor each), times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from ejbd.workflow.tree import Place


class PlanMode(StrEnum):
    """When the next stage is asked for (E-HPC, section 3.6)."""

    DEFAULT = "default"
    """Once the stages that it needs have ended."""
    FAST = "fast"
    """While they run, so that it waits in the queue beside them."""


class OnFailure(StrEnum):
    """What becomes of the rest where a stage has failed and may not be tried again."""

    STOP = "stop"
    """What runs goes on to its end; nothing new begins."""
    CONTINUE = "continue"
    """What does not need it is begun, too."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: `tasks` processors for at most `walltime_s`.

    `nodes` and `ppn` as the file says them (None: it does not). `min_tasks`: processors on which its ranks can start.
    `profile`: its widths one after the other (`16:10m,64:5m`), of which the greatest is `tasks`. `needs`: the stages
    that have to end well before. `elements`: values of a scattered stage, each of which is run on `tasks` of its own.
    `restartable`: its command may be begun anew behind the launches that have ended. `inputs` and `outputs`: patterns
    of files. `place`: where it stands in the file, and `places`: where what its keys say does.
    """

    name: str
    command: str
    tasks: int
    walltime_s: float
    needs: tuple[str, ...] = ()
    nodes: int | None = None
    ppn: int | None = None
    min_tasks: int | None = None
    profile: str | None = None
    engine: str | None = None
    elastic: str | None = None
    restartable: bool = False
    retries: int = 0
    elements: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    account: str | None = None
    qos: str | None = None
    partition: str | None = None
    place: Place = field(default=Place(1, 1), compare=False)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)

    @property
    def width(self) -> int:
        """Processors that it holds where all of its elements run at once."""
        return self.tasks * max(1, len(self.elements))

    @property
    def shape(self) -> str:
        """Its width in the words of the file."""
        if self.profile is not None:
            return f"profile: {self.profile}"
        if self.nodes is None:
            return f"tasks: {self.tasks}"
        return f"nodes: {self.nodes}" + (f", ppn: {self.ppn}" if self.ppn is not None else f", tasks: {self.tasks}")

    def needs_as(self, other: Stage) -> bool:
        """Whether both are asked of the batch system in the same words, so that one allocation does for both."""
        alone = any(one.elements or one.profile or one.restartable for one in (self, other))
        return not alone and all(getattr(self, name) == getattr(other, name) for name in _ASKED)


_ASKED = ("tasks", "nodes", "ppn", "min_tasks", "engine", "elastic", "account", "qos", "partition")


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow. `bundle`: stages that follow each other with equal needs share an allocation.

    `ahead_s`: in fast mode, how long before the stages that it needs are expected to end a stage goes into the queue.
    `linger_s`: for how long at most it then holds its processors before they have.
    """

    name: str
    stages: tuple[Stage, ...]
    mode: PlanMode = PlanMode.DEFAULT
    on_failure: OnFailure = OnFailure.STOP
    bundle: bool = True
    ahead_s: float = 600.0
    linger_s: float = 60.0

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def widest(self) -> int:
        return max(stage.width for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_json` is its inverse, but for places in the file."""
        found: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "stages"}
        found["stages"] = [
            {one.name: getattr(stage, one.name) for one in fields(stage) if not one.name.startswith("place")}
            for stage in self.stages
        ]
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        stages = []
        for one in data["stages"]:
            said: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value for key, value in one.items()
            }
            stages.append(Stage(**said))
        values = {**data, "stages": tuple(stages)}
        return cls(**{**values, "mode": PlanMode(data["mode"]), "on_failure": OnFailure(data["on_failure"])})
