"""The synchronous client: requests to one daemon, and handles of jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ejbd.client import here
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
    Request,
    calendar_path,
    fresh_key,
    job_path,
    pause_s,
    pool_path,
    problem,
    request,
    still_away,
    workflow_path,
)
from ejbd.errors import Code, EjbError

if TYPE_CHECKING:
    from typing import Protocol

    from ejbd.client.job import Job
    from ejbd.wire.payloads import EventView, JobCreated, JobDetail, JobView

    class Transport(Protocol):
        """What carries requests: one at a time, its answer read by `body`, `lines` or `chunks` before the next."""

        @property
        def kept(self) -> bool: ...
        def connect(self) -> None: ...
        def send(self, request: Request, timeout_s: float | None) -> tuple[int, dict[str, str]]: ...
        def body(self) -> bytes: ...
        def lines(self) -> Iterator[bytes]: ...
        def chunks(self) -> Iterator[bytes]: ...
        def close(self) -> None: ...


PAGE = 200
NUMBER_WAIT_S = 50.0  # for the number that the batch system gives a job; sbatch is as patient


class Client:
    """One daemon: at `url` (with a bearer `token`), or behind the unix socket `socket`.

    Without either: EJB_URL (with EJB_TOKEN), else EJB_SOCKET, else the default socket. `ca`: a PEM file with the
    certificates that an https address is held against (EJB_CA). `answer_s` bounds every answer.

    Everything raises EjbError: its `code` and `hint` say what is wrong and how to mend it (docs/errors.md). That
    includes what the daemon answers as a problem document. A client is for one thread; `again()` makes one for another.
    """

    def __init__(
        self, url: str | None = None, socket: str | None = None, token: str | None = None, ca: str | None = None
    ) -> None:
        self.place = Place.found(url, socket, token, ca)
        self.answer_s = ANSWER_S
        self._transport: Transport | None = None

    def again(self) -> Client:
        """Another client of the same daemon, with a connection of its own."""
        return Client(*self.place)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(
        self,
        command: Sequence[str] | None = None,
        *,
        script: str | None = None,
        args: Sequence[str] = (),
        key: str | None = None,
        **overrides: Any,
    ) -> Job:
        """Submit a command, to be started on every rank, or a batch script; durable when this returns.

        The working directory, the environment, umask and limits are this process's, as with `ejb submit`. `overrides`
        are its options by their names in the REST API: `ntasks=16, time="10", elastic="on"` (docs/rest.md). A lost
        connection is repaired under the same Idempotency-Key (`key`, or one that is made up): there is one job.
        """
        from ejbd.client.job import Job

        if (command is None) is (script is None):
            raise TypeError("either a command or a script is submitted")
        work = here.command(command) if command is not None else here.script(str(script), args)
        return Job(self, self.submit_body(here.submission(work, overrides, self.place), key)["id"])

    def submit_body(self, body: Mapping[str, Any], key: str | None = None) -> JobCreated:
        """Submit what docs/rest.md has as the body of `POST /v1/jobs`."""
        created: JobCreated = self.request_repeatedly("POST", "/v1/jobs", body=body, key=key or fresh_key()).json()
        return created

    def number(self, id: str) -> JobDetail:
        """A job that was submitted as `numbered`, once it has its number: the batch system's, if that comes soon.

        Raises EjbError (BATCH_REFUSED) where the batch system did not take it. Say :meth:`number_read` behind it.
        """
        asked = job_path(id, f"/number?wait_s={NUMBER_WAIT_S:g}")
        detail: JobDetail = self.request_repeatedly("POST", asked, body=None, key=fresh_key()).json()
        if detail["state"] == "failed" and detail["start_s"] is None:
            raise EjbError(Code.BATCH_REFUSED, detail["reason"])
        return detail

    def number_read(self, id: str) -> None:
        """Let a job begin, its number being printed; where that fails it begins a moment later."""
        try:
            self.request("POST", job_path(id, "/number/read"))
        except EjbError:
            pass

    def job(self, name: str) -> Job:
        """The job of this id or beginning of an id, or `last`, `last-2`. Raises EjbError (NOT_FOUND)."""
        from ejbd.client.job import Job

        return Job(self, self.get(job_path(name))["id"])

    def jobs(self, limit: int | None = None, **query: Any) -> Iterator[JobView]:
        """Jobs as the daemon lists them, newest first, at most `limit`; `query` as of `GET /v1/jobs`."""
        before = None
        left = limit
        while left is None or left > 0:
            count = PAGE if left is None else min(PAGE, left)
            page = self.get("/v1/jobs", limit=count, before=before, **query)
            yield from page["jobs"]
            before = page["next"]
            if before is None:
                return
            left = None if left is None else left - len(page["jobs"])

    def events(
        self, job: str, *, until_s: float | None = None, away: Callable[[bool], None] | None = None
    ) -> Iterator[EventView]:
        """The events of a job from its first until it has ended, over restarts of the daemon.

        `until_s`: the time (`time.monotonic`) at which to give up, by TimeoutError. `away` is called when the daemon
        goes away (True) and when it is back.
        """
        lines = EventLines()
        gone = False
        while True:
            try:
                for line in self.stream(job_path(job, "/events/stream"), headers=lines.headers(), until_s=until_s):
                    if gone and away is not None:
                        away(False)
                    gone = False
                    yield from lines.read(line)
                    if lines.ended:
                        return
            except LostConnection:
                pass
            except EjbError as error:
                if not still_away(error):
                    raise
            pause_s = AGAIN_S if until_s is None else min(AGAIN_S, until_s - time.monotonic())
            if pause_s <= 0:
                raise TimeoutError(f"job {job} has not ended in time")
            if not gone and away is not None:
                away(True)
            gone = True
            time.sleep(pause_s)

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request and its answer. A GET is repeated once if the kept connection had ended meanwhile."""
        kept = self._transport is not None and self._transport.kept
        try:
            return self._request(method, path, query, body, headers)
        except LostConnection as lost:
            error = lost
        if kept and method == "GET":
            try:
                return self._request(method, path, query, body, headers)
            except LostConnection as lost:
                error = lost
        raise self.place.unreachable(f"the connection was lost: {error}")

    def request_repeatedly(self, method: str, path: str, *, body: Any, key: str) -> Answer:
        """A request that may be sent again, since `key` tells the daemon that it is the same one."""
        headers = {"Idempotency-Key": key}
        for delay_s in REPEAT_AFTER_S:
            try:
                return self._request(method, path, None, body, headers)
            except LostConnection:
                time.sleep(delay_s)
                self._await_daemon()
        return self.request(method, path, body=body, headers=headers)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON that is at `path`; queries that are None are left out."""
        return self.request("GET", path, query=query).json()

    # -- workflows ----------------------------------------------------------------------------------------------------

    def submit_workflow(self, plan: str, *, file: str = "plan.yaml", key: str | None = None) -> dict[str, Any]:
        """Submit a plan of stages (YAML, docs/workflows.md); durable when this returns. The workflow, as `workflow`.

        Directory, environment, umask and limits are this process's. `file`: what errors about the plan call it.
        """
        body = here.plan(plan, file, self.place)
        found: dict[str, Any] = self.request_repeatedly(
            "POST", "/v1/workflows", body=body, key=key or fresh_key()
        ).json()
        return found

    def check_workflow(self, plan: str, *, file: str = "plan.yaml") -> None:
        """Raise EjbError where a plan cannot be right, or the site would not take one of its allocations."""
        self.request("POST", "/v1/workflows/check", body=here.plan(plan, file, self.place))

    def workflows(self, limit: int = 50) -> list[dict[str, Any]]:
        """Workflows, newest first."""
        return list(self.get("/v1/workflows", limit=limit)["workflows"])

    def workflow(self, name: str) -> dict[str, Any]:
        """One workflow: by its id, the beginning of its id, or `last`. Raises EjbError (NOT_FOUND)."""
        found: dict[str, Any] = self.get(workflow_path(name))
        return found

    def workflow_report(self, name: str) -> dict[str, Any]:
        """What its jobs held and used, in core-hours, beside one allocation of its greatest width."""
        found: dict[str, Any] = self.get(workflow_path(name, "/report"))
        return found

    def cancel_workflow(self, name: str) -> dict[str, Any]:
        """End a workflow: nothing new begins, and what runs is ended."""
        found: dict[str, Any] = self.request("POST", workflow_path(name, "/cancel")).json()
        return found

    def retry_workflow(self, name: str) -> dict[str, Any]:
        """Try again what did not end well."""
        found: dict[str, Any] = self.request("POST", workflow_path(name, "/retry")).json()
        return found

    # -- pools --------------------------------------------------------------------------------------------------------

    def start_pool(
        self, name: str = "pool", *, nodes: int = 1, time: str = "1:00:00", partition: str | None = None
    ) -> dict[str, Any]:
        """Take one allocation for a pool (docs/malleable.md): its name, and the job that it is for this daemon.

        A pool that has ended and has left jobs goes on with them. Raises EjbError: CONFLICT for one that has not.
        """
        from ejbd.client import pools

        after = pools.job_of(name)
        folder, new = pools.begun(name)
        body = {"name": name, "nodes": nodes, "time": time, "partition": partition, "after": after}
        body["python"] = sys.executable
        body |= {"cwd": here.directory(), "env": {**here.environment(lambda _: None), **self.place.for_jobs()}}
        body |= {"output": str(folder / "pool.out").replace("%", "%%")}
        try:
            found: dict[str, Any] = self.request_repeatedly("POST", "/v1/pools", body=body, key=fresh_key()).json()
        except EjbError:
            if new:
                pools.forget(name)
            raise
        pools.note_job(name, found["job"])
        return found

    def pools(self) -> list[dict[str, Any]]:
        """Pools that have not ended: one's own, for operators all users'."""
        return list(self.get("/v1/pools")["pools"])

    def stop_pool(self, name: str) -> dict[str, Any]:
        """End a pool of one's own, with what runs in it."""
        found: dict[str, Any] = self.request("DELETE", pool_path(name)).json()
        return found

    def pool(self, name: str) -> Client:
        """The daemon of a pool of one's own that runs: jobs are submitted to it as to any. Raises EjbError."""
        from ejbd.client import pools

        return Client(*pools.place_of(name))

    # -- nodes --------------------------------------------------------------------------------------------------------

    def set_queue_window(self, queue: str, when: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Have settings of a queue hold in a window of the week (`mon-fri 20:00-08:00`); None takes one out of it.

        For operators. Returns the queue, as of now.
        """
        body = {"when": when, "settings": dict(settings)}
        found: dict[str, Any] = self.request("PUT", calendar_path(queue), body=body).json()
        return found

    def clear_queue_windows(self, queue: str, when: str | None = None) -> dict[str, Any]:
        """Take out a window of a queue, or all of them; for operators. Returns the queue, as of now."""
        found: dict[str, Any] = self.request("DELETE", calendar_path(queue), query={"when": when}).json()
        return found

    def drains(self) -> list[dict[str, Any]]:
        """Nodes that EJB leaves for an operator, as `GET /v1/drains` shows them."""
        return list(self.get("/v1/drains")["drains"])

    def drain(self, nodes: str, by_s: float) -> list[dict[str, Any]]:
        """Have elastic jobs leave `nodes` (`n[1-3],m7`) by `by_s`, epoch seconds; what is drained then (admins)."""
        body = {"nodes": nodes, "by_s": by_s}
        return list(self.request("POST", "/v1/drains", body=body).json()["drains"])

    def cancel_drain(self, nodes: str) -> list[dict[str, Any]]:
        """Have EJB use `nodes` again; what is drained then (admins)."""
        return list(self.request("POST", "/v1/drains/cancel", body={"nodes": nodes}).json()["drains"])

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        until_s: float | None = None,
    ) -> Iterator[bytes]:
        """The lines of a stream as they come. Raises LostConnection when it breaks, or at `until_s`."""
        transport = self._send("GET", path, query, None, headers, _silence(until_s))
        try:
            for line in transport.lines():
                yield line
                if until_s is not None and time.monotonic() >= until_s:
                    raise LostConnection("the time is over")
        finally:
            self.close()

    def chunks(self, path: str, *, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The bytes of a stream as they come, however long it is silent. Raises LostConnection when it breaks."""
        transport = self._send("GET", path, query, None, {}, None)
        try:
            yield from transport.chunks()
        finally:
            self.close()

    def close(self) -> None:
        """End the connection; the next request makes another."""
        if self._transport is not None:
            self._transport.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
    ) -> Answer:
        wanted = request(self.place, method, path, query, body, headers)
        for left in reversed(range(MOST_PAUSES)):
            transport = self._connected()
            status, told = transport.send(wanted, self.answer_s)
            data = transport.body()
            if status < 400:
                break
            error = problem(status, data)
            if (wait_s := pause_s(error)) is None or not left:
                raise error
            time.sleep(wait_s)
        return Answer(status, told, data)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str] | None,
        silence_s: float | None,
    ) -> Transport:
        transport = self._connected()
        status, _ = transport.send(request(self.place, method, path, query, body, headers), silence_s)
        if status >= 400:
            raise problem(status, transport.body())
        return transport

    def _connected(self) -> Transport:
        """What carries requests: httptools over the unix socket, else httpx (ejbd/client/unix.py says why)."""
        if self._transport is None:
            if self.place.url is None:
                from ejbd.client.unix import UnixTransport

                self._transport = UnixTransport(self.place)
            else:
                from ejbd.client.web import WebTransport

                self._transport = WebTransport(self.place)
        return self._transport

    def _await_daemon(self) -> None:
        """Give a daemon that is being restarted some seconds; what then fails shows in the request itself."""
        for delay_s in REPEAT_AFTER_S:
            try:
                self._connected().connect()
                return
            except (EjbError, LostConnection):
                time.sleep(delay_s)


def _silence(until_s: float | None) -> float:
    """How long a stream may be silent."""
    if until_s is None:
        return STREAM_SILENCE_S
    return max(0.05, min(STREAM_SILENCE_S, until_s - time.monotonic()))
