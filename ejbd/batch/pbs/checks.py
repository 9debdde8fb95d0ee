"""What `ejb doctor` checks on a PBS site."""

from __future__ import annotations

import shutil
from typing import Protocol

from ejbd.batch.pbs.attributes import Site
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.process import Commands
from ejbd.core.view import ClusterView
from ejbd.errors import BatchError

Check = tuple[str, bool, str]

PROGRAMS = ("qsub", "qstat", "qdel", "qalter", "qhold", "qrls", "pbsnodes")


class Looked(Protocol):
    """The part of the adapter that the checks use."""

    async def observe(self) -> ClusterView: ...

    async def dialect(self) -> Dialect: ...

    async def site(self) -> Site: ...

    @property
    def version(self) -> str: ...


async def doctor(batch: Looked, commands: Commands) -> list[Check]:
    path = commands.environment.get("PATH")
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return [("commands", False, f"{', '.join(missing)} not found on PATH; set bin in [pbs], or PATH for ejbd")]
    found: list[Check] = []
    try:
        dialect = await batch.dialect()
        found.append(("commands", True, batch.version))
        site = await batch.site()
    except BatchError as error:
        return [*found, ("server", False, error.sentence())]
    found.append(("server", True, f"{len(site.queues)} queues, default {site.default_queue or 'none'}"))
    found += check_site(dialect, site)
    try:
        view = await batch.observe()
    except BatchError as error:
        return [*found, ("listings", False, error.sentence())]
    found.append(("windows", True, view.windows_by))
    found.append(check_view(view))
    return found


def check_site(dialect: Dialect, site: Site) -> list[Check]:
    """Judge the server's settings (`qstat -Bf`)."""
    settings = site.settings
    checks: list[Check] = []
    if dialect is Dialect.OPENPBS:
        keeps = settings.get("job_history_enable") == "True"
        text = "from the server's history (job_history_enable)"
        if not keeps:
            text = "job_history_enable is off: only the exit files of EJB's own jobs tell how they ended; turn it on"
        checks.append(("ends of jobs", keeps, text))
    else:
        seconds = settings.get("keep_completed", "0")
        keeps = seconds.isdigit() and int(seconds) >= 60
        text = f"from the server, for {seconds} s after the end (keep_completed)"
        checks.append(("ends of jobs", keeps, text if keeps else f"{text}: set it to 300, so that none is missed"))
    if settings.get("query_other_jobs", "True") != "True":
        text = "query_other_jobs is off, which hides them; EJB would misjudge windows: turn it on"
        checks.append(("other people's jobs", False, text))
    if not site.schedules:
        checks.append(("scheduling", False, "it is switched off: nothing starts"))
    return checks


def check_view(view: ClusterView) -> Check:
    free = sum(node.free for node in view.nodes)
    total = sum(node.processors for node in view.nodes)
    text = f"{len(view.nodes)} nodes, {free} of {total} processors idle, {len(view.queues)} queues"
    text += f", {len(view.jobs)} jobs" + (f"; {view.unparsed} rows could not be read" if view.unparsed else "")
    return "listings", view.unparsed == 0, text
