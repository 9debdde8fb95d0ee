"""What a user hands in, read into one value: #SBATCH and #EJB lines, command-line overrides, or a bare command."""

from ejbd.manager.jobspec.build import Reading, build_spec, parse_script, read
from ejbd.manager.jobspec.request import JobRequest, Overrides
from ejbd.manager.jobspec.spec import JobKind, JobSpec

__all__ = [
    "JobKind",
    "JobRequest",
    "JobSpec",
    "Overrides",
    "Reading",
    "build_spec",
    "parse_script",
    "read",
]
