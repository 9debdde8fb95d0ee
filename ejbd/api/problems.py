"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from ejbd.api.sentences import place_and_sentence
from ejbd.errors import HTTP_STATUS, Code, EjbError

MEDIA_TYPE = "application/problem+json"
_MOST_TOLD = 20  # faults of a request
_TITLES = {
    Code.INVALID: "The request cannot be right",
    Code.NOT_FOUND: "There is no such thing",
    Code.CONFLICT: "Not in the present state",
    Code.UNAUTHENTICATED: "Which user is this?",
    Code.FORBIDDEN: "Not yours to do",
    Code.TOO_LARGE: "Too large",
    Code.TOO_MANY: "More than one user may have at a time",
    Code.KEY_REUSED: "The Idempotency-Key was used for another request",
    Code.UNSUPPORTED: "Understood, but it cannot be done here",
    Code.BATCH_UNAVAILABLE: "The batch system does not answer",
    Code.BATCH_REFUSED: "The batch system answered no",
    Code.SPOOL: "The spool does not take it",
    Code.STORE: "The database does not take it",
    Code.UNREACHABLE: "No daemon answers",
    Code.INTERNAL: "A fault of EJB",
}
_BY_STATUS = {
    400: Code.INVALID,
    401: Code.UNAUTHENTICATED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    405: Code.INVALID,
    413: Code.TOO_LARGE,
    429: Code.TOO_MANY,
}


class Problem(BaseModel):
    """An error (RFC 9457). `detail` is one sentence, `hint` says how to mend it."""

    model_config = ConfigDict(extra="forbid")

    type: Annotated[str, Field(description="urn:ejb:error:<code>")]
    title: str
    status: int
    detail: str
    code: Code
    hint: str
    where: Annotated[str, Field(description="the line, option or field that is meant; may be empty")]
    transient: Annotated[bool, Field(description="whether the same request may succeed later")]
    details: dict[str, Any]


class UnhealthyProblem(Problem):
    """Why the daemon cannot do its work, together with the fields of health."""

    model_config = ConfigDict(extra="allow")

    ok: Annotated[bool, Field(description="false")]


def problem(
    error: EjbError,
    status: int | None = None,
    headers: dict[str, str] | None = None,
    also: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """The response that reports this error, with further members in it (RFC 9457, 3.2)."""
    status = status or HTTP_STATUS[error.code]
    body = Problem(
        type=f"urn:ejb:error:{error.code.value}",
        title=_TITLES[error.code],
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        where=error.where,
        transient=error.transient,
        details=error.details,
    )
    headers = dict(headers or {})
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    if "retry_after_s" in error.details:
        headers.setdefault("Retry-After", str(error.details["retry_after_s"]))
    return JSONResponse({**(also or {}), **body.model_dump(mode="json")}, status, headers, MEDIA_TYPE)


def internal() -> JSONResponse:
    """What a client gets to see of a bug: nothing but that it was one."""
    hint = "the daemon's log says more; please report it"
    return problem(EjbError(Code.INTERNAL, "the daemon failed to answer this request", hint=hint))


def install(app: FastAPI) -> None:
    """Have every error that a handler or the framework raises answered as a problem document."""

    @app.exception_handler(EjbError)
    async def of_ejb(request: Request, error: EjbError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def of_validation(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem(_from_validation(error))

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        code = _BY_STATUS.get(error.status_code, Code.INVALID if error.status_code < 500 else Code.INTERNAL)
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is nothing at {request.url.path!a}"
        elif error.status_code == 405:
            message = f"{request.method} is not possible at {request.url.path!a}"
        headers = dict(error.headers or {})
        address = request.app.state.declared.at(request.url.path) if error.status_code == 405 else None
        if address is not None:
            headers["Allow"] = ", ".join(address.methods)
            hint = f"there are: {headers['Allow']}"
            return problem(EjbError(code, message, hint=hint), error.status_code, headers)
        return problem(EjbError(code, message), error.status_code, headers)


def _from_validation(error: RequestValidationError) -> EjbError:
    found = []
    for one in error.errors()[:_MOST_TOLD]:
        place, message = place_and_sentence(one)
        found.append({"where": _shown(place), "message": _shown(message)})
    first = found[0] if found else {"where": "", "message": "the request cannot be read"}
    details = {"errors": found}
    return EjbError(Code.INVALID, first["message"], where=first["where"], details=details)


def _shown(text: str) -> str:
    """Names of fields come from the client and may hold anything."""
    return text.encode("ascii", "backslashreplace").decode()[:200]
