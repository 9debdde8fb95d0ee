"""What the batch system is asked for a subjob, J0 among them: as it is submitted, and as it is shown before."""

from __future__ import annotations

from pathlib import Path

from ejbd.batch.base import BatchSystem, SubmitRequest, WorkerScript
from ejbd.core.evolving.course import base_of, profile_from_json
from ejbd.core.room.walltimes import asked_walltime
from ejbd.core.view import ClusterView
from ejbd.manager.facts.batchjob.fitting import Asked, request_of
from ejbd.manager.facts.batchjob.output import literally
from ejbd.manager.facts.batchjob.passing import TRIAL_TAG
from ejbd.manager.jobspec import JobSpec
from ejbd.plugins.engines import moving_engines


def request_for(
    spec: JobSpec, asked: Asked, *, tag: str, queue: str, walltime_s: float, script: str, folder: Path
) -> SubmitRequest:
    """The submission of a subjob. Its own folder in the spool is `folder`."""
    return SubmitRequest(
        tag=tag,
        name=spec.name,
        comment=spec.comment,
        queue=queue,
        processors=asked.tasks * asked.threads,
        threads=asked.threads,
        walltime_s=walltime_s,
        script=script,
        workdir=folder,
        output=literally(str(folder / "job.out")),
        nodes=asked.nodes,
        tasks_per_node=asked.tasks_per_node,
        options=(*spec.options, *asked.words),
        native=spec.qsub,
        exclude=asked.exclude,
        folds=asked.threads == 1 and spec.mpi != "openmpi",  # one command starts those, and they stay where they are
        moves=spec.engine in moving_engines(),
        umask=spec.umask,
        limits=spec.limits,
    )


def trial(spec: JobSpec, queue: str, view: ClusterView | None, batch: BatchSystem, python: str) -> SubmitRequest:
    """J0 of an elastic job as it will be, to ask the batch system about it before there is a job."""
    folder = Path("/")
    start = WorkerScript(python, folder / "worker", folder, folder / "exit")
    first_s = spec.walltime_s if spec.chain is None else min(spec.walltime_s, spec.chain["limit_s"])
    walltime_s = asked_walltime(first_s, 0.0, float("inf"), view.walltime_quantum_s if view else 1.0)
    places = spec.processes if spec.evolving is None else base_of(profile_from_json(spec.evolving))
    asked = request_of(spec, places * spec.needs.processors, view, queue, first=spec.evolving is None)
    return request_for(
        spec,
        asked,
        tag=TRIAL_TAG,
        queue=queue,
        walltime_s=walltime_s,
        script=batch.worker_script(start),
        folder=folder,
    )


def shape_of(request: SubmitRequest) -> tuple[object, ...]:
    """All by which the batch system would tell two such requests apart."""
    return (
        request.queue, request.processors, request.threads, request.walltime_s, request.nodes, request.tasks_per_node,
        tuple(request.options), tuple(request.native), tuple(request.exclude),
    )  # fmt: skip
