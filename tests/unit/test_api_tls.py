"""TLS for users that come over the network, and what is let in where nothing is encrypted."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import trustme
from pydantic import ValidationError
from starlette.requests import Request

from ejbd.api.auth import _refuse_in_the_clear, digest, is_loopback
from ejbd.config import Settings
from ejbd.errors import Code, EjbError
from ejbd.store.models import Token
from tests.fakes.api_server import ApiServer
from tests.fakes.port import WORKER_SECRET, WORKER_SUBJOB
from tests.fakes.proving import Proving

TOKEN = {"Authorization": "Bearer ejb_known"}


def written(authority: trustme.CA, folder: Path) -> dict[str, Any]:
    """A certificate for this machine's loopback, as the settings name it."""
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    files = {"certificate": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    return {"tls": {"listen": "127.0.0.1:0", **files}}


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(tmp_path: Path, authority: trustme.CA) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path, settings=written(authority, tmp_path))
    row = {"user": "ulla", "created_s": 0.0, "expires_s": time.time() + 3600, "scope": "submit"}
    running.store.write_sync(lambda session: session.add(Token(digest=digest("ejb_known"), label="", **row)))
    yield running
    running.close()


def test_users_and_workers_are_served_over_tls(server: ApiServer, authority: trustme.CA) -> None:
    url = server.servers.tls_url
    assert url is not None and url.startswith("https://127.0.0.1:")
    with httpx.Client(base_url=url, verify=trusting(authority), timeout=120) as client:
        assert client.get("/v1/health").status_code == 200
        assert client.get("/v1/jobs").status_code == 401
        assert client.get("/v1/jobs", headers=TOKEN).json()["jobs"] == []
        proving = Proving(WORKER_SUBJOB, WORKER_SECRET)
        query = {"worker": "w1", "wait": "0"}
        for _ in range(2):  # the first gets a session
            answer = client.get("/v1/worker/operations", params=query, auth=proving)
        assert answer.status_code == 200
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{url}/v1/health", timeout=120)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{url.replace('https', 'http')}/v1/health", timeout=120)


def test_connections_that_are_never_encrypted_are_few_and_end(
    server: ApiServer, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.api.server.most_connections", lambda: 16)
    monkeypatch.setattr("ejbd.api.server.SILENT_S", 20.0)
    address = ("127.0.0.1", int(str(server.servers.tls_url).rpartition(":")[2]))
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, timeout=180)) for _ in range(60)]
        health = f"{server.servers.tls_url}/v1/health"
        assert httpx.get(health, verify=trusting(authority), timeout=120).status_code == 200
        for one in silent[:50]:
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        monkeypatch.setattr("ejbd.api.server.SILENT_S", 0.2)
        with socket.create_connection(address, timeout=180) as late, suppress(ConnectionResetError):
            assert late.recv(1) == b""


def test_nothing_older_than_tls_1_2_is_spoken(server: ApiServer, authority: trustme.CA) -> None:
    context = trusting(authority)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.servers.tls_url}/v1/health", verify=context, timeout=120)


def test_a_new_certificate_is_shown_after_hup_and_a_broken_one_never(
    server: ApiServer, authority: trustme.CA, tmp_path: Path
) -> None:
    url, other = f"{server.servers.tls_url}/v1/health", trustme.CA()
    (tmp_path / "cert.pem").write_text("no certificate")
    server.servers.reload()
    assert httpx.get(url, verify=trusting(authority), timeout=120).status_code == 200
    with httpx.Client(verify=trusting(authority), timeout=120) as open_before:
        open_before.get(url)
        written(other, tmp_path)
        server.servers.reload()
        assert httpx.get(url, verify=trusting(other), timeout=120).status_code == 200
        assert open_before.get(url).status_code == 200  # on the connection that it has
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(url, verify=trusting(authority), timeout=120)


@pytest.mark.parametrize("what", ["missing", "no certificate", "another's key"])
def test_a_certificate_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, authority: trustme.CA, what: str
) -> None:
    settings = written(authority, tmp_path)
    if what == "missing":
        (tmp_path / "cert.pem").unlink()
    elif what == "no certificate":
        (tmp_path / "cert.pem").write_text("x")
    else:
        authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(tmp_path / "key.pem")
    with pytest.raises(EjbError, match="the certificate cannot be used") as caught:
        ApiServer(tmp_path, settings=settings)
    assert caught.value.code is Code.INVALID and not (tmp_path / "ejbd.sock").exists()


@pytest.mark.parametrize("half", [{"listen": "127.0.0.1:0"}, {"certificate": "/c.pem"}])
def test_half_of_the_settings_is_refused(half: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="go together"):
        Settings(tls=half)


# -- in the clear -----------------------------------------------------------------------------------------------------


def request(scheme: str, server: tuple[str, int | None] | None, **tls: Any) -> Request:
    app = SimpleNamespace(state=SimpleNamespace(manager=SimpleNamespace(settings=Settings(tls=tls))))
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "app": app}
    return Request({**scope, "scheme": scheme, "server": server})


@pytest.mark.parametrize(
    "taken",
    [
        request("http", ("127.0.0.1", 80)),
        request("http", ("::1", 80)),
        request("http", ("/run/ejbd/ejbd.sock", None)),
        request("http", None),
        request("https", ("10.1.1.1", 443)),
        request("http", ("10.1.1.1", 80), by_proxy=True),
    ],
)
def test_tokens_are_taken_where_no_other_can_read_them(taken: Request) -> None:
    _refuse_in_the_clear(taken)


@pytest.mark.parametrize("host", ["10.1.1.1", "0.0.0.0", "fd00::1", "fe80::1%eth0", "::ffff:10.1.1.1", "head.example"])
def test_a_token_is_refused_where_others_can_read_it(host: str) -> None:
    with pytest.raises(EjbError, match="not encrypted") as caught:
        _refuse_in_the_clear(request("http", (host, 8642)))
    assert caught.value.code is Code.FORBIDDEN and "tls.listen" in caught.value.hint


def test_loopback_is_told_by_its_address() -> None:
    assert is_loopback("127.0.0.53") and is_loopback("::ffff:127.0.0.1") and not is_loopback("localhost.example")


def test_beyond_loopback_workers_and_health_are_let_in_and_tokens_not(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ejbd.api.auth.is_loopback", lambda host: False)
    with httpx.Client(base_url=server.servers.url, timeout=120) as client:
        assert client.get("/v1/health").status_code == 200
        told = client.get("/v1/jobs", headers=TOKEN)
        assert told.status_code == 403 and "not encrypted" in told.json()["detail"]
        assert client.post("/v1/jobs", json={}, headers=TOKEN).status_code == 403
        proving = Proving(WORKER_SUBJOB, WORKER_SECRET)
        for _ in range(2):
            answer = client.get("/v1/worker/operations", params={"worker": "w1", "wait": "0"}, auth=proving)
        assert answer.status_code == 200
