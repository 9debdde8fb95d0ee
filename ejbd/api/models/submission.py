"""What a user asks for: a job, a signal, another course of an evolving job."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    model_validator,
)

from ejbd.api.models.base import Api
from ejbd.files.profilefiles import MOST_SENT, MOST_SENT_BYTES
from ejbd.plugins.engines import known_engines

MOST_WORDS = 65_536  # of a command, or variables of an environment; the kernel takes 2 MiB of both together
MOST_UNKNOWN = 20  # fields that are named


Profiles = Annotated[
    dict[Annotated[str, Field(max_length=255)], Annotated[str, Field(max_length=MOST_SENT_BYTES)]],
    Field(
        max_length=MOST_SENT,
        fail_fast=True,
        description="the submitter's own profiles (TOML), by the names of their files; they count before others",
    ),
]


class Body(Api):
    """What may come in large. Its validation ends at the first faults: each of millions would be an object."""

    @model_validator(mode="before")
    @classmethod
    def _some_unknown(cls, data: Any) -> Any:
        if not isinstance(data, dict) or len(data) <= len(cls.model_fields) + MOST_UNKNOWN:
            return data
        unknown = itertools.islice((key for key in data if key not in cls.model_fields), MOST_UNKNOWN)
        return {key: data[key] for key in (*(data.keys() & cls.model_fields.keys()), *unknown)}


Words = Annotated[list[str], Field(max_length=MOST_WORDS, fail_fast=True)]
Setting = Annotated[str | None, Field(max_length=4096)]


def _known_engine(name: str) -> str:
    if name not in known_engines():
        raise ValueError(f"{name[:40]!r} is none of: {', '.join(known_engines())}")
    return name


EngineAsked = Annotated[str, AfterValidator(_known_engine), Field(json_schema_extra={"enum": list(known_engines())})]


class OverridesBody(Body):
    """Settings that win over the script's. Texts are in sbatch's spelling."""

    ntasks: Annotated[int | None, Field(description="processes (ranks)")] = None
    nodes: Annotated[int | None, Field(description="nodes of the layout that is asked for")] = None
    ntasks_per_node: int | None = None
    time: Annotated[Setting, Field(description="walltime in any spelling of Slurm, e.g. 30 or 1-12:00:00")] = None
    name: Setting = None
    partition: Setting = None
    account: Setting = None
    qos: Setting = None
    output: Setting = None
    error: Setting = None
    chdir: Setting = None
    export: Annotated[str | None, Field(max_length=1_000_000)] = None
    elastic: Annotated[Literal["on", "off", "auto"] | None, Field(description="auto: as the queue says")] = None
    engine: EngineAsked | None = None
    mpi: Annotated[str | None, Field(max_length=64, description="auto, mpich, openmpi, none, or a profile's name")] = (
        None
    )
    omax: int | None = None
    lambda_s: Annotated[float | None, Field(allow_inf_nan=False)] = None
    delta: Annotated[float | None, Field(allow_inf_nan=False)] = None
    ntasks_max: Annotated[
        int | None,
        Field(description="up to how many ranks the application may grow beyond `ntasks`, while no other job waits"),
    ] = None
    checkpoint: Annotated[str | None, Field(max_length=64, description="off, auto, or seconds between two")] = None
    app: Annotated[str | None, Field(max_length=400, description="NAME[:CLASS]: what the run time is learned of")] = (
        None
    )
    walltime: Annotated[
        Literal["auto", "own"] | None,
        Field(
            description="auto: learned from earlier runs, never above `time`; own: as `time` says; null: as the queue"
        ),
    ] = None
    profile: Annotated[
        str | None, Field(max_length=100_000, description="widths that are known ahead: 16:10m,64:5m,16:20m")
    ] = None
    best_effort: Annotated[
        bool | None, Field(description="its widths are asked for as they come, and none is queued ahead")
    ] = None
    stages: Annotated[bool | None, Field(description="each launch of the script has a width and a time of its own")] = (
        None
    )
    restartable: bool | None = None
    rerunnable: Annotated[bool | None, Field(description="it may be run again from its beginning")] = None
    hold: bool | None = None
    settings: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=1024)] | bool | int | float],
        Field(max_length=64, description="what `#EJB` knows, by name: also what the queue's policy lets a job say"),
    ] = {}
    options: Annotated[
        list[Annotated[str, Field(max_length=4096)]],
        Field(max_length=1000, fail_fast=True, description="further options of sbatch as words, e.g. --mem=4G"),
    ] = []


Limit = Literal["cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as"]


class JobSubmission(Body):
    """A job: a `script` (with `args`), or a `command`; exactly one of the two."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"cwd": "/", "command": ["hostname"], "overrides": {"ntasks": 2, "time": "5"}},
                {"cwd": "/", "script": "#!/bin/sh\n#SBATCH -n 4 -t 10\nsrun hostname\n", "script_name": "hosts.sh"},
            ]
        }
    )

    cwd: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4096,
            description="absolute path of the working directory",
            examples=["/"],
            json_schema_extra={"pattern": "^/"},
        ),
    ]
    script: Annotated[str | None, Field(description="the text of a batch script with its #SBATCH and #EJB lines")] = (
        None
    )
    script_name: Annotated[str, Field(max_length=4096, description="what the job is called by default")] = "job"
    args: Words = []
    command: Words | None = None
    env: Annotated[
        dict[str, str], Field(max_length=MOST_WORDS, fail_fast=True, description="the submitter's environment")
    ] = {}
    script_path: Annotated[
        str | None, Field(max_length=4096, description="absolute path of the file that holds the script, if one does")
    ] = None
    umask: Annotated[int | None, Field(ge=0, le=0o777, description="the submitter's")] = None
    limits: Annotated[
        dict[Limit, Annotated[int, Field(ge=-1, le=2**63 - 1)]],
        Field(
            fail_fast=True, description="the submitter's soft resource limits in the units of setrlimit; -1: unlimited"
        ),
    ] = {}
    profiles: Profiles = {}
    overrides: OverridesBody = OverridesBody()
    numbered: Annotated[
        bool,
        Field(
            description="its user knows it by its number, as of sbatch: its output is slurm-%j.out where none is "
            "named, and it begins when the number was read (`/number`, `/number/read`), or after 10 s"
        ),
    ] = False


class SignalRequest(Api):
    """A signal for a job, by its name or number."""

    signal: Annotated[str, Field(max_length=16, examples=["USR1"])]
    to: Annotated[
        Literal["ranks", "script", "all"], Field(description="its ranks, the shell of its script, or both")
    ] = "ranks"


class EvolveRequest(Api):
    """What is to come of an evolving job."""

    tail: Annotated[str, Field(max_length=4096, examples=["now:64,+30m:128"])]
    dry_run: Annotated[bool, Field(description="say what would come, and change nothing")] = False


class ResizeRequest(Api):
    """The places that an evolving job is to have from now to its end."""

    to: Annotated[int | None, Field(ge=1, le=10**7, description="null: what it holds throughout")] = None
    by: Annotated[
        int | None, Field(ge=-(10**7), le=10**7, description="so many more than now, or less, instead of `to`")
    ] = None
    key: Annotated[str, Field(max_length=128, description="a request with a key that was seen before is that one")] = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.to is not None and self.by is not None:
            raise ValueError("`to` and `by` exclude each other")
        return self


class EvolvingCourse(Api):
    """The widths of an evolving job: what each step lasts (seconds) and has (places), and when it begins."""

    steps: list[tuple[float, int]]
    starts_s: list[float]
    end_s: float
    base: Annotated[int, Field(description="places that are held throughout")]


class JobCreated(Api):
    """The job that was stored."""

    id: str
    name: str
    created: Annotated[bool, Field(description="false: it was answered before under the same Idempotency-Key")]
    elastic: Annotated[bool, Field(description="false: it is passed through to the batch system as an ordinary job")]
    why: Annotated[str, Field(description="why it is elastic, or is not")]
    notes: Annotated[list[str], Field(description="what is not acted on, cannot be had, or was not checked")]

    def status_and_headers(self) -> tuple[int, dict[str, str]]:
        """What goes with it in an answer."""
        return 201 if self.created else 200, {"Location": f"/v1/jobs/{self.id}"}
