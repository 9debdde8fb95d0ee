"""What `ejb doctor` checks on a Slurm site."""

from __future__ import annotations

import os
import shutil
from typing import Protocol

from ejbd.batch.base import Identity
from ejbd.batch.process import Commands
from ejbd.batch.slurm import drift, mpi, privacy, versions
from ejbd.batch.slurm.commands import scheduler_parameters
from ejbd.batch.slurm.nodes import ShowNodes
from ejbd.batch.slurm.sharing import ShowPartitions, check_sharing
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError

Check = tuple[str, bool, str]

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun")


class Looked(Protocol):
    """The part of the adapter that the checks use."""

    async def observe(self) -> ClusterView: ...

    async def config(self) -> dict[str, str]: ...

    async def blindness(self) -> str: ...

    async def raises(self) -> bool: ...


async def doctor(batch: Looked, commands: Commands, whole_nodes: bool, timeout_s: float) -> list[Check]:
    path = commands.environment.get("PATH")
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return [
            ("commands", False, f"{', '.join(missing)} not found on PATH; install slurm-client or set PATH for ejbd")
        ]
    found: list[Check] = []
    try:
        version = await commands.run(["sbatch", "--version"], timeout_s=timeout_s)
        found.append(("commands", version.code == 0, version.stdout.strip() or version.stderr.strip()))
        config = await batch.config()
    except BatchError as error:
        return [*found, ("controller", False, error.sentence())]
    found.append(("controller", True, f"cluster {config.get('ClusterName', '?')} answers"))
    found.append(versions.check_version(version.stdout, config.get("SLURM_VERSION", "")))
    found.append(await _check_wire_up(commands, timeout_s))
    blind = await batch.blindness()
    found += check_config(config, whole_nodes, privacy.privileged(config, Identity.own().user, os.geteuid()))
    if privacy.hidden(config) & {"jobs"}:
        found.append(
            ("other people's jobs", not blind, blind or "PrivateData=jobs hides them from others, not from EJB")
        )
    found.append(("raised", True, await _raising(batch)))
    try:
        show = ShowPartitions(timeout_s)
        partitions = await commands.run(show.argv(), timeout_s=show.timeout_s)
        if partitions.code == 0:
            found.append(check_sharing(show.parse(partitions.stdout)))
        found.append(await _check_words(commands, config, timeout_s))
        view = await batch.observe()
    except BatchError as error:
        return [*found, ("listings", False, error.sentence())]
    found.append(check_view(view))
    return found


async def _check_wire_up(commands: Commands, timeout_s: float) -> Check:
    """How the site's srun wires up ranks. EJB's own workers do so by PMI-1, whatever it offers."""
    listing = mpi.ListMpi(timeout_s)
    try:
        done = await commands.run(listing.argv(), timeout_s=listing.timeout_s)
    except BatchError as error:
        return mpi.SUBJECT, True, f"srun --mpi=list did not answer: {error.sentence()}"
    return mpi.check_types(listing.parse(done.stdout or done.stderr))


async def _check_words(commands: Commands, config: dict[str, str], timeout_s: float) -> Check:
    """Raises BatchError where Slurm does not answer."""
    nodes, jobs = ShowNodes(timeout_s=timeout_s), drift.ShowJobStates(timeout_s)
    listing = await commands.run(
        nodes.argv(),
        timeout_s=nodes.timeout_s,
        stdin=nodes.stdin,
        environment={**commands.environment, **nodes.environment},
    )
    words = await commands.run(jobs.argv(), timeout_s=jobs.timeout_s)
    return drift.check_words(config, listing.stdout, jobs.parse(words.stdout))


async def _raising(batch: Looked) -> str:
    """Whether `raised` of a queue has any effect here: it is off by default, so that this is no fault."""
    try:
        may = await batch.raises()
    except BatchError as error:
        return f"it is not known whether limits can be raised: {error.sentence()}"
    if may:
        return "limits of jobs can be raised: `raised` of a queue plans jobs by their user's last runs"
    return "limits of jobs cannot be raised, so that `raised` of a queue does nothing: that takes a Slurm operator"


def check_config(config: dict[str, str], whole_nodes: bool, sees_all: bool = False) -> list[Check]:
    """Judge the site's settings (`scontrol show config`). `sees_all`: nothing is hidden from the daemon's user."""
    parameters = scheduler_parameters(config)
    backfill = config.get("SchedulerType", "").endswith("backfill")
    interval = parameters.get("bf_interval", "30")
    linear = config.get("SelectType", "").endswith("linear")
    accounts = config.get("AccountingStorageType", "").endswith("slurmdbd")
    memory = config.get("MinJobAge", "?")
    checks: list[Check] = [
        (
            "backfill",
            backfill,
            f"planned starts are renewed every {interval} s (bf_interval)"
            if backfill
            else "SchedulerType is not sched/backfill: Slurm plans no starts, so that windows have no known end",
        ),
        (
            "allocation unit",
            linear <= whole_nodes,
            "select/linear gives out whole nodes; set whole_nodes = true"
            if linear and not whole_nodes
            else f"{config.get('SelectType', '?')}, {config.get('SelectTypeParameters', '?')}",
        ),
        (
            "ends of jobs",
            True,
            "from accounting (sacct)" if accounts else f"from the controller, for {memory} after the end (MinJobAge)",
        ),
    ]
    if (age := _age_weight(config)) > 0:
        checks.append(
            (
                "age after a time-out",
                True,
                f"what stands by for a job under --walltime auto {_gains(config)} (PriorityWeightAge={age}); with "
                "keep_place=off it is submitted at the time-out, with age 0",
            )
        )
    if "reservations" in privacy.hidden(config) and not sees_all:
        checks.append(
            (
                "reservations",
                False,
                "PrivateData=reservations hides them; windows would not end at a maintenance: let EJB's user see them",
            )
        )
    return checks


def _gains(config: dict[str, str]) -> str:
    """Whether a job that depends on another one gains age."""
    if "ACCRUE_ALWAYS" in config.get("PriorityFlags", ""):
        return "gains age from the beginning of the run before it on (PriorityFlags=ACCRUE_ALWAYS)"
    return "gains no age before the time-out: only with PriorityFlags=ACCRUE_ALWAYS"


def _age_weight(config: dict[str, str]) -> int:
    """What a job gains by waiting, where priorities are made of such weights; else 0."""
    weight = config.get("PriorityWeightAge", "0")
    multifactor = config.get("PriorityType", "").endswith("multifactor")
    return int(weight) if multifactor and weight.isdigit() else 0


def check_view(view: ClusterView) -> Check:
    free = sum(node.free for node in view.nodes)
    total = sum(node.processors for node in view.nodes)
    text = f"{len(view.nodes)} nodes, {free} of {total} processors idle, {len(view.queues)} partitions"
    text += f", {len(view.site_reservations)} reservations"
    text += f", {len(view.jobs)} jobs" + (f"; {view.unparsed} rows could not be read" if view.unparsed else "")
    return "listings", view.unparsed == 0, text
