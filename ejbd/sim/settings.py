"""One simulation in words: which policy, with which settings, on which part of which log."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ejbd.core.plan import BundlingParameters
from ejbd.errors import Code, EjbError
from ejbd.sim.metrics import Outcome
from ejbd.sim.report import run_report
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.swf import read_swf
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import RowRule, Workload, scaled_arrivals, workload_of

ARRIVAL, LEAST_WORK = "arrival", "least-work"
TRIMS = ("none", "paper")

_SWITCHES = {"suspend": "suspend", "whole-slots": "whole_slots", "act-in-migration": "act_in_migration"}
_ON = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_FIGURES = {
    "omax": ("omax", int),
    "lambda": ("lambda_s", float),
    "delta": ("delta", float),
    "min-left": ("min_left_s", float),
}
NAMES = ("policy", "ties", "trim", "order", "min-procs", "cancel-j0", "arrivals", *_FIGURES, *_SWITCHES)


@dataclass(frozen=True, slots=True)
class Source:
    """A log and how it is read."""

    path: Path
    processors: int | None = None
    rule: RowRule = RowRule.PYSS
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything but the log. `arrivals`: jobs come that many times as fast.
    `keep_placeholder`: J0 waits on beside the subjobs. `changed`: what was set, by its name."""

    policy: Policy = Policy.EJB
    ties: Ties = Ties.PAPER
    trimmed: bool = False
    parameters: BundlingParameters = field(default_factory=BundlingParameters)
    min_processors: int = 8
    keep_placeholder: bool = True
    arrivals: float = 1.0
    changed: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """`ejb:omax=16,suspend=on`."""
        rest = [f"{key}={value}" for key, value in self.changed if key != "policy"]
        return self.policy.name.lower() + (":" + ",".join(rest) if rest else "")

    def having(self, changes: Mapping[str, str]) -> Self:
        """The same with other values, each by its name and as text. Raises EjbError for what cannot be."""
        setting = self
        for key, value in changes.items():
            try:
                setting = setting._with(key, value)
            except (KeyError, ValueError) as error:
                what = f"{key}={value} is no setting of a simulation"
                raise EjbError(Code.INVALID, what, hint="settings are " + ", ".join(NAMES)) from error
        return replace(setting, changed=tuple({**dict(self.changed), **changes}.items()))

    def _with(self, key: str, value: str) -> Self:
        parameters = self.parameters
        if key == "policy":
            return replace(self, policy=Policy[value.upper()])
        if key == "ties":
            return replace(self, ties=Ties[value.upper()])
        if key == "trim":
            return replace(self, trimmed=bool(TRIMS.index(value)))
        if key == "min-procs":
            return replace(self, min_processors=_at_least(int(value), 1))
        if key == "cancel-j0":
            return replace(self, keep_placeholder=not _ON[value])
        if key == "arrivals":
            return replace(self, arrivals=_at_least(float(value), 1e-6))
        if key == "order":
            least = (ARRIVAL, LEAST_WORK).index(value) == 1
            return replace(self, parameters=replace(parameters, least_work_first=least))
        if key in _SWITCHES:
            return replace(self, parameters=replace(parameters, **{_SWITCHES[key]: _ON[value]}))
        name, kind = _FIGURES[key]
        least_value = 1 if name == "omax" else 0.01 if name == "delta" else 0
        changes: dict[str, Any] = {name: _at_least(kind(value), least_value)}
        return replace(self, parameters=replace(parameters, **changes))


def _at_least(value: Any, least: float) -> Any:
    if not value >= least:
        raise ValueError(value)
    return value


def parse_setting(text: str, base: Setting | None = None) -> Setting:
    """`policy[:key=value,...]`; a switch may stand alone. Raises EjbError for what is not one."""
    policy, _, rest = text.partition(":")
    changes = {"policy": policy}
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        changes[key.strip()] = value.strip() if equals else "on"
    return (base or Setting()).having(changes)


def differing(changes: Mapping[str, str]) -> Setting:
    """A setting with these values, named after those that are not the usual ones."""
    usual = Setting()
    setting = usual.having(changes)
    told = {key: value for key, value in changes.items() if replace(usual.having({key: value}), changed=()) != usual}
    return replace(setting, changed=tuple(told.items()))


@functools.lru_cache(maxsize=4)
def load(source: Source) -> Workload:
    """Read the log and make the workload, once."""
    name = source.path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".swf")
    log = read_swf(source.path)
    return workload_of(log, name, processors=source.processors, rule=source.rule, limit=source.limit)


def play(source: Source, setting: Setting, *, checking: bool = False) -> tuple[Workload, Outcome, dict[str, Any]]:
    """One simulation: the workload, what became of the jobs, and the report."""
    workload = load(source)
    if setting.arrivals != 1.0:
        workload = scaled_arrivals(workload, setting.arrivals)
    outcome = run(
        workload,
        setting.policy,
        ties=setting.ties,
        parameters=setting.parameters,
        min_processors=setting.min_processors,
        keep_placeholder=setting.keep_placeholder,
        checking=checking,
    )
    report = run_report(
        workload,
        setting.policy,
        outcome,
        ties=setting.ties,
        parameters=setting.parameters,
        min_processors=setting.min_processors,
        trimmed=setting.trimmed,
    )
    if setting.arrivals != 1.0:
        report["parameters"]["arrivals"] = setting.arrivals
    return workload, outcome, report


def play_targets(source: Source, setting: Setting, *, every: int = 1, checking: bool = False) -> dict[str, Any]:
    """One elastic job a simulation: the summary over all eligible targets."""
    workload = load(source)
    if setting.arrivals != 1.0:
        workload = scaled_arrivals(workload, setting.arrivals)
    runs = run_targets(
        workload,
        parameters=setting.parameters,
        ties=setting.ties,
        min_processors=setting.min_processors,
        keep_placeholder=setting.keep_placeholder,
        trim=setting.trimmed,
        every=every,
        checking=checking,
    )
    return {"trace": workload.name, "setting": setting.name, **runs.summary()}
