"""One example of everything that goes over the wire between manager and worker. Both ends are held to these."""

from __future__ import annotations

from tests.fakes.manager_server import Json

REGISTRATION: Json = {
    "node": "n1",
    "processors": 4,
    "host": "node1.cluster",
    "pid": 4711,
    "address": "10.0.0.1",
    "age_s": 0.31,
    "boot": "0123456789abcdef",
    "engines": ["application", "dmtcp", "none"],
    "dmtcp": {"version": "5.0", "library": "0badcafe", "machine": "x86_64"},
}
REGISTERED: Json = {"worker": "w1", "heartbeat_s": 5.0, "poll_s": 20.0}
ACCEPTED: Json = {"accepted": 17}

OPERATIONS: dict[str, Json] = {
    "launch": {
        "epoch": 2,
        "size": 16,
        "engine": "application",
        "argv": ["./heat", "--steps", "100"],
        "cwd": "/home/u",
        "launch_file": "/spool/jobs/7/launches/0.json",
        "ranks": [
            {"rank": 0, "processor": 2, "processors": [2, 3], "variables": {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}},
            {"rank": 5, "processor": 2, "processors": None, "variables": {"SLURM_PROCID": "5", "SLURM_LOCALID": "1"}},
        ],
        "variables": {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"},
        "epoch_dir": "/spool/jobs/7/epochs/2",
        "restart_dir": None,
        "home": True,
        "timeout_s": 60.0,
        "mpi": None,
        "dmtcp": None,
        "launcher": None,
        "profile": None,
        "cpus": {"of": 8, "numbers": [4, 5, 6, 7]},
    },
    "checkpoint": {"epoch": 2, "timeout_s": 60.0},
    "stop": {"epoch": 2, "grace_s": 2.0},
    "lead": {
        "run": 1,
        "output": "/home/u/job.out",
        "error": None,
        "script": {
            "path": "/spool/jobs/7/slurm_script",
            "args": ["x"],
            "cwd": "/home/u",
            "env_file": "/spool/jobs/7/env.json",
            "job_name": "heat",
            "restartable": False,
            "ended_launches": {"0": 0},
            "variables": {"SLURM_JOB_ID": "4711"},
        },
        "processors": 16,
        "append": False,
        "tasks": 8,
        "threads": 2,
    },
    "unlead": {"grace_s": 2.0, "say": ["n1: task 3: Segmentation fault (./heat)"], "exit": {"code": 3}},
    "launch-ended": {"ordinal": 0, "code": 0, "say": ["n1: task 3: Segmentation fault"]},
    "drain": {"epoch": 2, "moved": True, "take_back": 1},
    "signal": {"signal": 10, "epoch": 2},
    "resize": {"epoch": 2, "ranks": [{"rank": 0, "processor": 1, "processors": None}], "cpus": None, "lent": 2},
    "exit": {"code": 3},
}
"""Payloads by kind."""

RESULTS: dict[str, Json] = {
    "launch": {"pids": {"0": 4711, "5": 4712}, "seconds": 0.2, "first_s": 0.05},
    "checkpoint": {
        "exits": {"0": 85, "5": 85},
        "killed": [],
        "bytes": {"0": 1000, "5": 1000},
        "seconds": 1.25,
        "write_s": 0.8,
    },
    "stop": {"exits": {"0": 143, "5": 137}},
    "lead": {"pid": 99},
    "unlead": {},
    "launch-ended": {},
    "drain": {},
    "signal": {},
    "resize": {"cpus": {"0": []}, "threads": 0, "seconds": 0.003},
    "exit": {},
}
"""`data` of a result that is ok, by kind of operation."""

REPORTS: dict[str, Json] = {
    "result": {
        "n": 1,
        "told_s": 1700000000.5,
        "kind": "result",
        "seq": 17,
        "ok": True,
        "error": "",
        "data": RESULTS["stop"],
    },
    "rank-exit": {"n": 2, "told_s": 1700000000.5, "kind": "rank-exit", "epoch": 2, "rank": 5, "code": 139},
    "launch": {
        "n": 3,
        "told_s": 1700000000.5,
        "kind": "launch",
        "ordinal": 0,
        "size": 16,
        "file": "/spool/jobs/7/launches/0.json",
        "together": False,
        "program": "heat",
    },
    "launch-cancel": {"n": 4, "told_s": 1700000000.5, "kind": "launch-cancel", "ordinal": 0},
    "launch-refused": {
        "n": 9,
        "told_s": 1700000000.5,
        "kind": "launch-refused",
        "run": 1,
        "name": "srun",
        "line": 12,
        "reason": "one launch at a time",
    },
    "script-exit": {"n": 5, "told_s": 1700000000.5, "kind": "script-exit", "run": 1, "code": 0},
    "warned": {"n": 6, "told_s": 1700000000.5, "kind": "warned", "signal": "TERM"},
    "leaving": {
        "n": 6,
        "told_s": 1700000000.5,
        "kind": "leaving",
        "reason": "ended by SIGTERM",
        "exits": {"2": {"0": 143}},
    },
    "sample": {
        "n": 8,
        "told_s": 1700000000.5,
        "kind": "sample",
        "epoch": 2,
        "resident": 9000,
        "done": 3.0,
        "total": 10.0,
        "at_s": 1.7e9,
        "obstacle": "",
    },
    "stuck": {"n": 10, "told_s": 1700000000.5, "kind": "stuck", "epoch": 2, "rank": 5, "seconds": 70.0},
    "coordinator-lost": {
        "n": 9,
        "told_s": 1700000000.5,
        "kind": "coordinator-lost",
        "epoch": 2,
        "reason": "the coordinator ended with code 137",
    },
    "log": {"n": 7, "told_s": 1700000000.5, "kind": "log", "level": "warning", "message": "cannot collect the output"},
}
"""Reports by kind."""


def operation(kind: str, seq: int = 17) -> Json:
    """One operation as it is handed out."""
    payload = OPERATIONS[kind]
    return {"seq": seq, "kind": kind, "epoch": payload.get("epoch"), "payload": payload}
