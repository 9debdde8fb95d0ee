"""The site: queues, windows, tokens, health."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ejbd.api.models.base import PLAIN, Api
from ejbd.api.models.plans import Slot
from ejbd.config import QueueSettings, changes_schema, check_changes, settings_schema
from ejbd.wire.rights import Scope


class QueuePauseView(Api):
    """Why and until when EJB leaves a queue alone."""

    what: Annotated[
        Literal["submissions", "starts", "promises"],
        Field(description="what keeps failing; `promises`: elastic jobs end later than J0 could hope to"),
    ]
    whose: Annotated[str, Field(description="for this user's limit there (`user/account/QOS`); empty: all")]
    reason: str
    failures: Annotated[int, Field(description="in a row")]
    since_s: Annotated[float, Field(description="the first of them")]
    until_s: Annotated[float, Field(description="when it is tried again")]


class QueueWindowView(Api):
    """Settings that hold in a window of the week."""

    when: Annotated[str, Field(description="days, beginning and end", examples=["mon-fri 20:00-08:00"])]
    settings: dict[str, Any]
    in_force: Annotated[bool, Field(description="as of the last poll")]
    changed_s: float
    changed_by: str


class CalendarView(Api):
    """The windows of a queue; where two meet, the later one in the list is on top."""

    time_zone: Annotated[str, Field(description="by which clock")]
    windows: list[QueueWindowView]
    until_s: Annotated[float | None, Field(description="the next edge at which settings change; null: never")]


class QueueView(Api):
    """A queue and its elasticity."""

    name: str
    up: bool
    settings: Annotated[SerializeAsAny[QueueSettings], WithJsonSchema(settings_schema())]
    overridden: Annotated[list[str], Field(description="settings that were changed at run time")]
    waiting: int
    running: int
    elastic_now: bool
    paused: list[QueuePauseView]
    calendar: CalendarView


def _check_changes(changes: dict[str, Any]) -> dict[str, Any]:
    try:
        check_changes(changes)
    except ValidationError as error:
        first = error.errors()[0]
        raise PydanticCustomError(
            "setting", "{what}", {"what": ": ".join([*(str(part) for part in first["loc"][:1]), first["msg"]])}
        ) from None
    return changes


QueueChanges = Annotated[
    dict[str, Any],
    AfterValidator(_check_changes),
    WithJsonSchema(changes_schema()),
]
"""Settings of a queue; null goes back to what the configuration says."""


class Queues(Api):
    queues: list[QueueView]


class Closed(Api):
    """Nodes that are not used now, whatever is idle there: a reservation, or a drain of EJB's (`ejb drain`)."""

    what: str
    name: str
    nodes: str
    until_s: Annotated[float | None, Field(description="null: not known")]


class KeptFor(Api):
    """A job of the batch system that waits, and that elastic jobs have given room back to."""

    job: str
    user: str


class Window(Api):
    """Processors that jobs of a queue may use now without delaying others.

    `by`: what says so, where the batch system leaves a choice; "" elsewhere. `blind`: why no window is used though
    processors are free. The batch system hides the jobs of others; "" where it does not. `kept_for`: the jobs that are
    to have room that elastic jobs have given back. Until they have started, no elastic job takes any of the slots.
    """

    queue: str
    at_s: float
    slots: list[Slot]
    closed: list[Closed] = []
    free: int
    total: int
    by: str = ""
    blind: str = ""
    kept_for: KeptFor | None = None


class Windows(Api):
    windows: list[Window]


class TokenRequest(Api):
    """What a new bearer token is for, and for how long it is good.

    `scope`: `read` looks only, `submit` (formerly `jobs`) also submits and steers its user's own jobs. `operate` and
    `admin` do what operators and administrators may, as far as its user is one when it is shown.
    """

    label: Annotated[str, Field(max_length=200, pattern=PLAIN)] = ""
    expires_in_s: Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)] = 30 * 86400.0
    scope: Scope = Scope.SUBMIT


class TokenView(Api):
    """A bearer token without its secret."""

    id: str
    user: str
    label: str
    created_s: float
    expires_s: float
    scope: Scope


class NewToken(TokenView):
    """A new bearer token. The secret is shown this once."""

    token: str


class Tokens(Api):
    tokens: list[TokenView]


class Health(BaseModel):
    """Whether the daemon does its work; further fields say how."""

    model_config = ConfigDict(extra="allow")

    ok: Annotated[bool, Field(description="always true here: what is not well is told as a problem, with status 503")]


class Version(Api):
    version: str
    worker_protocol: str
