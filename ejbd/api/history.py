"""Runs of the past and the laws that they show; what accounting kept is taken in here."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field, model_validator

from ejbd.api.auth import Caller, Manager, Principal
from ejbd.api.models import NAME, PLAIN, Api, Body
from ejbd.errors import Code, EjbError
from ejbd.manager.acts.pastruns import take_in as keep_runs
from ejbd.manager.facts.past import pastruns
from ejbd.manager.facts.past.pastruns import Application
from ejbd.wire.toldruns import ToldRun

MOST_RUNS = 10_000  # that one request brings

router = APIRouter(prefix="/v1/history", tags=["history"])

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=NAME)]
Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]

_COLUMN = Field(max_length=MOST_RUNS, fail_fast=True)


class RunColumns(Body):
    """Finished runs, a column for each of their fields; all as long as `user`."""

    key: Annotated[
        list[Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]],
        _COLUMN,
        Field(min_length=1, description="the same for the same run: it is kept once"),
    ]
    user: Annotated[list[Name], _COLUMN]
    application: Annotated[list[Name], _COLUMN]
    input_class: Annotated[list[Annotated[str, Field(max_length=128, pattern=PLAIN)]], _COLUMN]
    processors: Annotated[list[Annotated[int, Field(ge=1, le=2**31 - 1)]], _COLUMN]
    run_s: Annotated[list[Seconds], _COLUMN]
    requested_s: Annotated[list[Seconds | None], _COLUMN]
    outcome: Annotated[list[Literal["completed", "timeout", "failed", "cancelled"]], _COLUMN]
    end_s: Annotated[list[Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]], _COLUMN]

    @model_validator(mode="after")
    def _even(self) -> RunColumns:
        if len({len(getattr(self, name)) for name in type(self).model_fields}) != 1:
            raise ValueError("the columns are not of one length")
        return self


class Taken(Api):
    """What became of the runs that were sent."""

    new: Annotated[int, Field(description="kept; the others were known before")]


class Known(Api):
    """An application of which runs are known."""

    user: str
    application: str
    processors: int
    input_class: str
    runs: int
    completed: int
    newest_s: float


class KnownPage(Api):
    applications: list[Known]


class KnownFilter(Api):
    """The user that the history is wanted of."""

    user: Annotated[str | None, Field(max_length=256, pattern=NAME, description="for administrators")] = None
    application: Annotated[str | None, Field(max_length=256, pattern=NAME)] = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 200


class LawFilter(Api):
    """Which application's law is wanted, and for which limit."""

    application: Annotated[str, Field(min_length=1, max_length=256, pattern=NAME)]
    processors: Annotated[int, Field(ge=1, le=2**31 - 1)]
    input_class: Annotated[str, Field(max_length=128, pattern=PLAIN)] = ""
    user: Annotated[str | None, Field(max_length=256, pattern=NAME, description="for administrators")] = None
    limit_s: Annotated[float | None, Field(gt=0, le=1e9, allow_inf_nan=False, description="no walltime is longer")] = (
        None
    )


class Seen(Api):
    """A run that the law is made of. `censored`: it would have run longer."""

    run_s: float
    censored: bool
    requested_s: float | None


class LawView(Api):
    """The law of an application's run times, and the walltimes that follow. `law` null: too little is known."""

    user: str
    application: str
    processors: int
    input_class: str
    why: str
    law: Annotated[str | None, Field(description="in the words of `ejb history sequence --law`, as far as it has any")]
    form: str | None
    mean_s: float | None
    distance: Annotated[float | None, Field(description="the greatest between the law and what was seen")]
    criterion: Annotated[dict[str, float], Field(description="Akaike's of every form that was tried")]
    curve: Annotated[list[tuple[float, float]], Field(description="seconds, and the probability to run longer")]
    seen: Annotated[list[Seen], Field(description="the newest first")]
    sequence_s: list[float]
    expected_cost_s: float | None
    finishes: Annotated[list[float], Field(description="that each walltime is enough where those before were not")]


@router.post("")
async def take_in(manager: Manager, caller: Caller, body: RunColumns) -> Taken:
    """Keep finished runs that accounting has. Other users' are for administrators."""
    if not caller.admin and any(user != caller.user for user in body.user):
        raise EjbError(
            Code.FORBIDDEN, "other users' runs are taken in from an administrator only", hint="send your own alone",
            where="body.user",
        )  # fmt: skip
    columns = (getattr(body, name) for name in ToldRun._fields)
    runs = list(map(ToldRun._make, zip(*columns, strict=True)))
    return Taken(new=await manager.store.write(lambda session: keep_runs(session, runs), patient=True))


@router.get("")
async def known(manager: Manager, caller: Caller, query: Annotated[KnownFilter, Query()]) -> KnownPage:
    """The applications of which runs are known, the most often run first."""
    user = _user_meant(caller, query.user)
    found = await manager.store.read(lambda s: pastruns.groups(s, user, query.application, query.limit))
    return KnownPage.model_validate({"applications": found})


@router.get("/law")
async def law(manager: Manager, caller: Caller, query: Annotated[LawFilter, Query()]) -> LawView:
    """The law of an application's run times, and the walltimes that follow from it."""
    user = query.user or caller.user
    if user != caller.user and not caller.admin:
        raise EjbError(Code.FORBIDDEN, "other users' histories are for administrators", where="query.user")
    of = Application(user, query.application, query.processors, query.input_class)
    rows = await manager.store.read(lambda session: pastruns.newest(session, of))
    if not rows:
        raise EjbError(Code.NOT_FOUND, f"no run of {of.name!r} on {of.processors} processors is known", hint=_HINT)
    return await asyncio.to_thread(
        lambda: LawView.model_validate(pastruns.told_of(pastruns.learned(of, rows), query.limit_s))
    )


_HINT = "`ejb history list` shows what is known"


def _user_meant(caller: Principal, user: str | None) -> str | None:
    if caller.admin:
        return user
    if user not in (None, caller.user):
        raise EjbError(Code.FORBIDDEN, "other users' histories are for administrators", where="query.user")
    return caller.user
