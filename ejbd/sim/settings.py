"""One simulation in words: which policy, with which settings, on which part of which log."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ejbd.core.bundling.parameters import BundlingParameters, keeps_turns
from ejbd.core.cost import move_cost
from ejbd.core.memory import NONE_FITS
from ejbd.core.parameters import Declared, Parameters, simulated
from ejbd.core.policy import UnknownPolicy
from ejbd.core.room.slots import margins_of
from ejbd.core.room.walltimes import slack
from ejbd.core.rungs import ALPHA, Rungs
from ejbd.errors import Code, EjbError
from ejbd.plugins.policies import BUNDLING, declared_by, known_policy
from ejbd.sim.accounts import read_log
from ejbd.sim.choosing import Choice, parse_numbers, read_numbers
from ejbd.sim.fairness import beside
from ejbd.sim.memory import NO_BOUND, Memory, bounded, memory_of
from ejbd.sim.metrics import Outcome, change, finite, means, paper_trim
from ejbd.sim.own import half_life_of, run_policy
from ejbd.sim.report import rows_told, run_report
from ejbd.sim.run import Policy, Ties, run
from ejbd.sim.targets import run_targets
from ejbd.sim.workload import RowRule, Workload, scaled_arrivals, workload_of
from ejbd.sim.world import FREE_OF_COSTS, Costs

TRIMS = ("none", "paper")
_CHOICES = ("min-procs", "elastic-share", "seed", "elastic-users", "elastic-jobs")
_SWITCH = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


def policy_keys(policy: str = BUNDLING) -> dict[str, Declared]:
    """The parameters of an elastic policy by their names in a setting."""
    return {one.key: one for one in declared_by(policy).values()}


def names(policy: str = BUNDLING) -> tuple[str, ...]:
    """Everything that can be set of a simulation."""
    others = ("cancel-j0", "fold", "one-node", "memory", "default-memory", "arrivals", "poll")
    shaping = ("reshape", "reshape-most")
    costs = ("launch", "release", "short-runs", "plain-below", "stops")
    return ("policy", "ties", "trim", *_CHOICES, *others, *shaping, *costs, *policy_keys(policy))


@dataclass(frozen=True, slots=True)
class Source:
    """A log and how it is read."""

    path: Path
    processors: int | None = None
    rule: RowRule = RowRule.ARCHIVE
    limit: int | None = None

    @property
    def stamp(self) -> tuple[int, int]:
        """When the log was last written to and how long it is; zeros where that cannot be said (standard input)."""
        try:
            stat = self.path.stat()
        except OSError:
            return 0, 0
        return stat.st_mtime_ns, stat.st_size


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything but the log. `elastic`: under :attr:`Policy.EJB`, the policy of elastic jobs. `arrivals`: jobs come
    that many times as fast. `keep_placeholder`: J0 waits on beside the subjobs. `fold`: with the guard, jobs are folded
    in place for one that waits where that does. `poll_s`: a manager that looks so often keeps the margins of a live
    one; 0: it keeps none, as in the paper. `memory`: bounds how many ranks share a processor. `launch_s`, `release_s`:
    what a live manager takes until ranks run, and until processors are free again. `short_runs`: candidates that
    could start at once are rigid where runs like them took less than so many times that. `plain_below`: so is what a J0
    begins. `stops`: no job is made
    elastic for a while where they have been late. `changed`: what was set, by its name.
    """

    policy: Policy = Policy.EJB
    elastic: str = BUNDLING
    ties: Ties = Ties.PAPER
    trimmed: bool = False
    parameters: Parameters = field(default_factory=lambda: simulated(BundlingParameters))
    choice: Choice = field(default_factory=Choice)
    keep_placeholder: bool = True
    fold: bool = False
    arrivals: float = 1.0
    poll_s: float = 0.0
    memory: Memory = NO_BOUND
    launch_s: float = 0.0
    release_s: float = 0.0
    short_runs: float = 0.0
    plain_below: float = 0.0
    stops: bool = False
    changed: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """`ejb:omax=16,suspend=on`."""
        rest = [f"{key}={value}" for key, value in self.changed if key != "policy"]
        policy = self.policy.name.lower() if self.elastic == BUNDLING else self.elastic
        return policy + (":" + ",".join(rest) if rest else "")

    @property
    def costs(self) -> Costs:
        """What a live manager that looks every `poll_s` seconds keeps free of slots that end, and asks for beyond its
        plans, before it has measured anything."""
        if not self.poll_s:
            return FREE_OF_COSTS._replace(launch_s=self.launch_s, release_s=self.release_s)
        lambda_s = self.parameters.lambda_s
        cost = move_cost([], None, None, configured_s=lambda_s, look_s=self.poll_s)
        margins = margins_of(self.poll_s, cost.tail_s)
        slack_s = slack(cost.kept_s, margins)
        return Costs(self.launch_s, self.release_s, slack_s=slack_s, margins=margins)

    @property
    def is_kernel(self) -> bool:
        """Whether the simulator has the policy compiled; others are asked as the daemon asks them."""
        return self.elastic == BUNDLING and not half_life_of(self.parameters)

    def having(self, changes: Mapping[str, str]) -> Self:
        """The same with other values, each by its name and as text. Raises EjbError for what cannot be."""
        setting = self
        for key, value in changes.items():
            try:
                setting = setting._with(key, value)
            except UnknownPolicy as error:
                raise EjbError(Code.INVALID, str(error), hint="or easy, conservative, fcfs, ejb (bundling)") from None
            except (KeyError, ValueError) as error:
                what = f"{key}={value} is no setting of a simulation"
                new = {one.about.formerly.replace("_", "-"): key for key, one in policy_keys(setting.elastic).items()}
                if key in new:
                    what = f"{key} is called {new[key]} now"
                raise EjbError(Code.INVALID, what, hint="settings are " + ", ".join(names(setting.elastic))) from error
        return replace(setting, changed=tuple({**dict(self.changed), **changes}.items()))

    def _under(self, policy: str) -> Self:
        """The same under a scheduler alone, under EJB (`ejb`), or under another policy of elastic jobs by its name."""
        if policy.upper() in Policy.__members__:
            policy, scheduler = BUNDLING, Policy[policy.upper()]
        else:
            scheduler = Policy.EJB
        if policy == self.elastic:
            return replace(self, policy=scheduler)
        known = known_policy(policy)
        choice = replace(self.choice, min_processors=1) if known.folds_jobs else self.choice  # a pool's fold all jobs
        return replace(self, policy=scheduler, elastic=policy, parameters=simulated(known.declares), choice=choice)

    def _with(self, key: str, value: str) -> Self:
        if key == "policy":
            return self._under(value)
        if key == "ties":
            return replace(self, ties=Ties[value.upper()])
        if key == "trim":
            return replace(self, trimmed=bool(TRIMS.index(value)))
        if key in _CHOICES:
            return replace(self, choice=_choice(self.choice, key, value))
        if key == "cancel-j0":
            return replace(self, keep_placeholder=not _SWITCH[value])
        if key == "fold":
            return replace(self, fold=_SWITCH[value])
        if key == "one-node":
            limit = _at_least(int(value), 1)
            return replace(self, parameters=replace(self.parameters, node_limit=limit))
        if key == "arrivals":
            return replace(self, arrivals=_at_least(float(value), 1e-6))
        if key == "poll":
            return replace(self, poll_s=_at_least(float(value), 0))
        if key in ("launch", "release"):
            return replace(self, **{f"{key}_s": _at_least(float(value), 0)})
        if key == "stops":
            return replace(self, stops=_SWITCH[value])
        if key in ("short-runs", "plain-below"):
            return replace(self, **{key.replace("-", "_"): _at_least(float(value), 0)})
        if key == "reshape":
            return replace(self, parameters=replace(self.parameters, rungs=_law(value, self.parameters.rungs)))
        if key == "reshape-most":
            rungs = replace(self.parameters.rungs or Rungs(ALPHA), beyond=_at_least(float(value), 1))
            return replace(self, parameters=replace(self.parameters, rungs=rungs))
        if key == "memory":
            return replace(self, memory=replace(self.memory, processor_kb=memory_of(value, "memory")))
        if key == "default-memory":
            default = None if value == "all" else memory_of(value, "default-memory")
            return replace(self, memory=replace(self.memory, default_kb=default or None))
        one = policy_keys(self.elastic)[key]
        return replace(self, parameters=replace(self.parameters, **{one.name: one.parse(value)}))


def _law(value: str, before: Rungs | None) -> Rungs | None:
    """(P/n)^alpha at every width, as far beyond P as before; off: ranks stay, and share processors."""
    if not _SWITCH.get(value, True) or value == "0":
        return None
    beyond = before.beyond if before is not None else 1.0
    return Rungs(ALPHA if value == "on" else _at_least(float(value), 1e-6), beyond=beyond)


def _choice(choice: Choice, key: str, value: str) -> Choice:
    if key == "min-procs":
        return replace(choice, min_processors=_at_least(int(value), 1))
    if key == "elastic-share":
        share = _at_least(float(value), 0)
        return replace(choice, share=-_at_least(-share, -1))
    if key == "seed":
        return replace(choice, seed=_at_least(int(value), 0))
    if key == "elastic-users":
        return replace(choice, users=parse_numbers(value))
    return replace(choice, jobs=read_numbers(value))


def _at_least(value: Any, least: float) -> Any:
    if not value >= least:
        raise ValueError(value)
    return value


def parse_setting(text: str, base: Setting | None = None) -> Setting:
    """`policy[:key=value,...]`; a switch may stand alone. Raises EjbError for what is not one."""
    return (base or Setting()).having(words_of(text))


def words_of(text: str) -> dict[str, str]:
    """The settings that `policy[:key=value,...]` names, the policy first."""
    policy, _, rest = text.partition(":")
    changes = {"policy": policy}
    last = ""
    for word in filter(None, rest.split(",")):
        key, equals, value = word.partition("=")
        if last and not equals and ":" in word:  # of one value: delta=2:0.8,4:1.1
            changes[last] += f",{word.strip()}"
            continue
        last = key.strip()
        changes[last] = value.strip() if equals else "on"
    return changes


def differing(changes: Mapping[str, str]) -> Setting:
    """A setting with these values, named after those that are not the usual ones."""
    usual = Setting().having({"policy": changes["policy"]}) if "policy" in changes else Setting()
    usual = replace(usual, changed=())
    setting = usual.having(changes)
    told = {key: value for key, value in changes.items() if replace(usual.having({key: value}), changed=()) != usual}
    return replace(setting, changed=tuple(told.items()))


def load(source: Source) -> Workload:
    """Read the log and make the workload; once, as long as the file stays what it is."""
    return _load(source, source.stamp)


@functools.lru_cache(maxsize=4)
def _load(source: Source, stamp: tuple[int, int]) -> Workload:
    name = source.path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".swf")
    log = read_log(source.path, limit=source.limit)
    return workload_of(log, name, processors=source.processors, rule=source.rule)


def _workload(source: Source, setting: Setting) -> Workload:
    """As the setting has it: when jobs arrive, and how many of their ranks may share a processor."""
    workload = load(source)
    if setting.policy is Policy.EJB:
        workload = bounded(workload, setting.memory, setting.parameters.omax)
    return workload if setting.arrivals == 1.0 else scaled_arrivals(workload, setting.arrivals)


def play(
    source: Source, setting: Setting, *, checking: bool = False, again: float = 1
) -> tuple[Workload, Outcome, dict[str, Any]]:
    """One simulation: the workload, what became of the jobs, and the report. `again` is as for :func:`run`."""
    workload = _workload(source, setting)
    outcome = _outcome(workload, setting, checking=checking, again=again)
    report = run_report(
        workload,
        setting.policy,
        outcome,
        ties=setting.ties,
        parameters=setting.parameters,
        choice=setting.choice,
        trimmed=setting.trimmed,
    )
    report["parameters"]["rows"] = source.rule.value
    if setting.arrivals != 1.0:
        report["parameters"]["arrivals"] = setting.arrivals
    if setting.fold:
        report["parameters"]["fold"] = True
    for name in ("launch_s", "release_s", "short_runs", "plain_below", "stops"):
        if getattr(setting, name) and setting.policy is Policy.EJB:
            report["parameters"][name] = getattr(setting, name)
    if setting.poll_s and setting.policy is Policy.EJB:
        report["parameters"]["poll_s"] = setting.poll_s
    if setting.memory.processor_kb and setting.policy is Policy.EJB:
        report["parameters"] |= {"memory_kb": setting.memory.processor_kb}
        report["parameters"] |= {"default_memory_kb": setting.memory.default_kb}
    return workload, outcome, report


def _outcome(workload: Workload, setting: Setting, *, checking: bool, again: float) -> Outcome:
    candidates = _candidates(workload, setting) if setting.policy is Policy.EJB else None
    if not setting.is_kernel:
        _refuse_for_own(setting)
        return run_policy(
            workload, setting.elastic, candidates=candidates, ties=setting.ties, parameters=setting.parameters,
            checking=checking,
        )  # fmt: skip
    return run(
        workload,
        setting.policy,
        ties=setting.ties,
        parameters=setting.parameters,
        candidates=candidates,
        keep_placeholder=setting.keep_placeholder,
        checking=checking,
        costs=setting.costs if setting.policy is Policy.EJB else FREE_OF_COSTS,
        again=again,
        folds=setting.fold,
        short_runs=setting.short_runs,
        plain_below=setting.plain_below,
        stops=setting.stops,
    )


def _candidates(workload: Workload, setting: Setting) -> Any:
    """Flags of the jobs that may become elastic."""
    chosen, most = setting.choice.flags(workload), workload.jobs.most_ranks
    return chosen if most is None else chosen & (most != NONE_FITS)


def _refuse_for_own(setting: Setting) -> None:
    costs = setting.poll_s or setting.launch_s or setting.release_s or setting.short_runs or setting.stops
    costs = costs or setting.plain_below or keeps_turns(setting.parameters)
    if not setting.keep_placeholder or setting.parameters.node_limit >= 0 or costs or setting.fold:
        named = "a fair order" if setting.elastic == BUNDLING else setting.elastic
        raise EjbError(
            Code.INVALID,
            "--cancel-j0, --fold, --one-node and --poll, and launch, release, short-runs, plain-below, stops and "
            f"j0-in-turn, are for EJB's own policy only, not for {named}",
        )


def play_beside_easy(source: Source, setting: Setting, *, again: float = 1) -> dict[str, Any]:
    """The report of :func:`play`, and what differs from EASY over the jobs that both count."""
    workload, outcome, report = play(source, setting, again=again)
    easy = _easy(source, source.stamp, setting.ties, setting.arrivals)
    jobs = workload.jobs
    every_job = np.full(len(workload), True)
    kept = paper_trim(jobs, easy) & paper_trim(jobs, outcome) if setting.trimmed else every_job
    before, after = means(jobs, easy, kept), means(jobs, outcome, kept)
    changes = {}
    for name, chosen in (("elastic", outcome.elastic != 0), ("others", outcome.elastic == 0)):
        old, new = means(jobs, easy, kept & chosen), means(jobs, outcome, kept & chosen)
        changes[f"{name}_change_percent"] = finite(change(old.mean_turnaround_s, new.mean_turnaround_s))
    return {
        "setting": setting.name,
        **report,
        "easy_mean_turnaround_s": finite(before.mean_turnaround_s),
        "turnaround_change_percent": finite(change(before.mean_turnaround_s, after.mean_turnaround_s)),
        **changes,
        "beside_easy": beside(jobs, easy, outcome, kept).to_json(),
    }


@functools.lru_cache(maxsize=4)
def _easy(source: Source, stamp: tuple[int, int], ties: Ties, arrivals: float) -> Outcome:
    return run(_workload(source, Setting(arrivals=arrivals)), Policy.EASY, ties=ties)


def play_targets(
    source: Source, setting: Setting, *, every: int = 1, checking: bool = False, again: float = 1
) -> tuple[Workload, dict[str, Any]]:
    """One elastic job a simulation: the workload, and the summary over all eligible targets."""
    if setting.poll_s:
        raise EjbError(Code.INVALID, "targets are simulated without the margins of a live manager", hint="without poll")
    if setting.fold:
        raise EjbError(Code.INVALID, "targets are simulated without folding", hint="without fold")
    if keeps_turns(setting.parameters):
        raise EjbError(Code.INVALID, "targets are simulated without turns of J0", hint="without j0-in-turn")
    if not setting.is_kernel:
        named = "a fair order" if setting.elastic == BUNDLING else setting.elastic
        what = f"targets are simulated under EJB's own policy, not under {named}"
        raise EjbError(Code.INVALID, what, hint="ejb sim run --policy has others")
    workload = _workload(source, setting)
    runs = run_targets(
        workload,
        parameters=setting.parameters,
        ties=setting.ties,
        candidates=_candidates(workload, setting),
        keep_placeholder=setting.keep_placeholder,
        trim=setting.trimmed,
        every=every,
        checking=checking,
        again=again,
    )
    return workload, {"trace": workload.name, "setting": setting.name, **runs.summary(), "rows": rows_told(workload)}
