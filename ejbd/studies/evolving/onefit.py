"""`ejb sim fit`: one profile, fitted into what an occupation leaves of a cluster; words in, plain values out."""

from __future__ import annotations

import math
from typing import Any

from ejbd.core.evolving.profiles import Profile, Step, parse_seconds_first, plain
from ejbd.core.evolving.space import FreeSpace
from ejbd.errors import Code, EjbError


def fit_words(nodes: int, resource: str, profile: str, limit: str, *, compact: bool) -> dict[str, Any]:
    """Start, end and held profile (pairs of seconds and nodes). Raises EjbError with one sentence."""
    occupation = _steps(resource, "--resource", empty=True)
    request = Profile(_steps(profile, "--profile", empty=False))
    try:
        space = FreeSpace.beside(occupation, nodes)
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where="--resource", hint="or give the cluster more --nodes") from None
    if request.peak > nodes:
        what = f"the profile needs {request.peak} nodes, and there are {nodes}"
        raise EjbError(Code.INVALID, what, where="--profile", hint="or give the cluster more --nodes")
    fitted = space.fit(request, limit=limit_of(limit), compact=compact)
    assert fitted is not None  # the occupation ends, and the profile is no wider than the cluster
    return {
        "start": plain(fitted.start_s),
        "end": plain(fitted.completion_s),
        "profile": fitted.held.to_json(),
        "starts": [plain(start) for start in fitted.starts_s],
        "waste": fitted.held.area / request.area - 1,
    }


def limit_of(text: str) -> float:
    """How many times its duration a step may be held, by its words: 1, 2, 1.5, inf. Raises EjbError."""
    try:
        value = float(text.lower().removesuffix("x"))
    except ValueError:
        value = math.nan
    if not value >= 1:
        what = f"{text!r} is no limit: how many times its duration a step may be held"
        raise EjbError(Code.INVALID, what, where="--limit", hint="1 (never), 2, or inf")
    return value


def _steps(text: str, where: str, *, empty: bool) -> tuple[Step, ...]:
    try:
        return parse_seconds_first(text, empty=empty)
    except ValueError as error:
        raise EjbError(Code.INVALID, str(error), where=where) from None
