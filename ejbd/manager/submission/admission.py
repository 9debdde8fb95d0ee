"""How a job is taken: whether it is elastic, in which queue, by which engine, and why.

The one answer, for submissions, dry runs and the list of queues. What a job itself rules out is in its
:class:`ejbd.manager.jobspec.Reading`; what its queue and the site allow is asked here.
"""

from __future__ import annotations

from dataclasses import replace

from ejbd.config import Elasticity
from ejbd.core.continuation import links
from ejbd.core.needs import seen_by
from ejbd.core.room.windows import windows
from ejbd.core.view import ClusterView, QueueView
from ejbd.core.walltime import format_walltime
from ejbd.errors import Code, EjbError
from ejbd.manager.facts import auto
from ejbd.manager.facts.admitted import Admission, AdmissionCode
from ejbd.manager.facts.batchjob.fitting import fitted
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.losing import why_stopped
from ejbd.manager.facts.past.shortness import why_short
from ejbd.manager.facts.placing.checkpointing import check_mpi, choose_engine, open_mpi_obstacle
from ejbd.manager.facts.placing.mpi import is_open_mpi
from ejbd.manager.facts.placing.node_limit import cannot_split
from ejbd.manager.facts.room.evolving import check_evolving, told_at_submission
from ejbd.manager.facts.times import AHEAD_POLLS
from ejbd.manager.jobspec import NO_WALLTIME, JobKind, JobSpec, Reading
from ejbd.manager.jobspec.ownwords import check_words
from ejbd.manager.rules.linked import dependencies, elements
from ejbd.plugins.engines import known_engines, moving_engines
from ejbd.store.models import Job
from ejbd.store.states import JobState


def admit(ctx: Context, job: Reading, user: str) -> Admission:
    """How the job would be taken now. Raises EjbError for what cannot be had.

    A job that asks to be elastic and cannot be is refused. Where that is only what its queue does with jobs it is
    passed through instead: sbatch would have run it.
    """
    spec, waits_for = dependencies.divided(
        ctx.session,
        job.spec,
        batch_jobs=job.behind_batch_jobs,
        batch_waits=ctx.settings.traits.dependencies,
    )
    taken = _admitted(ctx, replace(job, spec=spec), user)
    array = taken.spec.array if taken.elastic or not ctx.settings.traits.arrays else None
    if array is not None:
        spec = elements.one_by_one(taken.spec)
        taken = replace(taken, spec=spec, array=spec.array)
        elements.check_size(spec.array or "", ctx.settings.limits.max_array_size)
        waits_for = dependencies.of_whole(ctx.session, waits_for)
    return replace(taken, waits_for=waits_for)


def _admitted(ctx: Context, job: Reading, user: str) -> Admission:
    queue = queue_for(ctx.view, job.spec)
    first = queue.partition(",")[0]
    omax = job.spec.omax or ctx.queue_settings(first).parameters.omax
    fit = fitted(job.spec, ctx.view, first, omax)
    words = job.spec.settings
    given, job = job, _in_default_time(job, ctx.view, first)
    if job.spec.elastic and fit.obstacle and not job.refusals:
        raise EjbError(Code.UNSUPPORTED, fit.obstacle, hint="ask for what the nodes have, or submit with --elastic off")
    job = replace(job, spec=replace(fit.spec, walltime_s=job.spec.walltime_s))
    spec = job.elastic_spec() if job.spec.elastic else job.spec
    elastic, why = queue_allows(ctx, first, spec.processes * spec.threads, spec.elastic)
    if not elastic and _waits_until_on(ctx, first, spec):
        elastic, why = True, f"{why}; until then it waits as it is"
    if spec.elastic and not elastic:
        raise _cannot_ask(ctx, first, spec, why)
    if spec.elastic is False and spec.asked is not None and spec.asked.why:
        why = spec.asked.why
    if spec.engine not in known_engines():
        raise EjbError(
            Code.UNSUPPORTED, f"there is no engine {spec.engine!r}", hint=f"one of: {', '.join(known_engines())}"
        )
    engine, as_one = "none", False
    if elastic:
        check_mpi(ctx.settings, spec)
        engine, about = choose_engine(ctx, spec, user)
        about = "; ".join(part for part in (about, fit.said) if part)
        as_one = is_open_mpi(ctx.settings, spec.mpi)
        if as_one:
            obstacle = open_mpi_obstacle(ctx, spec, first, engine)
            if obstacle and spec.elastic:
                raise EjbError(Code.UNSUPPORTED, obstacle, hint="build it with MPICH, or submit with --elastic off")
            whole = "one mpirun starts Open MPI's ranks: it moves as a whole, from one node to another"
            about = f"engine {engine}; {whole}" if engine == "dmtcp" else about
            elastic, why = not obstacle, obstacle or why
        if job.spec.walltime_s != given.spec.walltime_s:
            default = format_walltime(job.spec.walltime_s)
            about = "; ".join(
                part for part in (about, f"it asks for no walltime and takes the queue's, {default}") if part
            )
        why = "; ".join(part for part in (why, about) if part) if elastic else why
    if elastic and fit.obstacle:
        elastic, why = False, fit.obstacle
    if elastic and job.refusals and not spec.elastic:
        elastic, why = False, f"{job.refusals[0].where}: {job.refusals[0].message}"
    code = ""
    if elastic and not spec.elastic and (stopped := why_stopped(ctx, first)):
        elastic, why, code = False, stopped, AdmissionCode.STOPPED.value
    if elastic and (short := _short(ctx, first, spec, user, engine)) and _starts_at_once(ctx, first, spec):
        elastic, why, code = False, short, AdmissionCode.SHORT_RUNS.value
    if not elastic:
        spec = replace(job.spec, walltime_s=given.spec.walltime_s)
        return Admission(replace(job, spec=spec).passed_through(why), queue, False, "none", why, code=code)
    check_words(words, first, ctx.queue_settings(first))
    job, spec, chained = _chained(ctx, job, spec, first, engine)
    why = f"{why}; {chained}" if chained else why
    if spec.evolving is not None:
        check_evolving(
            spec, engine, min(omax, spec.needs.omax or omax), moves=not as_one, split=cannot_split(ctx, user)
        )
        why = f"{why}; {told_at_submission(spec, ctx.settings.limits.give_back_grace_s)}"
    if ctx.view is not None and (found := ctx.view.queue(first)) is not None:
        _check_shape(found, spec)
    return Admission(job.elastic_spec(), queue, True, engine, why)


def _in_default_time(job: Reading, view: ClusterView | None, queue: str) -> Reading:
    """A job that asks for no walltime, with what the batch system would give it there; as it is, where that is none."""
    found = view.queue(queue) if view is not None else None
    if NO_WALLTIME not in job.refusals or found is None or found.default_walltime_s is None:
        return job
    refusals = tuple(one for one in job.refusals if one != NO_WALLTIME)
    return replace(job, spec=replace(job.spec, walltime_s=found.default_walltime_s), refusals=refusals)


def queue_allows(ctx: Context, queue: str, processes: int, wanted: bool | None = None) -> tuple[bool, str]:
    """Whether a queue makes a job elastic that arrives now, by its settings and by what the job wants; and why."""
    settings = ctx.queue_settings(queue)
    if wanted is False:
        return False, "the job asked for elastic=off"
    if settings.elasticity is Elasticity.OFF:
        return False, f"elasticity is off in queue {queue}"
    if processes < settings.min_processors:
        return False, f"{processes} processors are fewer than the queue's minimum of {settings.min_processors}"
    if settings.elasticity is Elasticity.AUTO:
        if why := auto.why_off(ctx, queue):
            return False, why
        waiting = auto.waiting_in(ctx, queue)
        at_least = f", at least {settings.auto_queue_length}" if waiting >= settings.auto_queue_length else ""
        return True, f"{waiting} jobs wait in queue {queue}{at_least}"
    return True, f"elasticity is on in queue {queue}"


def _waits_until_on(ctx: Context, queue: str, spec: JobSpec) -> bool:
    """Whether a job that comes while `auto` is off has to wait.

    Then it may become elastic yet, in the place that it has by then. What could start at once is passed through as it
    is.
    """
    settings = ctx.queue_settings(queue)
    if settings.elasticity is not Elasticity.AUTO or spec.elastic is False or ctx.view is None:
        return False
    if spec.processes * spec.threads < settings.min_processors or spec.walltime_s is None:
        return False
    return not _starts_at_once(ctx, queue, spec)


def _starts_at_once(ctx: Context, queue: str, spec: JobSpec) -> bool:
    """Whether the windows of a queue hold the job in its own shape now."""
    if ctx.view is None or spec.walltime_s is None:
        return False
    return windows(seen_by(ctx.view, spec.needs), queue, ctx.now).available(spec.walltime_s) >= spec.processes


def _short(ctx: Context, queue: str, spec: JobSpec, user: str, engine: str) -> str:
    """Why a job is better passed through, as runs like it are short; "" of one that has to be elastic, or to evolve."""
    if spec.elastic or spec.evolving is not None or spec.array:
        return ""
    return why_short(ctx, user, spec, queue, engine)


def _cannot_ask(ctx: Context, queue: str, spec: JobSpec, why: str) -> EjbError:
    settings = ctx.queue_settings(queue)
    processors = spec.processes * spec.threads
    narrow = settings.elasticity is not Elasticity.OFF and processors < settings.min_processors
    change = f"min_processors={processors}" if narrow else "elasticity=on"
    return EjbError(
        Code.UNSUPPORTED,
        f"the job asks for elasticity, but {why}",
        hint=f"an admin can change that: ejb queue set {queue} {change}",
    )


def queue_for(view: ClusterView | None, spec: JobSpec) -> str:
    """The queue a job goes to, or several with commas between. Raises EjbError where it does not exist."""
    if view is None:
        if spec.queue is None:
            if spec.elastic is False:
                return ""  # the batch system will say
            raise EjbError(
                Code.BATCH_UNAVAILABLE,
                "the batch system does not answer, so its default queue is not known",
                transient=True,
                hint="name the queue with -p, or try again",
            )
        return spec.queue
    names = ", ".join(q.name for q in view.queues)
    if spec.queue is not None and "," in spec.queue:
        for name in spec.queue.split(","):
            if view.queue(name) is None:
                raise EjbError(Code.INVALID, f"there is no queue {name!r}", hint=f"the queues are: {names}")
        return spec.queue
    if spec.queue is None:
        found = next((q for q in view.queues if q.default), view.queues[0] if len(view.queues) == 1 else None)
        if found is None:
            raise EjbError(Code.INVALID, "the batch system has no default queue", hint=f"name one with -p: {names}")
    else:
        found = view.queue(spec.queue)
        if found is None:
            raise EjbError(Code.INVALID, f"there is no queue {spec.queue!r}", hint=f"the queues are: {names}")
    if found.fed_by:
        text = f"queue {found.name} takes jobs from the routing queue {found.fed_by} alone"
        raise EjbError(Code.INVALID, text, hint=f"submit to {found.fed_by} with -q or -p")
    return found.name


def _check_shape(queue: QueueView, spec: JobSpec) -> None:
    processors = spec.processes * spec.needs.processors
    if processors > queue.total_processors:
        raise EjbError(
            Code.INVALID,
            f"{processors} processors are more than queue {queue.name} has ({queue.total_processors})",
            hint="ask for fewer with -n, or for another queue with -p",
        )
    too_long = queue.max_walltime_s is not None and spec.walltime_s > queue.max_walltime_s
    if too_long and spec.chain is None:
        raise EjbError(
            Code.INVALID,
            f"{spec.walltime_s:g} s are more than queue {queue.name} allows ({queue.max_walltime_s:g} s)",
            hint=f"ask for less with -t, or for another queue with -p; {LONGER}",
        )


LONGER = "what an engine moves may be longer: a command, or a script that is restartable, with one width"


def _chained(ctx: Context, job: Reading, spec: JobSpec, queue: str, engine: str) -> tuple[Reading, JobSpec, str]:
    """A job that is longer than its queue's limit and can be moved: a chain of place holders. What is said of it.

    As it is where it is none. Raises EjbError (INVALID) where the limit leaves no time between two moves.
    """
    found = ctx.view.queue(queue) if ctx.view is not None else None
    limit_s = found.max_walltime_s if found is not None else None
    may = engine in moving_engines() and (spec.kind is not JobKind.SCRIPT or spec.restartable) and not spec.evolving
    if limit_s is None or spec.walltime_s <= limit_s or not may:
        return job, spec, ""
    unstored = Job(
        state=JobState.WAITING, queue=queue, processes=spec.processes, application="", spec={"lambda_s": spec.lambda_s}
    )
    cost = JobWorld(ctx, unstored).cost
    ahead_s = cost.reserve_s + AHEAD_POLLS * ctx.settings.poll_s
    count = links(spec.walltime_s, limit_s, cost.restart_s or cost.lambda_s, ahead_s)
    if count is None:
        text = f"queue {queue} allows {limit_s:g} s, which leaves no time between a restart and the next checkpoint"
        raise EjbError(Code.INVALID, text, hint="ask for another queue with -p")
    chain = {"limit_s": limit_s}
    said = f"longer than queue {queue} allows ({format_walltime(limit_s)}): it goes on in about {count} place holders"
    return replace(job, spec=replace(job.spec, chain=chain)), replace(spec, chain=chain), said
