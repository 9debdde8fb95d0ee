"""The job as the manager needs it, whatever form the user gave it in."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any


class JobKind(StrEnum):
    """COMMAND: one launch of `argv`. SCRIPT: a shell script whose srun/mpirun/mpiexec lines are the launches."""

    COMMAND = "command"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as its user described it.

    `processes` ranks for at most `walltime_s` seconds at full width (P and R of the paper). `output` and `error` are
    absolute path patterns with sbatch's `%` signs still in them (`error` None: into `output`). `elastic` None: as the
    queue says. `engine` is `auto`, `application`, `dmtcp` or `none`; `mpi` `auto`, `none`, `openmpi`,
    `mpich` or the name of a profile. `options` are sbatch options that concern every subjob
    (account, QoS, ...); `rigid_options` are those that only a passed-through job can keep. `omax`, `lambda_s`, `delta`
    override the queue's, and so does `checkpoint` (`off`, `auto` or seconds between periodic ones).
    """

    name: str
    kind: JobKind
    argv: tuple[str, ...]
    processes: int
    walltime_s: float
    cwd: str
    output: str
    queue: str | None = None
    error: str | None = None
    script: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    nodes: int | None = None
    processors_per_node: int | None = None
    engine: str = "auto"
    mpi: str = "auto"
    restartable: bool = False
    elastic: bool | None = None
    options: tuple[str, ...] = ()
    rigid_options: tuple[str, ...] = ()
    hold: bool = False
    omax: int | None = None
    lambda_s: float | None = None
    delta: float | None = None
    checkpoint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; :meth:`from_json` is its inverse."""
        # Not asdict(), which copies every variable of the environment by way of its own recursion.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobSpec:
        values = dict(data)
        values["kind"] = JobKind(values["kind"])
        for key in ("argv", "options", "rigid_options"):
            values[key] = tuple(values[key])
        return cls(**values)
