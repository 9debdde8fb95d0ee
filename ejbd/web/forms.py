"""What a form of the page sends, once it is known to be the page's own."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from ejbd.api.access.cookies import cookie_of, is_form_mark
from ejbd.api.auth import Caller
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Proof

MARK = "mark"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 20


async def form_of(request: Request, caller: Caller) -> dict[str, str]:
    """The fields of a form. Raises EjbError (FORBIDDEN) for one that this page did not make for this browser."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM or caller.proof is not Proof.PAGE:
        hint = "scripts use /v1 and a token: `ejb token create`"
        raise EjbError(Code.FORBIDDEN, "this address takes the page's own forms alone", hint=hint)
    try:
        text = (await request.body()).decode("ascii")
        fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise EjbError(Code.INVALID, "the form cannot be read", where="body") from None
    if not is_form_mark(cookie_of(request), fields.pop(MARK, "")):
        hint = "load the page anew, and send it again"
        raise EjbError(Code.FORBIDDEN, "this form was not made for this browser", hint=hint)
    return fields


Form = Annotated[dict[str, str], Depends(form_of)]
