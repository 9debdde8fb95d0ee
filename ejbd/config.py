"""Settings of the daemon: one TOML file, overridable by EJBD_* environment variables."""

from __future__ import annotations

import functools
import math
import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict

from ejbd.core.parameters import Declared, Parameters, declared, of_queues
from ejbd.core.policy import Policy, UnknownPolicy
from ejbd.core.shortruns import TIMES
from ejbd.errors import Code, EjbError
from ejbd.files.paths import SOCKET_NAME, default_state_dir
from ejbd.identity.settings import HelperSettings, RunsAs
from ejbd.plugins.batches import OWN, BatchKind, UnknownBatch, known_batch, on_or_off
from ejbd.plugins.batches import BatchTraits as BatchTraits
from ejbd.plugins.batches import LocalSettings as LocalSettings
from ejbd.plugins.batches import PbsSettings as PbsSettings
from ejbd.plugins.batches import SlurmSettings as SlurmSettings
from ejbd.plugins.policies import BUNDLING, import_policies, known_policy, queue_policies
from ejbd.wire.rights import Scope


class Elasticity(StrEnum):
    """Whether jobs of a queue are made elastic."""

    OFF = "off"  # passed through as ordinary jobs, and still tracked
    ON = "on"
    AUTO = "auto"  # while at least `auto_queue_length` jobs are waiting in the queue


OTHERS_DAYS = 4.0  # a day is replayed until a day after it, and from a day before it on


def _of_others(days: float) -> float:
    if 0 < days < OTHERS_DAYS:
        raise PydanticCustomError("others", "a replay needs 4 days of other jobs: it is 0, or 4 at least")
    return days


ACCOUNT_WORD = r"^[A-Za-z0-9_.+@-]{0,128}$"  # a name among Slurm's accounts, which cannot be read as an option


class QueueSettings(BaseModel):
    """What a queue's settings have in common: elasticity, and the choice of a policy.

    The parameters of the policy are settings beside these. They are declared with the policy (`ejbd.core.parameters`):
    :func:`settings_model` makes the model that has them all, and it is that which validation returns.
    """

    model_config = ConfigDict(extra="forbid")

    elasticity: Annotated[
        Elasticity,
        Field(
            description="`off`: jobs are passed through as ordinary ones and still tracked. `on`. `auto`: on once "
            "`auto_queue_length` jobs wait, and off again when fewer than half as many do. A change "
            "reaches waiting jobs (docs/operators.md)"
        ),
    ] = Elasticity.OFF
    auto_queue_length: Annotated[int, Field(ge=1, description="jobs waiting at or above which `auto` is on")] = 10
    policy: Annotated[
        str, Field(description="what decides when jobs start, grow and move: a policy's name (docs/policies.md)")
    ] = BUNDLING
    lambda_floor_s: Annotated[
        float, Field(ge=0, le=86400, description="a move is never planned as cheaper than this, whatever was measured")
    ] = 1.0
    checkpoint_every: Annotated[
        Literal["off", "auto"] | Annotated[float, Field(ge=1, le=31 * 86400, allow_inf_nan=False)],
        Field(
            description="checkpoints against lost nodes: `off`, or seconds of computing between two. `auto`: Daly's "
            "optimum from what a move of the application costs and from `node_mtbf_s` "
            "(docs/operators.md). A job may say otherwise"
        ),
    ] = "off"
    first_checkpoint_s: Annotated[
        float,
        Field(
            ge=0,
            le=86400,
            description="when an application that engine `dmtcp` has never moved tries its first checkpoint: "
            "seconds after its ranks began. What fails at it is never moved (docs/faults.md). 0: not "
            "before it has to move",
        ),
    ] = 10.0
    node_mtbf_s: Annotated[
        float,
        Field(
            ge=1,
            le=1e11,
            description="mean time between failures of one node; on n nodes the job meets one every `node_mtbf_s`/n. "
            "Used by `auto` alone",
        ),
    ] = 365 * 86400.0
    min_processors: Annotated[int, Field(ge=1, description="smaller jobs are passed through")] = 2
    short_runs: Annotated[
        float,
        Field(
            ge=0,
            le=1000,
            description="a job that could start at once is passed through if its application's runs were short. That "
            "is below so many times what elastic starts and ends took here (docs/policies.md); 0: none is",
        ),
    ] = TIMES
    stop_when_late: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether a queue stops where most of its latest elastic jobs ended later than J0 could hope "
            "to. Then no job is made elastic or started early for an hour and more (docs/policies.md)"
        ),
    ] = "off"
    walltime: Annotated[
        Literal["own", "auto"],
        Field(
            description="which walltime is asked for: the user's `own`, or `auto`: learned from earlier runs of the "
            "application. The first of these is asked for, and the next after a time-out "
            "(docs/speculation.md). A job may say otherwise"
        ),
    ] = "own"
    plan_by: Annotated[
        Literal["request", "learned"],
        Field(
            description="which run time plans an elastic job with its user's own walltime. `request`: that "
            "walltime. `learned`: the time by which 95 of 100 earlier runs of the application were over "
            "(docs/speculation.md)"
        ),
    ] = "request"
    weigh_by: Annotated[
        Literal["request", "learned"],
        Field(
            description="which run time decides whether a further subjob, or a move to J0, pays. `request`: the "
            "user's. `learned`: the time by which one in twenty of the earlier runs that got so far was "
            "over (docs/speculation.md)"
        ),
    ] = "request"
    keep_place: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether the run with the next learned walltime is submitted as soon as one begins. It "
            "stands by in the queue and keeps that place for after a time-out. It counts as one more "
            "batch job of its user (docs/speculation.md)"
        ),
    ] = "on"
    gaps: Annotated[
        Literal["on", "off"],
        BeforeValidator(on_or_off),
        Field(
            description="whether waiting jobs that may be run again are sent into windows shorter than their request. "
            "8 of 10 runs like them were over by then (docs/speculation.md)"
        ),
    ] = "off"
    raised: Annotated[
        Literal["off", "rerunnable", "all"],
        Field(
            description="which waiting jobs are planned by their user's last two runs, and raised to their request "
            "before that is over. Only an operator of Slurm may raise (docs/speculation.md)"
        ),
    ] = "off"
    max_subjobs: Annotated[
        int, Field(ge=1, le=1000, description="most subjobs that one job runs on at once, J0 not counted")
    ] = 8
    subjob_qos: Annotated[
        str,
        Field(
            pattern=ACCOUNT_WORD,
            description="the QOS of subjobs on Slurm, in place of J0's. One with `UsageFactor=0` charges no fair "
            "share for them. It may have limits and a priority of its own (docs/slurm.md). Empty: J0's",
        ),
    ] = ""
    subjob_account: Annotated[
        str,
        Field(
            pattern=ACCOUNT_WORD,
            description="the account of subjobs on Slurm, in place of J0's (docs/slurm.md). Empty: J0's",
        ),
    ] = ""

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...

    def __new__(cls, **given: Any) -> Self:
        """`QueueSettings(...)` is one of the policy that is named; an unknown one is refused by validation."""
        try:
            model = settings_model(given.get("policy", BUNDLING)) if cls is QueueSettings else cls
        except UnknownPolicy:
            model = cls
        return cast(Self, super().__new__(model))

    @model_validator(mode="wrap")
    @classmethod
    def _with_the_policys(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> QueueSettings:
        """By the model of the policy that is named."""
        if isinstance(data, Mapping):
            try:
                model = settings_model(data.get("policy", BUNDLING))
            except UnknownPolicy as error:
                raise PydanticCustomError("policy", "{why}", {"why": str(error)}) from None
            names = renamed(model)
            for key in names.keys() & data.keys():
                raise PydanticCustomError("renamed", "{why}", {"why": f"{key} is called {names[key]} now"})
            for key in simulated_only(model) & data.keys():
                raise PydanticCustomError("simulated", "{why}", {"why": f"{key} is a setting of ejb sim alone"})
            if cls is QueueSettings:
                return model.model_validate(data)
        return handler(data)

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The policy's parameters as the queue has them."""
        of = known_policy(self.policy).declares
        return of(**{name: getattr(self, name) for name in of_queues(of)})

    def renewed(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that were stored by any version, under the names of today."""
        names, gone = renamed(type(self)), simulated_only(type(self))
        return {names.get(key, key): value for key, value in stored.items() if names.get(key, key) not in gone}

    def having(self, changes: Mapping[str, Any]) -> QueueSettings:
        """The same with other values. Where they choose another policy, what that one knows not is left out.

        What was stored by another version, or with a policy that is not there now, is taken as far as it is known.
        """
        renewed = self.renewed(changes)
        if renewed.get("policy", self.policy) not in queue_policies():
            del renewed["policy"]
        model = settings_model(renewed.get("policy", self.policy))
        both = {**self.model_dump(), **renewed}
        return model.model_validate({key: value for key, value in both.items() if key in model.model_fields})


def _field(one: Declared) -> tuple[Any, Any]:
    """A parameter as a field of a model."""
    bounds: dict[str, Any] = {}
    if one.kind in (int, float):
        bounds = {k: v for k, v in (("ge", one.about.least), ("le", one.about.most)) if math.isfinite(v)}
    says = "; ".join(filter(None, (one.about.says, one.about.more)))
    return Annotated[one.kind, Field(description=says, **bounds)], one.queue_default


def settings_model(policy: str) -> type[QueueSettings]:
    """The settings of a queue under a policy.

    Raises UnknownPolicy where no queue can have one of that name, and ValueError where it declares what every queue
    has.
    """
    found = known_policy(policy)
    return _model_of(found)


@functools.cache
def _model_of(policy: type[Policy]) -> type[QueueSettings]:
    of = policy.declares
    fields: dict[str, Any] = {one.name: _field(one) for one in of_queues(of).values()}
    taken = sorted(set(fields) & set(QueueSettings.model_fields))
    if taken:
        raise ValueError(f"policy {policy.name} declares {', '.join(taken)}, which every queue has already")
    told = Annotated[str, QueueSettings.model_fields["policy"]]
    return create_model("QueueSettings", __base__=QueueSettings, policy=(told, policy.name), **fields)


def renamed(model: type[QueueSettings]) -> dict[str, str]:
    """Settings by the names that they had before, and their names now."""
    of = known_policy(model.model_fields["policy"].default).declares
    return {one.about.formerly: one.name for one in of_queues(of).values() if one.about.formerly}


def simulated_only(model: type[QueueSettings]) -> set[str]:
    """Parameters of the policy that no queue may set."""
    of = known_policy(model.model_fields["policy"].default).declares
    return set(declared(of)) - set(of_queues(of))


def check_changes(changes: Mapping[str, Any]) -> None:
    """Raise ValidationError for settings that no queue could have, whatever its policy; None stands for any value."""
    given = {key: value for key, value in changes.items() if value is not None}
    faults = []
    policies = queue_policies()
    for name in [given["policy"]] if "policy" in given else list(policies):
        known = settings_model(name).model_fields if name in policies else changes
        reset = dict.fromkeys(key for key, value in changes.items() if value is None and key not in known)
        try:
            QueueSettings(**{**given, **reset, "policy": name})
            return
        except ValidationError as error:
            faults.append(error)
    raise faults[0]


def settings_schema() -> dict[str, Any]:
    """The JSON schema of a queue's settings: those of EJB's own policy; another one has parameters of its own."""
    schema = settings_model(BUNDLING).model_json_schema()
    return {**schema, "title": "QueueSettings", "additionalProperties": True}


def changes_schema() -> dict[str, Any]:
    """The JSON schema of changes to a queue's settings, each of which may be null."""
    schema = settings_schema()
    maybe = {
        name: {"anyOf": [{k: v for k, v in field.items() if k != "default"}, {"type": "null"}]}
        for name, field in schema["properties"].items()
    }
    return {**schema, "title": "QueueChanges", "properties": maybe}


class Limits(BaseModel):
    """Safety knobs: how much EJB may ask of the batch system, and how long it waits before it believes the worst."""

    model_config = ConfigDict(extra="forbid")

    start_grace_s: Annotated[
        float, Field(gt=0, description="a subjob that does not start within this is cancelled")
    ] = 60.0
    give_back_grace_s: Annotated[
        float, Field(gt=0, description="an evolving job that has not left a width by then ends")
    ] = 60.0
    missing_grace_s: Annotated[
        float,
        Field(
            gt=0,
            description="a batch job that is neither listed nor accounted for this long is lost",
        ),
    ] = 60.0
    worker_silence_s: Annotated[
        float,
        Field(
            gt=0,
            description="a worker not heard of for this long is lost, and its subjob cancelled",
        ),
    ] = 90.0
    alone_after_s: Annotated[
        float, Field(ge=0, description="J0's workers wait so long for a daemon, then begin. 0: never")
    ] = 60.0
    settle_s: Annotated[
        float,
        Field(
            gt=0,
            description="pause between the two look-ups that prove that a submission never arrived",
        ),
    ] = 10.0
    checkpoint_timeout_s: Annotated[
        float, Field(gt=0, description="a checkpoint that takes longer, and four times longer than usual, has failed")
    ] = 120.0
    warned_grace_s: Annotated[
        float, Field(gt=0, description="from a warning (TERM) to the end, where nothing says more")
    ] = 20.0
    launch_timeout_s: Annotated[
        float,
        Field(
            gt=0,
            description="ranks that are not up, or workers that have not come, by then are given up; a restart has "
            "longer where it needs longer (docs/faults.md)",
        ),
    ] = 60.0
    lease_s: Annotated[
        float, Field(gt=0, description="an operation that is not answered by then is handed out again")
    ] = 15.0
    heartbeat_s: Annotated[float, Field(gt=0, description="how often workers call")] = 10.0
    check_timeout_s: Annotated[
        float, Field(gt=0, description="asking the batch system about a job to be passed through")
    ] = 5.0
    early_looks: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="polls in a row that do not wait for `poll_s`, since a worker has reported that its subjob has "
            "started or is left. In the long run there is one for every two of the timer's. 0: none",
        ),
    ] = 4
    submit_concurrency: Annotated[int, Field(ge=1, le=64, description="submissions to the batch system at once")] = 4
    submits_per_s: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            description="submissions to the batch system a second, at most (a burst of one second's worth is let "
            "through)",
        ),
    ] = 20.0
    max_setbacks: Annotated[int, Field(ge=0, description="failed placements after which a job is given up")] = 5
    max_array_size: Annotated[
        int, Field(ge=1, le=4_000_001, description="indices of an elastic array are below it")
    ] = 10_001
    array_jobs: Annotated[
        int,
        Field(
            ge=1,
            le=2000,
            description="elements of one elastic array that are jobs, and so have a J0 in the queue, at a time",
        ),
    ] = 200
    max_body_bytes: Annotated[int, Field(ge=1024, description="larger requests are refused unread")] = 8 * 1024 * 1024
    user_requests_per_s: Annotated[
        float, Field(gt=0, le=100_000, description="of one user; ten seconds' worth at once")
    ] = 50.0
    user_connections: Annotated[
        int,
        Field(
            ge=1,
            le=2048,
            description="connections of one user, to each of socket and TCP; the oldest idle one goes for a new one",
        ),
    ] = 128
    user_streams: Annotated[
        int,
        Field(
            ge=1,
            le=2048,
            description="streams of events and output that one user has open: each is looked at whenever anything "
            "happens",
        ),
    ] = 32
    user_waiting_jobs: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="jobs of one user that have not started: "
            "a loop that submits without end costs only its own user",
        ),
    ] = 5000
    user_script_bytes: Annotated[
        int,
        Field(
            ge=1024,
            description="the longest script, as Slurm's own `max_script_size`",
        ),
    ] = 4 * 1024 * 1024
    user_tokens: Annotated[int, Field(ge=1, le=10_000, description="tokens of one user that are still good")] = 100
    event_retention_days: Annotated[
        float, Field(gt=0, description="older finished jobs and their events are deleted")
    ] = 90.0
    spool_retention_days: Annotated[
        float, Field(gt=0, description="of a job that has ended; sooner than its events")
    ] = 3.0
    others_retention_days: Annotated[
        float,
        Field(
            ge=0,
            description="of batch jobs that are not EJB's, noted for what they gained or lost by elastic ones "
            "(docs/web.md): 4 at least. 0: they are not noted",
        ),
        AfterValidator(_of_others),
    ] = 7.0


TIME_OF_DAY = r"^(|([01][0-9]|2[0-3]):[0-5][0-9])$"  # "": never


class DailySettings(BaseModel):
    """What is done once a day, at a time of `time_zone`. What a daemon that was away has missed it does once."""

    model_config = ConfigDict(extra="forbid")

    prune_at: Annotated[
        str,
        Field(pattern=TIME_OF_DAY, min_length=5, description="`HH:MM`: what is older than `*_retention_days` goes"),
    ] = "03:30"
    backup_at: Annotated[str, Field(pattern=TIME_OF_DAY, description='`HH:MM`: the database is copied; "": never')] = ""
    backup_dir: Path | None = Field(default=None, description="folder of the copies; default: <state_dir>/backups")
    backups_kept: Annotated[int, Field(ge=1, le=3650, description="older copies of `backup_dir` are removed")] = 7
    import_at: Annotated[
        str,
        Field(pattern=TIME_OF_DAY, description='`HH:MM`: `import_file` is read as by `ejb history import`; "": never'),
    ] = ""
    import_file: Path | None = Field(default=None, description="what accounting writes (docs/speculation.md)")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.import_at and self.import_file is None:
            raise PydanticCustomError("import_file", "import_at is set, and import_file says no file")
        return self


class OidcSettings(BaseModel):
    """An identity provider with tokens that are taken. See docs/rest.md."""

    model_config = ConfigDict(extra="forbid")

    issuer: Annotated[str, Field(min_length=1, description="its address, which stands in every token as `iss`")]
    audience: Annotated[str, Field(min_length=1, description="what its tokens for EJB have as `aud`")]
    jwks_url: str | None = Field(default=None, description="of its keys; default: as its discovery document says")
    claim: Annotated[str, Field(min_length=1, description="the claim that names the user")] = "sub"
    user: Annotated[
        str,
        Field(description="a pattern for the whole of that claim; the user is its group `user`, or all of it"),
    ] = r"[a-z_][a-z0-9_-]*"
    scope: Annotated[Scope, Field(description="the widest that such a token is good for")] = Scope.SUBMIT
    algorithms: Annotated[
        list[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]],
        Field(min_length=1, description="kinds of signature that are taken; never a shared secret, and never none"),
    ] = ["RS256", "ES256"]
    ca: Path | None = Field(default=None, description="certificates by which it is known; default: the system's")
    client_id: str | None = Field(default=None, min_length=1, description="of the page; none: browsers need a link")
    client_secret_file: Path | None = Field(default=None, description="of a client that is not public")
    browser_scope: Annotated[str, Field(min_length=1, description="what is asked for a browser")] = "openid"
    page_url: str | None = Field(default=None, description="the page's address as browsers see it, where it differs")

    def client_secret(self) -> str | None:
        """Read each time: it may be changed while the daemon runs. Raises OSError, and ValueError for no text."""
        return None if self.client_secret_file is None else self.client_secret_file.read_text().strip()

    @staticmethod
    def check_address(url: str) -> str:
        """Raise ValueError for an address at which another could answer in the provider's place."""
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname:
            return url
        if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"):
            return url
        raise ValueError(f"{url!r} is no https:// address, and not on this machine")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            for url in filter(None, (self.issuer, self.jwks_url, self.page_url)):
                self.check_address(url)
            re.compile(self.user)
        except (ValueError, re.error) as error:
            raise PydanticCustomError("oidc", "{why}", {"why": str(error)}) from None
        return self


class TlsSettings(BaseModel):
    """How what users send over TCP is kept from being read on its way."""

    model_config = ConfigDict(extra="forbid")

    listen: str | None = Field(default=None, description="host:port for users, encrypted; none unless told to")
    certificate: Path | None = Field(default=None, description="PEM file: its certificate, and those up to its root's")
    key: Path | None = Field(default=None, description="PEM file: its private key; default: in `certificate`")
    by_proxy: bool = Field(
        default=False, description="a proxy in front of `listen` encrypts: tokens are taken there in the clear"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.listen is None) is not (self.certificate is None):
            why = "`listen` and `certificate` of [tls] go together: give both, or neither"
            raise PydanticCustomError("tls", "{why}", {"why": why})
        return self


def _imported(modules: list[str]) -> list[str]:
    try:
        import_policies(modules)
    except UnknownPolicy as error:
        raise PydanticCustomError("policies", "{why}", {"why": str(error)}) from None
    return modules


def _known_batch(name: str) -> str:
    try:
        return known_batch(name).name
    except UnknownBatch as error:
        raise PydanticCustomError("batch", "{why}", {"why": str(error)}) from None


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PydanticCustomError("time_zone", "there is no time zone '{name}'", {"name": name}) from None
    return name


class Settings(BaseSettings):
    """The whole configuration. Every folder is made on first use with mode 0700."""

    model_config = SettingsConfigDict(
        extra="forbid", env_prefix="EJBD_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    state_dir: Path = Field(
        default_factory=default_state_dir,
        description="socket, database, and the default places of the rest; default: $XDG_STATE_HOME/ejbd",
    )
    spool: Path | None = Field(default=None, description="shared by all nodes; default <state_dir>/spool")
    database_url: str | None = Field(default=None, description="default: SQLite in <state_dir>")
    standby: bool = Field(
        default=False, description="wait while another daemon leads on the same PostgreSQL, and lead when it is gone"
    )
    standby_after_s: Annotated[float, Field(ge=2, le=3600, description="without a beat of the one that leads")] = 8.0
    socket: Path | None = Field(
        default=None, description="unix socket, a path of 103 bytes at most; default <state_dir>/ejbd.sock"
    )
    listen: str = Field(default="127.0.0.1:0", description="host:port; nothing but loopback unless told to")
    advertise_url: str | None = Field(default=None, description="URL by which workers reach the daemon")
    identity: RunsAs = Field(
        default=RunsAs.SELF,
        description="`self`: the daemon runs the jobs of its own user alone. `helper`: those of all users, each as its "
        "own user, by `ejb-as` (docs/operators.md)",
    )
    helper: HelperSettings = Field(default_factory=HelperSettings)
    admins: list[str] = Field(
        default_factory=list, description="users, or %groups, besides root and the daemon's own user"
    )
    operators: list[str] = Field(
        default_factory=list, description="users, or %groups, that steer the jobs of all, queues and drains"
    )
    audit: str | None = Field(
        default=None, description="file for a line of each act of users, or `journald`; none unless told to"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings)
    oidc: OidcSettings | None = Field(default=None, description="an identity provider with tokens that are taken")
    poll_s: Annotated[float, Field(gt=0, le=3600, description="time between two polls, at most")] = 5.0
    time_zone: Annotated[str, AfterValidator(_known_zone)] = Field(
        default="", description="by which clock queues have their windows of the week; default: the machine's"
    )
    worker_python: Annotated[str, Field(description="the Python of workers on the nodes; 3.8 or later")] = "python3"
    mail_program: str | None = Field(
        default=None,
        description='sends the mails of elastic jobs; default: Slurm\'s MailProg, elsewhere none; "": none',
    )
    batch: Annotated[
        str,
        AfterValidator(_known_batch),
        Field(description="`local` (an embedded cluster), `slurm`, `pbs`, or what a package offers (docs/plugins.md)"),
    ] = "local"
    local: LocalSettings = Field(default_factory=LocalSettings)
    slurm: SlurmSettings = Field(default_factory=SlurmSettings)
    pbs: PbsSettings = Field(default_factory=PbsSettings)
    batch_settings: dict[str, Any] = Field(
        default_factory=dict, description="the table of a batch system that comes by an entry point (docs/plugins.md)"
    )
    limits: Limits = Field(default_factory=Limits)
    daily: DailySettings = Field(default_factory=DailySettings)
    mpi_profiles: Path | None = Field(
        default=None, description="TOML file of MPI profiles besides those that come along"
    )
    dmtcp_compress: Annotated[Literal["auto", "on", "off"], BeforeValidator(on_or_off)] = Field(
        default="auto", description="compress checkpoint images; auto: where the spool is slower than gzip on the node"
    )
    dmtcp_checksum: bool = Field(
        default=False, description="put SHA-256 sums of checkpoint images down, and hold images against them"
    )
    policies: Annotated[list[str], AfterValidator(_imported)] = Field(
        default_factory=list, description="modules with policies, trusted to be imported when the daemon starts"
    )
    queues: dict[str, SerializeAsAny[QueueSettings]] = Field(
        default_factory=dict, description='"default" holds for those not named'
    )

    @model_validator(mode="after")
    def _helped(self) -> Self:
        helped = " or ".join(f'"{kind.name}"' for kind in OWN.values() if kind.helped)
        if self.identity is RunsAs.HELPER and f'"{self.batch}"' not in helped:
            why = f'identity = "helper" needs batch = {helped}: nothing acts for other users on {self.batch}'
            if self.batch == "local":
                why += ", since the embedded cluster is one user's own, and runs every job as that user"
            raise PydanticCustomError("identity", "{why}", {"why": why})
        return self

    @model_validator(mode="after")
    def _batch_settings(self) -> Self:
        if self.batch in OWN:
            if self.batch_settings:
                why = f"batch_settings is for batch systems of packages; that of {self.batch} is [{self.batch}]"
                raise PydanticCustomError("batch_settings", "{why}", {"why": why})
            return self
        try:
            self.batch_kind.settings(**self.batch_settings)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"batch_settings.{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise PydanticCustomError("batch_settings", "{why}", {"why": why}) from None
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The environment beats the file: the file's values come in as init_settings. Between them are secrets that
        # systemd hands over (LoadCredential=), in files named as the variables.
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        secrets = [SecretsSettingsSource(settings_cls, folder)] if folder and Path(folder).is_dir() else []
        return env_settings, *secrets, init_settings

    @property
    def spool_dir(self) -> Path:
        return self.spool or self.state_dir / "spool"

    @property
    def socket_path(self) -> Path:
        return self.socket or self.state_dir / SOCKET_NAME

    @property
    def url_of_database(self) -> str:
        return self.database_url or f"sqlite:///{self.state_dir / 'ejbd.sqlite'}"

    @property
    def traits(self) -> BatchTraits:
        """Those of the batch system that is named."""
        return self.batch_kind.traits(self.batch_table)

    @property
    def batch_kind(self) -> BatchKind:
        return known_batch(self.batch)

    @property
    def batch_table(self) -> BaseModel:
        """The settings of the batch system that is named."""
        own = getattr(self, self.batch) if self.batch in OWN else self.batch_kind.settings(**self.batch_settings)
        assert isinstance(own, BaseModel)
        return own

    @cached_property
    def zone(self) -> ZoneInfo:
        """That of the site's calendars."""
        name = self.time_zone or os.environ.get("TZ", "").removeprefix(":")
        try:
            if name:
                return ZoneInfo(name)
            machines = Path("/etc/localtime").resolve()
            with machines.open("rb") as file:
                return ZoneInfo.from_file(file, str(machines).rpartition("/zoneinfo/")[2])
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo("UTC")

    @property
    def cluster_dir(self) -> Path:
        return self.local.directory or self.state_dir / "cluster"

    def queue_settings(self, name: str) -> QueueSettings:
        return self.queues.get(name) or self.queues.get("default") or _DEFAULT_QUEUE


_DEFAULT_QUEUE = QueueSettings()


def load(path: Path | None) -> Settings:
    """Read the TOML file (None: defaults and environment). Raises EjbError that names file, key and fault."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise EjbError(Code.INVALID, f"cannot read the configuration: {error.strerror}", where=str(path)) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise EjbError(Code.INVALID, f"not a TOML file: {error}", where=str(path)) from None
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise EjbError(
            Code.INVALID,
            f"{key}: {first['msg']}",
            where=str(path or "environment"),
            hint="docs/configuration.md lists every key",
        ) from None
