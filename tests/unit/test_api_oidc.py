"""Tokens of an identity provider of the tests' own, on loopback: its keys, what is taken, and what is not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from pydantic import ValidationError

from ejbd.api.access import jwks
from ejbd.api.access.oidc import LONGEST_TOKEN, Oidc, looks_signed
from ejbd.config import OidcSettings, Settings
from ejbd.errors import Code, EjbError
from ejbd.wire.rights import Scope
from tests.fakes.api_server import ApiServer
from tests.fakes.issuer import AUDIENCE, USER, Issuer, make_rsa_key


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def oidc(issuer: Issuer, **changes: Any) -> Oidc:
    return Oidc(OidcSettings(**{"issuer": issuer.url, "audience": AUDIENCE, **changes}))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def made_by_hand(issuer: Issuer, header: dict[str, Any], sign: Callable[[bytes], bytes], **changes: Any) -> str:
    text = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(issuer.claims(**changes)).encode())}"
    return f"{text}.{b64(sign(text.encode()))}"


async def refused(one: Oidc, token: str) -> str:
    with pytest.raises(EjbError) as caught:
        await one.claimed(token)
    assert caught.value.code is Code.UNAUTHENTICATED
    return caught.value.message


async def test_a_good_token_shows_a_user(issuer: Issuer) -> None:
    one = oidc(issuer)
    found = await one.claimed(issuer.token())
    assert (found.user, found.scope) == (USER, Scope.SUBMIT) and abs(found.until_s - time.time() - 600) < 300
    assert (await one.claimed(issuer.token("ec", issuer.ec, "ES256"))).user == USER
    assert issuer.asked == [jwks.DISCOVERY, "/keys"]  # once, for many tokens


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": 1}, "it has run out"),
        ({"exp": None}, "it lacks an end"),
        ({"nbf": 4e9}, "it is not yet good"),
        ({"aud": "another"}, "it is for another audience"),
        ({"aud": None}, "it lacks an end, an issuer, an audience"),
        ({"iss": "https://else.where"}, "another issuer has made it"),
        ({"iss": None}, "it lacks an end, an issuer"),
        ({"sub": None}, "or the claim that names its user"),
        ({"sub": "../root"}, "names no user by the rule"),
        ({"sub": "daemon\n"}, "names no user by the rule"),
        ({"sub": ""}, "names no user by the rule"),
    ],
)
async def test_claims_that_do_not_hold(issuer: Issuer, changes: dict[str, Any], why: str) -> None:
    assert why in await refused(oidc(issuer), issuer.token(**changes))


async def test_no_signature_and_no_shared_secret_is_taken(issuer: Issuer) -> None:
    """Neither `none`, nor HS256 with the public key, in any of its spellings, as the secret that no one has."""
    one = oidc(issuer)
    await one.claimed(issuer.token())
    public = issuer.rsa.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for kind in ("none", "None", "nOnE", ""):
        token = made_by_hand(issuer, {"alg": kind, "typ": "JWT", "kid": "rsa"}, lambda text: b"")
        assert "not taken here" in await refused(one, token)
    for secret in (public, public.strip(), json.dumps(issuer.keys[0]).encode(), b""):

        def by(text: bytes, secret: bytes = secret) -> bytes:
            return hmac.new(secret, text, hashlib.sha256).digest()

        for kind in ("HS256", "RS256"):
            await refused(one, made_by_hand(issuer, {"alg": kind, "kid": "rsa"}, by))


async def test_signatures_that_do_not_hold(issuer: Issuer) -> None:
    one = oidc(issuer)
    other = make_rsa_key("another's")
    assert "signature" in await refused(one, issuer.token(key=other))
    head, claims, signature = issuer.token().split(".")
    forged = b64(json.dumps(issuer.claims(sub="root")).encode())
    assert "signature" in await refused(one, f"{head}.{forged}.{signature}")
    await refused(one, f"{head}.{claims}.")
    await refused(one, issuer.token("rsa", issuer.ec, "ES256"))  # another key's id
    assert "not taken here" in await refused(one, issuer.token(algorithm="RS512"))  # not among the settings'
    for word in ("a.b.c", f"{head}.{claims}.%%%", "x" * (LONGEST_TOKEN + 1)):
        await refused(one, word)


async def test_the_providers_keys_may_be_changed(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(jwks, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    one = oidc(issuer)
    old = issuer.token()
    await one.claimed(old)
    issuer.rotate()
    now[0] += jwks.PAUSE_S + 1
    assert (await one.claimed(issuer.token("rsa-2"))).user == USER  # an id that is not known: the keys are asked for
    assert "none of the identity provider's" in await refused(one, old)  # withdrawn
    asked = len(issuer.asked)
    for n in range(50):
        await refused(one, issuer.token(f"made-up-{n}"))
    assert len(issuer.asked) <= asked + 2  # however many ids are made up
    now[0] += jwks.FRESH_S + 1
    await one.claimed(issuer.token("rsa-2"))
    assert len(issuer.asked) > asked


async def test_while_the_provider_is_away_its_keys_are_believed_for_a_while(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(jwks, "time", type("Clock", (), {"monotonic": staticmethod(lambda: now[0])}))
    one = oidc(issuer)
    await one.claimed(issuer.token())
    issuer.answer = lambda path: (500, b"")
    now[0] += jwks.FRESH_S + 1
    assert (await one.claimed(issuer.token())).user == USER
    now[0] += jwks.STALE_S
    assert "does not answer" in await refused(one, issuer.token())


@pytest.mark.parametrize(
    "answer",
    [
        (302, b""),
        (404, b"{}"),
        (200, b"not json"),
        (200, b"[]"),
        (200, b'{"issuer": "https://else.where", "jwks_uri": "https://else.where/keys"}'),
        (200, b'{"keys": {}}'),
        (200, b" " * (jwks.LARGEST_BYTES + 1)),
    ],
    ids=["redirect", "missing", "words", "list", "another issuer", "no keys", "endless"],
)
async def test_a_provider_that_answers_nonsense_lets_no_user_in(issuer: Issuer, answer: tuple[int, bytes]) -> None:
    issuer.answer = lambda path: answer
    assert "does not answer" in await refused(oidc(issuer), issuer.token())


async def test_keys_come_from_where_the_settings_say_and_secrets_among_them_are_none(issuer: Issuer) -> None:
    secret = {"kty": "oct", "k": b64(b"x" * 32), "kid": "oct"}
    issuer.keys = [secret, {**issuer.keys[1], "use": "enc"}, {"kty": "RSA"}, "x", issuer.keys[0]]  # type: ignore[list-item]
    one = oidc(issuer, jwks_url=f"{issuer.url}/elsewhere")
    assert (await one.claimed(issuer.token(None))).user == USER  # of one key no id is needed
    assert issuer.asked == ["/elsewhere"]
    assert "none of the" in await refused(one, issuer.token("ec", issuer.ec, "ES256"))


async def test_a_claim_becomes_a_user_by_the_rule_of_the_site(issuer: Issuer) -> None:
    one = oidc(issuer, claim="email", user=r"(?P<user>[a-z]+)@hpc\.example\.org")
    assert (await one.claimed(issuer.token(email="ada@hpc.example.org"))).user == "ada"
    for email in ("ada@evil.example.org", "ada@hpc.example.org.evil.org", "ADA@hpc.example.org", 7, ["ada"], None):
        await refused(one, issuer.token(email=email))


@pytest.mark.parametrize(
    ("most", "said", "scope"),
    [
        (Scope.SUBMIT, None, Scope.SUBMIT),
        (Scope.SUBMIT, "openid profile", Scope.SUBMIT),
        (Scope.SUBMIT, "openid ejb:read", Scope.READ),
        (Scope.SUBMIT, "ejb:admin", Scope.SUBMIT),
        (Scope.ADMIN, "ejb:read ejb:operate", Scope.OPERATE),
        (Scope.ADMIN, "ejb:everything", Scope.READ),
        (Scope.READ, None, Scope.READ),
    ],
)
async def test_a_token_is_good_for_no_more_than_the_settings_say(
    issuer: Issuer, most: Scope, said: str | None, scope: Scope
) -> None:
    assert (await oidc(issuer, scope=most).claimed(issuer.token(scope=said))).scope is scope


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://idp.example.org"},
        {"jwks_url": "http://idp.example.org/keys"},
        {"issuer": "file:///etc/passwd"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"audience": ""},
        {"user": "("},
        {"colour": "red"},
    ],
)
def test_settings_that_would_let_others_in_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(oidc={"issuer": "https://idp.example.org", "audience": "ejb", **wrong})


def test_tokens_of_our_own_are_told_apart_by_their_shape() -> None:
    assert looks_signed("eyJh.eyJz.c2ln") and looks_signed("eyJh.eyJz.")
    assert not looks_signed("ejb_abc-DEF_123") and not looks_signed("a.b") and not looks_signed("a.b.c.d")


def test_the_daemon_lets_such_a_user_in_as_far_as_a_token_goes(issuer: Issuer, tmp_path_factory: Any) -> None:
    settings = {"oidc": {"issuer": issuer.url, "audience": AUDIENCE}, "operators": [USER]}
    server = ApiServer(tmp_path_factory.mktemp("oidc"), settings=settings)

    def ask(method: str, path: str, token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        body: Any = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}} if path == "/v1/jobs" else {}
        sent = body if method == "POST" else None
        return httpx.request(method, f"{server.servers.url}{path}", headers=headers, timeout=120, json=sent)

    try:
        token = issuer.token()
        assert ask("POST", "/v1/jobs", token).status_code == 201
        assert [job["user"] for job in ask("GET", "/v1/jobs", token).json()["jobs"]] == [USER]
        assert ask("POST", "/v1/queues/main/resume", token).json()["detail"] == "this needs scope operate"
        told = ask("POST", "/v1/tokens", token).json()
        assert told["code"] == "forbidden" and "a token makes no tokens" in told["detail"]
        for nobody in ("root", "no-such-user-here"):
            answer = ask("GET", "/v1/jobs", issuer.token(sub=nobody))
            assert answer.status_code == 401 and "no user of this machine" in answer.json()["detail"]
        assert ask("GET", "/v1/jobs", issuer.token(exp=1)).status_code == 401
        assert ask("GET", "/v1/jobs", "ejb_nonsense").json()["detail"] == "this token is not known"
    finally:
        server.close()
