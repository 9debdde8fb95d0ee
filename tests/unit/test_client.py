"""The Python client against the real API server, whose manager runs nothing; over the socket and over TCP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import typing
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from ejbd.api import models
from ejbd.client import AsyncClient, Client, Code, EjbError, JobFailed, Outcome, as_completed
from ejbd.client.messages import Answer, EventLines, LostConnection, Place
from ejbd.client.outcome import exit_code
from ejbd.client.unix import UnixTransport
from ejbd.client.web import WebTransport
from ejbd.store.states import JobState
from ejbd.wire import payloads
from tests.fakes.api_server import ApiServer

pytestmark = pytest.mark.slow

LONG_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("client"))
    yield running
    running.close()


@pytest.fixture(autouse=True)
def nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EJB_URL", "EJB_SOCKET", "EJB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(server: ApiServer) -> Iterator[Client]:
    with Client(socket=server.socket) as client:
        yield client


def token(server: ApiServer) -> str:
    with Client(socket=server.socket) as client:
        return str(client.request("POST", "/v1/tokens", body={"scope": "admin"}).json()["token"])


@pytest.fixture(params=["socket", "tcp"])
def either(request: pytest.FixtureRequest, server: ApiServer) -> Iterator[Client]:
    client = Client(socket=server.socket)
    if request.param == "tcp":
        client = Client(server.servers.url, token=token(server))
    with client:
        yield client


def end(server: ApiServer, id: str, state: JobState, code: int | None = None) -> None:
    server.run(server.manager.end(id, state, code))


def end_soon(server: ApiServer, id: str, state: JobState, code: int | None = None) -> threading.Timer:
    timer = threading.Timer(0.3, end, (server, id, state, code))
    timer.start()
    return timer


def test_a_job_from_its_submission_to_its_end(either: Client, server: ApiServer) -> None:
    job = either.submit(["./app", "x y"], ntasks=4, time="10")
    row = server.store.read_sync(lambda s: s.get_one(models_of_store().Job, seq_of(server, job.id)))
    assert row.spec["argv"] == ["./app", "x y"] and row.processes == 4
    assert job.state is JobState.RECEIVED and not job.done() and not job.running()
    assert either.job(job.id[:6]).id == job.id
    assert next(iter(either.jobs(1)))["id"] == job.id
    assert next(event["kind"] for event in job.events()) == "job.received"
    assert job.explain()["state"] == "received" and job.timeline()["job"] == job.id
    timer = end_soon(server, job.id, JobState.COMPLETED, 0)
    outcome = job.result(timeout=LONG_S)
    timer.join()
    assert outcome[:3] == (job.id, JobState.COMPLETED, 0) and job.done() and not job.cancelled()
    assert job.exception() is None
    assert [event["kind"] for event in job.events(follow=True, timeout=LONG_S)][-1] == "job.completed"


def models_of_store() -> Any:
    from ejbd.store import models

    return models


def seq_of(server: ApiServer, id: str) -> int:
    from sqlalchemy import select

    job = models_of_store().Job
    return int(server.store.read_sync(lambda s: s.scalars(select(job.seq).where(job.id == id)).one()))


def test_a_script_is_sent_with_where_it_stands(client: Client, server: ApiServer, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH -n 3 -t 5\nsrun ./app\n")
    detail = client.submit(script=str(script), args=["a"]).status()
    assert (detail["name"], detail["processes"], detail["cwd"]) == ("job.sh", 3, str(Path.cwd()))
    with pytest.raises(TypeError):
        client.submit()
    with pytest.raises(EjbError) as caught:
        client.submit(script=str(tmp_path / "none.sh"))
    assert caught.value.code is Code.INVALID


def test_what_did_not_end_well_is_told_by_the_result(client: Client, server: ApiServer) -> None:
    failed, late, gone = (client.submit(["app"], ntasks=1, time="5") for _ in range(3))
    end(server, failed.id, JobState.FAILED, 7)
    end(server, late.id, JobState.TIMEOUT)
    end(server, gone.id, JobState.CANCELLED)
    with pytest.raises(JobFailed) as caught:
        failed.result(LONG_S)
    assert caught.value.outcome.exit_code == 7 and failed.id in str(caught.value)
    exception = late.exception(LONG_S)
    assert exception is not None and exception.outcome.exit_code == 124
    with pytest.raises(CancelledError):
        gone.result(LONG_S)
    assert gone.cancelled() and gone.wait().exit_code == 125


def test_cancelling(client: Client, server: ApiServer) -> None:
    job = client.submit(["app"], ntasks=1, time="5")
    job.hold()
    assert job.status()["held"] is True
    job.release()
    assert job.cancel() is True
    over = client.submit(["app"], ntasks=1, time="5")
    end(server, over.id, JobState.COMPLETED, 0)
    assert over.cancel() is False


def test_waiting_is_bounded(either: Client) -> None:
    job = either.submit(["app"], ntasks=1, time="5")
    with pytest.raises(TimeoutError, match=job.id):
        job.result(timeout=0.3)
    with pytest.raises(TimeoutError):
        list(as_completed([job], timeout=0.3))


def test_jobs_as_they_end(client: Client, server: ApiServer) -> None:
    first, second = (client.submit(["app"], ntasks=1, time="5") for _ in range(2))
    end(server, second.id, JobState.COMPLETED, 0)
    ended = as_completed([first, second], timeout=LONG_S)
    assert next(ended) is second
    end(server, first.id, JobState.FAILED, 1)
    assert list(ended) == [first]


def test_callbacks_are_called_once_it_has_ended(client: Client, server: ApiServer) -> None:
    job = client.submit(["app"], ntasks=1, time="5")
    called: list[Any] = []
    both = threading.Event()

    def call(ended: Any) -> None:
        called.append(ended)
        if len(called) == 2:
            both.set()

    job.add_done_callback(call)
    job.add_done_callback(call)
    assert called == []
    end(server, job.id, JobState.COMPLETED, 0)
    assert both.wait(LONG_S) and called == [job, job]
    job.add_done_callback(call)  # at once
    assert len(called) == 3


def test_errors_say_what_is_wrong_and_how_to_mend_it(either: Client, tmp_path: Path) -> None:
    with pytest.raises(EjbError) as caught:
        either.job("zzzz")
    assert caught.value.code is Code.NOT_FOUND
    with pytest.raises(EjbError) as caught:
        either.submit(["app"], ntasks=-1, time="5")
    assert caught.value.code is Code.INVALID and caught.value.where


@pytest.mark.parametrize(
    ("where", "code", "sentence"),
    [
        ({"socket": "/nowhere/ejbd.sock"}, Code.UNREACHABLE, "no daemon answers: No such file or directory"),
        ({"url": "http://127.0.0.1:1"}, Code.UNREACHABLE, "no daemon answers: "),
        ({"url": "ftp://127.0.0.1"}, Code.INVALID, "is no address of a daemon"),
        ({"url": "nonsense"}, Code.INVALID, "is no address of a daemon"),
        ({"url": "http://127.0.0.1:port"}, Code.INVALID, "is no address of a daemon"),
    ],
)
def test_a_daemon_that_is_not_there(where: dict[str, str], code: Code, sentence: str) -> None:
    with pytest.raises(EjbError) as caught:
        Client(**where).get("/v1/jobs")
    assert caught.value.code is code and sentence in caught.value.message and caught.value.hint


async def test_an_asynchronous_client_that_finds_nobody() -> None:
    async with AsyncClient(socket="/nowhere/ejbd.sock") as client:
        with pytest.raises(EjbError) as caught:
            await client.submit(["app"], ntasks=1, time="5")
    assert caught.value.code is Code.UNREACHABLE


def test_where_the_daemon_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EJB_SOCKET", "/run/one.sock")
    monkeypatch.setenv("EJB_TOKEN", "secret")
    assert Place.found(None, None, None) == Place(None, "/run/one.sock", None)
    monkeypatch.setenv("EJB_URL", "http://there:1")
    assert Place.found(None, None, None)[::2] == ("http://there:1", "secret")
    assert Place.found(None, "/run/two.sock", None) == Place(None, "/run/two.sock", None)
    assert Place.found("http://x", None, "mine")[::2] == ("http://x", "mine")


def test_a_job_may_submit_jobs_to_the_daemon_that_it_was_submitted_to(
    client: Client, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sbatch next.sh` in a job said that no daemon answers, wherever that was not at the default place."""

    from sqlalchemy import select

    def told(where: Client) -> dict[str, str]:
        job = models_of_store().Job
        id = where.submit(["app"], ntasks=1, time="5").id
        spec = server.store.read_sync(lambda s: s.scalars(select(job.spec).where(job.id == id)).one())
        assert spec is not None
        return {name: value for name, value in spec["env"].items() if name.startswith("EJB_")}

    monkeypatch.setenv("EJB_SUBJOB_ID", "of the job that this runs in")
    assert told(client) == {"EJB_SOCKET": str(server.socket)}
    monkeypatch.chdir(Path(server.socket).parent)
    assert told(Client(socket=Path(server.socket).name)) == {"EJB_SOCKET": str(server.socket)}
    secret, url = token(server), server.servers.url
    assert told(Client(url, token=secret)) == {"EJB_URL": url}  # what its environment has not, is not put there
    monkeypatch.setenv("EJB_TOKEN", secret)
    assert told(Client(url)) == {"EJB_URL": url, "EJB_TOKEN": secret}


def test_a_job_that_no_socket_reaches_is_told_how_to_reach_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    with pytest.raises(EjbError) as caught:
        Client(socket="/nowhere/ejbd.sock").get("/v1/jobs")
    assert caught.value.code is Code.UNREACHABLE and "EJB_URL" in (caught.value.hint or "")


def test_each_way_has_its_transport(server: ApiServer) -> None:
    """The rule: httptools over the socket, whose start is measured; httpx over TCP."""
    assert isinstance(Client(socket=server.socket)._connected(), UnixTransport)
    assert isinstance(Client(server.servers.url)._connected(), WebTransport)


def test_events_go_on_where_a_daemon_that_restarts_left_off(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    try:
        with Client(socket=server.socket) as client:
            job = client.submit(["app"], ntasks=1, time="5")
            said: list[bool] = []
            kinds = []
            for event in client.events(job.id, until_s=time.monotonic() + LONG_S, away=said.append):
                kinds.append(event["kind"])
                if event["kind"] == "job.received":
                    server.stop_listening()
                    end(server, job.id, JobState.COMPLETED, 0)
                    threading.Timer(0.5, server.listen_again).start()
            assert kinds == ["job.received", "job.waiting", "job.completed"] and said == [True, False]
    finally:
        server.close()


def test_a_submission_is_repeated_with_its_key_only(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(socket="/nowhere")
    seen: list[Any] = []

    def answer(method: str, path: str, query: Any, body: Any, headers: Any) -> Answer:
        seen.append((method, path, body, headers))
        if len(seen) < 3:
            raise LostConnection("gone")
        return Answer(201, {}, b"{}")

    monkeypatch.setattr(client, "_request", answer)
    monkeypatch.setattr(client, "_await_daemon", lambda: None)
    monkeypatch.setattr("ejbd.client.client.time.sleep", lambda seconds: None)
    assert client.request_repeatedly("POST", "/v1/jobs", body={"a": 1}, key="k").status == 201
    assert seen == [("POST", "/v1/jobs", {"a": 1}, {"Idempotency-Key": "k"})] * 3


def test_the_same_key_is_the_same_job(client: Client) -> None:
    one = client.submit(["app"], ntasks=1, time="5", key="once")
    assert client.submit(["app"], ntasks=1, time="5", key="once").id == one.id
    with pytest.raises(EjbError) as caught:
        client.submit(["other"], ntasks=1, time="5", key="once")
    assert caught.value.code is Code.KEY_REUSED


@pytest.mark.parametrize("way", ["socket", "tcp"])
async def test_asynchronously(server: ApiServer, way: str) -> None:
    where = {"socket": server.socket}
    if way == "tcp":
        where = {"url": server.servers.url, "token": await asyncio.to_thread(token, server)}
    async with AsyncClient(**where) as client:
        jobs = await asyncio.gather(*(client.submit(["app", str(n)], ntasks=1, time="5") for n in range(3)))
        assert len({job.id for job in jobs}) == 3
        good, bad, left = jobs
        with pytest.raises(TimeoutError):
            await left.wait(timeout=0.3)
        await asyncio.to_thread(end, server, good.id, JobState.COMPLETED, 0)
        await asyncio.to_thread(end, server, bad.id, JobState.FAILED, 3)
        assert (await good.result(LONG_S)).exit_code == 0 and await good.done()
        assert [event["kind"] async for event in good.events()][-1] == "job.completed"
        with pytest.raises(JobFailed):
            await bad.result(LONG_S)
        assert await left.cancel() and (await left.explain())["state"]
        with pytest.raises(EjbError) as caught:
            await client.job("zzzz")
        assert caught.value.code is Code.NOT_FOUND
        assert (await client.job(left.id)).id == left.id


async def test_workflows_asynchronously(server: ApiServer) -> None:
    plan = "workflow:\n  stages:\n    one: {command: 'true', tasks: 1, walltime: '5'}\n"
    async with AsyncClient(socket=server.socket) as client:
        await client.check_workflow(plan)
        made = await client.submit_workflow(plan, key="once")
        assert (await client.submit_workflow(plan, key="once"))["id"] == made["id"]
        assert [one["id"] for one in await client.workflows()] == [made["id"]]
        assert (await client.workflow("last"))["id"] == (await client.workflow_report(made["id"]))["id"] == made["id"]
        for call in (client.cancel_workflow, client.retry_workflow):
            with pytest.raises(EjbError, match="workflow"):
                await call(made["id"])
        job = await client.submit(["app"], ntasks=1, time="5")
        with pytest.raises(EjbError, match="has no profile"):
            await job.resize(by=-4, key="once")


async def test_windows_of_a_queue_asynchronously(server: ApiServer) -> None:
    async with AsyncClient(socket=server.socket) as client:
        made = await client.set_queue_window("main", "mon-fri 20:00-08:00", {"elasticity": "on"})
        assert [one["when"] for one in made["calendar"]["windows"]] == ["mon-fri 20:00-08:00"]
        left = await client.clear_queue_windows("main", "mon-fri 20:00-08:00")
        assert left["calendar"]["windows"] == []
        with pytest.raises(EjbError) as caught:
            await client.clear_queue_windows("no such/queue")
        assert caught.value.code is Code.NOT_FOUND


def test_a_stream_is_read_line_by_line() -> None:
    event = {"id": 4, "at_s": 1.0, "job": "a", "subjob": None, "kind": "job.running", "data": {}}
    lines = EventLines()
    text = f"retry: 1000\n\n: still here\n\nid: 4\nevent: job.running\ndata: {json.dumps(event)}\n\n"
    text += "event: end\ndata: {}\n\n"
    assert [found for line in text.encode().splitlines(True) for found in lines.read(line)] == [event]
    assert lines.ended and lines.headers() == {"Last-Event-ID": "4"}


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("completed", 0, 0),
        ("completed", None, 0),
        ("failed", 7, 7),
        ("failed", 0, 1),
        ("failed", None, 1),
        ("timeout", None, 124),
        ("timeout", 143, 143),
        ("cancelled", None, 125),
    ],
)
def test_exit_codes_of_waiting(state: str, code: int | None, expected: int) -> None:
    assert exit_code({"state": JobState(state), "exit_code": code}) == expected  # type: ignore[typeddict-item]


@pytest.mark.parametrize("name", ["JobCreated", "SubjobView", "JobView", "JobDetail", "EventView"])
def test_the_api_answers_what_clients_are_told(name: str) -> None:
    """The payloads of the wire and the models by which the API checks its answers are the same."""
    told = typing.get_type_hints(getattr(payloads, name))
    checked = {field: _as_told(one.annotation) for field, one in getattr(models, name).model_fields.items()}
    assert told == checked


def _as_told(annotation: Any) -> Any:
    """A type of the API's models in the words of the payloads."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is list:
        return list[_as_told(arguments[0])]  # type: ignore[misc]
    if isinstance(annotation, type) and issubclass(annotation, models.Api):
        return getattr(payloads, annotation.__name__)
    return annotation


def test_an_outcome_is_plain() -> None:
    outcome = Outcome("a", JobState.FAILED, 3, "", 1.0)
    assert str(JobFailed(outcome)) == "job a failed: exit code 3"


def examples() -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    return [block.partition("```")[0] for block in text.split("```python\n")[1:]]


def test_the_examples_of_the_document_run(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other, as they stand there. Whatever they submit is ended well by somebody else."""
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -n 3 -t 5\nsrun ./app\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EJB_SOCKET", server.socket)
    over = threading.Event()

    def end_all() -> None:
        with Client(socket=server.socket) as client:
            while not over.wait(0.1):
                for job in client.jobs(alive="true"):
                    output = tmp_path / "out"
                    output.write_text("done\n")
                    end(server, job["id"], JobState.COMPLETED, 0)

    ender = threading.Thread(target=end_all)
    ender.start()
    try:
        names: dict[str, Any] = {}
        for example in examples():
            exec(compile(example, "docs/client.md", "exec"), names)
    finally:
        over.set()
        ender.join(LONG_S)
    said = capsys.readouterr().out
    assert len(examples()) == 6 and "[0, 0]" in said and "job.completed" in said and "ntasks" in said
