"""One look at a PBS: three commands at most, and what is remembered from look to look."""

from __future__ import annotations

import asyncio
import math
import os
import pwd
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ejbd.batch.exits import read_own
from ejbd.batch.pbs import attributes, commands, openpbs, refusals, torque
from ejbd.batch.pbs.attributes import ReservationRow, Site
from ejbd.batch.pbs.openpbs import Unreadable
from ejbd.batch.pbs.rows import JobRow, NodeRow
from ejbd.batch.pbs.scheduler import RESERVATIONS_S, Maui, in_order, openpbs_reservations, planned
from ejbd.batch.pbs.states import Dialect
from ejbd.batch.pbs.views import blindness, node_view, order, serves, unreadable, waits
from ejbd.batch.process import ActTime, CommandResult, Commands, plain_environment
from ejbd.batch.reading import beside
from ejbd.core.view import BatchState, ClusterView, QueueView, Reservations, SiteReservation
from ejbd.errors import BatchError
from ejbd.identity.sessions import Helper

SETTINGS_S = 300.0
"""Queues are read again after so long."""
SERVER_S = 60.0
"""The server's settings are read again after so long: its default queue, and whether it schedules."""
REMEMBERED_S = 120.0
"""A job that has ended stays in the view for so long, where the server lists no ended ones."""
_ASKED_AT_ONCE = 100
_ELEMENTS_AT_ONCE = 1000
_TRIES = 3


class Observing:
    """What is asked of a PBS, and when; :class:`ejbd.batch.pbs.adapter.PbsBatch` has the settings."""

    def __init__(
        self,
        *,
        dialect: Dialect | None = None,
        server: str = "",
        use_maui: bool | None = None,
        whole_nodes: bool = False,
        longest_name: int = 15,
        timeout_s: float = 20.0,
        submit_timeout_s: float = 30.0,
        change_timeout_s: float = 5.0,
        path: str | None = None,
        helper: Helper | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        more = {} if path is None else {"PATH": path}
        if server:
            more |= {"PBS_DEFAULT": server, "PBS_SERVER": server}
        self.commands = Commands(plain_environment() | more)
        self.command_counts = self.commands.counts
        self.version = ""
        self._dialect = dialect
        self._use_maui = use_maui
        self._whole_nodes = whole_nodes
        self._longest_name = longest_name
        self._timeout_s = timeout_s
        self._submit_timeout_s = submit_timeout_s
        self._change_timeout_s = change_timeout_s
        self._act_time = ActTime(timeout_s)
        self._clock = clock
        self.helper = helper
        self._read = read_own if helper is None else helper.read
        self._user_at = (lambda _: None) if helper is None else helper.spools.user_at
        self._own = pwd.getpwuid(os.geteuid())
        self._user = self._own.pw_name if helper is None else None
        self._site: Site | None = None
        self._site_s = self._server_s = -math.inf
        self._maui: Maui | None = None
        self._reservations: list[ReservationRow] = []
        self._reservations_s = -math.inf
        self._nodes: dict[str, NodeRow] | None = None
        # OpenPBS: jobs of ours that are known to live, with how often they were not found since; and those that ended.
        self._living: dict[str, int] = {}
        self._ended: dict[str, tuple[JobRow, float]] = {}
        self._elements: dict[str, JobRow] = {}  # of arrays, those that run
        self._asked_for_elements = False
        self._history = True
        self._asked_after_ends = False

    # ---- what the site is

    async def dialect(self) -> Dialect:
        """Asked once. Raises BatchError where `qstat` is neither's."""
        if self._dialect is None or not self.version:
            result = await self.commands.run(["qstat", "--version"], timeout_s=self._timeout_s)
            found = refusals.version(result.stdout + result.stderr)
            if found is None:
                if refusals.wraps_slurm(result.stderr):
                    text = "qstat is none of PBS's own: it is Slurm's wrapper with that name (slurm-wlm-torque)"
                    hint = 'say batch = "slurm", or set bin in [pbs] to the folder of a real PBS\'s commands'
                    raise BatchError(text, transient=False, hint=hint)
                if result.code != 0 and refusals.refusal(result, "say").transient:
                    raise refusals.refusal(result, "tell its version")
                said = (result.stdout + result.stderr).strip()[:80]
                text = f"qstat is neither OpenPBS's nor Torque's: its version is {said!r}"
                raise BatchError(text, transient=False, hint="set bin in [pbs] to the folder of the right one")
            self.version = f"{'OpenPBS' if found[0] == 'openpbs' else 'Torque'} {found[1]}"
            self._dialect = self._dialect or Dialect(found[0])
            path = self.commands.environment.get("PATH")
            has_maui = shutil.which("showbf", path=path) is not None
            self._maui = Maui() if self._use_maui or (self._use_maui is None and has_maui) else None
        return self._dialect

    async def site(self) -> Site:
        """Queues and settings, read once and again now and then."""
        if self._site is None:
            self._site = await self._read_site()
            self._site_s = self._server_s = self._clock()
        return self._site

    async def _read_site(self) -> Site:
        queues, server = await asyncio.gather(
            self._query(["qstat", "-Q", "-f"], "list its queues"),
            self._query(["qstat", "-B", "-f"], "show its settings"),
        )
        settings = attributes.server(server)
        if not settings:
            raise unreadable("qstat -B -f", server)
        return Site(attributes.queues(queues), settings.get("default_queue", ""), settings)

    # ---- observing

    async def observe(self) -> ClusterView:
        """By `qstat`, `pbsnodes` and one command more, which is another one from poll to poll."""
        dialect, site = await self.dialect(), await self.site()
        now_s = self._clock()
        jobs_text, nodes_text = await asyncio.gather(
            self._query(commands.list_jobs(dialect), "list its jobs"),
            self._query(commands.list_nodes(dialect), "list its nodes"),
        )
        jobs, unparsed = await beside(lambda: self._jobs(dialect, jobs_text, now_s))
        nodes, torn = await beside(lambda: self._nodes_of(dialect, nodes_text))
        if not nodes:
            raise unreadable("pbsnodes", nodes_text)
        self._nodes = {node.name: node for node in nodes}
        if not await self._look_at_elements(nodes):
            await self._look_further(dialect, now_s)
        jobs += self._elements.values()
        if dialect is Dialect.OPENPBS:
            jobs = self._with_ended(jobs, now_s)
        views = [row.view for row in jobs if not (row.view.state is BatchState.RUNNING and "[]" in row.view.id)]
        offers, keeps_order, by = None, True, ""
        if self._maui is not None:
            self._maui.node_processors = max(node.processors for node in nodes)
            views = [planned(job, self._maui.starts, now_s) for job in views]
            offers = self._maui.offers()
            by = "showbf and showres: Maui or Moab"
            if self._maui.trouble:
                by = f"showbf tells nothing ({self._maui.trouble}): nothing is started until it does"
        else:
            keeps_order, by = order(dialect, views)
            if self._user is None and not keeps_order and any(waits(job) and not job.tag for job in views):
                offers = ()  # the one that waits may be of any user, and its user has agreed to nothing
        if not site.schedules:
            offers, by = (), "none: the server's scheduling is switched off (qmgr: set server scheduling = True)"
        queues = self._queues(site, nodes)
        return ClusterView(
            time_s=now_s,
            nodes=tuple(node_view(node, site) for node in nodes),
            jobs=in_order(views),
            queues=queues,
            reservations=Reservations.NODES,
            walltime_quantum_s=1.0,
            unparsed=unparsed + torn,
            site_reservations=self._standing(now_s),
            offers=offers,
            keeps_order=keeps_order,
            windows_by=by,
            schedules=site.schedules,
            blind=blindness(site, views, self._own.pw_name),
        )

    def _jobs(self, dialect: Dialect, text: str, now_s: float) -> tuple[list[JobRow], int]:
        parse = torque.jobs if dialect is Dialect.TORQUE else openpbs.jobs
        try:
            jobs, unparsed = parse(text, self._user, now_s)
        except Unreadable as error:
            raise BatchError(f"qstat answered nothing that can be read: {error}", transient=True) from None
        if unparsed and not jobs:
            raise unreadable("qstat", text)
        return jobs, unparsed

    def _nodes_of(self, dialect: Dialect, text: str) -> tuple[list[NodeRow], int]:
        parse = torque.nodes if dialect is Dialect.TORQUE else openpbs.nodes
        try:
            return parse(text)
        except Unreadable as error:
            raise BatchError(f"pbsnodes answered nothing that can be read: {error}", transient=True) from None

    def _standing(self, now_s: float) -> tuple[SiteReservation, ...]:
        """What the site keeps for others, now or later."""
        found = []
        for one in self._reservations if self._maui is None else self._maui.standing:
            for count in dict.fromkeys(one.nodes.values()):
                names = tuple(sorted(name for name, kept in one.nodes.items() if kept == count))
                sizes = [self._nodes[name].processors for name in names if self._nodes and name in self._nodes]
                whole = count >= max(sizes, default=0)
                found.append(
                    SiteReservation(one.name, one.start_s, one.end_s, names, None if whole else count, what=one.what)
                )
        return tuple(one for one in found if one.end_s > now_s)

    def _queues(self, site: Site, nodes: Sequence[NodeRow]) -> tuple[QueueView, ...]:
        found = []
        for queue in site.queues:
            of = [node for node in nodes if serves(node, queue, site)]
            exclusive = self._whole_nodes or (bool(of) and all(node.exclusive for node in of))
            quantum = max((node.processors for node in of), default=1) if exclusive else 1
            total = sum(node.processors for node in of)
            default = queue.name == site.default_queue
            routes = (row.name for row in site.queues if queue.only_routed and queue.name in row.destinations)
            found.append(
                QueueView(
                    queue.name, queue.up, queue.max_walltime_s, quantum, total, default,
                    leads_to=queue.destinations, fed_by=next(routes, ""),
                    default_walltime_s=site.default_walltime_s(queue, by_limit=self._dialect is Dialect.OPENPBS),
                )
            )  # fmt: skip
        return tuple(found)

    # ---- the one command more

    async def _look_at_elements(self, nodes: Sequence[NodeRow]) -> bool:
        """Elements of arrays that have begun, which the nodes name. New ones are asked after, each once, and not at
        every poll, lest nothing else be asked. Whether that was done.
        """
        there = dict.fromkeys(id for node in nodes for id in node.elements)
        self._elements = {id: row for id, row in self._elements.items() if id in there}
        new = [id for id in there if id not in self._elements][:_ELEMENTS_AT_ONCE]
        self._asked_for_elements = bool(new) and not self._asked_for_elements
        if not self._asked_for_elements:
            return False
        try:
            found = await self._history_of(new)
        except BatchError:
            return True  # their nodes are known to be taken; when they end is asked again
        self._elements.update({row.view.id: row for row in found if row.view.state.holds_processors})
        return True

    async def _look_further(self, dialect: Dialect, now_s: float) -> None:
        """What is most wanted of: how jobs ended that are not listed any more, settings, and what is planned."""
        missing = [id for id, tries in self._living.items() if tries]
        if dialect is Dialect.OPENPBS and missing and self._history and not self._asked_after_ends:
            self._asked_after_ends = True
            await self._look_for_ends(missing[:_ASKED_AT_ONCE], now_s)
            return
        self._asked_after_ends = False
        if now_s - self._site_s > SETTINGS_S:
            self._site_s = now_s
            await self._look_at_queues()
        elif now_s - self._server_s > SERVER_S:
            self._server_s = now_s
            await self._look_at_server()
        elif self._maui is not None:
            await self._ask_maui(self._maui, now_s)
        elif dialect is Dialect.OPENPBS and now_s - self._reservations_s > RESERVATIONS_S:
            self._reservations_s = now_s
            try:
                self._reservations = openpbs_reservations(
                    await self._query(["pbs_rstat", "-F"], "list its reservations")
                )
            except BatchError:
                pass  # what was known of them still counts

    async def _look_at_queues(self) -> None:
        """Their limits and whether they take jobs."""
        try:
            text = await self._query(["qstat", "-Q", "-f"], "list its queues")
        except BatchError:
            return
        if self._site is not None and (queues := attributes.queues(text)):
            self._site = replace(self._site, queues=queues)

    async def _look_at_server(self) -> None:
        """Its default queue, and whether it schedules."""
        try:
            settings = attributes.server(await self._query(["qstat", "-B", "-f"], "show its settings"))
        except BatchError:
            return
        if self._site is not None and settings:
            self._site = replace(self._site, default_queue=settings.get("default_queue", ""), settings=settings)

    async def _ask_maui(self, scheduler: Maui, now_s: float) -> None:
        argv = scheduler.argv()
        try:
            result = await self.commands.run(argv, timeout_s=self._timeout_s)
            if result.code != 0:
                raise refusals.refusal(result, "say what room there is")
            scheduler.heard(result.stdout, now_s)
        except (BatchError, Unreadable) as error:
            scheduler.failed(error.message if isinstance(error, BatchError) else str(error))

    def _with_ended(self, jobs: list[JobRow], now_s: float) -> list[JobRow]:
        """The jobs, with those of ours that have left the listing. A job that is not found there is asked after next
        time.
        """
        listed = {row.view.id for row in jobs}
        for row in jobs:
            ours = bool(row.view.tag) if self._user is None else not row.view.foreign
            if ours and not row.view.state.ended:
                self._living[row.view.id] = 0
        for id in self._living.keys() - listed:
            self._living[id] += 1
        for id in [id for id, tries in self._living.items() if tries > 10 * _TRIES]:
            del self._living[id]  # PBS does not know it any more
        for id in [id for id, (_, until_s) in self._ended.items() if until_s < now_s or id in listed]:
            del self._ended[id]
        return [*jobs, *(row for row, _ in self._ended.values())]

    async def _look_for_ends(self, ids: Sequence[str], now_s: float) -> None:
        try:
            for row in await self._history_of(ids):
                if row.view.state.ended:
                    self._living.pop(row.view.id, None)
                    self._ended[row.view.id] = (row, now_s + REMEMBERED_S)
        except BatchError:
            pass  # the manager asks for itself

    async def _history_of(self, ids: Sequence[str]) -> list[JobRow]:
        """What the server still knows of these jobs, the ended ones included; one command."""
        return (await self._rows_of(ids))[0]

    async def _rows_of(self, ids: Sequence[str]) -> tuple[list[JobRow], int]:
        """The same, and the number of rows that could not be read."""
        dialect = await self.dialect()
        argv = commands.list_jobs(dialect, ids, ended=self._history)
        result = await self.commands.run(argv, timeout_s=self._timeout_s)
        if self._history and "history" in result.stderr.lower() and result.code not in (0, refusals.UNKNOWN_JOB):
            self._history = False
            return await self._rows_of(ids)
        if result.code != 0 and not refusals.unknown_job(result):
            raise refusals.refusal(result, "tell how jobs ended")
        if not result.stdout.strip():
            return [], 0
        return await beside(lambda: self._jobs(dialect, result.stdout, self._clock()))

    async def _query(self, argv: Sequence[str], doing: str) -> str:
        result: CommandResult = await self.commands.run(argv, timeout_s=self._timeout_s)
        if result.code != 0:
            raise refusals.refusal(result, doing)
        return result.stdout
