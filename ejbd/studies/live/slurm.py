"""A log's jobs on a real Slurm, by sbatch and srun."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path

from ejbd.core.walltime import format_walltime
from ejbd.errors import Code, EjbError
from ejbd.studies.live.batch import BatchRuns, without
from ejbd.studies.live.program import Program


class SlurmRuns(BatchRuns):
    """By the configuration `conf`, or that of the environment."""

    name = "Slurm"
    quantum_s = 60.0  # time limits are whole minutes
    starts_by = "srun"
    silent = ("Unable to contact slurm controller", "Could not establish a configuration source")
    where = "SLURM_CONF or --cluster says where Slurm is"

    def __init__(self, folder: Path, conf: Path | None = None, program: Program | None = None) -> None:
        environment = without("SBATCH")
        if conf is not None:
            environment["SLURM_CONF"] = str(conf)
        super().__init__(folder, environment, program)
        named = environment.get("SLURM_CONF")
        if named and not Path(named).is_file():  # Slurm's own commands would look for it for a minute
            raise EjbError(Code.BATCH_UNAVAILABLE, f"there is no Slurm: {named} is not there", hint=self.where)

    def processors(self) -> int:
        """All processors of the default partition."""
        rows = [line.split() for line in self._run("sinfo", "--noheader", "--format=%P %C").splitlines()]
        sizes = {name: int(counts.split("/")[-1]) for name, counts in rows}
        default = next((name for name in sizes if name.endswith("*")), None)
        if default is None:
            raise EjbError(Code.INVALID, "Slurm has no default partition to play the log on")
        return sizes[default]

    def node_processors(self) -> int:
        """Of the smallest node of all partitions: Slurm's reservations are of whole nodes."""
        return min(int(word.rstrip("+")) for word in self._run("sinfo", "--noheader", "--format=%c").split())

    def _submit(self, name: str, processors: int, walltime_s: float, script: str) -> str:
        words = ["--parsable", "--no-requeue", "--output=/dev/null", f"--job-name={name}"]
        words += [f"--ntasks={processors}", f"--time={format_walltime(walltime_s)}"]
        return self._run("sbatch", *words, stdin=script).strip().split(";")[0]

    def _listed(self) -> Collection[str]:
        return self._run("squeue", "--noheader", "--format=%i").split()

    def _cancel(self, ids: Collection[str]) -> None:
        self._run("scancel", *ids)

    def _step(self, number: int, processors: int, command: str, meet: Path) -> str:
        return f"EJB_RENDEZVOUS={shlex.quote(str(meet))} srun --kill-on-bad-exit=1 --input=none {command}"
