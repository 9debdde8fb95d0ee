"""Handles of jobs, in the manner of `concurrent.futures` and submitit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from ejbd.client.messages import job_path, resize_body
from ejbd.client.outcome import JobFailed, Outcome, holds, is_over, outcome_of
from ejbd.errors import Code, EjbError
from ejbd.wire.states import JobState

if TYPE_CHECKING:
    from ejbd.client.client import Client
    from ejbd.wire.payloads import EventView, JobDetail

LOOK_S = 1.0  # between two questions about many jobs


class Job:
    """A job that was submitted. It lives in the daemon: nothing happens to it when the handle goes away."""

    def __init__(self, client: Client, id: str) -> None:
        self.client = client
        self.id = id
        self._outcome: Outcome | None = None
        self._callbacks: list[Callable[[Job], object]] = []
        self._lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    # -- how it is ----------------------------------------------------------------------------------------------------

    def status(self) -> JobDetail:
        """All about it, as `GET /v1/jobs/{job}` has it."""
        found: JobDetail = self.client.get(job_path(self.id))
        if is_over(found) and JobState(found["state"]).terminal:
            self._outcome = outcome_of(found)
        return found

    @property
    def state(self) -> JobState:
        return self._outcome.state if self._outcome is not None else JobState(self.status()["state"])

    def running(self) -> bool:
        """Whether ranks of it run, or its script."""
        return self.state is JobState.RUNNING

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state.over

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.state is JobState.CANCELLED

    def element(self, index: int) -> Job:
        """Of an elastic array this element, which is a job of its own once its turn has come."""
        return Job(self.client, f"{self.id}_{index}")

    def explain(self) -> dict[str, Any]:
        """Every decision with its reasons, and what holds now, as `ejb explain` shows."""
        found: dict[str, Any] = self.client.get(job_path(self.id, "/explain"))
        return found

    def moves(self) -> list[dict[str, Any]]:
        """Each start, move and end of its ranks, hop by hop, as `ejb explain --moves` shows."""
        found: list[dict[str, Any]] = self.client.get(job_path(self.id, "/moves"))["moves"]
        return found

    def timeline(self) -> dict[str, Any]:
        """How it lived until now."""
        found: dict[str, Any] = self.client.get(job_path(self.id, "/timeline"))
        return found

    def events(self, *, follow: bool = False, timeout: float | None = None) -> Iterator[EventView]:
        """What happened to it (docs/events.md); with `follow` until it has ended, however often the daemon restarts.

        TimeoutError where that takes longer than `timeout` seconds.
        """
        if follow:
            yield from self.client.events(self.id, until_s=_until(timeout))
            return
        after = 0
        while page := self.client.get(job_path(self.id, "/events"), after=after, limit=1000)["events"]:
            yield from page
            after = page[-1]["id"]

    def logs(self, *, stderr: bool = False) -> bytes:
        """Its output, or its standard error, as far as it is written."""
        stream = "stderr" if stderr else "stdout"
        found = bytearray()
        while True:
            query = {"stream": stream, "offset": len(found)}
            data = self.client.request("GET", job_path(self.id, "/logs"), query=query).body
            if not data:
                return bytes(found)
            found += data

    # -- steering -----------------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel it. False: it had ended before."""
        try:
            self.client.request("POST", job_path(self.id, "/cancel"))
        except EjbError as error:
            if error.code is not Code.CONFLICT:
                raise
            return False
        return True

    def hold(self) -> None:
        """Keep it from starting. Raises EjbError (CONFLICT) for a job that has started."""
        self.client.request("POST", job_path(self.id, "/hold"))

    def release(self) -> None:
        """Let it go on after `hold`."""
        self.client.request("POST", job_path(self.id, "/release"))

    def evolve(self, tail: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Replace what comes of an evolving job (`now:64,+30m:128`): its steps, when each begins, and the end."""
        body = {"tail": tail, "dry_run": dry_run}
        return dict(self.client.request("POST", job_path(self.id, "/evolve"), body=body).json())

    def resize(
        self, to: int | None = None, *, by: int | None = None, key: str = "", wait_s: float | None = None
    ) -> dict[str, Any]:
        """Give an evolving job so many places from now to its end (None: what it holds throughout).

        Answers its steps, when each begins, and the end. `by`: so many more than now, or less; with a `key` that is
        done once. `wait_s`: waits so many seconds at most until it holds them; TimeoutError where it does not by then.
        The request stays.
        """
        body = resize_body(to, by, key)
        course = dict(self.client.request("POST", job_path(self.id, "/resize"), body=body).json())
        if wait_s is not None:
            self.await_places(course["steps"][-1][1], course["base"], wait_s)
        return course

    def await_places(self, places: int, base: int, wait_s: float) -> None:
        """Wait `wait_s` seconds at most until an evolving job with `base` places throughout holds so many.

        Raises TimeoutError.
        """
        end = time.monotonic() + wait_s
        while not holds(self.status(), places, base):
            if (left_s := end - time.monotonic()) <= 0:
                raise TimeoutError(f"job {self.id} does not hold {places} places after {wait_s:g} s")
            time.sleep(min(LOOK_S, left_s))

    # -- its end ------------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Outcome:
        """Wait until it has ended, however; TimeoutError after `timeout` seconds. A daemon that is away is awaited."""
        if self._outcome is None:
            for _ in self.client.events(self.id, until_s=_until(timeout)):
                pass
            self._outcome = outcome_of(self.status())
        return self._outcome

    def result(self, timeout: float | None = None) -> Outcome:
        """The outcome of a job that completed, once it has.

        Raises JobFailed where it failed or its time was up, `concurrent.futures.CancelledError` where it was cancelled,
        and TimeoutError after `timeout` seconds.
        """
        outcome = self.wait(timeout)
        if outcome.state is JobState.CANCELLED:
            raise CancelledError(f"job {self.id} was cancelled")
        if outcome.state is not JobState.COMPLETED:
            raise JobFailed(outcome)
        return outcome

    def exception(self, timeout: float | None = None) -> JobFailed | None:
        """What `result` would raise of a job that has ended by itself; None: it completed. Raises as `result` else."""
        try:
            self.result(timeout)
        except JobFailed as failed:
            return failed
        return None

    def add_done_callback(self, call: Callable[[Job], object]) -> None:
        """Call `call(job)` once it has ended: in a thread that waits for it, or at once where it has ended."""
        with self._lock:
            if self._outcome is None:
                self._callbacks.append(call)
                if self._watcher is None:
                    self._watcher = threading.Thread(target=self._watch, name=f"ejb-job-{self.id}", daemon=True)
                    self._watcher.start()
                return
        call(self)

    def _watch(self) -> None:
        with self.client.again() as client:
            outcome = Job(client, self.id).wait()
        with self._lock:
            self._outcome = outcome
            waiting, self._callbacks = self._callbacks, []
        for call in waiting:
            call(self)


def as_completed(jobs: Iterable[Job], timeout: float | None = None) -> Iterator[Job]:
    """The jobs as they end, those first that have ended already. TimeoutError after `timeout` seconds."""
    until_s = _until(timeout)
    left = {job.id: job for job in jobs}
    while left:
        for job in [job for job in left.values() if job.done()]:
            del left[job.id]
            yield job
        if not left:
            return
        if until_s is not None and time.monotonic() >= until_s:
            raise TimeoutError(f"{len(left)} jobs have not ended in time")
        time.sleep(LOOK_S if until_s is None else max(0.0, min(LOOK_S, until_s - time.monotonic())))


def _until(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout
