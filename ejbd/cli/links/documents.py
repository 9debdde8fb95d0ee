"""Jobs as `--json` and `--yaml` of squeue and sacct have them: Slurm's own documents, with what EJB knows better."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ejbd.cli.links import fields, real
from ejbd.cli.links.rows import Row, without_tag
from ejbd.wire.payloads import StepView


def print_jobs(command: str, rows: Sequence[Row], words: Sequence[str], *, yaml: bool) -> None:
    """Print the document of these rows, as the site's own version of the command has it; `words` narrow its answer."""
    done = real.query(command, [*words, "--json"])
    whole: dict[str, Any] = {"errors": [], "jobs": []}
    if done is not None and done.returncode == 0:
        with suppress(ValueError):  # a site's squeue may be built without it
            whole = json.loads(done.stdout)
    known = {str(one["job_id"]): one for one in whole["jobs"]}
    make = _squeues if command == "squeue" else _saccts
    whole["jobs"] = [make(row, known.get(row.slurm.get("jobid", ""), {})) for row in rows]
    if yaml:
        from yaml import safe_dump

        print(safe_dump(whole, sort_keys=False), end="")
    else:
        print(json.dumps(whole, indent=2))


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a value in the form of this version of Slurm: a number may be an object, a word a list."""
    old = document.get(key)
    if isinstance(old, Mapping) and "number" in old:
        document[key] = {**old, "set": value is not None, "infinite": False, "number": value or 0}
    elif isinstance(old, Mapping) and "return_code" in old:
        inner = {**old}
        _put(inner, "return_code", value >> 8)
        _put(inner, "status", "ERROR" if value else "SUCCESS")
        document[key] = inner
    elif isinstance(old, list) and isinstance(value, str):
        document[key] = [value]
    else:
        document[key] = value


def _squeues(row: Row, known: Mapping[str, Any]) -> dict[str, Any]:
    """A job as Slurm has it in JSON; where Slurm has none of it as 22.05 does, as far as EJB knows."""
    job, found = row.job, dict(known)
    number, array = int(row.number) if row.number.isdigit() else 0, int(row.array) if row.array.isdigit() else 0
    files = {
        "comment": without_tag(str(found.get("comment") or "")),
        "current_working_directory": row.detail.get("cwd") or "",
        "standard_output": row.detail.get("output") or "",
        "standard_error": row.detail.get("error") or "",
        "command": "",
    }
    if row.theirs:
        as_written = found.get("current_working_directory") == row.detail.get("cwd")
        kept = {"comment": files["comment"]} if as_written else files
        return {**found, **kept, "job_id": found["job_id"] if row.same_number else number}

    def value(name: str) -> str:
        return fields.squeue_value(row, name)

    values = {
        "job_id": number,
        "array_job_id": array if row.index is not None else 0,
        "array_task_id": int(row.index) if row.index is not None and row.index.isdigit() else None,
        "array_task_string": row.index.strip("[]") if row.index is not None and row.index.startswith("[") else "",
        "name": job["name"],
        "job_state": row.state,
        "state_reason": value("reason"),
        "user_name": job["user"],
        "user_id": int(value("userid")),
        "partition": job["queue"],
        "nodes": value("nodelist"),
        "node_count": int(value("numnodes")),
        "batch_host": job["nodes"][0] if job["nodes"] else "",
        "cpus": int(value("numcpus")),
        "tasks": job["processes"],
        "time_limit": round(job["walltime_s"] / 60) or None,
        "submit_time": int(job["submit_s"]),
        "start_time": int(job["start_s"] or job["rigid_start_s"] or 0),
        "end_time": int(job["end_s"] or job["expected_completion_s"] or 0),
        "exit_code": fields.wait_status(value("exit_code")),
        "hold": job["held"],
        **files,
    }
    for key, one in values.items():
        _put(found, key, one)
    return found


def _saccts(row: Row, known: Mapping[str, Any]) -> dict[str, Any]:
    """A job as sacct has it in JSON, with the steps that Slurm made for the job alone."""
    job, found = row.job, dict(known)
    if row.theirs:
        if not row.same_number:
            _put(found, "job_id", int(row.number) if row.number.isdigit() else 0)
        if row.slurm.get("workdir") != row.detail.get("cwd"):
            found["working_directory"] = row.detail.get("cwd") or ""
        return found
    _put(found, "job_id", int(row.number) if row.number.isdigit() else 0)
    times = dict(found.get("time", {}))
    known_times = {
        "elapsed": fields.elapsed_s(row),
        "end": int(job["end_s"] or 0),
        "start": int(job["start_s"] or 0),
        "submission": int(job["submit_s"]),
        "limit": round(job["walltime_s"] / 60) or None,
    }
    for key, one in known_times.items():
        _put(times, key, one)
    state = dict(found.get("state", {}))
    _put(state, "current", row.state)
    _put(state, "reason", fields.sacct_value(row, "Reason"))
    code = int(job["exit_code"] or 0) if fields.exit_code(row) != "0:0" else 0
    found.setdefault("exit_code", {"status": "", "return_code": 0})
    _put(found, "exit_code", code << 8)
    found |= {
        "time": times,
        "state": state,
        "name": job["name"],
        "user": job["user"],
        "partition": job["queue"],
        "nodes": fields.sacct_value(row, "NodeList"),
        "working_directory": row.detail.get("cwd") or "",
        "steps": [one for one in found.get("steps", ()) if _is_jobs_own(one)],
    }
    like = found["steps"][0] if found["steps"] else {}
    found["steps"] += [_step(step, found["job_id"], like) for step in row.detail.get("steps", ())]
    return found


def _step(step: StepView, number: int, like: Mapping[str, Any]) -> dict[str, Any]:
    """A launch, in the form of another step of the job; without what is known of that one alone."""
    start_s, end_s = step["start_s"] or 0, step["end_s"] or 0
    found: dict[str, Any] = {
        "time": {"start": int(start_s), "end": int(end_s), "elapsed": int(end_s - start_s) if end_s else 0},
        "exit_code": like.get("exit_code") or {"status": "", "return_code": 0},
        "state": like.get("state", ""),
        "tasks": {"count": step["ranks"]},
        "step": {"job_id": number, "id": step["ordinal"], "name": ""},
    }
    _put(found, "exit_code", (step["code"] or 0) << 8)
    _put(found, "state", "RUNNING" if step["code"] is None else "FAILED" if step["code"] else "COMPLETED")
    return found


def _is_jobs_own(step: Mapping[str, Any]) -> bool:
    return (step.get("step") or {}).get("name") != fields.WORKERS
