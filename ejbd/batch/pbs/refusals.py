"""What PBS's commands say when they fail, and what it means: try later, never, or not known.

Exit codes are the low byte of an error number that differs between the dialects, and some commands have codes of their
own. The words count, and a code only where there are none. 153 (unknown job) and 159 (not permitted) are the same in
both.
"""

from __future__ import annotations

import re

from ejbd.batch.process import CommandResult
from ejbd.errors import BatchError, SubmitOutcomeUnknown

UNKNOWN_JOB, NOT_PERMITTED = 153, 159

# The request has left, and no answer came back: it may have been carried out.
_LOST = re.compile(
    r"end of file|premature end|timed? ?out|connection reset|broken pipe|protocol error|errno=15031|"
    r"communication failure|lost connection",
    re.IGNORECASE,
)
# Not carried out, for a reason that passes.
# A limit on one user's jobs, or a group's or project's, and no others'.
_OF_USER = re.compile(r"limit on .*(user|group|project)|per-user|per-group|by user", re.IGNORECASE)
_TRANSIENT = re.compile(
    r"connection refused|cannot connect to|couldn't connect|unable to communicate|no route to host|"
    r"server is not running|server shutting down|server may not be running|cannot send request|"
    r"system error|internal (server )?error|resource temporarily|try again|server too busy|too busy|"
    r"maximum number of jobs already|would exceed .*limit|cannot resolve|can not resolve|not enabled|"
    r"no default queue|queue is not enabled|munge|authorization (could not|failed)|trqauthd|pbs_iff",
    re.IGNORECASE,
)
_MEANINGS = (
    (r"connection refused|cannot connect|couldn't connect|unable to communicate|server may not be running",
     "the server does not answer"),
    (r"unknown queue", "there is no such queue"),
    (r"unknown resource", "the site has no such resource"),
    (r"illegal attribute or resource value", "a value is none that it takes"),
    (r"exceeds queue .*limits?|cannot locate feasible nodes|exceed(s)? .*resource",
     "the queue does not have that many processors or nodes of that kind, or no such walltime"),
    (r"queue is not enabled|not enabled", "the queue takes no jobs now"),
    (r"unknown job id|nonexistent job", "there is no such job"),
    (r"job has finished|already finished", "the job has ended"),
    (r"invalid for state", "the job is in another state"),
    (r"cannot modify attribute while job running", "that cannot be changed while the job runs"),
    (r"unauthorized request|permission|not permitted", "this user may not do that"),
    (r"bad (u|g)id", "this user, or their group, is not known there"),
    (r"invalid (job )?dependency", "it depends on a job that is not there"),
    (r"illegal -|usage: qsub", "the submission has an option that qsub does not take"),
)  # fmt: skip
_GONE = re.compile(
    r"unknown job id|nonexistent job|job has finished|already finished|request invalid for state|"
    r"invalid for state of job",
    re.IGNORECASE,
)
_USAGE = re.compile(r"^\[?(qsub|qalter|qdel|qhold|qrls|qstat): ?(.*?)\]?$")


def own_words(stderr: str) -> str:
    """PBS's own sentence: the line with the command's name in front, without it; of several the last, no usage."""
    lines = [line.strip() for line in stderr.partition("usage:")[0].splitlines() if line.strip()]
    named = [line for line in lines if _USAGE.match(line)]
    if not lines:
        return ""
    match = _USAGE.match(named[-1]) if named else None
    return (match[2] if match else lines[-1])[:300]


def refusal(result: CommandResult, doing: str) -> BatchError:
    """The error for a command that failed; `doing` completes the sentence "PBS did not …"."""
    words = own_words(result.stderr) or f"{result.name} ended with code {result.code}"
    meaning = next((text for pattern, text in _MEANINGS if re.search(pattern, result.stderr, re.IGNORECASE)), "")
    if not meaning:
        meaning = {UNKNOWN_JOB: "there is no such job", NOT_PERMITTED: "this user may not do that"}.get(result.code, "")
    transient = bool(_TRANSIENT.search(result.stderr) or _LOST.search(result.stderr)) or result.code < 0
    sentence = f"PBS did not {doing}: {meaning} ({words})" if meaning else f"PBS did not {doing}: {words}"
    of_account = transient and bool(_OF_USER.search(result.stderr))
    return BatchError(sentence, transient=transient, stderr=result.stderr.strip(), of_account=of_account)


def submit_refusal(result: CommandResult) -> BatchError:
    """As :func:`refusal`; SubmitOutcomeUnknown where the answer, and not surely the request, was lost."""
    connects = re.search(r"connection refused|cannot connect|couldn't connect", result.stderr, re.IGNORECASE)
    if result.code < 0 or (_LOST.search(result.stderr) and not connects):
        words = own_words(result.stderr) or f"{result.name} was ended by signal {-result.code}"
        return SubmitOutcomeUnknown(f"PBS may have taken the job or not: {words}", stderr=result.stderr.strip())
    return refusal(result, "take the job")


def unknown_job(result: CommandResult) -> bool:
    """Whether all that a command complains of is jobs that it does not know, or that have ended."""
    complaints = [line for line in result.stderr.splitlines() if line.strip()]
    if complaints:
        return all(_GONE.search(line) for line in complaints)
    return result.code in (UNKNOWN_JOB, 35)


def cancel_refusal(result: CommandResult) -> BatchError | None:
    """None where every complaint is about a job that has ended or is not known."""
    if result.code == 0 or unknown_job(result):
        return None
    return refusal(result, "cancel the jobs")


_OPENPBS = re.compile(r"^\s*pbs_version\s*=\s*(\S+)", re.MULTILINE)
_TORQUE = re.compile(r"^\s*version:\s*(\S+)", re.MULTILINE | re.IGNORECASE)


def version(text: str) -> tuple[str, str] | None:
    """Dialect and version of `qstat --version`; None for what is neither OpenPBS's nor Torque's."""
    if found := _OPENPBS.search(text):
        return "openpbs", found[1]
    if found := _TORQUE.search(text):
        return "torque", found[1]
    return None


# Debian's slurm-wlm-torque is Perl: it knows no --version, and without its Slurm says nothing else.
_WRAPPER = re.compile(r"^Unknown option: version$|^perl: (error|fatal): ", re.MULTILINE)


def wraps_slurm(text: str) -> bool:
    """Whether this is what Slurm's wrappers, which have the names of PBS's commands, say to `qstat --version`."""
    return bool(_WRAPPER.search(text))
