"""How a job is checkpointed on this site, and what a launch is told about DMTCP and MPI."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd._workers.ejb_worker.profiles.matching import matches
from ejbd.config import Settings
from ejbd.core.placing import Seat
from ejbd.errors import Code, EjbError
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.memory import RECENT_WORKERS, Offer
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.appprofile import programs_of
from ejbd.manager.facts.placing.mpi import Profile, kind_of_mpirun, linked_with, mpi_of_launch, profile_named
from ejbd.manager.hands.files import OWN_FILES, Reads
from ejbd.manager.jobspec import JobKind, JobSpec
from ejbd.plugins.engines import site_engines
from ejbd.profiles.profile import Match
from ejbd.store.models import Event, Job, Worker
from ejbd.store.queries import newest_events
from ejbd.wire.kinds import EventKind

DMTCP_SOURCE = "https://github.com/dmtcp/dmtcp"
LATEST_OF_ALL = 2000  # workers that are read when the daemon starts
LOOK_AGAIN_S = 5.0  # for DMTCP on the daemon's own PATH
MPI_VARIABLES = ("UCX_", "FI_", "MPIR_")  # of a profile's, those that only an MPI reads
_STARTERS = SimpleNamespace(  # programs that start others, and have those of all ranks meet by themselves
    match=Match(
        program=(
            *("torchrun", "torch.distributed.*", "accelerate", "accelerate.commands.launch", "deepspeed", "horovodrun"),
            *("deepspeed.launcher.*", "ray", "dask", "dask-*", "distributed.cli.*", "colossalai", "spark-*"),
        )
    )
)
ON_LOOPBACK = {"OMPI_MCA_oob_tcp_if_include": "127.0.0.0/8", "OMPI_MCA_btl_tcp_if_include": "127.0.0.0/8"}
DMTCP_GAVE_UP = 99  # the exit code of a process that DMTCP itself ended: its coordinator died, an assertion failed


def offered(ctx: Context, user: str) -> str:
    """Why a user's jobs cannot be checkpointed by DMTCP, or "" if they can: each of the latest workers offers it, and
    EJB's library is there, without which DMTCP refuses programs what they have elsewhere.

    While none of the user's workers has been seen, those of administrators (`admins`) count, which the operator trusts.
    Without any it is the daemon's own PATH that is looked at. Where that is wrong the first ranks find out, and go on
    without DMTCP (ejbd.manager.rules.placements.movability).
    """
    if _known_offers(ctx, user):
        if without := nodes_without_dmtcp(ctx, user):
            return without
    elif not _on_path(os.environ.get("PATH", os.defpath), int(time.monotonic() / LOOK_AGAIN_S)):
        return f"dmtcp_launch is not on PATH (it comes from {DMTCP_SOURCE})"
    return "" if ctx.hands.own.calls_library() else "EJB's library for DMTCP was not built (ejb doctor --build-plugin)"


def nodes_without_dmtcp(ctx: Context, user: str, nodes: Sequence[str] | None = None) -> str:
    """In words, that one of these nodes (None: of all) does not offer DMTCP, as its last worker said; or ""."""
    first = _first_without(ctx, user, "dmtcp", nodes)
    return f"node {first} has no usable DMTCP" if first else ""


def _first_without(ctx: Context, user: str, engine: str, nodes: Sequence[str] | None = None) -> str:
    """Of these nodes (None: of all) the first that does not offer an engine, as its last worker said; or ""."""
    latest = dict(_known_offers(ctx, user))  # of each node the last
    without = (node for node, said in latest.items() if engine not in said["engines"])
    return min((node for node in without if nodes is None or node in nodes), default="")


def _known_offers(ctx: Context, user: str) -> tuple[Offer, ...]:
    """What is believed of workers where a user's jobs are concerned; other users' word is nothing."""
    return ctx.offers_of(user) or tuple(said for admin in ctx.settings.admins for said in ctx.offers_of(admin))


@lru_cache(maxsize=1)
def _on_path(path: str, _tick: int) -> bool:
    """Whether DMTCP is there; every submission asks."""
    return shutil.which("dmtcp_launch", path=path) is not None


def recent_offers(session: Session) -> dict[str, tuple[Offer, ...]]:
    """What each user's workers that came last offer, the newest at the end; the manager keeps it up to date."""
    query = select(Event.data, Job.user).join(Job, Event.job_id == Job.id)
    query = query.where(Event.kind == EventKind.WORKER_REGISTERED, newest_events(session)).order_by(Event.id.desc())
    newest_first: dict[str, list[Offer]] = {}
    for data, user in session.execute(query.limit(LATEST_OF_ALL)):
        if "engines" in data:
            newest_first.setdefault(user, []).append((data["node"], data))
    return {user: tuple(reversed(found[:RECENT_WORKERS])) for user, found in newest_first.items()}


def choose_engine(ctx: Context, spec: JobSpec, user: str) -> tuple[str, str]:
    """The engine of a job and why. Raises EjbError (UNSUPPORTED) for one that cannot be had."""
    if spec.profile is not None and spec.engine in ("auto", "profile"):
        said = f"engine profile: {spec.profile['name']} stops and resumes it"
        return "profile", f"{said}, with any of the widths {spec.widths}" if spec.widths else said
    if spec.engine == "profile":
        hint = "ejb profile list tells which there are; a program of one's own takes engine=application"
        raise EjbError(Code.UNSUPPORTED, "no profile is for what the job launches", hint=hint)
    if spec.engine not in ("auto", "dmtcp"):
        without = _first_without(ctx, user, spec.engine) if spec.engine in site_engines() else ""
        if without:
            text = f"engine {spec.engine} cannot be used: node {without} does not offer it"
            raise EjbError(Code.UNSUPPORTED, text, hint="the worker's log there says why")
        return spec.engine, ""
    if spec.wants.has_gpus:
        if spec.engine == "dmtcp":
            hint = "say engine=application where the program writes its own state, or engine=none"
            raise EjbError(Code.UNSUPPORTED, "DMTCP does not bring back what a program has on a GPU", hint=hint)
        return "none", "engine none: DMTCP does not bring back what a program has on a GPU"
    own = next((words for words in programs_of(spec) if spec.engine == "auto" and matches(_STARTERS, words)), None)
    if own:
        name = own[2] if own[1:2] == ["-m"] else own[0].rpartition("/")[2]
        return "none", f"engine none: {name} has processes and connections of its own, which DMTCP does not bring back"
    why = offered(ctx, user)
    if spec.engine == "dmtcp" and why:
        raise EjbError(Code.UNSUPPORTED, f"engine dmtcp cannot be used: {why}", hint="ejb doctor tells what is there")
    if why:
        # A signal would kill a program that knows none: `application` has to be asked for.
        return "none", f"engine none: {why}, and the job does not say that it writes checkpoints itself"
    split = node_limit.cannot_split(ctx, user)
    moved = f"; {split}: it moves as a whole, from one node to another" if split else ""
    chosen = "engine dmtcp"
    if spec.engine == "auto":
        chosen += (
            ": every worker offers it"
            if _known_offers(ctx, user)
            else ": it is on the daemon's PATH, and no worker was seen yet"
        )
    return "dmtcp", chosen + moved if spec.engine == "auto" or split else ""


def check_mpi(settings: Settings, spec: JobSpec) -> None:
    """Raises EjbError (UNSUPPORTED) for an MPI that is not known."""
    if spec.mpi not in ("auto", "none"):
        profile_named(settings, spec.mpi)


def with_mpi(spec: JobSpec) -> JobSpec:
    """A command that is linked with Open MPI says so from now on; version 5 does not come back under DMTCP.

    It reads the program: not for the store's threads.
    """
    if spec.mpi == "auto" and spec.kind is JobKind.COMMAND and linked_with(spec.argv, spec.cwd, spec.env) == "openmpi":
        mpirun = shutil.which("mpirun", path=spec.env.get("PATH", os.defpath))
        fifth = mpirun is not None and kind_of_mpirun(mpirun) == "Open MPI 5"
        return replace(spec, mpi="openmpi", engine="none" if fifth and spec.engine == "auto" else spec.engine)
    return spec


def open_mpi_obstacle(ctx: Context, spec: JobSpec, queue: str, engine: str) -> str:
    """Why an Open MPI job cannot be elastic, or ""."""
    if engine == "none":
        return "Open MPI's ranks are started by one mpirun, and without DMTCP that cannot be moved"
    if engine != "dmtcp":
        return ""  # its mpirun is spread over nodes
    nodes = ctx.view.usable_nodes(queue) if ctx.view else []
    widest = max((node.processors for node in nodes), default=spec.processes)
    if widest < spec.processes:
        return (
            f"Open MPI's ranks are moved as a whole, from one node to another, and no node of queue {queue} has "
            f"{spec.processes} processors (at most {widest})"
        )
    return ""


def mpi_for(
    settings: Settings, spec: JobSpec, launch_file: Path, size: int, read: Reads = OWN_FILES.read
) -> tuple[Profile | None, bool]:
    """The profile for a launch, and whether it surely is an MPI program's.

    `auto` looks at the program's own libraries. Where it sees none (a script, Python, a container), ranks are wired up
    all the same, as under srun. Without it each rank of an MPI program would be rank 0 of 1.
    """
    if spec.mpi == "none":
        return None, False
    name = mpi_of_launch(str(launch_file), read) if spec.mpi == "auto" else spec.mpi
    if name != "none":
        return profile_named(settings, name), True
    return (profile_named(settings, "mpich"), False) if size > 1 else (None, False)


def spread(launcher: dict[str, Any] | None, seats: Sequence[Seat], workers: Sequence[Worker]) -> dict[str, Any]:
    """For each worker, by its id, what it is told of the launcher of ranks that several workers have."""
    if launcher is None or len(workers) < 2:
        return {}
    names = {worker.id: f"ejb-w{number}" for number, worker in enumerate(workers, 1)}
    hosts = [names[seat.worker] for seat in sorted(seats)]
    shares = len({worker.address for worker in workers}) < len(workers)
    return {worker.id: {**launcher, "host": names[worker.id], "hosts": hosts, "shares": shares} for worker in workers}


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def launch_settings(
    world: JobWorld, launch_file: Path, size: int, nodes: Sequence[str], *, engine: str, restart_from: int | None
) -> dict[str, Any]:
    """The parts of a `launch` payload that are the same for all workers of an epoch. `nodes`: their addresses, without
    those that are there twice."""
    ctx, settings = world.ctx, world.ctx.settings
    profile, sure = mpi_for(settings, world.spec, launch_file, size, ctx.hands.read)
    dmtcp = engine == "dmtcp"
    options = list(profile.dmtcp_options) if profile and sure else []
    env = dict(profile.env) if profile else {}
    if profile and dmtcp:
        env |= {name: value for name, value in profile.dmtcp_env.items() if sure or name.startswith(MPI_VARIABLES)}
    told: dict[str, Any] = {"engine": engine, "mpi": None, "dmtcp": None}
    if profile and profile.launcher:
        env |= {} if dmtcp or not all(map(_is_loopback, nodes)) else ON_LOOPBACK
        told["launcher"] = {"argv": [*profile.launcher, "-np", str(size)], "env": env}
    elif profile:
        progress = world.spool.progress_library()
        # Under DMTCP the plugin holds the same code.
        preload = None if dmtcp or progress is None else str(progress)
        told["mpi"] = {"env": env, "nodes": list(nodes), "preload": preload, "sure": sure}
    if engine == "profile":
        told["profile"] = world.job.spec.get("profile")
    if dmtcp:
        plugin = world.spool.dmtcp_plugin() if node_limit.usable_plugin(ctx, world.job.user)[0] is not None else None
        if restart_from is not None:  # what it was started with is in its images
            plugin = node_limit.plugin_of(world, restart_from)
        told["dmtcp"] = {
            "calls": world.spool.calls_library(),
            "plugin": plugin,
            "compress": "auto" if settings.dmtcp_compress == "auto" else settings.dmtcp_compress == "on",
            "checksum": settings.dmtcp_checksum,
            "options": options,
        }
    return told
