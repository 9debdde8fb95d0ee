"""Settings of the daemon: one TOML file, overridable by EJBD_* environment variables."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from ejbd.errors import Code, EjbError
from ejbd.paths import SOCKET_NAME, default_state_dir


class Elasticity(StrEnum):
    """Whether jobs of a queue are made elastic."""

    OFF = "off"  # passed through as ordinary jobs, and still tracked
    ON = "on"
    AUTO = "auto"  # while at least `auto_queue_length` jobs are waiting in the queue


class Order(StrEnum):
    """In which order elastic jobs look for room."""

    ARRIVAL = "arrival"  # as the paper has it
    LEAST_WORK = "least-work"  # waiting jobs before running ones, the least P * (R - W) first


class QueueSettings(BaseModel):
    """Elasticity of one queue. O_max, lambda and Delta are those of section 3 of the paper.

    `suspend`, `order`, `whole_slots`, `act_in_migration` and `min_left_s` go beyond it: `suspend` off, `order` arrival
    and the defaults of the rest are the paper's algorithm.
    """

    model_config = ConfigDict(extra="forbid")

    elasticity: Elasticity = Elasticity.OFF
    auto_queue_length: Annotated[int, Field(ge=1, description="jobs waiting at or above which `auto` is on")] = 10
    omax: Annotated[int, Field(ge=1, le=1024, description="most ranks a processor")] = 8
    lambda_s: Annotated[float, Field(ge=0, le=86400, description="cost of one move until it was measured")] = 120.0
    lambda_floor_s: Annotated[
        float, Field(ge=0, le=86400, description="least cost of a move, whatever was measured")
    ] = 1.0
    delta: Annotated[float, Field(ge=1, le=100, description="overhead of over-subscription, Eq. 2")] = 1.0
    min_processors: Annotated[int, Field(ge=1, description="smaller jobs are passed through")] = 2
    max_subjobs: Annotated[int, Field(ge=1, le=1000, description="most subjobs of one job at once, J0 not counted")] = 8
    suspend: Annotated[bool, Field(description="use room too short for the whole job, and go back to waiting")] = True
    order: Annotated[Order, Field(description="who looks for room first")] = Order.LEAST_WORK
    whole_slots: Annotated[bool, Field(description="take all that is free, not the fewest for its degree")] = False
    act_in_migration: Annotated[bool, Field(description="look for more room while a move is under way")] = False
    checkpoint_every: Annotated[
        Literal["off", "auto"] | Annotated[float, Field(ge=1, le=31 * 86400, allow_inf_nan=False)],
        Field(description="checkpoints against lost nodes: off, seconds, or auto by cost and node_mtbf_s"),
    ] = "off"
    first_checkpoint_s: Annotated[
        float,
        Field(
            ge=0, le=86400, description="when engine dmtcp tries an application's first checkpoint; 0: when it moves"
        ),
    ] = 10.0
    node_mtbf_s: Annotated[
        float, Field(ge=1, le=1e11, description="mean time between failures of one node, for checkpoint_every auto")
    ] = 365 * 86400.0
    min_left_s: Annotated[
        float, Field(ge=0, le=31 * 86400, description="no growth when the job is done within this time")
    ] = 0.0


class LocalSettings(BaseModel):
    """The embedded cluster."""

    model_config = ConfigDict(extra="forbid")

    directory: Path | None = Field(default=None, description="default: <state_dir>/cluster")
    nodes: Annotated[int, Field(ge=1, le=4096)] = 8
    processors_per_node: Annotated[int, Field(ge=1, le=1024)] = 4


class SlurmSettings(BaseModel):
    """A real Slurm, by its own commands."""

    model_config = ConfigDict(extra="forbid")

    conf: Path | None = Field(default=None, description="SLURM_CONF; default: as in the daemon's environment")
    bin: Path | None = Field(default=None, description="folder of sbatch, squeue, ...; default: PATH")
    timeout_s: Annotated[float, Field(gt=0, le=600)] = 20.0
    submit_timeout_s: Annotated[float, Field(gt=0, le=600)] = 30.0


class Limits(BaseModel):
    """Safety knobs: how much EJB may ask of the batch system, and how long it waits before it believes the worst."""

    model_config = ConfigDict(extra="forbid")

    start_grace_s: Annotated[float, Field(gt=0)] = 60.0  # a subjob that does not start within this is cancelled
    missing_grace_s: Annotated[float, Field(gt=0)] = 60.0  # unlisted and unaccounted for this long: lost
    worker_silence_s: Annotated[float, Field(gt=0)] = 90.0  # a worker not heard of for this long is lost
    settle_s: Annotated[float, Field(gt=0)] = 10.0  # between two look-ups of a tag that prove its absence
    checkpoint_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    launch_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    lease_s: Annotated[float, Field(gt=0)] = 15.0
    heartbeat_s: Annotated[float, Field(gt=0)] = 10.0
    check_timeout_s: Annotated[float, Field(gt=0)] = 5.0  # asking the batch system about a job to be passed through
    submit_concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    submits_per_s: Annotated[float, Field(gt=0, le=1000)] = 20.0  # to the batch system, over any longer time
    max_setbacks: Annotated[int, Field(ge=0)] = 5
    max_body_bytes: Annotated[int, Field(ge=1024)] = 8 * 1024 * 1024
    event_retention_days: Annotated[float, Field(gt=0)] = 90.0
    spool_retention_days: Annotated[float, Field(gt=0)] = 3.0  # of a job that has ended; sooner than its events


def _on_or_off(value: object) -> object:
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


class Settings(BaseSettings):
    """The whole configuration. Every folder is made on first use with mode 0700."""

    model_config = SettingsConfigDict(
        extra="forbid", env_prefix="EJBD_", env_nested_delimiter="__", nested_model_default_partial_update=True
    )

    state_dir: Path = Field(default_factory=default_state_dir)
    spool: Path | None = Field(default=None, description="shared by all nodes; default <state_dir>/spool")
    database_url: str | None = Field(default=None, description="default: SQLite in <state_dir>")
    socket: Path | None = Field(default=None, description="unix socket; default <state_dir>/ejbd.sock")
    listen: str = Field(default="127.0.0.1:0", description="host:port; nothing but loopback unless told to")
    advertise_url: str | None = Field(default=None, description="URL by which workers reach the daemon")
    admins: list[str] = Field(default_factory=list, description="besides root and the daemon's own user")
    poll_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    worker_python: str = "python3"
    batch: Literal["local", "slurm"] = "local"
    local: LocalSettings = Field(default_factory=LocalSettings)
    slurm: SlurmSettings = Field(default_factory=SlurmSettings)
    limits: Limits = Field(default_factory=Limits)
    mpi_profiles: Path | None = Field(
        default=None, description="TOML file of MPI profiles besides those that come along"
    )
    dmtcp_compress: Annotated[Literal["auto", "on", "off"], BeforeValidator(_on_or_off)] = Field(
        default="auto", description="compress checkpoint images; auto: where the spool is slower than gzip on the node"
    )
    dmtcp_checksum: bool = Field(
        default=False, description="put SHA-256 sums of checkpoint images down, and hold images against them"
    )
    queues: dict[str, QueueSettings] = Field(default_factory=dict, description='"default" holds for those not named')

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The environment beats the file, whose values come in as init_settings.
        return env_settings, init_settings

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
    def cluster_dir(self) -> Path:
        return self.local.directory or self.state_dir / "cluster"

    def queue_settings(self, name: str) -> QueueSettings:
        return self.queues.get(name) or self.queues.get("default") or QueueSettings()


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
