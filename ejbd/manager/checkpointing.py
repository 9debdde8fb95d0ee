"""What DMTCP and MPI can do on this site, as far as the manager knows, and what a launch is told about them."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.manager.context import Context
from ejbd.manager.jobspec import JobSpec
from ejbd.store.models import Event

DMTCP_SOURCE = "https://github.com/dmtcp/dmtcp"
DMTCP_GAVE_UP = 99  # the exit code of a process that DMTCP itself ended: its coordinator died, an assertion failed
RECENT_WORKERS = 50
LOOKED_AT_BYTES = 4 << 20  # of a program: the names of the libraries that it needs stand near its beginning

_MPICH_MARKS = (b"libmpich.so", b"libmpi.so.12")
_OPEN_MPI_MARKS = (b"libmpi.so.40", b"libmpi.so.20")


class Profile(BaseModel):
    """What the ranks of one MPI need: variables, and options of dmtcp_launch."""

    model_config = ConfigDict(extra="forbid")

    family: Literal["mpich"]
    description: str = ""
    env: dict[str, str] = {}
    dmtcp_options: Annotated[list[str], Field(max_length=32)] = []


@lru_cache(maxsize=8)
def profiles(more: Path | None) -> dict[str, Profile]:
    """The profiles that come with EJB and, on top, those of the site's file. Raises EjbError naming the fault."""
    text = (resources.files("ejbd.manager") / "mpi_profiles.toml").read_text()
    found = _read(text, "mpi_profiles.toml")
    if more is not None:
        try:
            found |= _read(more.read_text(), str(more))
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot read the MPI profiles: {error.strerror}", where=str(more)) from None
    return found


def _read(text: str, where: str) -> dict[str, Profile]:
    try:
        return {name: Profile(**values) for name, values in tomllib.loads(text).items()}
    except (tomllib.TOMLDecodeError, ValidationError, TypeError) as error:
        raise EjbError(Code.INVALID, f"not a file of MPI profiles: {error}", where=where) from None


def offered(ctx: Context) -> str:
    """Why jobs cannot be checkpointed by DMTCP here, or "" if they can: every worker seen of late offers it.

    While no worker has been seen, it is the daemon's own PATH that is looked at.
    """
    latest = dict(ctx.offers)  # of each node the last
    if latest:
        without = sorted(node for node, engines in latest.items() if "dmtcp" not in engines)
        if without:
            return f"node {without[0]} has no usable DMTCP"
        return ""
    if shutil.which("dmtcp_launch") is None:
        return f"dmtcp_launch is not on PATH (it comes from {DMTCP_SOURCE})"
    return ""


def recent_offers(session: Session) -> deque[tuple[str, tuple[str, ...]]]:
    """(node, engines) of the workers that came last, the newest at the end; the manager keeps it up to date."""
    query = select(Event).where(Event.kind == "worker.registered").order_by(Event.id.desc()).limit(RECENT_WORKERS)
    newest_first = [(e.data["node"], tuple(e.data["engines"])) for e in session.scalars(query) if "engines" in e.data]
    return deque(reversed(newest_first), maxlen=RECENT_WORKERS)


def choose_engine(ctx: Context, spec: JobSpec) -> tuple[str, str]:
    """The engine of a job and why. Raises EjbError (UNSUPPORTED) for one that cannot be had."""
    if spec.engine not in ("auto", "dmtcp"):
        return spec.engine, ""
    why = offered(ctx)
    if spec.engine == "dmtcp" and why:
        raise EjbError(Code.UNSUPPORTED, f"engine dmtcp cannot be used: {why}", hint="ejb doctor tells what is there")
    if why:
        # A signal would kill a program that knows none: `application` has to be asked for.
        return "none", f"engine none: {why}, and the job does not say that it writes checkpoints itself"
    return "dmtcp", "engine dmtcp: every worker offers it" if spec.engine == "auto" else ""


def check_mpi(settings: Settings, spec: JobSpec) -> None:
    """Raises EjbError (UNSUPPORTED) for an MPI that cannot be started rank by rank."""
    if spec.mpi in ("auto", "none"):
        return
    if spec.mpi == "openmpi":
        raise EjbError(
            Code.UNSUPPORTED,
            "Open MPI's ranks cannot be started one by one: it has no PMI-1",
            hint="build the program with MPICH, or submit with --elastic off",
        )
    _profile(settings, spec.mpi)


def _profile(settings: Settings, name: str) -> Profile:
    known = profiles(settings.mpi_profiles)
    if name in known:
        return known[name]
    for profile in known.values():
        if profile.family == name:
            return profile
    raise EjbError(
        Code.UNSUPPORTED, f"there is no MPI profile {name!r}", hint=f"there are: mpich, {', '.join(sorted(known))}"
    )


def mpi_for(settings: Settings, spec: JobSpec, launch_file: Path) -> Profile | None:
    """The profile for a launch; `auto` looks at the program's own libraries."""
    name = spec.mpi
    if name == "auto":
        name = linked_mpi(launch_file)
    return None if name in ("none", "openmpi") else _profile(settings, name)


def linked_mpi(launch_file: Path) -> str:
    """`mpich`, `openmpi` or `none` by the libraries that the launch's program names."""
    try:
        launch = json.loads(launch_file.read_text())
        program = shutil.which(launch["argv"][0], path=launch["env"].get("PATH", os.defpath)) or launch["argv"][0]
        with (Path(launch["cwd"]) / program).open("rb") as file:
            content = file.read(LOOKED_AT_BYTES)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return "none"  # the worker will say what is wrong with it
    if not content.startswith(b"\x7fELF"):
        return "none"
    if any(mark in content for mark in _MPICH_MARKS):
        return "mpich"
    return "openmpi" if any(mark in content for mark in _OPEN_MPI_MARKS) else "none"


def launch_settings(
    ctx: Context, spec: JobSpec, engine: str, launch_file: Path, nodes: Sequence[str]
) -> dict[str, Any]:
    """The parts of a `launch` payload that are the same for all workers of an epoch. `nodes`: their addresses."""
    settings = ctx.settings
    profile = mpi_for(settings, spec, launch_file)
    options = list(profile.dmtcp_options) if profile else []
    env = dict(profile.env) if profile else {}
    progress = ctx.spool.root / "dmtcp" / "libejbprogress.so"
    if profile and engine != "dmtcp" and progress.exists():
        env["LD_PRELOAD"] = str(progress)  # under DMTCP the plugin holds the same code
    return {
        "mpi": {"env": env, "nodes": list(nodes)} if profile else None,
        "dmtcp": {"plugin": ctx.spool.dmtcp_plugin(), "compress": settings.dmtcp_compress, "options": options}
        if engine == "dmtcp"
        else None,
    }
