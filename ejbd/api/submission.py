"""From a submission's body to a spec that the manager takes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from ejbd.api.models import JobSubmission, OverridesBody
from ejbd.api.port import ManagerPort
from ejbd.manager.jobspec import JobRequest, JobSpec, Overrides, Reading, read

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
    )


def _overrides(body: OverridesBody) -> Overrides:
    values: dict[str, Any] = body.model_dump()
    for key in ("ntasks", "nodes", "ntasks_per_node", "omax", "lambda_s", "delta"):
        if values[key] is not None:
            values[key] = str(values[key])
    values["options"] = tuple(values["options"])
    return Overrides(**values)


async def settle(manager: ManagerPort, reading: Reading, user: str) -> JobSpec:
    """The spec as it is to be submitted. Raises EjbError (UNSUPPORTED) where the job would be elastic and cannot be."""
    elastic = reading.spec.elastic
    if elastic is None and reading.refusals:
        spec = reading.spec
        if spec.walltime_s <= 0:
            spec = dataclasses.replace(spec, walltime_s=_UNSTATED_WALLTIME_S)
        elastic = bool((await manager.plan(spec, user))["elastic"])
    return reading.settle(bool(elastic))


def read_submission(body: JobSubmission) -> Reading:
    """Raises EjbError (INVALID) for what could not be run in any way."""
    return read(request_of(body))


def request_hash(body: JobSubmission) -> str:
    """The same for bodies that mean the same, whatever the order of their fields."""
    text = json.dumps(body.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
