"""A Snakemake executor that submits to EJB: `PYTHONPATH=examples snakemake --executor ejb --jobs 8`.

A rule's `threads` are its processors and `runtime` its minutes. `elastic` ("on", "off", "auto"), `engine`, `profile`
(widths one after the other) and `queue` may stand among its resources. It needs the command `ejb` on the PATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.executors.base import (  # type: ignore[import-not-found,unused-ignore]
    SubmittedJobInfo,
)
from snakemake_interface_executor_plugins.executors.remote import (  # type: ignore[import-not-found,unused-ignore]
    RemoteExecutor,
)
from snakemake_interface_executor_plugins.settings import (  # type: ignore[import-not-found,unused-ignore]
    CommonSettings,
    ExecutorSettingsBase,
)

MINUTES = 10  # of a rule that says no runtime
PATIENCE_S = 600.0  # that a daemon may be away while a job is submitted
NO_DAEMON, NO_JOB = 9, 3  # exit codes of `ejb`
WORDS = {"elastic": "--elastic", "engine": "--engine", "profile": "--profile", "queue": "-p"}


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc,unused-ignore]
    """None: what a rule needs stands with the rule."""


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):  # type: ignore[misc,unused-ignore]
    """Submits each job of a workflow to EJB, and asks how it is."""

    def run_job(self, job: Any) -> None:
        script = Path(self.get_jobscript(job))
        self.write_jobscript(job, script)
        asked = job.resources
        words = ["submit", "--parsable", "-J", f"snakemake-{job.name}", "-t", str(asked.get("runtime") or MINUTES)]
        if not asked.get("profile"):
            words += ["-n", str(job.threads)]
        for name, option in WORDS.items():
            if asked.get(name):
                words += [option, str(asked.get(name))]
        # Under one key it is one job, however often it has to be said.
        words += ["--idempotency-key", uuid.uuid4().hex, "-o", f"{script}.out", str(script)]
        told = SubmittedJobInfo(job, aux={"script": script})
        try:
            told.external_jobid = _ejb(*words, patience_s=PATIENCE_S).strip()
        except subprocess.CalledProcessError as refused:
            self.report_job_error(told, msg=f"EJB did not take it: {refused.stderr}")
            return
        self.logger.info(f"Submitted {job.name} with external jobid '{told.external_jobid}'.")
        self.report_job_submission(told)

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncGenerator[Any, None]:
        """A daemon that is started again ends no workflow: a job that cannot be asked about runs."""
        for one in active_jobs:
            async with self.status_rate_limiter:
                found = _found(one.external_jobid)
            if found["state"] == "completed":
                self.report_job_success(one)
            elif found["state"] in ("failed", "cancelled", "timeout"):
                self.report_job_error(one, msg=f"job {found['id']} {found['state']}: {found['reason']}\n")
            else:
                yield one

    def cancel_jobs(self, active_jobs: list[Any]) -> None:
        for one in active_jobs:
            subprocess.run(["ejb", "cancel", one.external_jobid], check=False, capture_output=True, timeout=60)


def _found(id: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_ejb("status", id, "--json"))
    except subprocess.CalledProcessError as error:
        gone = error.returncode == NO_JOB
        return {"id": id, "state": "failed" if gone else "running", "reason": "EJB knows no such job"}
    except subprocess.TimeoutExpired:
        return {"id": id, "state": "running"}
    return found


def _ejb(*words: str, patience_s: float = 0.0) -> str:
    """What `ejb` prints. As long as no daemon answers it is said again, for `patience_s`."""
    env = {name: value for name, value in os.environ.items() if name != "SNAKEMAKE_PROFILE"}
    until = time.monotonic() + patience_s
    while True:
        try:
            return subprocess.run(
                ["ejb", *words], check=True, capture_output=True, text=True, timeout=60, env=env
            ).stdout
        except subprocess.CalledProcessError as error:
            if error.returncode != NO_DAEMON or time.monotonic() > until:
                raise
        time.sleep(1)
