"""The wire between manager and worker, held from both ends: the examples are what each end sends and understands."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ejbd.manager.protocol import proofs, worker_models
from tests.fakes.manager_server import Json
from tests.fakes.wire_examples import ACCEPTED, OPERATIONS, REGISTERED, REGISTRATION, REPORTS, RESULTS, operation
from tests.fakes.worker_process import World, eventually, world

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "worker-protocol.md"

# -- the document ---------------------------------------------------------------------------------------------------


def kinds_in(heading: str) -> set[str]:
    section = DOCUMENT.read_text().partition(f"## {heading}")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE))


def test_the_document_names_every_kind() -> None:
    assert kinds_in("Operations") == set(OPERATIONS) == set(RESULTS)
    assert kinds_in("Reports") == set(REPORTS)


# -- the manager's end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(OPERATIONS))
def test_the_manager_hands_out(kind: str) -> None:
    given = {"operations": [operation(kind)]}
    assert worker_models.Operations.model_validate(given).model_dump() == given


@pytest.mark.parametrize("kind", sorted(REPORTS))
def test_the_manager_takes(kind: str) -> None:
    given = {"worker": "w1", "reports": [REPORTS[kind]]}
    taken = worker_models.Reports.model_validate(given)
    assert taken.model_dump(exclude_unset=True) == given  # what is left out of a report stands for its plain case


def test_the_manager_takes_a_heartbeat() -> None:
    assert worker_models.Reports.model_validate({"worker": "w1", "reports": []}).reports == []


def test_the_manager_registers() -> None:
    assert worker_models.Registration.model_validate(REGISTRATION).model_dump() == REGISTRATION
    assert worker_models.Registered.model_validate(REGISTERED).model_dump() == REGISTERED
    assert worker_models.Accepted.model_validate(ACCEPTED).model_dump() == ACCEPTED


@pytest.mark.parametrize("kind", sorted(REPORTS))
def test_the_manager_refuses_a_report_that_lacks_something(kind: str) -> None:
    earlier = {"obstacle", "together", "told_s"}  # which workers that were started before do not tell
    for name in REPORTS[kind].keys() - earlier:
        report = copy.deepcopy(REPORTS[kind])
        del report[name]
        with pytest.raises(ValidationError):
            worker_models.Reports.model_validate({"worker": "w1", "reports": [report]})


# -- the worker's end -------------------------------------------------------------------------------------------------

SCRIPT = """#!/bin/bash
timeout 4 srun -n 2 sleep 60
srun -n 2 bash -c 'trap "exit 85" USR1; echo ready; while :; do sleep 0.05; done'
srun -n 2 bash -c 'exit 3'
srun -l true || true
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as value:
        yield value


def shape(value: Any) -> Any:
    """Names and types, without the values. Objects whose names are numbers are tables of one kind of value."""
    if isinstance(value, dict):
        if value and all(name.isdigit() for name in value):
            return {"<number>": {str(shape(one)) for one in value.values()}}
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def filled(there: World, kind: str, **changes: Any) -> Json:
    """The example payload, with paths and numbers of this test; not one name more or less."""
    payload = copy.deepcopy(OPERATIONS[kind])
    assert set(changes) <= set(payload)
    payload.update(changes)
    return payload


def test_a_worker_understands_every_operation_and_sends_every_report(there: World) -> None:
    """One life of a worker with all that the wire knows, compared with the examples in names and types."""
    ending = there.spool / "ending"
    there.start("--ending", str(ending))
    manager = there.manager
    results: dict[str, Json] = {}

    def run(kind: str, **changes: Any) -> Json:
        result = manager.run(kind, filled(there, kind, **changes))
        assert result["ok"], result
        results.setdefault(kind, result["data"])
        return result

    def launch(ordinal: int) -> Json:
        report = manager.wait_for(lambda: [r for r in manager.of_kind("launch") if r["ordinal"] == ordinal])[0]
        ranks = [{"rank": 0, "processor": 0}, {"rank": 1, "processor": 1}]
        folder = there.epoch_dir(ordinal + 1)
        return run("launch", epoch=ordinal + 1, size=2, ranks=ranks, launch_file=report["file"], epoch_dir=str(folder))

    script = {**there.script(SCRIPT), "ended_launches": {}, "variables": {"SLURM_JOB_ID": "4711"}}
    assert shape({**script, "args": ["x"], "ended_launches": {"0": 0}}) == shape(OPERATIONS["lead"]["script"])
    run("lead", output=str(there.output), script=script, processors=2)

    launch(0)
    manager.wait_for(lambda: manager.of_kind("launch-cancel"))
    run("stop", epoch=1)
    run("drain", epoch=1)
    run("launch-ended", ordinal=0, code=143)

    launch(1)
    eventually(lambda: there.rank_output(0, 2) and there.rank_output(1, 2))
    run("resize", epoch=2)
    run("signal", epoch=2, signal=18)  # CONT, which ends nobody
    run("checkpoint", epoch=2)
    run("launch-ended", ordinal=1)

    launch(2)
    there.exits(2)
    run("launch-ended", ordinal=2, code=3)
    manager.wait_for(lambda: manager.of_kind("script-exit"))
    run("unlead", exit=None)

    # A lead that can no longer write says so in a log; and a worker that a signal ends says so last.
    folder = there.spool / "going"
    folder.mkdir()
    run("lead", run=2, output=str(folder / "out"), script=None)
    shutil.rmtree(folder)
    there.launch("sh", "-c", 'echo 3/10 > "$EJB_PROGRESS"; echo lost; exec sleep 60', epoch=4)
    manager.wait_for(lambda: manager.of_kind("log"))
    manager.wait_for(lambda: [r for r in manager.of_kind("sample") if r["epoch"] == 4 and r["done"] == 3.0])
    # The batch system's warning is no end: that is one once the subjob's script has said so.
    there.worker.terminate()
    manager.wait_for(lambda: manager.of_kind("warned"))
    assert there.worker.poll() is None and not [r for r in manager.of_kind("rank-exit") if r["epoch"] == 4]
    ending.touch()
    assert there.worker.wait(20) == 143

    for report in manager.reports:
        example = REPORTS[report["kind"]]
        if report["kind"] == "result":
            example = {**example, "data": report["data"]}
        if report["kind"] == "sample":  # most programs tell of no progress
            example = {**example, **{name: None for name, value in report.items() if value is None}}
        assert shape(report) == shape(example)
    # Only under DMTCP: tests/integration/test_worker_dmtcp.py.
    assert {report["kind"] for report in manager.reports} == set(REPORTS) - {"coordinator-lost", "stuck"}
    assert {kind: shape(data) for kind, data in results.items()} == {
        kind: shape(data) for kind, data in RESULTS.items() if kind != "exit"
    }
    said = manager.registrations[0]
    assert shape({**said, "dmtcp": said["dmtcp"] or REGISTRATION["dmtcp"]}) == shape(REGISTRATION)
    check_requests(there)


def check_requests(there: World) -> None:
    """Everything this worker sent, as the real manager would take it."""
    seen = set()
    for request in there.manager.requests:
        seen.add((request["method"], request["path"]))
        assert there.manager.secret not in str(request)
        assert proofs.claim_of(request["headers"]["Authorization"]) is not None
        assert request["headers"]["X-EJB-Protocol"] == worker_models.PROTOCOL
        if request["path"] == "/v1/worker/register":
            worker_models.Registration.model_validate(request["body"])
        elif request["path"] == "/v1/worker/reports":
            worker_models.Reports.model_validate(request["body"])
    assert seen == {
        ("POST", "/v1/worker/register"),
        ("GET", "/v1/worker/operations"),
        ("POST", "/v1/worker/reports"),
    }


def test_a_worker_answers_exit_before_it_leaves(there: World) -> None:
    there.start()
    result = there.manager.run("exit", OPERATIONS["exit"])
    assert result["ok"]
    assert shape(result["data"]) == shape(RESULTS["exit"])
    assert there.worker.wait(20) == OPERATIONS["exit"]["code"]
