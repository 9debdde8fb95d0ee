"""The Parsl provider and the Snakemake executor of examples/, on stand-ins for what they inherit, and for `ejb`.

A daemon that is started again, and a job whose state is not known for a while, end no workflow.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ejbd.wire.states import JobState

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NO_JOB, NO_DAEMON = 3, 9  # exit codes of `ejb`
Answers = Callable[..., list[list[str]]]


class ParslState(Enum):
    UNKNOWN, PENDING, RUNNING, CANCELLED, COMPLETED, FAILED, TIMEOUT, MISSING = (auto() for _ in range(8))


class RemoteExecutor:
    """Keeps what is reported to Snakemake."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.logger = folder, logging.getLogger("snakemake")
        self.status_rate_limiter = AsyncNull()
        self.told: list[tuple[str, Any]] = []

    def get_jobscript(self, job: Any) -> str:
        return str(self.folder / f"{job.name}.sh")

    def write_jobscript(self, job: Any, script: Path) -> None:
        script.write_text("true\n")

    def report_job_submission(self, told: Any) -> None:
        self.told.append(("submitted", told.external_jobid))

    def report_job_success(self, told: Any) -> None:
        self.told.append(("success", told.external_jobid))

    def report_job_error(self, told: Any, msg: str = "") -> None:
        self.told.append(("error", msg))


class AsyncNull:
    async def __aenter__(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


def stand_ins() -> dict[str, ModuleType]:
    """Of what the examples import, as far as they use it."""
    single = lambda command, _tasks, _nodes: command  # noqa: E731
    have: dict[str, dict[str, Any]] = {
        "parsl.jobs.states": {"JobState": ParslState, "JobStatus": lambda state: SimpleNamespace(state=state)},
        "parsl.launchers": {"SingleNodeLauncher": lambda: single},
        "parsl.providers.base": {"ExecutionProvider": type("ExecutionProvider", (), {})},
        "parsl.utils": {"RepresentationMixin": type("RepresentationMixin", (), {})},
        "snakemake_interface_executor_plugins.executors.base": {
            "SubmittedJobInfo": lambda job, aux: SimpleNamespace(job=job, aux=aux, external_jobid=None)
        },
        "snakemake_interface_executor_plugins.executors.remote": {"RemoteExecutor": RemoteExecutor},
        "snakemake_interface_executor_plugins.settings": {
            "CommonSettings": SimpleNamespace,
            "ExecutorSettingsBase": object,
        },
    }
    found = {}
    for name, values in have.items():
        found[name] = ModuleType(name)
        vars(found[name]).update(values)
    return found


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import one of the examples; it waits for nothing."""
    for name, module in stand_ins().items():
        for at in range(1, name.count(".") + 1):
            package = ".".join(name.split(".")[:at])
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setitem(sys.modules, name, module)

    def loaded(path: str) -> Any:
        spec = importlib.util.spec_from_file_location("ejb_example", EXAMPLES / path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "ejb_example", module)
        spec.loader.exec_module(module)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=partial(next, count()), sleep=lambda _: None))
        return module

    return loaded


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Say what the next calls of `ejb` end with and print; which calls there were so far, in their words."""
    asked, to_come = tmp_path / "asked", tmp_path / "to-come"
    asked.touch()
    to_come.mkdir()
    (tmp_path / "ejb").write_text(f"""#!/bin/sh
printf '%s\\037' "$@" >> {asked}; echo >> {asked}
for next in {to_come}/*; do
    read -r code < $next; tail -n +2 $next; rm $next
    exit $code
done
""")
    (tmp_path / "ejb").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def say(*these: tuple[int, str]) -> list[list[str]]:
        for number, (code, text) in enumerate(these):
            (to_come / f"{number:03}").write_text(f"{code}\n{text}\n")
        return [line.split("\x1f")[:-1] for line in asked.read_text().splitlines()]

    return say


AWAY = (NO_DAEMON, "")


def is_now(state: str) -> tuple[int, str]:
    return 0, json.dumps({"id": "0000abcd", "state": state, "reason": "why"})


def keys(calls: list[list[str]]) -> set[str]:
    return {words[words.index("--idempotency-key") + 1] for words in calls}


def test_parsls_blocks_outlive_the_daemon_and_states_that_are_not_known(
    example: Callable[[str], Any], answers: Answers, tmp_path: Path
) -> None:
    """It raised CalledProcessError while no daemon answered, and KeyError at `unknown`."""
    module = example("parsl_ejb.py")
    assert set(module.STATES) == {str(state.value) for state in JobState}
    provider = module.EjbProvider()
    provider.script_dir = str(tmp_path)
    answers(AWAY, AWAY, (0, "0000abcd"))
    job = provider.submit("work", 1)
    calls = answers(AWAY, is_now("running"), AWAY, is_now("unknown"), is_now("completed"), (NO_JOB, ""))
    assert job == "0000abcd" and len(calls) == 3 and len(keys(calls)) == 1, "one job, however often it was said"
    seen = [provider.status([job])[0].state.name for _ in range(6)]
    assert seen == ["PENDING", "RUNNING", "RUNNING", "UNKNOWN", "COMPLETED", "MISSING"]


def test_snakemakes_jobs_outlive_the_daemon_and_states_that_are_not_known(
    example: Callable[[str], Any], answers: Answers, tmp_path: Path
) -> None:
    executor = example("snakemake_executor_plugin_ejb/__init__.py").Executor(tmp_path)
    answers(AWAY, (0, "0000abcd"))
    executor.run_job(SimpleNamespace(name="rule", threads=2, resources={}))
    calls = answers(AWAY, is_now("waiting"), is_now("unknown"), AWAY, is_now("completed"), (NO_JOB, ""))
    assert executor.told.pop() == ("submitted", "0000abcd") and len(calls) == 2 and len(keys(calls)) == 1
    one = SimpleNamespace(external_jobid="0000abcd")

    async def check() -> int:
        return len([still async for still in executor.check_active_jobs([one])])

    assert [asyncio.run(check()) for _ in range(4)] == [1, 1, 1, 1] and executor.told == []
    assert [asyncio.run(check()) for _ in range(2)] == [0, 0]
    assert [kind for kind, _ in executor.told] == ["success", "error"] and "no such job" in executor.told[1][1]
