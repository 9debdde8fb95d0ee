"""What a submission asks of the batch system: the files that it needs, and the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from sqlalchemy.orm import Session

from ejbd.batch.base import BatchSystem, Identity, SubmitRequest, WorkerScript
from ejbd.batch.starter import python_behind
from ejbd.config import Settings
from ejbd.errors import EjbError
from ejbd.manager.acts import numbers, records, submitted
from ejbd.manager.acts.carrying import carry_out
from ejbd.manager.acts.shortmarks import ShortMarks
from ejbd.manager.facts import drains
from ejbd.manager.facts.attempts import is_attempt
from ejbd.manager.facts.batchjob import begins, passing, pbsvariables, standing, subjobrequests, variables
from ejbd.manager.facts.batchjob.exithook import hook_for
from ejbd.manager.facts.batchjob.fitting import request_of
from ejbd.manager.facts.batchjob.prolog import can_be_told
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.past.speculating import for_another_attempt
from ejbd.manager.facts.placing import node_limit
from ejbd.manager.facts.placing.mpi import is_open_mpi, profile_named
from ejbd.manager.facts.placing.plain import is_plain_in_time
from ejbd.manager.hands import orders
from ejbd.manager.hands.hands import Hands
from ejbd.manager.hands.spool import Spool
from ejbd.manager.jobspec import JobSpec
from ejbd.manager.protocol.proofs import new_secret
from ejbd.manager.rules.queues import queuepause
from ejbd.store import queries
from ejbd.store.models import Intent, Job, Subjob
from ejbd.store.states import IntentState, JobState
from ejbd.store.store import Store
from ejbd.store.transitions import move_intent
from ejbd.wire.kinds import AS_ASKED, SubjobRole

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """What was read and written before a submission: the job's specification, the secret of its workers, and what a
    passed-through job needs. `plain`: an elastic job's script needs nothing of EJB to run in J0. `mark`: a file that
    says whether runs like a plain one were short. `python_at`: where the workers' Python is, if a script stands before
    it."""

    spec: JobSpec
    secret: str
    script: Path | None = None
    hook: Path | None = None
    plain: bool = False
    mark: Path | None = None
    python_at: str = ""


class Asking:
    """Of intents to submit: :meth:`make_files`, then :meth:`begin` in a transaction, and last :meth:`give_order`."""

    def __init__(
        self,
        store: Store,
        batch: BatchSystem,
        settings: Settings,
        hands: Hands,
        context: Callable[[Session], Context],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._batch = batch
        self.settings = settings
        self._hands = hands
        self._context = context
        self._clock = clock
        self.marks = ShortMarks(store, hands, context)

    def make_files(self, id: int) -> Files:
        """The files that a subjob's workers read, or a passed-through job's sbatch. Repeatable."""

        def look(session: Session) -> tuple[Job, Subjob, bool]:
            subjob = session.get_one(Subjob, session.get_one(Intent, id).subjob_id)
            job = queries.job(session, subjob.job_id)
            j0 = subjob.role == SubjobRole.PLACEHOLDER
            may_be_plain = j0 and standing.may_be_plain(self._context(session), job)
            return job, subjob, may_be_plain

        job, row, may_be_plain = self._store.read_sync(look)
        subjob, releasing = row.id, row.releasing
        spec = JobSpec.from_json(job.spec)
        if releasing:  # it is not wanted any more: its end needs none of its user's files
            return Files(spec, "")
        spool = self._hands.ready(job.user)
        if row.ordinal == 0:
            spool.make_record(job.id, self._store.read_sync(lambda session: records.record_of(session, job)))
        if job.elastic:
            _make_job_folder(spool, job.id, spec)
        # The embedded cluster's processors are virtual: there is nothing to bind to.
        binding = "none" if self.settings.traits.one_host else "auto"
        secret = new_secret()
        folder = spool.make_subjob(job.id, subjob, secret, binding=binding, row=records.row_of(row))
        if job.elastic:
            plain = may_be_plain and is_plain_in_time(spec)
            told = job.engine != "application" or can_be_told(spec)
            mark = self.marks.mark_for(job, spec) if plain and told and job.engine != "none" else None
            python_at = python_behind(self.settings.worker_python)
            return Files(spec, secret, plain=plain, mark=mark, python_at=python_at)
        script, hook = passing.file_to_submit(spec, folder, spool.files), None
        if self.settings.traits.exit_hook and (text := hook_for(spec, spool.exit_file(job.id, subjob))):
            hook = folder / "bash-env"
            spool.files.put(hook, text.encode())
        return Files(spec, secret, script, hook)

    def give_order(self, user: str, intent: Intent, secret: str, order: standing.Order) -> None:
        """One that cannot be written (a full spool) is done without: the job waits for a daemon then."""
        try:
            spool, subjob = self._hands.spool_of(user), intent.subjob_id or ""
            orders.give(spool, intent.job_id, subjob, secret, order.content, order.script, order.prolog)
        except EjbError as error:
            log.warning("no-standing-order", subjob=intent.subjob_id, error=error.sentence())

    def begin(
        self, session: Session, id: int, files: Files
    ) -> tuple[Identity, SubmitRequest, standing.Order | None] | None:
        """Mark a submission as executing: its user, and all of it; None where it is not made now."""
        intent = session.get_one(Intent, id)
        if intent.state != IntentState.PENDING:
            return None
        now = self._clock()
        subjob = session.get_one(Subjob, intent.subjob_id)
        job = queries.job(session, intent.job_id)
        world = JobWorld(self._context(session), job)
        behind = _stands_by_for(world, subjob)
        # Without its locks it would be another run.
        alone = subjob.role == SubjobRole.STANDBY and not (behind or job.elastic)
        if subjob.releasing or alone or JobState(job.state).terminal:
            submitted.not_wanted(world, intent, subjob)
            return None
        if not carry_out(world, queuepause.may_submit(world.ctx, job, tried=intent.attempts > 0)):
            return None
        subjob.worker_secret = files.secret
        move_intent(session, intent, IntentState.EXECUTING, now, attempt=intent.attempts + 1)
        intent.attempts += 1
        one_node = node_limit.one_node_only(world, subjob)
        order = standing.order_for(world, subjob, files.spec, self._batch, files.plain, files.mark)
        request = self._request(world, subjob, one_node, files, behind, order)
        if begins.is_unread(job, subjob, now):
            numbers.let_begin_later(world.ctx, subjob)
            request = replace(request, begin_in_s=max(request.begin_in_s, begins.UNREAD_S))
        return Identity(job.user), request, order

    def _request(
        self,
        world: JobWorld,
        subjob: Subjob,
        one_node: bool,
        files: Files,
        behind: str,
        order: standing.Order | None,
    ) -> SubmitRequest:
        job, view, spec = world.job, world.ctx.view, files.spec
        spool = world.spool
        folder = spool.subjob_dir(job.id, subjob.id)
        if subjob.role in AS_ASKED and not job.elastic:
            launcher = profile_named(self.settings, spec.mpi) if is_open_mpi(self.settings, spec.mpi) else None
            script = passing.script_of(spec, self._batch, launcher, spool.exit_file(job.id, subjob.id))
            numbers.settle_array(world.ctx.session, job)
            told = variables.of_array(world) | pbsvariables.of_array(world)
            element = variables.element_of(world)
            names = passing.Names(subjob.tag, job.id, job.user, job.queue, element, told)
            other = subjob.role == SubjobRole.STANDBY or is_attempt(job, subjob)
            walltime_s = subjob.walltime_s if other else job.walltime_s
            given = for_another_attempt(spec) if subjob.ordinal else spec
            if job.number is not None and job.array_id is None:
                given = passing.with_number(given, job.number)
            given = passing.with_walltime(given, walltime_s)
            request = passing.request_for(given, script, names, files.script, files.hook)
            return replace(request, hold=job.held, stands_by_for=behind)
        start = WorkerScript(
            python=self.settings.worker_python,
            worker=spool.worker,
            subjob_dir=folder,
            exit_file=spool.exit_file(job.id, subjob.id),
            at_once=order is not None and bool(order.content["at_once"]),
            at_once_if=None if order is None else files.mark,
            python_at=files.python_at,
        )
        j0 = subjob.role in (SubjobRole.PLACEHOLDER, SubjobRole.STANDBY)  # the next J0 of a chain
        alone = world.width_alone(spec.needs.places(subjob.processors)) if spec.needs.whole_mb else None
        as_asked = j0 and spec.evolving is None
        asked = request_of(spec, subjob.processors, view, job.queue, first=as_asked, width=alone)
        request = subjobrequests.request_for(
            spec,
            replace(asked, nodes=1, tasks_per_node=None) if one_node else asked,
            tag=subjob.tag,
            queue=job.queue,
            walltime_s=subjob.walltime_s,
            script=self._batch.worker_script(start),
            folder=folder,
        )
        free_to_go = j0 and self.settings.traits.excludes_by_name
        kept_off = () if free_to_go else drains.kept_off(view, subjob.processors, job.queue, must=not j0)
        options = (*request.options, *(() if j0 else self._charged_to(world)), *_behind(world, subjob))
        begin_in_s = begins.begin_in_s(job.spec, subjob, self._clock())
        request = replace(request, hold=j0 and job.held, begin_in_s=begin_in_s, options=options)
        return replace(request, exclude=(*kept_off, *request.exclude))

    def _charged_to(self, world: JobWorld) -> list[str]:
        """Words that charge a subjob to what its queue has for them. Slurm takes the last of two."""
        settings = world.ctx.queue_settings(world.job.queue)
        if self.settings.batch != "slurm":
            return []
        words = (("--qos", settings.subjob_qos), ("--account", settings.subjob_account))
        return [f"{option}={value}" for option, value in words if value]


def _make_job_folder(spool: Spool, id: str, spec: JobSpec) -> None:
    """The database holds everything about a job; its files are made when the first subjob needs them."""
    if spool.files.there(spool.env_file(id)) and (spec.script is None or spool.files.there(spool.script_file(id))):
        return
    command = None
    if spec.script is None:
        dealt, told = variables.distribution_of(spec)
        command = {"argv": list(spec.argv), "cwd": spec.cwd, "env": spec.env, "size": spec.processes}
        command |= {"dealt": dealt, "told": told} if told else {}
    spool.make_job(id, env=spec.env, script=spec.script, command=command)


def _behind(world: JobWorld, subjob: Subjob) -> list[str]:
    """Words by which what a launch needs begins once what the launch before it held is given back."""
    follows = (world.job.spec.get("evolving") or {}).get("follows", {}).get(subjob.id)
    numbers = [s.batch_id for s in world.open_subjobs if s.id == follows and s.batch_id]
    return [f"--dependency=afterany:{number}" for number in numbers]


def _stands_by_for(world: JobWorld, subjob: Subjob) -> str:
    """The batch job that has to time out before a subjob may begin; "" where it need not wait for any."""
    if subjob.role != SubjobRole.STANDBY:
        return ""
    return next((s.batch_id or "" for s in world.open_subjobs if s.role == SubjobRole.RIGID), "")
