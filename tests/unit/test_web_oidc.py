"""Signing a browser in by an identity provider: authorization code with PKCE, state and nonce."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ejbd.api.access.jwks import DISCOVERY
from ejbd.api.access.oidc import Oidc
from ejbd.api.access.oidcflow import GOOD_S, SignIns
from ejbd.config import OidcSettings
from ejbd.errors import EjbError
from tests.fakes.api_server import ApiServer
from tests.fakes.issuer import USER, Issuer

CLIENT = "ejb page"

fetched = partial(httpx.get, timeout=180)  # however busy the machine is


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def settings(issuer: Issuer, **changes: Any) -> OidcSettings:
    return OidcSettings(**{"issuer": issuer.url, "audience": "ejb", "client_id": CLIENT, **changes})


@pytest.fixture
def server(issuer: Issuer, tmp_path: Path) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path, settings={"oidc": settings(issuer)})
    yield made
    made.close()


@pytest.fixture
def browser(server: ApiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.servers.url, timeout=30) as client:
        yield client


def back(browser: httpx.Client) -> str:
    """The address that the provider leads the browser back to."""
    away = browser.get("/web/oidc")
    assert away.status_code == 302
    there = fetched(away.headers["location"])
    assert there.status_code == 302
    return str(there.headers["location"])


def test_a_browser_is_signed_in_as_the_user_that_the_provider_names(browser: httpx.Client) -> None:
    assert "/web/oidc" in browser.get("/").text
    away = browser.get("/web/oidc")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(away.headers["location"]).query).items()}
    assert (asked["response_type"], asked["client_id"], asked["scope"]) == ("code", CLIENT, "openid")
    assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43
    cookie = away.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/web/oidc/back" in cookie
    answer = browser.get(back(browser) + "&session_state=of-some-providers")
    assert answer.status_code == 200 and USER in answer.text
    sent = answer.headers.get_list("set-cookie")
    assert any("ejb_session" in one and "SameSite=strict" in one and "HttpOnly" in one for one in sent)
    assert f"<span>{USER}" in browser.get("/web/jobs").text
    assert [one["label"] for one in browser.get("/v1/tokens").json()["tokens"]] == ["web page"]
    assert browser.get("/v1/tokens").json()["tokens"][0]["scope"] == "submit"  # no farther than the settings let it


def test_a_way_back_is_good_once_and_for_the_browser_that_went(browser: httpx.Client) -> None:
    address = back(browser)
    with httpx.Client(timeout=180) as other:
        stolen = other.get(address)
        assert stolen.status_code == 401 and "another browser" in stolen.text and "set-cookie" not in stolen.headers
    made_up = {"ejb_away_" + address.partition("127.0.0.1:")[2].partition("/")[0]: "a.9999999999.b"}
    with httpx.Client(timeout=180, cookies=made_up) as other:
        assert "another browser" in other.get(address).text
    kept = dict(browser.cookies)
    assert browser.get(address).status_code == 200
    browser.cookies.update(kept)  # as one that has copied them before
    assert "used already" in browser.get(address).text


def test_however_many_are_away_at_the_provider_it_is_asked_once_and_another_signs_in(
    issuer: Issuer, server: ApiServer, browser: httpx.Client
) -> None:
    with httpx.Client(base_url=server.servers.url, timeout=30) as away:
        assert {away.get("/web/oidc").status_code for _ in range(40)} == {302}
    assert browser.get(back(browser)).status_code == 200
    assert issuer.asked.count(DISCOVERY) == 2, "once for browsers, once for keys"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nonce": "another"}, "made for another sign-in"),
        ({"nonce": None}, "made for another sign-in"),
        ({"aud": "ejb"}, "another audience"),  # a token for REST is no ID token of the page
        ({"aud": [CLIENT, "other"]}, "given to another client"),
        ({"azp": "other"}, "given to another client"),
        ({"iss": "http://127.0.0.1:1"}, "another issuer"),
        ({"exp": 1}, "it has run out"),
        ({"sub": "root"}, "no user of this machine"),
        ({"sub": "no-such-user"}, "no user of this machine"),
    ],
)
def test_what_the_provider_says_has_to_be_of_this_sign_in(
    issuer: Issuer, browser: httpx.Client, changes: dict[str, Any], why: str
) -> None:
    issuer.changes = changes
    answer = browser.get(back(browser))
    assert answer.status_code == 401 and why in answer.text
    assert not any("ejb_session" in one for one in answer.headers.get_list("set-cookie"))


def test_a_state_of_another_an_error_and_another_provider_are_refused(browser: httpx.Client) -> None:
    address = back(browser)
    path = "/web/oidc/back"
    assert browser.get(path, params={"state": "made up", "code": "x"}).status_code == 401
    refused = browser.get(path, params={"error": "<b>access_denied"})
    assert refused.status_code == 401 and "access_denied" in refused.text and "<b>" not in refused.text
    assert "another identity provider" in browser.get(path, params={"state": "s", "code": "x", "iss": "http://x"}).text
    assert browser.get(path).status_code == 401
    assert browser.get(address).status_code == 200  # none of these has spoilt it


def test_a_code_without_its_verifier_is_worth_nothing(issuer: Issuer, browser: httpx.Client) -> None:
    address = back(browser)
    for asked in issuer.codes.values():
        asked["code_challenge"] = "of another"
    answer = browser.get(address)
    assert answer.status_code == 401 and "does not take the code" in answer.text


async def test_a_client_with_a_secret_shows_it(issuer: Issuer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s:1 /\n")
    issuer.client_secret = "s%3A1%20%2F"  # as it is encoded on its way
    one = SignIns(Oidc(settings(issuer, client_id="page", client_secret_file=secret)))
    address, mine = await one.begin("http://127.0.0.1:1/web/oidc/back")
    code = parse_qs(urlsplit(issuer.signed_in(address)).query)["code"][0]
    state = parse_qs(urlsplit(address).query)["state"][0]
    assert (await one.end(state, mine, code, "http://127.0.0.1:1/web/oidc/back")).user == USER


async def test_a_sign_in_runs_out(issuer: Issuer) -> None:
    now = 0.0
    one = SignIns(Oidc(settings(issuer)), lambda: now)
    address, mine = await one.begin("http://127.0.0.1:1/web/oidc/back")
    state = parse_qs(urlsplit(address).query)["state"][0]
    now = GOOD_S + 1
    with pytest.raises(EjbError, match="run out"):
        await one.end(state, mine, "x", "http://127.0.0.1:1/web/oidc/back")


async def test_a_provider_that_does_not_answer_is_told_and_others_in_its_place_are_not_asked(issuer: Issuer) -> None:
    one = SignIns(Oidc(settings(issuer)))
    for told in (b"{", b"[]", b'{"issuer": "http://127.0.0.1:1"}'):
        issuer.answer = lambda path, told=told: (200, told)
        with pytest.raises(EjbError, match="does not answer as it should"):
            await one.begin("http://127.0.0.1:1/")
    endpoints = b'"authorization_endpoint": "http://example.org/a", "token_endpoint": "http://example.org/t"'
    issuer.answer = lambda path: (200, b'{"issuer": "%s", %s}' % (issuer.url.encode(), endpoints))
    with pytest.raises(EjbError, match="does not answer as it should"):
        await one.begin("http://127.0.0.1:1/")


def test_a_name_that_a_browser_makes_up_is_no_way_back(issuer: Issuer, server: ApiServer) -> None:
    away = fetched(server.servers.url + "/web/oidc", headers={"Host": "evil.example.org"})
    asked = parse_qs(urlsplit(away.headers["location"]).query)
    assert asked["redirect_uri"] == [server.servers.url + "/web/oidc/back"]


def test_without_a_client_id_a_browser_needs_a_link(issuer: Issuer, tmp_path: Path) -> None:
    made = ApiServer(tmp_path, settings={"oidc": settings(issuer, client_id=None)})
    try:
        assert "/web/oidc" not in fetched(made.servers.url + "/").text
        assert fetched(made.servers.url + "/web/oidc").status_code == 404
    finally:
        made.close()
