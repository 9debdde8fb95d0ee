"""What a program gets that listens at the daemon's port in its place, or at another port of its host."""

from __future__ import annotations

import asyncio
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from ejbd.api import sockets
from ejbd.client import AsyncClient, Client, Code, EjbError
from ejbd.client.messages import Place
from ejbd.config import Settings
from ejbd.doctor.checks import _port
from ejbd.files.paths import distrusted_socket
from ejbd.files.tcpports import NOWHERE, find_socket_owner
from ejbd.identity.settings import RunsAs
from tests.fakes.api_server import ApiServer
from tests.fakes.web import link, mark, signed_in
from tests.unit.test_api_tls import trusting, written

SUBMISSION = {"cwd": "/", "command": ["x"], "overrides": {"time": "5"}}
OTHER = 65533  # a user that is not this one
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path, port_held=False)
    yield running
    running.close()


def token(server: ApiServer, scope: str = "submit") -> str:
    with Client(socket=server.socket) as client:
        return str(client.request("POST", "/v1/tokens", body={"scope": scope}).json()["token"])


class Squatter:
    """Listens at an address and keeps what it is sent. `answer` makes what it says."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[tuple[str, dict[str, str], bytes]] = []
        heard = self.heard

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                heard.append((f"{self.command} {self.path}", dict(self.headers), body))
                self.send_response(200)
                self.send_header("X-EJB-Session", "1-0")
                self.send_header("X-EJB-Proof", "0" * 64)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def squatter(server: ApiServer) -> Iterator[Squatter]:
    """At the port of a daemon that is away."""
    server.stop_listening()
    made = Squatter(int(server.servers.url.rpartition(":")[2]))
    yield made
    made.close()
    server.listen_again()


def test_a_client_sends_a_squatter_neither_its_token_nor_its_job(server: ApiServer, squatter: Squatter) -> None:
    secret = "ejb_" + "s" * 43
    with Client(squatter.url, token=secret) as client, pytest.raises(EjbError) as caught:
        client.submit(["./private"], ntasks=1, time="5")
    assert caught.value.code is Code.UNAUTHENTICATED and "not EJB's daemon" in caught.value.message

    async def ask() -> None:
        async with AsyncClient(squatter.url, token=secret) as client:
            await client.submit(["./private"], ntasks=1, time="5")

    with pytest.raises(EjbError):
        asyncio.run(ask())
    told = str(squatter.heard)
    assert len(squatter.heard) == 2 and secret not in told and "private" not in told


def test_what_a_squatter_has_heard_is_worth_nothing_when_the_daemon_is_back(server: ApiServer) -> None:
    secret = token(server)
    heard: list[tuple[str, str, dict[str, str]]] = []
    bodies: list[bytes] = []
    with Client(server.servers.url, token=secret) as client:
        send = client._connected()._client.send  # type: ignore[attr-defined]

        def keep(request: httpx.Request, **more: Any) -> httpx.Response:
            answer: httpx.Response = send(request, **more)
            heard.append((answer.request.method, str(answer.request.url), dict(answer.request.headers)))
            bodies.append(answer.request.content)
            return answer

        client._transport._client.send = keep  # type: ignore[union-attr]
        client.submit_body(SUBMISSION)
    ((method, url, headers),), (body,) = heard, bodies
    assert secret not in str(headers)
    again = httpx.request(method, url, headers=headers, content=body, timeout=30)
    assert again.status_code == 401 and "session" in again.json()["detail"]
    server.stop_listening()
    server.listen_again()
    url = server.servers.url + "/v1/jobs"
    assert httpx.request(method, url, headers=headers, content=body, timeout=30).status_code == 401


def test_a_proved_request_with_another_body_is_refused(server: ApiServer) -> None:
    secret = token(server)
    with Client(server.servers.url, token=secret) as client:
        http_client = client._connected()._client  # type: ignore[attr-defined]

        def other_body(request: httpx.Request) -> None:
            if request.method == "POST":
                request.stream = httpx.ByteStream(request.content.replace(b'"x"', b'"y"'))

        http_client._event_hooks["request"] = []
        sent = http_client._send_handling_redirects

        def change(request: httpx.Request, **more: Any) -> httpx.Response:
            other_body(request)
            answer: httpx.Response = sent(request, **more)
            return answer

        http_client._send_handling_redirects = change
        with pytest.raises(EjbError) as caught:
            client.submit_body(SUBMISSION)
    assert caught.value.code is Code.UNAUTHENTICATED
    with Client(socket=server.socket) as local:
        assert not list(local.jobs())


def test_a_token_that_changes_things_is_not_taken_where_any_user_could_listen(server: ApiServer) -> None:
    wide, narrow = token(server), token(server, "read")
    with httpx.Client(base_url=server.servers.url, timeout=30) as client:
        answer = client.post("/v1/jobs", json=SUBMISSION, headers={"Authorization": f"Bearer {wide}"})
        assert answer.status_code == 403 and "scope read" in answer.json()["detail"]
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {narrow}"}).status_code == 200
        server.servers.app.state.open_ports = frozenset()  # as where systemd holds it
        assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {wide}"}).status_code == 200


def test_a_token_of_an_identity_provider_goes_over_https_alone() -> None:
    with Client("http://127.0.0.1:9", token="a.b.c") as client, pytest.raises(EjbError, match="EJB's own") as caught:
        client.get("/v1/jobs")
    assert "https" in caught.value.hint


# -- the page's cookie ------------------------------------------------------------------------------------------------


def test_the_pages_cookie_is_no_bearer_token(server: ApiServer) -> None:
    with signed_in(server, "ada") as browser:
        (secret,) = browser.cookies.values()
        for said in (secret, f"page plain {secret}"):
            headers = {"Authorization": f"Bearer {said}"}
            answer = httpx.get(f"{server.servers.url}/v1/jobs", headers=headers, timeout=30)
            assert answer.status_code == 401
        with Client(server.servers.url, token=secret) as client, pytest.raises(EjbError, match="does not know"):
            client.get("/v1/jobs")


def test_the_cookie_of_https_is_bound_to_its_host_and_opens_nothing_at_the_plain_door(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ApiServer(tmp_path, settings=written(authority, tmp_path))
    try:
        url = str(server.servers.tls_url)
        path = link(server, "ada").removeprefix(server.servers.url)
        with httpx.Client(base_url=url, verify=trusting(authority), timeout=180) as browser:
            told = browser.get(path).headers["set-cookie"]
            name, _, secret = told.partition(";")[0].partition("=")
            assert name.startswith("__Host-ejb_session_") and "Secure" in told and "Path=/;" in told
            assert browser.get("/v1/jobs").status_code == 200
        port = server.servers.url.rpartition(":")[2]
        cookie = {"Cookie": f"ejb_session_{port}={secret}"}
        assert httpx.get(f"{server.servers.url}/v1/jobs", headers=cookie, timeout=30).status_code == 401
    finally:
        server.close()


def connected_as(uid: int, host: str, port: int) -> socket.socket:
    """A connection that is another user's, as far as the kernel knows: a socket is the user's that makes it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    os.seteuid(uid)  # for no longer than that: Python may load modules that this user cannot read
    try:
        made = socket.socket(family)
    finally:
        os.seteuid(0)
    made.settimeout(30)
    made.connect((host, port))
    return made


def accept_from(uid: int, door: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection of another user; one that is lost on a busy machine is made again."""
    door.settimeout(20)
    for _ in range(3):
        other = connected_as(uid, *door.getsockname()[:2])
        try:
            return other, door.accept()[0]
        except TimeoutError:
            other.close()
    raise AssertionError("no connection came")


@needs_root
@pytest.mark.parametrize("forwarded", ["", "https"])
def test_the_cookie_opens_nothing_to_another_user_of_the_machine(server: ApiServer, forwarded: str) -> None:
    """Whatever port it was sent to: at the daemon's, or at another one of the same host."""
    elsewhere = Squatter()
    with signed_in(server, "ada") as browser:
        assert browser.get("/v1/jobs").status_code == 200
        browser.get(elsewhere.url)
        marked = mark(browser)
    elsewhere.close()
    cookie, port = elsewhere.heard[0][1]["Cookie"], int(server.servers.url.rpartition(":")[2])
    form = f"mark={marked}"
    for line, body in (("GET /v1/jobs", ""), ("GET /web/jobs", ""), ("POST /web/jobs/last/cancel", form)):
        head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n"
        head += "X-Forwarded-Proto: https\r\n" if forwarded else ""
        head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        with connected_as(OTHER, "127.0.0.1", port) as other:
            other.sendall(head.encode())
            told = b"".join(iter(lambda: other.recv(65536), b""))
        assert told.startswith(b"HTTP/1.1 403") and b"another user" in told


@needs_root
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_says_which_user_has_the_other_end(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as door:
        door.bind((host, 0))
        door.listen()
        other, end = accept_from(OTHER, door)
        with other:
            ours, theirs = end.getsockname()[:2], end.getpeername()[:2]
            assert find_socket_owner(ours, theirs, family) == OTHER
            other.shutdown(socket.SHUT_WR)
            assert find_socket_owner(ours, theirs, family) == OTHER
        assert find_socket_owner(ours, theirs, family) is None  # closed: the kernel would say root
        end.close()
        nowhere = NOWHERE if family == socket.AF_INET else ("::", 0)
        assert find_socket_owner(nowhere, door.getsockname()[:2], family) == os.geteuid()


def test_a_link_that_was_made_before_the_daemon_went_opens_nothing(server: ApiServer) -> None:
    address = link(server, "ada")
    server.stop_listening()
    server.listen_again()
    path = address.partition("/web/")[2]
    assert httpx.get(f"{server.servers.url}/web/{path}", timeout=30).status_code == 401


# -- sockets ----------------------------------------------------------------------------------------------------------


def test_a_unix_socket_in_a_folder_of_all_users_is_refused(tmp_path: Path) -> None:
    everybody = tmp_path / "all"
    everybody.mkdir()
    everybody.chmod(0o777)
    for path in (everybody / "ejbd.sock", everybody / "folder" / "ejbd.sock"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert "every user may write" in distrusted_socket(str(path))
        with pytest.raises(EjbError, match="another user's") as caught, Client(socket=str(path)) as client:
            client.get("/v1/jobs")
        assert caught.value.code is Code.FORBIDDEN
    everybody.chmod(0o1777)
    assert distrusted_socket(str(everybody / "ejbd.sock")) == ""  # this user's own, in a sticky folder
    assert Place(None, str(tmp_path / "none" / "ejbd.sock"), None).refuse_socket_of_others() is None


@needs_root
def test_a_socket_of_another_user_in_a_sticky_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ejbd.sock").touch()
    os.chown(tmp_path / "ejbd.sock", OTHER, OTHER)
    assert distrusted_socket(str(tmp_path / "ejbd.sock")) == ""  # the folder is nobody else's
    tmp_path.chmod(0o1777)
    assert "every user may write" in distrusted_socket(str(tmp_path / "ejbd.sock"))


def test_sockets_that_systemd_holds_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix, socket.socket() as unnamed:
        for one, address in ((tcp, ("127.0.0.1", 0)), (unix, str(tmp_path / "ejbd.sock")), (unnamed, ("127.0.0.1", 0))):
            one.bind(address)
            one.listen()
        port = tcp.getsockname()[1]
        handed = {one.getsockname(): one.dup() for one in (tcp, unix, unnamed)}
        monkeypatch.setattr("ejbd.api.server.take_handed_sockets", lambda: handed)
        server = ApiServer(tmp_path, settings={"listen": f"127.0.0.1:{port}"}, port_held=False)
        assert server.servers.url.endswith(f":{port}") and not server.servers.app.state.open_ports
        bearer = {"Authorization": f"Bearer {token(server)}"}
        assert httpx.get(f"{server.servers.url}/v1/jobs", headers=bearer, timeout=30).status_code == 200
        server.close()
        assert (tmp_path / "ejbd.sock").is_socket()  # as systemd has it
        with pytest.raises(OSError, match="in use"), socket.socket() as squatting:
            squatting.bind(("127.0.0.1", port))


@needs_root
def test_the_doctor_says_where_another_user_could_have_the_port() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]

        def told(listen: str) -> tuple[bool, str] | None:
            found = _port(Settings(identity=RunsAs.HELPER, batch="slurm", listen=listen))
            return (found.good, found.text) if found is not None else None

        good, text = told(f"127.0.0.1:{port}") or (True, "")
        assert not good and "ejbd.socket" in text
        held.listen()
        assert told(f"127.0.0.1:{port}") == (True, f"127.0.0.1:{port}: root holds it, also while the daemon is away")
    assert told("127.0.0.1:642") == (True, "127.0.0.1:642: only root and what root starts may listen there")
    assert _port(Settings(listen=f"127.0.0.1:{port}")) is None


def test_only_sockets_that_are_meant_for_this_process_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
    assert sockets.take_handed_sockets() == {} and "LISTEN_FDS" not in os.environ
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setattr(sockets, "FIRST_HANDED", held.fileno())
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        (found,) = sockets.take_handed_sockets().values()
        assert found.fileno() == held.fileno() and not found.get_inheritable()
        found.detach()
