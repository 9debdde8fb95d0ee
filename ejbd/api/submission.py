"""From a submission's body to a spec that the manager takes."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ejbd.api.models import JobSubmission, OverridesBody
from ejbd.api.port import ManagerPort
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, Reading, read

# A thread of their own for texts that take longer to read than a thread costs: however many come, they keep neither the
# event loop nor the threads of others busy.
_READER = ThreadPoolExecutor(1, thread_name_prefix="submission-reader")
_LONG_TEXT = 16_384  # characters, below a millisecond or two
_UNSTATED_WALLTIME_S = 3600.0  # for the question whether such a job would be elastic at all


def request_of(body: JobSubmission) -> JobRequest:
    """The body as the reader of job specifications takes it."""
    return JobRequest(
        cwd=body.cwd,
        script=body.script,
        script_name=body.script_name,
        args=tuple(body.args),
        command=None if body.command is None else tuple(body.command),
        env=body.env,
        overrides=_overrides(body.overrides),
        script_path=body.script_path,
        umask=body.umask,
        limits={str(name): limit for name, limit in body.limits.items()},
    )


def _overrides(body: OverridesBody) -> Overrides:
    values: dict[str, Any] = body.model_dump()
    for key in ("ntasks", "nodes", "ntasks_per_node", "omax", "lambda_s", "delta"):
        if values[key] is not None:
            values[key] = str(values[key])
    values["options"] = tuple(values["options"])
    return Overrides(**values)


async def settle(manager: ManagerPort, reading: Reading, user: str) -> tuple[JobSpec, tuple[str, ...]]:
    """The spec as it is to be submitted, and what in it an elastic job does without.

    Raises EjbError (UNSUPPORTED) where the job itself wants to be elastic and cannot be. Where that is only what its
    queue does with jobs it is passed through instead: sbatch would have run it.
    """
    spec, notes = reading.spec, reading.notes
    if spec.elastic is not None or not (reading.refusals or spec.rigid_options):
        return reading.settle(bool(spec.elastic)), notes
    walltime_s = spec.walltime_s or _UNSTATED_WALLTIME_S
    name = spec.queue.partition(",")[0] if spec.queue is not None else None
    found = await manager.plan(dataclasses.replace(spec, queue=name, rigid_options=(), walltime_s=walltime_s), user)
    elastic, why = bool(found["elastic"]), str(found["why"])
    if elastic and reading.refusals:
        first = reading.refusals[0]
        elastic, why = False, f"{first.where}: {first.message}"
    spec = reading.settle(elastic)
    return spec if elastic else passed_through(spec, why), notes


def passed_through(spec: JobSpec, why: str) -> JobSpec:
    """Marked as one that is not to be elastic, and why, although its user did not say so."""
    asked = dataclasses.replace(spec.asked, why=why) if spec.asked is not None else None
    return dataclasses.replace(spec, elastic=False, asked=asked)


async def read_submission(body: JobSubmission) -> tuple[Reading, str]:
    """The job as it is understood, and the body's :func:`request_hash`; what is long is read off the event loop.

    Raises EjbError (INVALID) for what could not be run in any way.
    """
    if _characters(body) <= _LONG_TEXT:
        return _read(body)
    return await asyncio.get_running_loop().run_in_executor(_READER, _read, body)


def _read(body: JobSubmission) -> tuple[Reading, str]:
    return read(request_of(body)), request_hash(body)


def _characters(body: JobSubmission) -> int:
    words = (body.script or "", *body.args, *(body.command or ()), *body.overrides.options, body.overrides.export or "")
    return sum(map(len, words)) + sum(map(len, body.env.values())) + sum(map(len, body.env))


def request_hash(body: JobSubmission) -> str:
    """The same for bodies that mean the same, whatever the order of their fields."""
    text = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
