"""SlurmBatch: the protocol of ejbd.batch.base, filled by Slurm's own commands."""

from __future__ import annotations

import asyncio
import math
import os
import pwd
import resource
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ejbd.batch.base import (
    NO_MARKS,
    BatchEnd,
    Identity,
    Mailing,
    Mark,
    SubmitRequest,
    WorkerScript,
    refuse_no_walltime,
    refuse_others,
)
from ejbd.batch.exits import exit_files, read_own
from ejbd.batch.helped import Helped, entry_of
from ejbd.batch.process import (
    ActTime,
    Commands,
    CommandTimedOut,
    Surroundings,
    limits_above_ours,
    plain_environment,
)
from ejbd.batch.reading import beside
from ejbd.batch.slurm import charging, checks, commands, privacy, refusals, script, siterules
from ejbd.batch.slurm.acting import Acts, HelpedActs, OwnActs, Submission
from ejbd.batch.slurm.environments import is_of_place, may_go_along, split_environment
from ejbd.batch.slurm.limits import AccountLimits, enforced
from ejbd.batch.slurm.listing import JobRow, Memory, Squeue, in_order, new_separator
from ejbd.batch.slurm.nodes import NodeListing, ShowNodes
from ejbd.batch.slurm.reservations import ASK_EVERY_S, Reserved, ShowReservations
from ejbd.core.sitelimits import SiteRules
from ejbd.core.view import BatchJobView, BatchState, ClusterView, NodeView, Reservations, base_id
from ejbd.core.walltime import MINUTE_S
from ejbd.errors import BatchError, SubmitOutcomeUnknown
from ejbd.identity.sessions import Helper
from ejbd.options.sbatch import export_parts

UNREAD = "those of many users are not read"
_PUT_BACK = (BatchState.NODE_FAIL, BatchState.PREEMPTED)


class SlurmBatch:
    """Slurm 22.05 or later, through the commands on PATH.

    `conf`: a slurm.conf other than the default (SLURM_CONF). `whole_nodes`: the site uses select/linear, where every
    partition gives out whole nodes. `timeout_s`: of a query; `submit_timeout_s`: of a submission.
    `charges`: what queues have for their subjobs, which `doctor` looks at. `helper`: what acts for each job's user,
    where it is not the daemon's own alone.
    """

    name = "slurm"

    def __init__(
        self,
        *,
        conf: Path | None = None,
        whole_nodes: bool = False,
        timeout_s: float = 20.0,
        submit_timeout_s: float = 30.0,
        path: str | None = None,
        charges: Sequence[charging.Charge] = (),
        helper: Helper | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        more = {"SLURM_CONF": str(conf)} if conf is not None else {}
        if path is not None:
            more["PATH"] = path
        self.commands = Commands(plain_environment() | more)
        self.command_counts = self.commands.counts
        self.helper = helper
        self._read = read_own if helper is None else helper.read
        self._user_at = (lambda _: None) if helper is None else helper.spools.user_at
        self._whole_nodes = whole_nodes
        self._charges = charges
        self._timeout_s = timeout_s
        self._submit_timeout_s = submit_timeout_s
        self._act_time = ActTime(timeout_s)
        self._clock = clock
        self._config: dict[str, str] | None = None
        self._config_asked = -math.inf  # by the monotonic clock
        self._level: str | None = None  # of our user in the accounts
        self._level_asked = -math.inf
        self._nodes: tuple[NodeView, ...] = ()  # as they were last seen
        self._partitions: tuple[str, ...] = ()  # their lines, as they were last told
        self._partitions_asked = -math.inf  # by the monotonic clock
        self._partitions_untold: tuple[str, ...] = ()  # also when they were asked for
        self._partitions_blamed: frozenset[tuple[str, str]] = frozenset()  # queues, and why jobs wait there
        self._rows: Memory = {}  # of the last poll
        self._reserved: tuple[Reserved, ...] | None = None  # None: never answered
        self._reserved_error: BatchError | None = None
        self._reserved_asked = -math.inf  # by the monotonic clock
        self._reserved_unparsed = 0
        own = Identity.own().user
        self._limits = AccountLimits(self._query, own, os.geteuid(), timeout_s)

    async def observe(self) -> ClusterView:
        now_s = self._clock()
        own_uid = os.geteuid() if self.helper is None else None
        squeue = Squeue(new_separator(), own_uid=own_uid, timeout_s=self._timeout_s)
        if time.monotonic() - self._partitions_asked >= ASK_EVERY_S:
            self._partitions, self._partitions_asked = (), time.monotonic()
        show = ShowNodes(self._whole_nodes, self._timeout_s, self._partitions)
        asking = asyncio.create_task(self._ask_for_reservations())
        try:
            jobs_text, nodes_text = await asyncio.gather(
                self._query(squeue.argv(), squeue.timeout_s, "list its jobs"),
                self._show_nodes(show),
            )
        finally:
            await asking  # never left behind: its command has its own time-out
        if self._reserved is None:  # what maintenance is coming is not known: nothing is decided on half of the truth
            raise self._reserved_error or BatchError("Slurm did not tell its reservations", transient=True)

        def read() -> tuple[tuple[BatchJobView, ...], int, NodeListing]:
            rows, unparsed = squeue.parse(jobs_text, now_s, self._rows)
            listing = show.parse(nodes_text)
            return in_order(rows, listing.tiers), unparsed, listing

        jobs, unparsed, listing = await beside(read)
        if show.partitions and listing.untold != self._partitions_untold:  # a new one
            show = replace(show, partitions=())
            nodes_text = await self._show_nodes(show)
            jobs, unparsed, listing = await beside(read)
        if not listing.nodes or not listing.queues:
            raise _unreadable("scontrol", nodes_text)
        self._nodes = listing.nodes
        self._keep_partitions(show, listing, jobs)
        if unparsed and not jobs:
            raise _unreadable("squeue", jobs_text)
        settings = await self._settings()
        own = self.helper is None  # of many users' limits none is read: what waits on one tells it
        limits = await self._limits.look(settings, jobs) if own else ()
        return ClusterView(
            time_s=now_s,
            nodes=listing.nodes,
            jobs=jobs,
            queues=listing.queues,
            reservations=Reservations.NODES,
            walltime_quantum_s=MINUTE_S,
            unparsed=unparsed + listing.unparsed + self._reserved_unparsed,
            memory=commands.memory_rules(settings),
            kills_unmet=commands.kills_unmet(settings),
            kill_wait_s=commands.kill_wait_s(settings),
            pass_s=commands.pass_s(settings),
            site_reservations=tuple(one.seen_by(Identity.own().user, listing.nodes) for one in self._reserved),
            limits=limits,
            limits_unknown=self._limits.unknown if own else UNREAD if enforced(settings) else "",
            fair_share=self._limits.fair,
            elements_listed=not unparsed,
            chains=True,
            blind=await self.blindness(),
        )

    async def _show_nodes(self, show: ShowNodes) -> str:
        return await self._query(show.argv(), show.timeout_s, "list its nodes", show.stdin, show.environment)

    def _keep_partitions(self, show: ShowNodes, listing: NodeListing, jobs: Sequence[BatchJobView]) -> None:
        """Partitions are asked for once a minute, and when a job begins or ceases to wait for what one is like."""
        self._partitions = listing.partitions
        if not show.partitions:
            self._partitions_untold = listing.untold
        blamed = frozenset((job.queue, job.reason) for job in jobs if job.reason.startswith("Partition"))
        if blamed != self._partitions_blamed:
            self._partitions_blamed, self._partitions_asked = blamed, -math.inf

    async def _settings(self) -> dict[str, str]:
        """The site's settings, as of a minute ago at most; a poll does not fail for them."""
        try:
            if self._config is not None and time.monotonic() - self._config_asked >= ASK_EVERY_S:
                self._config = await self._read_config()
            return await self.config()
        except BatchError:
            return self._config or {}

    async def blindness(self) -> str:
        """Why windows cannot be trusted here, "" where they can: other people's jobs are hidden, or may be."""
        user, uid = Identity.own().user, os.geteuid()
        try:
            config = await self.config()
            asks = privacy.blindness(config, user, uid, "") and privacy.keeps_accounts(config)
            if asks and time.monotonic() - self._level_asked >= ASK_EVERY_S:
                await self._ask_for_level(user)
        except BatchError as error:
            return f"it is not known whether Slurm hides other users' jobs: {error.sentence()}"
        return privacy.blindness(config, user, uid, self._level or "")

    async def raises(self) -> bool:
        """Whether our user may raise the limits of jobs. Raises BatchError where the accounts do not tell."""
        user, uid = Identity.own().user, os.geteuid()
        config = await self.config()
        if not privacy.raises(config, user, uid, self._level or "") and privacy.keeps_accounts(config):
            await self._ask_for_level(user)
        return privacy.raises(config, user, uid, self._level or "")

    async def _ask_for_level(self, user: str) -> None:
        """What it was last holds where the accounts do not answer. Raises BatchError where they never have."""
        self._level_asked = time.monotonic()
        show = privacy.ShowLevel(user, self._timeout_s)
        try:
            self._level = show.parse(await self._query(show.argv(), show.timeout_s, "tell what its user may see"))
        except BatchError:
            if self._level is None:
                self._level_asked = -math.inf
                raise

    async def _ask_for_reservations(self) -> None:
        """Once a minute at most; where Slurm does not answer, what it said last holds."""
        if time.monotonic() - self._reserved_asked < ASK_EVERY_S:
            return
        self._reserved_asked = time.monotonic()
        show = ShowReservations(self._timeout_s)
        try:
            text = await self._query(show.argv(), show.timeout_s, "tell its reservations")
        except BatchError as error:
            self._reserved_error = error
            if self._reserved is None:
                self._reserved_asked = -math.inf  # nothing works without: the next poll asks again
            return
        self._reserved, self._reserved_unparsed = show.parse(text)

    async def submit(self, identity: Identity, request: SubmitRequest) -> str:
        acts = self._acts(identity)
        submission = await self._prepared(acts, request, self._submit_timeout_s)
        sbatch = submission.sbatch
        try:
            result = await acts.submit(submission)
        except CommandTimedOut as error:
            if (id := sbatch.parse(error.stdout)) is not None:
                return id  # it went on to wait for the job's end, as a line of the script has it do
            raise SubmitOutcomeUnknown(f"Slurm may have taken the job or not: {error}", stderr=error.stderr) from error
        if result.code != 0:
            self._partitions_asked = -math.inf  # one may be closed by now
            raise refusals.submit_refusal(result)
        id = sbatch.parse(result.stdout)
        if id is None:
            said = result.stdout.strip()[:100]
            raise SubmitOutcomeUnknown(f"Slurm may have taken the job or not: sbatch answered {said!r}")
        return id

    async def check(self, identity: Identity, request: SubmitRequest, timeout_s: float) -> None:
        acts = self._acts(identity)
        result = await acts.submit(await self._prepared(acts, request, timeout_s, test_only=True))
        if result.code != 0:
            away = [node for node in self._nodes if not node.usable and request.queue in ("", *node.queues)]
            if away and refusals.without_nodes(result):
                raise BatchError(f"nodes are away that it may need ({away[0].name} is {away[0].state})", transient=True)
            raise refusals.refusal(result, "take the job")

    async def _prepared(
        self, acts: Acts, request: SubmitRequest, timeout_s: float, *, test_only: bool = False
    ) -> Submission:
        """The command of a submission, ready to be run.

        The user's environment is no environment for a command of the daemon's. It would say which libraries that loads
        and which Slurm it asks. So sbatch reads it as a file, which it does before it makes the job's environment of
        it. That of 23.11 alone reads none.
        """
        asked = request.asked
        stdin: str | None = request.script
        surroundings = Surroundings(None, request.umask, request.limits)
        if asked is not None:
            stdin = request.script if asked.file is None else None
            surroundings = replace(surroundings, directory=asked.directory)
        # The times among the user's options are meant in their time zone.
        wording = {} if asked is None else {n: v for n, v in asked.environment.items() if is_of_place(n)}
        sbatch = commands.Sbatch(request, timeout_s, test_only=test_only)
        hands_on = not test_only and (asked is not None or bool(request.environment))
        own = hands_on and (await self.config()).get("SLURM_VERSION", "").startswith("23.11.")
        users = await self._users_environment(acts, request, own) if hands_on else None
        if own and users is not None:
            users, words = split_environment(users, self._conf())
            if words:
                export = asked.export if asked is not None and asked.export is not None else "ALL"
                users.setdefault("SLURM_EXPORT_ENV", export)  # otherwise sbatch sets it to all of these words
                sbatch = replace(sbatch, exported=",".join([export, *words]))
        return Submission(sbatch, stdin, users, wording, surroundings, own)

    def _acts(self, identity: Identity) -> Acts:
        """What acts for a user. Raises BatchError where nothing here does."""
        if self.helper is None:
            refuse_others(identity)
            own = pwd.getpwuid(os.geteuid())
            return OwnActs(self.commands, own, self._environment_of(own))
        return HelpedActs(Helped(self.helper, entry_of(identity), self.commands.counts, "Slurm"))

    async def _users_environment(self, acts: Acts, request: SubmitRequest, own: bool) -> dict[str, str] | None:
        """What sbatch is to take for the environment that it was started in; None: none at all, or what it has.

        Measured against sbatch 22.05: of a file everything goes to the job, whatever `--export` says. What that says
        besides is added by sbatch itself; under NONE and NIL nothing would. `own`: it is started in it.
        """
        asked = request.asked
        if asked is None:
            users = {name: value for name, value in request.environment.items() if may_go_along(name)}
            told = await self._told_by_sbatch(request) if users and not own else {}
            return {**self._environment_of(acts.user), **users, **told} if users else None
        users = dict(asked.environment)
        told = {} if own else await self._told_by_sbatch(request)
        if asked.export is not None:
            if asked.export.upper() in ("NONE", "NIL", ""):
                return None
            if not own:
                told["SLURM_EXPORT_ENV"] = asked.export
            names = {part.partition("=")[0] for part in export_parts(asked.export) if "=" not in part}
            if not any(name.upper() == "ALL" for name in names):
                users = {n: v for n, v in users.items() if n in names or n.startswith(("SLURM_", "SPANK_"))}
                return users | told
        # A whole environment is all there is, as with sbatch; of a part of one the rest is a login's.
        return (self._conf() if "PATH" in users else self._environment_of(acts.user)) | users | told

    async def _told_by_sbatch(self, request: SubmitRequest) -> dict[str, str]:
        """What sbatch adds to the environment that a job is given, and not to one that it reads from a file."""
        told = {"SLURM_JOB_NAME": request.asked.job_name if request.asked is not None else request.name or request.tag}
        if request.asked is not None:
            told |= request.asked.told
        limits = {**request.limits, **limits_above_ours(request.limits)}
        for name in commands.propagated_limits(await self.config()):
            soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[0]
            told[f"SLURM_RLIMIT_{name.upper()}"] = str(limits.get(name, soft) % 2**64)
        return told

    async def find(self, identity: Identity, tags: Sequence[str]) -> dict[str, str]:
        """Where several jobs carry one tag, a living one is preferred, then the latest."""
        uid = self._acts(identity).user.pw_uid
        if not tags:
            return {}
        wanted = set(tags)
        # By their comments, which squeue cannot select by: all keep the names that their users gave them.
        squeue = Squeue(new_separator(), user=str(uid), own_uid=uid, timeout_s=self._timeout_s)
        jobs, unparsed = squeue.parse(
            await self._query(squeue.argv(), squeue.timeout_s, "list its jobs"), self._clock()
        )
        if unparsed:
            raise BatchError(f"{unparsed} rows of squeue's answer cannot be read", transient=True)
        ours = [row for row in jobs if row.view.mark in wanted and row.uid == uid]
        return {row.view.mark: row.view.base_id for row in sorted(ours, key=_living_and_late_last)}

    async def list_jobs(self, ids: Sequence[str]) -> list[BatchJobView]:
        rows, unparsed = await self._listed(ids)
        if unparsed:
            raise BatchError(f"{unparsed} rows of squeue's answer cannot be read", transient=True)
        return [row.view for row in rows]

    async def _listed(self, ids: Sequence[str]) -> tuple[list[JobRow], int]:
        """Asked about one job alone, squeue calls a forgotten one an error."""
        if not ids:
            return [], 0
        own_uid = os.geteuid() if self.helper is None else None
        numbers = tuple(commands.checked_ids(ids))
        squeue = Squeue(new_separator(), ids=numbers, own_uid=own_uid, timeout_s=self._timeout_s)
        result = await self.commands.run(squeue.argv(), timeout_s=squeue.timeout_s)
        if result.code != 0 or refusals.unknown_column(result):
            if "invalid job id" in result.stderr.lower():
                return [], 0
            raise refusals.refusal(result, "list jobs")
        return squeue.parse(result.stdout, self._clock())

    async def cancel(self, identity: Identity, ids: Sequence[str]) -> None:
        acts = self._acts(identity)
        if not ids:
            return
        argv = commands.Scancel(ids).argv()
        result = await self._act_time.run(lambda seconds: acts.run(argv, seconds))
        problem = refusals.cancel_refusal(result)
        if problem is not None:
            raise problem

    async def update(
        self,
        identity: Identity,
        id: str,
        *,
        walltime_s: float | None = None,
        hold: bool | None = None,
        begins: bool | None = None,
        begin_in_s: float | None = None,
    ) -> None:
        acts = self._acts(identity)
        if walltime_s is not None:
            refuse_no_walltime(walltime_s)
            shorten = commands.Shorten(id, walltime_s)
            await self._change(acts, shorten.argv(), f"shorten job {id}")
        if hold is not None:
            change = commands.Hold(id, hold)
            await self._change(acts, change.argv(), f"{'hold' if hold else 'release'} job {id}")
        if begin_in_s is not None:
            later = commands.BeginsIn(id, begin_in_s)
            await self._change(acts, later.argv(), f"let job {id} begin in {begin_in_s:.0f} s")
        elif begins is not None:
            let = commands.Begins(id, begins)
            doing = f"let job {id} begin" if begins else f"keep job {id} from beginning"
            await self._change(acts, let.argv(), doing)

    async def waited_for(self, identity: Identity, ids: Sequence[str]) -> set[str]:
        self._acts(identity)
        waiting = commands.Dependencies(new_separator(), self._timeout_s)
        return waiting.parse(await self._query(waiting.argv(), waiting.timeout_s, "list what jobs wait for")) & set(ids)

    async def reduce(self, identity: Identity, id: str, *, held: bool) -> None:
        acts = self._acts(identity)
        counted = commands.memory_rules(await self.config()).counted
        for argv in commands.Reduce(id, counted).argvs():
            await self._change(acts, argv, f"make job {id} smaller")
        if held:
            release = commands.Hold(id, False)
            await self._change(acts, release.argv(), f"release job {id}")

    async def _change(self, acts: Acts, argv: Sequence[str], doing: str) -> None:
        """Raises BatchError in the words of a refusal."""
        result = await self._act_time.run(lambda seconds: acts.run(argv, seconds))
        if result.code != 0:
            raise refusals.refusal(result, doing)

    async def set_aside(self, identity: Identity, id: str) -> None:
        """J0 is submitted so that a lost node does not put it back into the queue: that is changed first."""
        acts = self._acts(identity)
        for argv in commands.SetAside(id).argvs():
            await self._change(acts, argv, f"put job {id} back into the queue")

    async def outcomes(self, ids: Mapping[str, Path], marks: Mapping[str, Mark] = NO_MARKS) -> dict[str, BatchEnd]:
        """By sacct where the site keeps accounts, else by squeue, which remembers ended jobs for MinJobAge.

        Which of the two is asked from the settings once. The exit files speak for what the command does not know, and
        for everything where it does not answer.
        """
        if not ids:
            return {}
        found: dict[str, BatchEnd] = {}
        problem: BatchError | None = None
        try:
            found = await self._ends(list(ids), marks)
        except BatchError as error:
            problem = error
        if unknown := {id: path for id, path in ids.items() if id not in found}:
            found |= await exit_files(unknown, self._read, self._user_at)
        if problem is not None and not found:
            raise problem
        return found

    async def _ends(self, ids: list[str], marks: Mapping[str, Mark]) -> dict[str, BatchEnd]:
        config = await self.config()
        if config.get("AccountingStorageType", "").endswith("slurmdbd"):
            sacct = commands.Sacct(ids, new_separator(), self._timeout_s)
            told, _ = sacct.parse(await self._query(sacct.argv(), sacct.timeout_s, "tell how jobs ended"))
            last = {one.id: one for one in told}
            return {
                one.id: one.end
                for one in told
                if one.end is not None
                and _is_asked(one.id, one.tag, one.submit_s, ids, marks)
                # What was put back into the queue has a further row, as a stranger has: without tags it is not known.
                and (one.tag or one is last[one.id] or one.end.state not in _PUT_BACK)
            }
        rows, _ = await self._listed(ids)
        return {
            one.id: BatchEnd(one.state, one.exit_code, one.end_s, "controller", one.reason, one.exit_signal)
            for one in (row.view for row in rows)
            if one.state.ended and _is_asked(one.id, one.mark, one.submit_s, ids, marks)
        }

    async def config(self) -> dict[str, str]:
        """The site's settings as they were last read; a poll reads them anew now and then."""
        if self._config is None:
            self._config = await self._read_config()
        return self._config

    async def _read_config(self) -> dict[str, str]:
        self._config_asked = time.monotonic()
        show = commands.ShowConfig(self._timeout_s)
        return show.parse(await self._query(show.argv(), show.timeout_s, "show its settings"))

    def worker_script(self, request: WorkerScript) -> str:
        config = self._config or {}
        return script.worker_script(
            request,
            commands.kill_wait_s(config),
            commands.propagated_limits(config),
            nice=commands.is_nice_propagated(config),
            warns=commands.has_preemption(config),
            srun=self._find_srun(),
        )

    def rigid_command(self, argv: Sequence[str], processors: int) -> str:
        return script.rigid_command(argv, processors, self._find_srun())

    def _find_srun(self) -> str:
        return shutil.which("srun", path=self.commands.environment["PATH"]) or "srun"

    async def mailing(self) -> Mailing:
        config = await self.config()
        program, domain = (config.get(name, "") for name in ("MailProg", "MailDomain"))
        return Mailing(program, "" if domain == "(null)" else domain)

    async def doctor(self) -> list[tuple[str, bool, str]]:
        found = await checks.doctor(self, self.commands, self._whole_nodes, self._timeout_s)
        own = Identity.own().user
        config = await self._settings()
        if self.helper is not None:
            found = [*found, await asyncio.to_thread(self.helper.examined)]
        return [*found, *await charging.examine(self._charges, config, self._query, own, self._timeout_s)]

    async def site_rules(self) -> SiteRules:
        """See :meth:`ejbd.batch.base.TellsRules.site_rules`."""
        return await siterules.read(self._query, await self._settings(), self._timeout_s)

    async def close(self) -> None:
        """Nothing is held open between commands."""

    async def _query(
        self,
        argv: Sequence[str],
        timeout_s: float,
        doing: str,
        stdin: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """What a command answers. `more`: of the environment. Raises BatchError in the words of a refusal."""
        environment = {**self.commands.environment, **more} if more else None
        result = await self.commands.run(argv, timeout_s=timeout_s, stdin=stdin, environment=environment)
        if result.code != 0 or refusals.unknown_column(result):
            raise refusals.refusal(result, doing)
        return result.stdout

    def _environment_of(self, user: pwd.struct_passwd) -> dict[str, str]:
        """What sbatch is started in, and what a job of ours sees: its user, and nothing of the daemon's own."""
        return {
            "PATH": self.commands.environment["PATH"],
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            "SHELL": user.pw_shell or "/bin/sh",
            **self._conf(),
        }

    def _conf(self) -> dict[str, str]:
        conf = self.commands.environment.get("SLURM_CONF")
        return {"SLURM_CONF": conf} if conf else {}


def _is_asked(id: str, mark: str, submit_s: float | None, ids: Sequence[str], marks: Mapping[str, Mark]) -> bool:
    """Whether what is told of a number is of a job that was asked about, and not of another one of that number."""
    asked = next((one for one in (id, base_id(id)) if one in ids), None)
    return asked is not None and (asked not in marks or marks[asked].is_on(mark, submit_s))


def _living_and_late_last(row: JobRow) -> tuple[bool, int]:
    return not row.view.state.ended, row.number


def _unreadable(name: str, text: str) -> BatchError:
    return BatchError(f"{name} answered nothing that can be read ({text.strip()[:80]!r})", transient=True)
