"""The settings of the daemon as a whole, from a TOML file and the environment."""

from __future__ import annotations

import os
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SecretsSettingsSource, SettingsConfigDict

from ejbd.config.access import DailySettings, OidcSettings, TlsSettings
from ejbd.config.limits import Limits
from ejbd.config.queues import QueueSettings
from ejbd.core.policy import UnknownPolicy
from ejbd.errors import Code, EjbError
from ejbd.files.paths import SOCKET_NAME, default_state_dir
from ejbd.identity.settings import HelperSettings, RunsAs
from ejbd.plugins.batches import (
    OWN,
    BatchKind,
    BatchTraits,
    LocalSettings,
    PbsSettings,
    SlurmSettings,
    UnknownBatch,
    known_batch,
    on_or_off,
)
from ejbd.plugins.policies import import_policies


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
        name = str(first["loc"][-1]) if first["loc"] else ""
        strayed = first["type"] == "extra_forbidden" and len(first["loc"]) > 1 and name in Settings.model_fields
        raise EjbError(
            Code.INVALID,
            f"{key}: {f'{name} stands above the first [name] of the file' if strayed else first['msg']}",
            where=str(path or "environment"),
            hint="docs/configuration.md lists every key",
        ) from None
