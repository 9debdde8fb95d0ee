"""What Slurm's commands say when they fail, and what it means: try later, never, or not known."""

from __future__ import annotations

import re

from ejbd.batch.process import CommandResult
from ejbd.errors import BatchError, SubmitOutcomeUnknown

# The request has left, and no answer came back: it may have been carried out.
_LOST = re.compile(
    r"socket timed out|zero bytes were transmitted|send/recv operation|message receive failure|message send failure"
    r"|connection reset|broken pipe|unexpected message received",
    re.IGNORECASE,
)
# Not carried out, for a reason that passes.
_TRANSIENT = re.compile(
    r"unable to contact slurm controller|connection refused|temporarily unable|controller not responding"
    r"|in standby mode|unable to establish|resource temporarily unavailable|protocol authentication error"
    r"|munge|accounting.*(unavailable|not responding)|try again|too many open files|rate limit"
    r"|queue size limit|required partition not available|reservation is not usable",
    re.IGNORECASE,
)
# A limit on jobs in the queue (of the user, account or QoS), below which one comes by itself. sbatch prints its name
# (AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit, MaxSubmitJobsPerAccount) before the sentence that speaks of all
# limits at once.
_FULL = re.compile(r"\b((Assoc|QOS)\w*Submit\w*Limit|MaxSubmitJobsPerAccount)\b")
# squeue leaves such a column out, and ends with 0.
_COLUMN = re.compile(
    r"invalid job format specification: *(\S+)|invalid field requested: *\"?(\w+)|unknown field '(\w+)'", re.IGNORECASE
)
_NODES = re.compile(r"requested node configuration is not available|nodes required for job", re.IGNORECASE)
_OWN_FAULT = re.compile(r"reservation is not usable", re.IGNORECASE)
_MEANINGS = (
    (_FULL.pattern, "a limit on jobs in the queue is reached"),
    (r"unable to contact slurm controller|connection refused|not responding", "Slurm's controller does not answer"),
    (r"temporarily unable|queue size limit", "Slurm takes no more jobs for now"),
    (r"invalid partition|invalid partition name", "there is no such partition"),
    (r"invalid account", "the account is not allowed or not known"),
    (r"invalid qos", "the QoS is not allowed or not known"),
    (r"requested time limit is invalid", "the walltime is longer than the partition allows"),
    (r"more processors requested|node count specification|requested node configuration|nodes required for job",
     "the partition does not have that many processors or nodes of that kind"),
    (r"job violates accounting/qos policy|maximum number", "a limit of the account or QoS is reached"),
    (r"access/permission denied|user's group not permitted", "this user may not use it"),
    (r"invalid job id", "there is no such job"),
    (r"job has already finished|already completing", "the job has ended"),
    (r"munge|authentication", "munge does not vouch for this user"),
)  # fmt: skip
_BENIGN_CANCEL = re.compile(r"invalid job id|already completing|already finished|already completed", re.IGNORECASE)


_OWN_NAME = re.compile(r"^(\w+: )?((error|fatal): |allocation failure: )?(Batch job submission failed: )?")
_SAYS_NOTHING = "Unspecified error"  # of Slurm, where a site's plugin has said why
_LONGEST = 1000


def own_words(stderr: str) -> str:
    """Slurm's own sentences, without the command's name in front. A site's plugin (job_submit) says its own before."""
    said = dict.fromkeys(_OWN_NAME.sub("", line.strip()) for line in stderr.splitlines())
    words = [one for one in said if one]
    if len(words) > 1 and words[-1] == _SAYS_NOTHING:
        words.pop()
    return "; ".join(words)[:_LONGEST]


def without_nodes(result: CommandResult) -> bool:
    """Whether the nodes are what is missing. `sbatch --test-only` says so of nodes that are only drained or down, too,
    for which `sbatch` itself has a job wait."""
    return bool(_NODES.search(result.stderr))


def unknown_column(result: CommandResult) -> str:
    """The column of a listing that this Slurm does not know, "" where it knows all of them."""
    found = _COLUMN.search(result.stderr)
    return next(filter(None, found.groups()), "") if found else ""


def refusal(result: CommandResult, doing: str) -> BatchError:
    """The error for a command that failed; `doing` completes the sentence "Slurm did not …"."""
    words = own_words(result.stderr) or f"{result.name} ended with code {result.code}"
    if column := unknown_column(result):
        sentence = f"Slurm did not {doing}: its {result.name} does not know the column {column} ({words})"
        return BatchError(sentence, transient=False, stderr=result.stderr.strip())
    meaning = next((text for pattern, text in _MEANINGS if re.search(pattern, result.stderr, re.IGNORECASE)), "")
    passes = _TRANSIENT.search(result.stderr) or _LOST.search(result.stderr) or _FULL.search(result.stderr)
    transient = bool(passes) or result.code < 0
    sentence = f"Slurm did not {doing}: {meaning} ({words})" if meaning else f"Slurm did not {doing}: {words}"
    own_fault = bool(_OWN_FAULT.search(result.stderr))
    of_account = bool(_FULL.search(result.stderr))
    return BatchError(
        sentence, transient=transient, stderr=result.stderr.strip(), own_fault=own_fault, of_account=of_account
    )


def submit_refusal(result: CommandResult) -> BatchError:
    """As :func:`refusal`; SubmitOutcomeUnknown where the answer, and not surely the request, was lost."""
    if result.code < 0 or _LOST.search(result.stderr):
        words = own_words(result.stderr) or f"{result.name} was ended by signal {-result.code}"
        return SubmitOutcomeUnknown(f"Slurm may have taken the job or not: {words}", stderr=result.stderr.strip())
    return refusal(result, "take the job")


def cancel_refusal(result: CommandResult) -> BatchError | None:
    """None where every complaint is about a job that has ended or is not known."""
    complaints = [line for line in result.stderr.splitlines() if line.strip()]
    if result.code == 0 or (complaints and all(_BENIGN_CANCEL.search(line) for line in complaints)):
        return None
    return refusal(result, "cancel the jobs")
