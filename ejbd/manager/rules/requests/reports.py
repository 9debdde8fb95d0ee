"""The manager's end of the worker protocol (docs/worker-protocol.md): which worker may speak, and what is reported."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from ejbd.core.walltime import parse_walltime
from ejbd.errors import Code, EjbError
from ejbd.files.userfiles import within
from ejbd.manager.effects import (
    AddLaunch,
    Advance,
    Conclude,
    Effects,
    EndIfTimeIsUp,
    Evolve,
    Flush,
    In,
    Insert,
    KeepIn,
    LostWorker,
    MoveOperation,
    NoteMemory,
    NoteRefusal,
    Offered,
    Order,
    RankStandsStill,
    StopLaunch,
    TakeSample,
    TakeWarning,
    Wake,
    WorkerCame,
    note,
    tell,
)
from ejbd.manager.effects.ends import Again, ApplicationEnded, LeadFailed, OutputRefused
from ejbd.manager.facts import deaths as causes
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.endcode import exit_payload
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.operations import leaves
from ejbd.manager.facts.placing.ranks import speaks_for
from ejbd.manager.facts.placing.workernodes import reason_not_believed
from ejbd.manager.hands.files import Reads
from ejbd.manager.protocol.worker_models import Report
from ejbd.manager.rules.requests import reportbudget, requests
from ejbd.store import queries
from ejbd.store.models import Epoch, Job, Launch, Operation, Subjob, Worker
from ejbd.store.states import OPEN_SUBJOB, TERMINAL_SUBJOB, JobState, LaunchState, OperationState, SubjobState
from ejbd.store.transitions import LEFT_TOPIC, STARTED_TOPIC
from ejbd.wire.kinds import EventKind, OperationKind

LOOK_S = 2.0
MOST_LEFT_BYTES = 8 << 20  # of one worker's reports
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def of_subjob(session: Session, subjob_id: str) -> Subjob:
    """A worker's subjob, which it has proved to be of. Raises EjbError(UNAUTHENTICATED | FORBIDDEN)."""
    return _open(session.get(Subjob, subjob_id), subjob_id)


def _open(subjob: Subjob | None, subjob_id: str) -> Subjob:
    if subjob is None:
        raise EjbError(Code.UNAUTHENTICATED, f"there is no subjob {subjob_id}")
    if SubjobState(subjob.state) in TERMINAL_SUBJOB:
        raise EjbError(Code.FORBIDDEN, f"subjob {subjob.id} is over ({subjob.state})")
    return subjob


# One question for both, made once: every worker asks it every few seconds.
_BOTH = (
    select(Subjob, Worker).outerjoin(Worker, Worker.id == bindparam("worker")).where(Subjob.id == bindparam("subjob"))
)


def own_worker(session: Session, subjob_id: str, worker_id: str) -> Worker:
    """The worker `worker_id`, if it is of this subjob."""
    found = session.execute(_BOTH, {"worker": worker_id, "subjob": subjob_id}).one_or_none()
    subjob = _open(found and found[0], subjob_id)
    worker: Worker | None = found and found[1]
    if worker is None:
        raise EjbError(Code.NOT_FOUND, f"there is no worker {worker_id}")
    if worker.subjob_id != subjob.id:
        raise EjbError(Code.FORBIDDEN, f"worker {worker_id} does not belong to subjob {subjob_id}")
    if not worker.alive:
        raise EjbError(Code.FORBIDDEN, f"worker {worker_id} was given up or replaced")
    return worker


def register(ctx: Context, subjob_id: str, request: dict[str, Any]) -> Effects[str]:
    """A worker says that it is there; returns its id. A second boot on the same node replaces the first."""
    session = ctx.session
    subjob = of_subjob(session, subjob_id)
    job = queries.job(session, subjob.job_id)
    world = JobWorld(ctx, job)
    given_up = select(Worker.id).where(
        Worker.subjob_id == subjob.id, Worker.node == request["node"], Worker.boot == request["boot"], ~Worker.alive
    )
    if session.scalar(given_up) is not None:  # its ranks may be elsewhere by now: it has to end its own
        raise EjbError(Code.FORBIDDEN, f"the worker on {request['node']} was given up or replaced")
    same_node = [w for w in world.workers_of(subjob.id) if w.node == request["node"]]
    for worker in same_node:
        if worker.boot == request["boot"]:
            yield from _end_leases(session, worker, ctx.now)
            if request.get("accepted", 0) > worker.reports_stored:
                yield from _catch_up(world, worker, request["accepted"], request.get("lost") or [])
            return worker.id
    if not same_node and (why := reason_not_believed(world, subjob, request["node"])):
        raise EjbError(Code.CONFLICT, why, transient=True)  # the worker asks again: the next poll may show it
    if same_node and not (yield from reportbudget.reserve_report(world, subjob)):
        raise EjbError(Code.TOO_MANY, f"too many workers have begun on {request['node']}", transient=True)
    for worker in same_node:
        yield In(world, LostWorker(worker, "another worker process has taken its place"))
    worker = Worker(
        id=secrets.token_hex(8),
        subjob_id=subjob.id,
        job_id=job.id,
        node=request["node"],
        host=request["host"],
        address=request["address"],
        boot=request["boot"],
        pid=request["pid"],
        processors=request["processors"],
        alive=True,
        registered_s=ctx.now,
        last_seen_s=ctx.now,
        reports_stored=request.get("accepted", 0),  # what was told to a database that is lost is not told again
    )
    yield Insert(worker)
    yield Flush()
    age = {} if request.get("age_s") is None else {"age_s": request["age_s"]}
    offer = {"engines": list(request.get("engines", [])), "dmtcp": request.get("dmtcp")}
    yield tell(
        EventKind.WORKER_REGISTERED,
        job_id=job.id,
        subjob_id=subjob.id,
        node=worker.node,
        processors=worker.processors,
        **offer,
        **age,
    )
    yield Offered(job.user, worker.node, offer)
    world = JobWorld(ctx, job)
    known = yield In(world, WorkerCame(subjob, request.get("age_s") or 0.0))
    if not known and subjob.state != SubjobState.RUNNING:
        yield Wake((STARTED_TOPIC,))
    if subjob.releasing or JobState(job.state).terminal or job.state == JobState.ENDING:
        yield Order(worker, OperationKind.EXIT, exit_payload(job, subjob))
    else:
        if world.staged:
            yield In(world, Evolve())
        yield In(world, Advance())
    return worker.id


def _end_leases(session: Session, worker: Worker, now: float) -> Effects[None]:
    """A worker that had lost us may not have got what was handed out last: it is told again, and does nothing twice."""
    leased = select(Operation).where(Operation.worker_id == worker.id, Operation.state == OperationState.LEASED)
    for operation in session.scalars(leased):
        yield note(operation, lease_until_s=now)


def _catch_up(world: JobWorld, worker: Worker, accepted: int, lost: Sequence[dict[str, Any]]) -> Effects[None]:
    """Take what was told to a database that is lost, as far as its worker's file has it."""
    for report in lost:
        if worker.reports_stored < report["n"] <= accepted:
            yield note(worker, reports_stored=report["n"])
            yield In(world, _take(world, worker, report))
    yield note(worker, reports_stored=accepted)
    yield Flush()
    yield In(world, Advance())


def lost_reports_file(ctx: Context, subjob_id: str, request: dict[str, Any]) -> str | None:
    """Where a worker keeps reports that were stored, and that this database does not have: it is an older copy."""
    known = select(Worker).where(
        Worker.subjob_id == subjob_id, Worker.node == request["node"], Worker.boot == request["boot"]
    )
    worker = ctx.session.scalars(known.where(Worker.reports_stored < request["accepted"])).first()
    return None if worker is None else str(_report_file(ctx, worker))


def take_reports(ctx: Context, subjob_id: str, worker_id: str, reports: list[dict[str, Any]]) -> Effects[int]:
    """Store what a worker tells, each report once, and act on it. Returns the highest number stored."""
    session = ctx.session
    worker = own_worker(session, subjob_id, worker_id)
    yield KeepIn("seen", worker.id, ctx.now)
    job = queries.job(session, worker.job_id)
    world = JobWorld(ctx, job)
    yield note(worker, last_seen_s=ctx.now)  # written with the number of what it tells: no look is between
    for report in sorted(reports, key=lambda r: int(r["n"])):
        if report["n"] != worker.reports_stored + 1:
            continue  # told before, or the one in between is still to come
        yield note(worker, reports_stored=report["n"])
        yield In(world, _take(world, worker, report))
    yield Flush()
    yield In(world, Advance())
    return worker.reports_stored


def resize_job(ctx: Context, subjob_id: str, places: int | None, change: int | None, key: str) -> Effects[None]:
    """A process of an evolving job gives it another width. Raises EjbError as a user's own request does, and TOO_MANY.

    `places`, `change` and `key` as :func:`ejbd.manager.rules.requests.requests.resize` has them.
    """
    subjob = of_subjob(ctx.session, subjob_id)
    job = queries.job(ctx.session, subjob.job_id)
    if not (yield from reportbudget.reserve_report(JobWorld(ctx, job), subjob)):
        raise EjbError(Code.TOO_MANY, "it asks for another width too often", transient=True)
    yield from requests.resize(ctx, job.id, places, job.user, change, key)


def take_left_behind(world: JobWorld, subjob: Subjob) -> Effects[None]:
    """Take what a subjob's workers could not tell before it ended: a daemon that was away must not take it for lost."""
    ctx = world.ctx
    for worker in world.workers_of(subjob.id):
        file = str(_report_file(ctx, worker))
        reports = ctx.left_behind.get(file)
        if reports is None:  # it came since the files were read
            reports = _read_reports(file, ctx.hands.read)
        for report in reports:
            if report["n"] == worker.reports_stored + 1:
                if report["kind"] == "leaving" and worker.alive:  # it may have come long after what was told before
                    yield Flush()
                    yield Advance()
                yield from _take(world, worker, report)
                yield note(worker, reports_stored=report["n"])
    yield Flush()
    yield Advance()


def report_files(ctx: Context, gone: Collection[str]) -> list[str]:
    """The files in which workers of these batch jobs (by id) keep what they have not told yet."""
    query = select(Worker, Subjob.batch_id).join(Subjob, Worker.subjob_id == Subjob.id)
    found = ctx.session.execute(query.where(Subjob.state.in_(OPEN_SUBJOB), Subjob.batch_id.is_not(None)))
    return [str(_report_file(ctx, worker)) for worker, batch_id in found if batch_id in gone]


def read_left_behind(files: Sequence[str], read: Reads) -> dict[str, list[dict[str, Any]]]:
    """The reports in these files. Not for the store's writer: it is not known what a job has put there."""
    return {file: _read_reports(file, read) for file in files}


def _report_file(ctx: Context, worker: Worker) -> Path:
    folder = ctx.spool_of(worker.job_id).subjob_dir(worker.job_id, worker.subjob_id) / "reports"
    return folder / f"{worker.node.replace('/', '_')}-{worker.boot}.jsonl"


def _read_reports(file: str, read: Reads) -> list[dict[str, Any]]:
    """Lines that are torn end the reading: the worker did not get further. What is no report is passed over."""
    try:
        data = within(lambda: read(Path(file), MOST_LEFT_BYTES)[0], LOOK_S)
    except OSError:
        return []
    reports: list[dict[str, Any]] = []
    for line in data.splitlines():
        try:
            reports.append(_REPORT.validate_json(line).model_dump())
        except ValidationError:
            if (number := _number_of(line)) is None:
                break
            reports.append({"n": number, "kind": "unreadable"})
    return reports


def _number_of(line: bytes) -> int | None:
    try:
        number = json.loads(line)["n"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if isinstance(number, int) and 0 < number < 2**53 else None


def _take(world: JobWorld, worker: Worker, report: dict[str, Any]) -> Effects[None]:
    kind, told_s = report["kind"], report.get("told_s")
    if (text := reportbudget.text_of(report)) is not None and not (yield from _may_leave(world, worker, text)):
        return
    if report.get("code") and told_s is not None:
        world.told_s = min(told_s, world.told_s or told_s)
    if kind == "result":
        yield from take_result(world, worker, report)
    elif kind == "rank-exit":
        if report.get("memory"):
            yield NoteMemory(worker, int(report["epoch"]), int(report["rank"]))
        yield from _rank_exits(world, worker, int(report["epoch"]), {str(report["rank"]): int(report["code"])})
    elif kind == "launch":
        yield from _launch(world, worker, report)
    elif kind == "launch-cancel":
        yield from _cancel_launch(world, int(report["ordinal"]))
    elif kind == "launch-refused":
        if world.job.lead_worker == worker.id and report["run"] == world.job.script_run:
            yield NoteRefusal(str(report["name"]), str(report["reason"]), line=int(report["line"]))
    elif kind == "script-exit":
        yield from _script_exit(world, worker, report)
    elif kind == "leaving" and worker.alive:
        yield Wake((LEFT_TOPIC,))
        left_s = world.ctx.now if told_s is None else told_s
        yield LostWorker(worker, f"it left: {report['reason']}", left_s=left_s)
    elif kind == "warned":
        yield TakeWarning(worker)
    elif kind == "sample":
        yield TakeSample(worker, report)
    elif kind == "stuck":
        yield RankStandsStill(int(report["epoch"]), int(report["rank"]), float(report["seconds"]))
    elif kind == "coordinator-lost":
        yield tell(
            EventKind.COORDINATOR_LOST, job_id=world.job.id, epoch=int(report["epoch"]), reason=str(report["reason"])
        )
    elif kind == "log":
        yield tell(
            EventKind.WORKER_LOG,
            job_id=world.job.id,
            subjob_id=worker.subjob_id,
            node=worker.node,
            level=report["level"],
            message=report["message"],
        )


def _may_leave(world: JobWorld, worker: Worker, text: str = "") -> Effects[bool]:
    subjob = world.subjob(worker.subjob_id)
    return subjob is not None and (yield from reportbudget.reserve_report(world, subjob, text))


def take_result(world: JobWorld, worker: Worker, report: dict[str, Any]) -> Effects[None]:
    """A worker has done what it was told, or has failed to."""
    session, now = world.ctx.session, world.ctx.now
    operation = session.get(Operation, int(report["seq"]))
    if operation is None or operation.worker_id != worker.id:
        return
    if operation.state not in (OperationState.QUEUED, OperationState.LEASED):
        return  # answered before, or given up
    told: dict[str, Any] = report.get("data") or {}
    if len(json.dumps(told)) > reportbudget.MOST_RESULT_BYTES:
        told, report = {}, {**report, "ok": False, "error": "its answer is longer than is kept"}
    yield note(operation, result=told)
    state = OperationState.DONE if report["ok"] else OperationState.FAILED
    yield MoveOperation(operation, state, reason=str(report.get("error") or ""))
    if report.get("told_s") is not None:  # a daemon that was away hears of it late
        yield note(operation, done_s=min(now, max(operation.created_s, report["told_s"])))
    if leaves(operation):
        yield Wake((LEFT_TOPIC,))
    begins = operation.kind == OperationKind.LEAD and world.job.state != JobState.ENDING
    if begins and not report["ok"] and world.job.lead_worker == worker.id:
        stops = world.operations(OperationKind.UNLEAD, OperationKind.EXIT)
        if any(stop.worker_id == worker.id and stop.seq > operation.seq for stop in stops):
            yield from _forget_lead(world.job)  # told to stop before it began: the job goes on elsewhere
            return
        if told.get("own"):
            yield from _not_begun(world, operation.error)
            return
        code = causes.OUTPUT_LOST if told.get("output") else None
        yield Conclude(OutputRefused(code, operation.error))
        return
    exits = told.get("exits")
    if exits and operation.epoch is not None and operation.kind != OperationKind.STOP:  # that is no end of theirs
        yield from _rank_exits(world, worker, operation.epoch, {str(rank): int(code) for rank, code in exits.items()})
    yield Flush()


def _not_begun(world: JobWorld, why: str) -> Effects[None]:
    """The lead could not begin the script, for want of what EJB itself keeps: the next one is appointed."""
    job = world.job
    decided = yield Conclude(LeadFailed(job.setbacks, why))
    if isinstance(decided, Again) and not decided.whole:
        yield from _forget_lead(job)


def _forget_lead(job: Job) -> Effects[None]:
    yield note(job, lead_worker=None, script_run=job.script_run - 1)


def _rank_exits(world: JobWorld, worker: Worker, number: int, exits: dict[str, int]) -> Effects[None]:
    """Ranks of a placement that ended on this worker. Only a live placement still cares."""
    epoch = world.ctx.session.get(Epoch, (world.job.id, number))
    if epoch is None:
        return
    told = speaks_for(world, epoch, worker)
    yield note(epoch, exits={**epoch.exits, **{rank: code for rank, code in exits.items() if int(rank) in told}})
    yield Flush()


def _launch(world: JobWorld, worker: Worker, report: dict[str, Any]) -> Effects[None]:
    ordinal, size = int(report["ordinal"]), int(report["size"])
    job = world.job
    if job.lead_worker != worker.id or job.state != JobState.RUNNING:
        return
    known = world.ctx.session.get(Launch, (job.id, ordinal))
    if known is not None:
        if known.state == LaunchState.ENDED and (yield from _may_leave(world, worker)):
            yield Order(worker, OperationKind.LAUNCH_ENDED, {"ordinal": ordinal, "code": known.exit_code or 0})
        return  # the script was started again behind it
    most = job.processes * world.needs.processors if world.needs.per_node else job.processes * world.spec.threads
    file = str(world.spool.launch_file(job.id, ordinal))
    fits = 1 <= size <= most and world.launch is None
    # Nothing but that file is read, or given to other workers to read.
    if not fits or report["file"] != file or ordinal > reportbudget.MOST_LAUNCHES:
        if not (yield from _may_leave(world, worker)):
            yield Conclude(ApplicationEnded(causes.REFUSED_LAUNCH, "too many of its launches were refused"))
            return
        if not fits:
            yield NoteRefusal("srun", "another launch runs, or it wants more ranks than the job has")
        yield Order(worker, OperationKind.LAUNCH_ENDED, {"ordinal": ordinal, "code": 2})
        return
    if world.staged:
        try:
            time_s = parse_walltime(report["time"]) if report.get("time") else None
        except ValueError as error:
            yield NoteRefusal("srun", f"-t: {error}")
            yield Order(worker, OperationKind.LAUNCH_ENDED, {"ordinal": ordinal, "code": 2})
            return
        stages = {**job.spec["evolving"], "launch": {"ordinal": ordinal, "time_s": time_s}}
        yield note(job, spec={**job.spec, "evolving": stages})
    yield AddLaunch(ordinal, size, file, together=report.get("together", True), name=report.get("program", ""))
    if world.staged:
        yield Evolve()  # what it needs is asked for at once: its script waits


def _cancel_launch(world: JobWorld, ordinal: int) -> Effects[None]:
    launch = world.launch
    if launch is None or launch.ordinal != ordinal or launch.exit_code is not None:
        return
    yield StopLaunch(launch, causes.CANCELLED_LAUNCH, "the script ended it")


def _script_exit(world: JobWorld, worker: Worker, report: dict[str, Any]) -> Effects[None]:
    job = world.job
    if job.lead_worker != worker.id or report["run"] != job.script_run or job.state != JobState.RUNNING:
        return
    code = int(report["code"])
    yield tell(EventKind.SCRIPT_ENDED, job_id=job.id, code=code, run=report["run"])
    if code and (yield EndIfTimeIsUp([worker.subjob_id], report.get("told_s"))):
        return
    refused = causes.refusal_that_was_passed_over(world) if code == 0 else ""
    if refused:  # what never ran is not to be taken for done
        yield Conclude(ApplicationEnded(causes.REFUSED_LAUNCH, refused))
        return
    said = "; ".join(part for part in (f"the script ended with code {code}", causes.for_memory(world)) if part)
    yield Conclude(ApplicationEnded(code, said if code else "", report.get("signal")))
