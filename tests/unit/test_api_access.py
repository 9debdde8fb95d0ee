"""Which user may do what: roles by name and by group, scopes of tokens, and one table that every address stands in."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from ejbd.api.access import roles
from ejbd.api.access.needs import needed
from ejbd.api.access.roles import Entry, Roles, entry_of, groups_of
from ejbd.api.app import create_app
from ejbd.api.auth import digest
from ejbd.config import Settings
from ejbd.store.models import Token
from ejbd.wire.rights import Proof, Role, Scope
from tests.fakes.api_server import ApiServer

JOB = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}
ME = pwd.getpwuid(os.geteuid()).pw_name

# Every address beside those of workers, and the least scope that opens it. A new one is added here by hand.
READ = {
    *("GET /metrics", "GET /v1/health", "GET /v1/version", "GET /v1/jobs", "POST /v1/jobs/plan", "GET /v1/jobs/{job}"),
    *(f"GET /v1/jobs/{{job}}/{what}" for what in ("explain", "events", "events/stream", "logs", "moves", "timeline")),
    *("GET /v1/events", "GET /v1/events/stream", "GET /v1/history", "GET /v1/history/law", "GET /v1/windows"),
    *("GET /v1/workflows", "GET /v1/workflows/{workflow}", "GET /v1/workflows/{workflow}/report"),
    *("POST /v1/workflows/check", "GET /v1/queues", "GET /v1/queues/{name}", "GET /v1/drains", "GET /v1/tokens"),
    *("GET /v1/tokens/session", "GET /v1/cluster", "GET /v1/savings", "GET /v1/pools", "GET /v1/pools/{name}"),
}
SUBMIT = {
    *(
        f"POST /v1/jobs/{{job}}/{what}"
        for what in ("cancel", "hold", "release", "signal", "number", "number/read", "evolve", "resize")
    ),
    *("POST /v1/workflows", "POST /v1/workflows/{workflow}/cancel", "POST /v1/workflows/{workflow}/retry"),
    *("POST /v1/jobs", "POST /v1/history", "POST /v1/tokens", "DELETE /v1/tokens/{id}", "POST /v1/web"),
    *("POST /v1/pools", "DELETE /v1/pools/{name}"),
}
OPERATE = {
    "PATCH /v1/queues/{name}",
    "POST /v1/queues/{name}/resume",
    "PUT /v1/queues/{name}/calendar",
    "DELETE /v1/queues/{name}/calendar",
    "POST /v1/drains",
    "POST /v1/drains/cancel",
}
ADMIN = {"POST /v1/doctor", "GET /v1/audit"}


def test_every_address_is_open_to_just_those_that_it_should_be_open_to() -> None:
    document = create_app(cast(Any, SimpleNamespace(settings=Settings()))).openapi()
    found: dict[Scope, set[str]] = {scope: set() for scope in Scope}
    for path, methods in document["paths"].items():
        for method in methods:
            if not path.startswith("/v1/worker/"):
                filled = path.replace("{job}", "last").replace("{name}", "main").replace("{id}", "0" * 16)
                found[needed(method.upper(), filled)].add(f"{method.upper()} {path}")
    assert found == {Scope.READ: READ, Scope.SUBMIT: SUBMIT, Scope.OPERATE: OPERATE, Scope.ADMIN: ADMIN}


@pytest.mark.parametrize(("wide", "narrow"), [(a, b) for n, a in enumerate(Scope) for b in list(Scope)[: n + 1]])
def test_a_scope_covers_those_before_it(wide: Scope, narrow: Scope) -> None:
    assert wide.covers(narrow) and (wide is narrow or not narrow.covers(wide))
    assert wide.within(narrow) is narrow.within(wide) is narrow


def test_the_word_of_earlier_tokens_is_understood() -> None:
    assert Scope("jobs") is Scope.SUBMIT
    with pytest.raises(ValueError, match="everything"):
        Scope("everything")


async def test_roles_go_by_name_and_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"cyd": {"hpc-ops"}, "dan": {"hpc-ops", "hpc-admins"}, "eve": {"hpc-op"}}
    asked: list[str] = []

    def told(user: str) -> Entry:
        asked.append(user)
        return Entry(True, frozenset(groups.get(user, ())))

    monkeypatch.setattr(roles, "entry_of", told)
    found = Roles(Settings(admins=["ann", "%hpc-admins"], operators=["ann", "bob", "%hpc-ops"]))
    wanted = {ME: Role.ADMIN, "root": Role.ADMIN, "ann": Role.ADMIN, "bob": Role.OPERATOR, "cyd": Role.OPERATOR}
    wanted |= {"dan": Role.ADMIN, "eve": Role.USER, "%hpc-ops": Role.USER}
    assert {user: await found.of(user) for user in wanted} == wanted
    groups["cyd"] = set()
    assert await found.of("cyd") is Role.OPERATOR and asked.count("cyd") == 1  # known for a while
    monkeypatch.setattr(roles, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + roles.KNOWN_S + 1))
    assert await found.of("cyd") is Role.USER


async def test_without_a_group_in_the_settings_no_directory_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "entry_of", lambda user: pytest.fail("asked"))
    assert await Roles(Settings(admins=["ann"])).of("bob") is Role.USER


def test_groups_are_those_of_the_system() -> None:
    mine = {grp.getgrgid(gid).gr_name for gid in os.getgrouplist(ME, pwd.getpwnam(ME).pw_gid)}
    assert groups_of(ME) == mine and grp.getgrgid(pwd.getpwnam(ME).pw_gid).gr_name in mine
    assert entry_of("no-such-user-here") == entry_of("a\0b") == Entry(False, frozenset())
    assert not entry_of("root").ordinary and entry_of("daemon").ordinary


# -- over TCP, with tokens --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    settings = {"admins": ["ada"], "operators": ["otto"]}
    running = ApiServer(tmp_path_factory.mktemp("access"), settings=settings)
    yield running
    running.close()


def as_user(server: ApiServer, user: str, scope: str) -> httpx.Client:
    """A client with a token of `user`, as the daemon has kept it when that user made it over the socket."""
    token = f"ejb_{user}-{scope}"
    row = {"user": user, "created_s": time.time(), "expires_s": time.time() + 3600, "scope": scope}
    server.store.write_sync(lambda session: session.merge(Token(digest=digest(token), label="", **row)))
    return httpx.Client(base_url=server.servers.url, headers={"Authorization": f"Bearer {token}"}, timeout=120)


@pytest.mark.parametrize(
    ("user", "scope", "drains", "doctor"),
    [
        ("ada", "admin", 200, 200),
        ("ada", "operate", 200, 403),
        ("ada", "submit", 403, 403),
        ("ada", "read", 403, 403),
        ("otto", "admin", 200, 403),
        ("otto", "operate", 200, 403),
        ("otto", "jobs", 403, 403),
        ("ulla", "admin", 403, 403),
        ("ulla", "operate", 403, 403),
    ],
)
def test_a_token_goes_as_far_as_its_scope_and_its_user(
    server: ApiServer, user: str, scope: str, drains: int, doctor: int
) -> None:
    with as_user(server, user, scope) as client:
        answer = client.post("/v1/drains", json={"nodes": "n1", "by_s": 0})
        assert answer.status_code == drains, answer.text
        assert client.post("/v1/doctor", json={}).status_code == doctor
        assert client.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    ("user", "scope", "detail", "hint"),
    [
        ("ulla", "admin", "ulla is not an operator of EJB", "see `operators` in the configuration"),
        ("otto", "submit", "this needs scope operate", "make one by `ejb token create --scope operate`"),
        ("otto", "read", "this token is for looking only", "make one by `ejb token create --scope operate`"),
    ],
)
def test_what_keeps_a_user_out_is_told(server: ApiServer, user: str, scope: str, detail: str, hint: str) -> None:
    with as_user(server, user, scope) as client:
        told = client.post("/v1/queues/main/resume").json()
    assert (told["code"], told["detail"], told["hint"]) == ("forbidden", detail, hint)


def test_users_see_and_touch_their_own_jobs_and_operators_all(server: ApiServer) -> None:
    with as_user(server, "ulla", "submit") as ulla, as_user(server, "uwe", "submit") as uwe:
        job = ulla.post("/v1/jobs", json=JOB).json()["id"]
        for path in ("", "/explain", "/events", "/events/stream", "/logs", "/moves", "/timeline"):
            assert uwe.get(f"/v1/jobs/{job}{path}").status_code == 404, path
        for what in ("cancel", "hold", "release", "number"):
            assert uwe.post(f"/v1/jobs/{job}/{what}").status_code == 404, what
        assert uwe.get("/v1/jobs").json()["jobs"] == uwe.get("/v1/events").json()["events"] == []
        assert uwe.get("/v1/jobs", params={"user": "ulla"}).status_code == 403
    with as_user(server, "otto", "submit") as narrow, as_user(server, "otto", "operate") as otto:
        assert narrow.get(f"/v1/jobs/{job}").status_code == 404
        assert otto.get(f"/v1/jobs/{job}").json()["user"] == "ulla"
        assert otto.post(f"/v1/jobs/{job}/hold").status_code == 200
        assert otto.get("/v1/history", params={"user": "ulla"}).status_code == 403  # for administrators


def test_tokens_of_others_are_for_administrators(server: ApiServer) -> None:
    with as_user(server, "ulla", "read") as ulla, as_user(server, "ada", "admin") as ada:
        assert {one["user"] for one in ulla.get("/v1/tokens").json()["tokens"]} == {"ulla"}
        assert {one["user"] for one in ulla.get("/v1/tokens", params={"user": "ulla"}).json()["tokens"]} == {"ulla"}
        assert ulla.get("/v1/tokens", params={"user": "ada"}).status_code == 403
        assert ulla.get("/v1/tokens", params={"all_users": "true"}).status_code == 403
        assert {one["user"] for one in ada.get("/v1/tokens?all_users=true").json()["tokens"]} >= {"ulla", "ada"}
        assert {one["user"] for one in ada.get("/v1/tokens?user=ulla").json()["tokens"]} == {"ulla"}
        told = ada.post("/v1/tokens", json={})
        assert told.status_code == 403 and "a token makes no tokens" in told.json()["detail"]


def test_proofs_and_roles_have_each_their_word() -> None:
    assert {proof.value for proof in Proof} == {"peer", "token", "oidc", "page"}
    assert [role.scope for role in Role] == [Scope.SUBMIT, Scope.OPERATE, Scope.ADMIN]


def test_a_user_without_a_name_is_not_taken_for_one_that_is_called_by_that_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert roles.user_name(4_000_000_001) == "4000000001"
    monkeypatch.setattr(pwd, "getpwnam", lambda name: SimpleNamespace(pw_name=name, pw_uid=7))
    assert roles.user_name(4_000_000_001) == "#4000000001"
