"""The worker protocol (docs/worker-protocol.md) as types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ejbd.plugins.engines import known_engines

PROTOCOL = "2"

Count = Annotated[int, Field(ge=0, le=2**53)]
Positive = Annotated[int, Field(ge=1, le=1_000_000)]
Code = Annotated[int, Field(ge=-(2**31), lt=2**32)]
Text = Annotated[str, Field(max_length=65536)]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]*$")]
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class Wire(BaseModel):
    """Nothing is converted and nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True)


class DmtcpBuild(Wire):
    """Which build of DMTCP a node has."""

    version: Name
    library: Annotated[str, Field(max_length=16, description="checksum of libdmtcp.so; empty: it cannot be read")]
    machine: Name


class Registration(Wire):
    """A worker says that it is there."""

    node: Name
    processors: Positive
    host: Name
    pid: Annotated[int, Field(ge=1, le=2**31)]
    address: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z.:%_-]+$")]
    boot: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]
    age_s: Annotated[Seconds | None, Field(description="for how long its process has been there")] = None
    engines: Annotated[list[Name], Field(max_length=32, description="checkpoint engines that this node can use")] = []
    dmtcp: Annotated[DmtcpBuild | None, Field(description="what a plugin for this node's DMTCP has to match")] = None
    accepted: Annotated[int, Field(ge=0, le=2**53, description="its last report that was stored, by any daemon")] = 0


class Registered(Wire):
    """The worker's id, and how often it is to be heard of (seconds)."""

    worker: str
    heartbeat_s: float
    poll_s: float


class OneReport(Wire):
    """What all reports have: their number, and when they were told, by the node's clock (seconds since the epoch)."""

    n: Count
    told_s: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None = None


class ResultReport(OneReport):
    """The answer to an operation, once."""

    kind: Literal["result"]
    seq: Count
    ok: bool
    error: Text
    data: dict[str, Any]


class RankExitReport(OneReport):
    """A rank ended by itself (`code` 128+signal for a signal). `memory`: the kernel killed it for memory."""

    kind: Literal["rank-exit"]
    epoch: Count
    rank: Count
    code: Code
    memory: bool = False


class LaunchReport(OneReport):
    """The script asked for a launch of `program`. `time`: how long it may run, in srun's words ("": not said)."""

    kind: Literal["launch"]
    ordinal: Count
    size: Positive
    file: Annotated[str, Field(min_length=1, max_length=4096)]
    together: bool = True
    time: Annotated[str, Field(max_length=64)] = ""
    program: Annotated[str, Field(max_length=255)] = ""


class LaunchCancelReport(OneReport):
    """The script ended the shim of a launch that runs."""

    kind: Literal["launch-cancel"]
    ordinal: Count


class LaunchRefusedReport(OneReport):
    """A shim refused a launch that srun or mpirun would have taken. `line` of the script; 0: not known."""

    kind: Literal["launch-refused"]
    run: Count
    name: Name
    line: Count
    reason: Text


class ScriptExitReport(OneReport):
    """The script ended; by `signal`, where it was one."""

    kind: Literal["script-exit"]
    run: Count
    code: Code
    signal: Annotated[int | None, Field(ge=1, le=64)] = None


class LeavingReport(OneReport):
    """The last report of a worker that ends by itself; `exits`: epoch -> rank -> code of what it stopped."""

    kind: Literal["leaving"]
    reason: Text
    exits: dict[str, dict[str, Code]]


class WarnedReport(OneReport):
    """The batch system has warned of the subjob's end: TERM has come, and it is not the end itself."""

    kind: Literal["warned"]
    signal: Annotated[str, Field(max_length=16)]


class SampleReport(OneReport):
    """How the ranks of an epoch are doing: bytes of memory on this node; what they tell of their progress, and when.

    `passed`: the obstacle that was told before is no longer seen.
    """

    kind: Literal["sample"]
    epoch: Count
    resident: Annotated[int, Field(ge=0, le=2**60)]
    done: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] | None
    total: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)] | None
    at_s: Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)] | None
    obstacle: Text = ""
    passed: bool = False


class StuckReport(OneReport):
    """A rank got on before its restart, and has stood still since, for so long."""

    kind: Literal["stuck"]
    epoch: Count
    rank: Count
    seconds: Seconds


class CoordinatorLostReport(OneReport):
    """What coordinates the checkpoints of an epoch's ranks has ended by itself, and they end with it."""

    kind: Literal["coordinator-lost"]
    epoch: Count
    reason: Text


class LogReport(OneReport):
    """Something a person should know."""

    kind: Literal["log"]
    level: Annotated[str, Field(max_length=16)]
    message: Text


Report = Annotated[
    ResultReport
    | RankExitReport
    | LaunchReport
    | LaunchCancelReport
    | LaunchRefusedReport
    | ScriptExitReport
    | LeavingReport
    | WarnedReport
    | SampleReport
    | CoordinatorLostReport
    | StuckReport
    | LogReport,
    Field(discriminator="kind"),
]


class Reports(Wire):
    """Reports in order of `n`; none is a heartbeat."""

    worker: Name
    reports: Annotated[list[Report], Field(max_length=1000)]


class Accepted(Wire):
    """Reports up to this `n` may be forgotten."""

    accepted: Count


class ElasticCall(Wire):
    """What a process of a job asks of it. `to`: places from now on (null: its base). `by`: more, or less.

    A request with a `key` that was seen before is that one.
    """

    call: Literal["show", "resize"]
    to: Annotated[int | None, Field(ge=1, le=10**7)] = None
    by: Annotated[int | None, Field(ge=-(10**7), le=10**7)] = None
    key: Annotated[str, Field(max_length=128)] = ""


class ElasticState(Wire):
    """What the job has now, is to have now, holds throughout, and can have at most (places).

    `settled`: its ranks run on all that it has. `end_s`: the end of its course.
    """

    job: str
    held: Count
    asked: Count
    base: Count
    most: Count
    settled: bool
    end_s: float | None
    nodes: list[str]


class RankPlacement(Wire):
    """One rank of this worker, with its (first) processor's index, and all of them if they are several.

    `variables` tell the rank which one it is.
    """

    rank: Count
    processor: Count
    processors: list[Count] | None = None
    variables: dict[str, str] = {}


class MpiLaunch(Wire):
    """Wire-up of ranks: their variables, the addresses that they come from, and a library that they load first.

    `sure`: the program is seen to be of an MPI; of another one that is not known.
    """

    env: dict[str, str]
    nodes: list[str]
    preload: str | None = None
    sure: bool = True


class DmtcpLaunch(Wire):
    """How ranks run under DMTCP: the library that answers for it where it would not, the plugin (None: not to be
    restarted on several hosts), options of dmtcp_launch."""

    calls: str | None
    plugin: str | None
    compress: bool | Literal["auto"]
    checksum: bool = False
    options: list[str]


class Launcher(Wire):
    """The words before the program by which one process starts all ranks, and variables for it and them.

    Where several workers have the ranks: the name of this one, that of each rank's, and whether another one is on the
    same machine.
    """

    argv: Annotated[list[str], Field(min_length=1)]
    env: dict[str, str]
    host: str = ""
    hosts: list[str] = []
    shares: bool = False


def _known_engine(name: str) -> str:
    if name != "auto" and name in known_engines():
        return name
    raise ValueError(f"there is no engine {name[:40]!r}")


class OwnCpus(Wire):
    """Which of a node's `of` processors a job has, in their order: what its processors 0, 1, ... are bound to."""

    of: Positive
    numbers: Annotated[list[Count], Field(min_length=1)]


class LaunchPayload(Wire):
    """Start ranks, anew or from a checkpoint."""

    epoch: Count
    size: Positive
    engine: Annotated[str, AfterValidator(_known_engine)]
    argv: list[str]
    cwd: str
    launch_file: str
    ranks: list[RankPlacement]
    epoch_dir: str
    restart_dir: str | None
    home: bool = True
    timeout_s: Seconds | None = None
    variables: dict[str, str] = {}
    mpi: MpiLaunch | None = None
    dmtcp: DmtcpLaunch | None = None
    launcher: Launcher | None = None
    profile: dict[str, Any] | None = None
    cpus: OwnCpus | None = None


class CheckpointPayload(Wire):
    """Checkpoint and end the ranks of an epoch."""

    epoch: Count
    timeout_s: Seconds


class StopPayload(Wire):
    """End the ranks of an epoch without a checkpoint."""

    epoch: Count
    grace_s: Seconds


class LeadScript(Wire):
    """The user's script."""

    path: str
    args: list[str]
    cwd: str
    env_file: str
    job_name: str
    restartable: bool
    ended_launches: dict[str, int]
    variables: dict[str, str] = {}


class LeadPayload(Wire):
    """Run the script and collect the output. `append`: go on with output files that are there."""

    run: Count
    output: str
    error: str | None
    script: LeadScript | None
    processors: Positive
    append: bool = False
    tasks: Positive | None = None
    threads: Positive = 1


class ExitPayload(Wire):
    """Leave. `code`: the exit code, where jobs of the batch system may wait for the job's own."""

    code: int = 0


class UnleadPayload(Wire):
    """Hand the lead over. `say`: sentences for the job's standard error."""

    grace_s: Seconds
    say: list[str] = []
    exit: ExitPayload | None = None


class LaunchEndedPayload(Wire):
    """A launch is over; its shim returns `code`, and says these sentences on its standard error."""

    ordinal: Count
    code: Code
    say: list[str] = []


class DrainPayload(Wire):
    """Collect what the epoch's ranks wrote. `moved`: they go on elsewhere, maybe in the middle of a line. `take_back`:
    what those from that epoch on wrote is taken off the job's output again, for their launch begins anew."""

    epoch: Count
    moved: bool = False
    take_back: Count | None = None


class SignalPayload(Wire):
    """Send a signal to the ranks of an epoch; without one, to the script's shell alone."""

    signal: Positive
    epoch: Count | None


class ResizePlace(Wire):
    """Another place for a rank that runs: a processor of its node, or several of which the first is its own."""

    rank: Count
    processor: Count
    processors: list[Count] | None = None


class ResizePayload(Wire):
    """Have ranks of an epoch go on on other processors of their node, without a checkpoint. `lent`: so many more than
    the worker's own are another subjob's of the job, behind its own by number."""

    epoch: Count
    ranks: Annotated[list[ResizePlace], Field(min_length=1)]
    cpus: OwnCpus | None = None
    lent: Count = 0


class _Operation(Wire):
    seq: Count
    epoch: int | None


class LaunchOperation(_Operation):
    kind: Literal["launch"]
    payload: LaunchPayload


class CheckpointOperation(_Operation):
    kind: Literal["checkpoint"]
    payload: CheckpointPayload


class StopOperation(_Operation):
    kind: Literal["stop"]
    payload: StopPayload


class LeadOperation(_Operation):
    kind: Literal["lead"]
    payload: LeadPayload


class UnleadOperation(_Operation):
    kind: Literal["unlead"]
    payload: UnleadPayload


class LaunchEndedOperation(_Operation):
    kind: Literal["launch-ended"]
    payload: LaunchEndedPayload


class DrainOperation(_Operation):
    kind: Literal["drain"]
    payload: DrainPayload


class SignalOperation(_Operation):
    kind: Literal["signal"]
    payload: SignalPayload


class ResizeOperation(_Operation):
    kind: Literal["resize"]
    payload: ResizePayload


class ExitOperation(_Operation):
    kind: Literal["exit"]
    payload: ExitPayload


Operation = Annotated[
    LaunchOperation
    | CheckpointOperation
    | StopOperation
    | LeadOperation
    | UnleadOperation
    | LaunchEndedOperation
    | DrainOperation
    | SignalOperation
    | ResizeOperation
    | ExitOperation,
    Field(discriminator="kind"),
]


class Operations(Wire):
    """What a worker is to do, in order of `seq`."""

    operations: list[Operation]
