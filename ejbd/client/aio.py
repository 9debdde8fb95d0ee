"""The asynchronous client, on httpx: the same words as :mod:`ejbd.client.client`, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import httpx

from ejbd.client import here, web
from ejbd.client.job import LOOK_S
from ejbd.client.messages import (
    AGAIN_S,
    ANSWER_S,
    MOST_PAUSES,
    REPEAT_AFTER_S,
    STREAM_SILENCE_S,
    Answer,
    EventLines,
    LostConnection,
    Place,
    calendar_path,
    fresh_key,
    job_path,
    pause_s,
    problem,
    request,
    resize_body,
    still_away,
    workflow_path,
)
from ejbd.client.outcome import JobFailed, Outcome, holds, outcome_of
from ejbd.errors import Code, EjbError
from ejbd.wire.states import JobState

if TYPE_CHECKING:
    from ejbd.wire.payloads import EventView, JobCreated, JobDetail


class AsyncClient:
    """One daemon, as :class:`ejbd.client.Client` finds it. Any number of tasks may use it at once."""

    def __init__(
        self, url: str | None = None, socket: str | None = None, token: str | None = None, ca: str | None = None
    ) -> None:
        self.place = Place.found(url, socket, token, ca)
        self.answer_s = ANSWER_S
        if self.place.url is None:
            # No TLS, so that the authorities of the machine are not read for it.
            transport = httpx.AsyncHTTPTransport(uds=self.place.socket, verify=False)
            self._http = httpx.AsyncClient(base_url="http://localhost", transport=transport, trust_env=False)
        else:
            self._http = httpx.AsyncClient(**web.settings(self.place))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def submit(
        self,
        command: Sequence[str] | None = None,
        *,
        script: str | None = None,
        args: Sequence[str] = (),
        key: str | None = None,
        **overrides: Any,
    ) -> AsyncJob:
        """As :meth:`ejbd.client.Client.submit`."""
        if (command is None) is (script is None):
            raise TypeError("either a command or a script is submitted")
        work = here.command(command) if command is not None else here.script(str(script), args)
        body = here.submission(work, overrides, self.place)
        answer = await self.request_repeatedly("POST", "/v1/jobs", body=body, key=key or fresh_key())
        created: JobCreated = answer.json()
        return AsyncJob(self, created["id"])

    async def job(self, name: str) -> AsyncJob:
        """The job of this id or beginning of an id, or `last`, `last-2`. Raises EjbError (NOT_FOUND)."""
        return AsyncJob(self, (await self.get(job_path(name)))["id"])

    async def events(self, job: str) -> AsyncIterator[EventView]:
        """The events of a job from its first until it has ended, over restarts of the daemon."""
        lines = EventLines()
        while True:
            try:
                async for line in self._lines(job_path(job, "/events/stream"), lines.headers()):
                    for event in lines.read(line):
                        yield event
                    if lines.ended:
                        return
            except LostConnection:
                pass
            except EjbError as error:
                if not still_away(error):
                    raise
            await asyncio.sleep(AGAIN_S)

    async def set_queue_window(self, queue: str, when: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.set_queue_window`."""
        body = {"when": when, "settings": dict(settings)}
        found: dict[str, Any] = (await self.request("PUT", calendar_path(queue), body=body)).json()
        return found

    async def clear_queue_windows(self, queue: str, when: str | None = None) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.clear_queue_windows`."""
        found: dict[str, Any] = (await self.request("DELETE", calendar_path(queue), query={"when": when})).json()
        return found

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer. Raises EjbError."""
        try:
            return await self._request(method, path, query, body, headers)
        except LostConnection as lost:
            raise self.place.unreachable(f"the connection was lost: {lost}") from None

    async def request_repeatedly(self, method: str, path: str, *, body: Any, key: str) -> Answer:
        """A request that may be sent again, since `key` tells the daemon that it is the same one."""
        headers = {"Idempotency-Key": key}
        lost = False
        for delay_s in REPEAT_AFTER_S:
            try:
                return await self._request(method, path, None, body, headers)
            except LostConnection:
                lost = True
            except EjbError as error:
                if not lost or error.code is not Code.UNREACHABLE:
                    raise  # a daemon that was never there is not waited for
            await asyncio.sleep(delay_s)
        return await self.request(method, path, body=body, headers=headers)

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON that is at `path`; queries that are None are left out."""
        return (await self.request("GET", path, query=query)).json()

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        for left in reversed(range(MOST_PAUSES)):
            response = await self._send(method, path, query, body, headers, self.answer_s)
            try:
                data = await response.aread()
            except (httpx.HTTPError, OSError) as error:
                raise LostConnection(web.words(error)) from None
            finally:
                await response.aclose()
            if response.status_code < 400:
                break
            refused = problem(response.status_code, data)
            if (wait_s := pause_s(refused)) is None or not left:
                raise refused
            await asyncio.sleep(wait_s)
        return Answer(response.status_code, dict(response.headers), data)

    async def _lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        response = await self._send("GET", path, None, None, headers, STREAM_SILENCE_S)
        try:
            if response.status_code >= 400:
                raise problem(response.status_code, await response.aread())
            async for line in response.aiter_lines():
                yield line.encode()
        except (httpx.HTTPError, OSError) as error:
            raise LostConnection(web.words(error)) from None
        finally:
            await response.aclose()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
        silence_s: float,
    ) -> httpx.Response:
        if self.place.url is None:
            self.place.refuse_socket_of_others()
        told = request(self.place, method, path, query, body, headers)
        wanted = self._http.build_request(
            told.method, told.target, headers=told.headers, content=told.data, timeout=web.within(silence_s)
        )
        try:
            return await self._http.send(wanted, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self.place.unreachable(web.words(error)) from None
        except (httpx.HTTPError, OSError) as error:
            raise LostConnection(web.words(error)) from None

    # -- workflows ----------------------------------------------------------------------------------------------------

    async def submit_workflow(self, plan: str, *, file: str = "plan.yaml", key: str | None = None) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.submit_workflow`."""
        body = here.plan(plan, file, self.place)
        answer = await self.request_repeatedly("POST", "/v1/workflows", body=body, key=key or fresh_key())
        return dict(answer.json())

    async def check_workflow(self, plan: str, *, file: str = "plan.yaml") -> None:
        """As :meth:`ejbd.client.Client.check_workflow`."""
        await self.request("POST", "/v1/workflows/check", body=here.plan(plan, file, self.place))

    async def workflows(self, limit: int = 50) -> list[dict[str, Any]]:
        """As :meth:`ejbd.client.Client.workflows`."""
        return list((await self.get("/v1/workflows", limit=limit))["workflows"])

    async def workflow(self, name: str) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.workflow`."""
        return dict(await self.get(workflow_path(name)))

    async def workflow_report(self, name: str) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.workflow_report`."""
        return dict(await self.get(workflow_path(name, "/report")))

    async def cancel_workflow(self, name: str) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.cancel_workflow`."""
        return dict((await self.request("POST", workflow_path(name, "/cancel"))).json())

    async def retry_workflow(self, name: str) -> dict[str, Any]:
        """As :meth:`ejbd.client.Client.retry_workflow`."""
        return dict((await self.request("POST", workflow_path(name, "/retry"))).json())


class AsyncJob:
    """A job that was submitted; as :class:`ejbd.client.Job`."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self.client = client
        self.id = id

    def __repr__(self) -> str:
        return f"<AsyncJob {self.id}>"

    async def status(self) -> JobDetail:
        """All about it."""
        found: JobDetail = await self.client.get(job_path(self.id))
        return found

    async def done(self) -> bool:
        """Whether it has ended, well or not."""
        return JobState((await self.status())["state"]).over

    async def explain(self) -> dict[str, Any]:
        """Every decision with its reasons, and what holds now."""
        found: dict[str, Any] = await self.client.get(job_path(self.id, "/explain"))
        return found

    async def moves(self) -> list[dict[str, Any]]:
        """Each start, move and end of its ranks, hop by hop."""
        found: list[dict[str, Any]] = (await self.client.get(job_path(self.id, "/moves")))["moves"]
        return found

    def events(self) -> AsyncIterator[EventView]:
        """What happens to it, from its first event until it has ended."""
        return self.client.events(self.id)

    async def logs(self, *, stderr: bool = False) -> bytes:
        """Its output, or its standard error, as far as it is written."""
        found = bytearray()
        while True:
            query = {"stream": "stderr" if stderr else "stdout", "offset": len(found)}
            data = (await self.client.request("GET", job_path(self.id, "/logs"), query=query)).body
            if not data:
                return bytes(found)
            found += data

    async def cancel(self) -> bool:
        """Cancel it. False: it had ended before."""
        try:
            await self.client.request("POST", job_path(self.id, "/cancel"))
        except EjbError as error:
            if error.code is not Code.CONFLICT:
                raise
            return False
        return True

    async def resize(
        self, to: int | None = None, *, by: int | None = None, key: str = "", wait_s: float | None = None
    ) -> dict[str, Any]:
        """As :meth:`ejbd.client.Job.resize`."""
        body = resize_body(to, by, key)
        course = dict((await self.client.request("POST", job_path(self.id, "/resize"), body=body)).json())
        if wait_s is not None:
            places, base = course["steps"][-1][1], course["base"]
            end = time.monotonic() + wait_s
            while not holds(await self.status(), places, base):
                if (left_s := end - time.monotonic()) <= 0:
                    raise TimeoutError(f"job {self.id} does not hold {places} places after {wait_s:g} s")
                await asyncio.sleep(min(LOOK_S, left_s))
        return course

    async def evolve(self, tail: str, *, dry_run: bool = False) -> dict[str, Any]:
        """As :meth:`ejbd.client.Job.evolve`."""
        body = {"tail": tail, "dry_run": dry_run}
        return dict((await self.client.request("POST", job_path(self.id, "/evolve"), body=body)).json())

    async def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until it has ended, however; TimeoutError after `timeout` seconds."""
        async with asyncio.timeout(timeout):
            async for _ in self.events():
                pass
            return outcome_of(await self.status())

    async def result(self, timeout: float | None = None) -> Outcome:
        """The outcome of a job that completed, once it has; raises as :meth:`ejbd.client.Job.result`."""
        outcome = await self.wait(timeout)
        if outcome.state is JobState.CANCELLED:
            raise CancelledError(f"job {self.id} was cancelled")
        if outcome.state is not JobState.COMPLETED:
            raise JobFailed(outcome)
        return outcome
