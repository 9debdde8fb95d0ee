"""An identity provider of the tests' own, on loopback: it signs tokens, and signs browsers in by codes."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ejbd.api.access import jwks

AUDIENCE = "ejb"
USER = "daemon"  # an account that every system has, and not root's


@functools.cache  # to find primes takes longer than most tests
def make_rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key of this process by its name."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Issuer:
    """Signs tokens, and shows its discovery document and its keys."""

    def __init__(self) -> None:
        self.rsa = make_rsa_key("first")
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.keys: list[dict[str, Any]] = [self._public("rsa", self.rsa), self._public("ec", self.ec)]
        self.asked: list[str] = []
        self.answer: Callable[[str], tuple[int, bytes]] | None = None
        self.codes: dict[str, dict[str, str]] = {}  # what was asked with, by the codes that were given
        self.changes: dict[str, Any] = {}  # of the next ID token
        self.client_secret: str | None = None
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                form = dict(parse_qsl(self.rfile.read(length).decode()))
                status, body = issuer.exchange(form, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                if self.path.startswith("/authorize?"):
                    self.send_response(302)
                    self.send_header("Location", issuer.signed_in(self.path))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                status, body = issuer.says(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status in (301, 302):
                    self.send_header("Location", f"{issuer.url}/keys")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def says(self, path: str) -> tuple[int, bytes]:
        if self.answer is not None:
            return self.answer(path)
        if path == jwks.DISCOVERY:
            told = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            told |= {"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"}
            return 200, json.dumps(told).encode()
        return 200, json.dumps({"keys": self.keys}).encode()

    def signed_in(self, path: str) -> str:
        """Where a browser is led to that has signed in; it is asked for nothing here."""
        asked = dict(parse_qsl(urlsplit(path).query))
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def exchange(self, form: dict[str, str], authorization: str | None) -> tuple[int, bytes]:
        """An ID token for a code: once, for its verifier, and for the client's secret where there is one."""
        asked = self.codes.pop(form.get("code", ""), None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        client = form.get("client_id")
        if self.client_secret is not None:
            pair = base64.b64decode((authorization or "").removeprefix("Basic ")).decode()
            client, _, secret = pair.partition(":")
            if secret != self.client_secret:
                return 401, b"{}"
        good = asked is not None and asked["code_challenge_method"] == "S256" and client == asked["client_id"]
        if not good or asked is None or form.get("redirect_uri") != asked["redirect_uri"]:
            return 400, b'{"error": "invalid_grant"}'
        if proof.rstrip(b"=").decode() != asked["code_challenge"]:
            return 400, b'{"error": "invalid_grant"}'
        claims = {"aud": asked["client_id"], "nonce": asked["nonce"], **self.changes}
        return 200, json.dumps({"id_token": self.token(**claims), "token_type": "Bearer"}).encode()

    def _public(self, kid: str, key: Any) -> dict[str, Any]:
        algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        found: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
        return {**found, "kid": kid, "use": "sig"}

    def rotate(self) -> None:
        """Another key of another name; the old one is withdrawn."""
        self.rsa = make_rsa_key("second")
        self.keys = [self._public("rsa-2", self.rsa)]

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = time.time()
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": USER, "iat": now, "exp": now + 600, **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str | None = "rsa", key: Any = None, algorithm: str = "RS256", **changes: Any) -> str:
        headers = {"kid": kid} if kid is not None else None
        return jwt.encode(self.claims(**changes), key or self.rsa, algorithm, headers)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
