"""What a client and the daemon say to each other, whatever carries it: requests, answers, problems, events."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ejbd.errors import Code, EjbError
from ejbd.files.paths import default_socket, distrusted_socket
from ejbd.wire.reaching import CA, SOCKET, TOKEN, URL

if TYPE_CHECKING:
    from ejbd.wire.payloads import EventView

CONNECT_S = 10.0
ANSWER_S = 60.0
STREAM_SILENCE_S = 45.0  # the daemon says something every 15 s
REPEAT_AFTER_S = (0.2, 0.5, 1.0, 2.0, 2.0)  # enough for a daemon that is being restarted
LONGEST_PAUSE_S = 5.0  # that a client makes of itself where its user has asked too often
MOST_PAUSES = 10
AGAIN_S = 1.0  # between two tries to go on with a stream
_JOB_VARIABLES = {"SLURM_JOB_ID", "PBS_JOBID"}


class LostConnection(Exception):
    """The daemon went away while a request was under way: it may have been carried out, or not."""


class Place(NamedTuple):
    """Where a daemon is: at `url`, with a bearer `token`, or behind the unix socket `socket`.

    `ca`: a PEM file with the certificates that an https address is held against; None: the system's.
    """

    url: str | None
    socket: str
    token: str | None
    ca: str | None = None

    @classmethod
    def found(cls, url: str | None, socket: str | None, token: str | None, ca: str | None = None) -> Place:
        """What is given; else EJB_URL, else EJB_SOCKET, else the default socket.

        EJB_TOKEN and EJB_CA go with a URL.
        """
        if url is None and socket is None:
            url, socket = os.environ.get(URL) or None, os.environ.get(SOCKET) or None
        token = token if token is not None else os.environ.get(TOKEN) or None
        ca = ca if ca is not None else os.environ.get(CA) or None
        return cls(url, socket or default_socket(), token if url else None, ca if url else None)

    def for_jobs(self) -> dict[str, str]:
        """The variables by which a job that is submitted here finds this daemon, too.

        A token goes along only where the submitter's environment has it, all of which sbatch would hand on.
        """
        if self.url is None:
            return {SOCKET: os.path.abspath(self.socket)}  # noqa: PTH100  # a link's own name is what outlives a move
        shared = self.token is not None and self.token == os.environ.get(TOKEN)
        found = {URL: self.url, **({TOKEN: self.token} if shared and self.token else {})}
        return found | ({CA: os.path.abspath(self.ca)} if self.ca else {})  # noqa: PTH100  # as above

    @property
    def sends_token(self) -> bool:
        """Whether the token itself is sent: to what has a certificate. Elsewhere it is proved (`ejbd.client.web`)."""
        return (self.url or "").lower().startswith("https:")

    def __str__(self) -> str:
        return self.url or self.socket

    def refuse_socket_of_others(self) -> None:
        """Raise EjbError (FORBIDDEN) where another user could be listening at the socket in the daemon's place."""
        if why := distrusted_socket(self.socket):
            hint = "let `socket` be in a folder that only the daemon's user, or root, may write in"
            raise EjbError(Code.FORBIDDEN, f"this socket could be another user's: {why}", where=self.socket, hint=hint)

    def unreachable(self, why: str) -> EjbError:
        hint = "is `ejbd` running? EJB_SOCKET or EJB_URL name another one; `ejb doctor` looks at the site"
        if self.url is None and _JOB_VARIABLES & os.environ.keys():
            hint = "from a job on another machine: submit it with EJB_URL and EJB_TOKEN set (docs/cli.md)"
        return EjbError(Code.UNREACHABLE, f"no daemon answers: {why}", where=str(self), hint=hint, transient=True)

    def misspelt(self) -> EjbError:
        hint = "e.g. http://127.0.0.1:8642"
        return EjbError(Code.INVALID, f"{self.url!r} is no address of a daemon", where="--url", hint=hint)


class Answer(NamedTuple):
    """A successful answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON values. Raises EjbError (INTERNAL) for what is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise EjbError(Code.INTERNAL, "the daemon's answer is not JSON", hint="is this EJB's address?") from None


class Request(NamedTuple):
    """A request as it goes out."""

    method: str
    target: str
    headers: dict[str, str]
    data: bytes | None


def request(
    place: Place,
    method: str,
    path: str,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Request:
    """A request for what is at `path`; queries that are None are left out."""
    given = {name: value for name, value in (query or {}).items() if value is not None}
    sent = {"Accept": "application/json, */*;q=0.5", **(headers or {})}
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        sent["Content-Type"] = "application/json"
    if place.token and place.sends_token:
        sent["Authorization"] = f"Bearer {place.token}"
    if given:
        from urllib.parse import urlencode

        path = f"{path}?{urlencode(given, doseq=True)}"
    return Request(method, path, sent, data)


def segment(text: str) -> str:
    """A name as one segment of a path, whatever it holds."""
    from urllib.parse import quote

    return quote(text, safe="")


def job_path(job: str, rest: str = "") -> str:
    """The address of what is at `rest` of a job."""
    return f"/v1/jobs/{segment(job)}{rest}"


def calendar_path(queue: str) -> str:
    """The address of a queue's windows of the week."""
    return f"/v1/queues/{segment(queue)}/calendar"


def pool_path(name: str) -> str:
    """The address of a pool."""
    return f"/v1/pools/{segment(name)}"


def workflow_path(workflow: str, rest: str = "") -> str:
    """The address of a workflow, or of what hangs on it."""
    return f"/v1/workflows/{segment(workflow)}{rest}"


def problem(status: int, body: bytes) -> EjbError:
    """The error in a problem document; anything else is not EJB's."""
    try:
        found = json.loads(body)
        return EjbError(
            Code(found["code"]),
            str(found["detail"]),
            hint=str(found["hint"]),
            where=str(found["where"]),
            transient=bool(found["transient"]),
            details=dict(found["details"]),
        )
    except (ValueError, KeyError, TypeError):
        hint = "is this EJB's address?"
        return EjbError(Code.INTERNAL, f"the daemon answered with status {status} and no explanation", hint=hint)


def pause_s(error: EjbError) -> float | None:
    """Seconds after which the daemon takes the same request, where that is soon; None: its caller has to know."""
    wait_s = error.details.get("retry_after_s") if error.code is Code.TOO_MANY else None
    return float(wait_s) if isinstance(wait_s, int | float) and wait_s <= LONGEST_PAUSE_S else None


def fresh_key() -> str:
    """An Idempotency-Key that no other request has."""
    return f"ejb-{os.urandom(16).hex()}"


class EventLines:
    """The events in the lines of a stream (text/event-stream), read one line at a time."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after  # the last event that was read: where another stream goes on
        self.ended = False  # the job has, and all its events have been read
        self._kind = self._data = ""

    def read(self, line: bytes) -> Iterator[EventView]:
        """The event that this line completes, if it does."""
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "event":
            self._kind = value
        elif name == "data":
            self._data = value
        elif not name and self._kind == "end":
            self.ended = True
        elif not name and self._data:
            event: EventView = json.loads(self._data)
            self.after = event["id"]
            self._kind = self._data = ""
            yield event

    def headers(self) -> dict[str, str]:
        """What a request says to get the events behind those that were read."""
        self._kind = self._data = ""
        return {"Last-Event-ID": str(self.after)} if self.after is not None else {}


def still_away(error: EjbError) -> bool:
    """Whether an error only says that the daemon is away for a while."""
    return error.code in (Code.UNREACHABLE, Code.STORE)


def resize_body(to: int | None, by: int | None, key: str) -> dict[str, Any]:
    """What `POST /v1/jobs/{job}/resize` is sent. Daemons before `by` and `key` take what asks for neither."""
    return {"to": to} | ({"by": by} if by is not None else {}) | ({"key": key} if key else {})
