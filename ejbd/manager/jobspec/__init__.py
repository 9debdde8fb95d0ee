"""What a user hands in, read into one value: #SBATCH and #EJB lines, command-line overrides, or a bare command."""

from ejbd.manager.jobspec.spec import JobKind, JobSpec

__all__ = ["JobKind", "JobSpec"]
