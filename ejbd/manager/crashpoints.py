"""Places at which a crash of the daemon must lose and double nothing; the crash matrix kills it at each of them.

A crash point stands on each side of every commit that has a partner outside the database (the batch system, a worker).
Setting EJBD_CRASH_AT=<name>[:n] makes the daemon kill itself with SIGKILL when it comes there for the n-th time.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum


class CrashPoint(StrEnum):
    SUBMIT_BEFORE_BEGIN = "submit.before-begin"  # the intent is stored, nothing else has happened
    SUBMIT_AFTER_BEGIN = "submit.after-begin"  # marked as executing, the batch system not yet called
    SUBMIT_AFTER_CALL = "submit.after-call"  # the batch system has it, we have not written its id
    SUBMIT_AFTER_RECORD = "submit.after-record"
    CANCEL_BEFORE_BEGIN = "cancel.before-begin"
    CANCEL_AFTER_BEGIN = "cancel.after-begin"
    CANCEL_AFTER_CALL = "cancel.after-call"
    CANCEL_AFTER_RECORD = "cancel.after-record"
    TICK_BEFORE_COMMIT = "tick.before-commit"  # observed and decided, nothing stored
    TICK_AFTER_COMMIT = "tick.after-commit"  # decisions and intents stored, nothing carried out
    STANDBY_BEFORE_COMMIT = "standby.before-commit"  # a start was seen and the next run planned, nothing stored
    STAY_AFTER_CALL = "stay.after-call"  # what waits is kept from beginning, its attempt in a gap not yet planned
    BEGIN_BEFORE_CALL = "begin.before-call"  # what stood by was adopted, the batch system not yet told
    BEGIN_AFTER_CALL = "begin.after-call"  # it may begin, we have not written that
    END_AFTER_ASKING = "end.after-asking"  # it is known whether others wait for J0, and nothing has happened
    END_AFTER_CALL = "end.after-call"  # J0 ends as its job did, we have not written that
    ASIDE_AFTER_CALL = "aside.after-call"  # J0 is back in the queue, we have not written that
    AGAIN_BEFORE_COMMIT = "again.before-commit"  # a time-out was seen and the next walltime chosen, nothing stored
    ALONE_BEFORE_COMMIT = "alone.before-commit"  # a job that began by itself was found, nothing stored
    WORKFLOW_AFTER_COMMIT = "workflow.after-commit"  # a plan is durable, its user has no answer
    STAGE_BEFORE_COMMIT = "stage.before-commit"  # an end was seen and files looked at, nothing stored
    STAGE_AFTER_COMMIT = "stage.after-commit"  # what begins is stored, no job made for it
    STAGE_AFTER_JOB = "stage.after-job"  # its job is there, we have not written its id
    OPERATION_AFTER_LEASE = "operation.after-lease"  # handed out, the worker has not got it
    RESIZE_AFTER_LEASE = "resize.after-lease"  # ranks are to go on on other processors, and no worker has answered
    REPORT_BEFORE_COMMIT = "report.before-commit"  # the worker did it, we have not stored its answer
    REPORT_AFTER_COMMIT = "report.after-commit"  # stored, the worker does not know that we know
    JOB_AFTER_COMMIT = "job.after-commit"  # a submission is durable, its user has no answer


_counts: dict[str, int] = {}


def reach(point: CrashPoint) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get("EJBD_CRASH_AT")
    if not wanted:
        return
    name, _, nth = wanted.partition(":")
    if name != point.value:
        return
    _counts[name] = _counts.get(name, 0) + 1
    if _counts[name] == int(nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)
