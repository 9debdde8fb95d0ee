"""The one tree of errors. The API renders it as problem+json, the CLI as one sentence and an exit code."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Code(StrEnum):
    """What went wrong, as a stable word. Each has one HTTP status and one exit code of `ejb` (docs/errors.md)."""

    INVALID = "invalid"  # the request cannot be right whatever the state of the world
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"  # right in itself, but not in the present state
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    TOO_LARGE = "too-large"
    TOO_MANY = "too-many"  # of this user's, for now: `details.retry_after_s` says when to try again
    KEY_REUSED = "idempotency-key-reused"
    UNSUPPORTED = "unsupported"  # understood, but this job, queue or site cannot do it
    BATCH_UNAVAILABLE = "batch-unavailable"  # the batch system did not answer; no job has failed by that
    BATCH_REFUSED = "batch-refused"  # the batch system answered no
    SPOOL = "spool"  # the spool is full, missing or not writable
    STORE = "store"  # the database did not take it
    UNREACHABLE = "unreachable"  # no daemon answers (CLI only)
    INTERNAL = "internal"


HTTP_STATUS: dict[Code, int] = {
    Code.INVALID: 422,
    Code.NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.UNAUTHENTICATED: 401,
    Code.FORBIDDEN: 403,
    Code.TOO_LARGE: 413,
    Code.TOO_MANY: 429,
    Code.KEY_REUSED: 422,
    Code.UNSUPPORTED: 422,
    Code.BATCH_UNAVAILABLE: 503,
    Code.BATCH_REFUSED: 502,
    Code.SPOOL: 507,
    Code.STORE: 503,
    Code.UNREACHABLE: 503,
    Code.INTERNAL: 500,
}

EXIT_CODE: dict[Code, int] = {
    Code.INVALID: 2,
    Code.KEY_REUSED: 2,
    Code.TOO_LARGE: 2,
    Code.NOT_FOUND: 3,
    Code.CONFLICT: 4,
    Code.TOO_MANY: 4,
    Code.UNAUTHENTICATED: 5,
    Code.FORBIDDEN: 5,
    Code.UNSUPPORTED: 6,
    Code.BATCH_UNAVAILABLE: 7,
    Code.BATCH_REFUSED: 7,
    Code.SPOOL: 8,
    Code.STORE: 8,
    Code.UNREACHABLE: 9,
    Code.INTERNAL: 70,
}


class EjbError(Exception):
    """One clear sentence: what is wrong, where, and (`hint`) how to mend it.

    `transient` says whether the very same request may succeed later.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        hint: str = "",
        transient: bool = False,
        where: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.transient = transient
        self.where = where
        self.details = details or {}

    def sentence(self) -> str:
        """The message with its place and its remedy, as a person reads it."""
        place = f"{self.where}: " if self.where else ""
        remedy = f" ({self.hint})" if self.hint else ""
        return f"{place}{self.message}{remedy}"

    def named(self) -> str:
        """The sentence with its code behind it, which is an anchor of docs/troubleshooting.md."""
        return f"{self.sentence()} [{self.code.value}]"


class BatchError(EjbError):
    """The batch system refused, or did not answer. `stderr` keeps its own words.

    `own_fault`: what passes is up to what this one job asks for, such as a reservation, and says nothing of others.
    `of_account`: it is a limit of its user's, in its account and QOS, which says nothing of others.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool,
        stderr: str = "",
        hint: str = "",
        own_fault: bool = False,
        of_account: bool = False,
    ) -> None:
        code = Code.BATCH_UNAVAILABLE if transient else Code.BATCH_REFUSED
        super().__init__(code, message, hint=hint, transient=transient, details={"stderr": stderr} if stderr else {})
        self.stderr = stderr
        self.own_fault = own_fault or not transient
        self.of_account = of_account


class SubmitOutcomeUnknown(BatchError):
    """A submission that may or may not have been taken (time-out, lost connection): look its tag up first."""

    def __init__(self, message: str, *, stderr: str = "") -> None:
        super().__init__(message, transient=True, stderr=stderr)
