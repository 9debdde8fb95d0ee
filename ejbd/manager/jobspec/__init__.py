"""What a user hands in, read into one value: #SBATCH and #EJB lines, command-line overrides, or a bare command."""

from ejbd.manager.jobspec.build import NO_WALLTIME, Reading, build_spec, parse_script, read
from ejbd.manager.jobspec.export import exported
from ejbd.manager.jobspec.request import JobRequest, Overrides
from ejbd.manager.jobspec.spec import Asked, JobKind, JobSpec

__all__ = [
    "NO_WALLTIME",
    "Asked",
    "JobKind",
    "JobRequest",
    "JobSpec",
    "Overrides",
    "Reading",
    "build_spec",
    "exported",
    "parse_script",
    "read",
]
