"""A proxy that serves a daemon's page below a prefix, as a site's web server in front of it does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

BETWEEN = {"connection", "transfer-encoding", "keep-alive"}  # a proxy and its neighbours alone


@contextlib.contextmanager
def below_a_prefix(upstream: str, prefix: str) -> Iterator[str]:
    """The address below which `upstream` is served. What does not stand below the prefix is not found."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in BETWEEN}
            headers["X-Forwarded-Prefix"] = prefix
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            address = upstream + self.path.removeprefix(prefix)
            with (
                contextlib.suppress(httpx.HTTPError, OSError),  # one of the two has gone away
                httpx.stream(self.command, address, headers=headers, content=content, timeout=180) as answer,
            ):
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in BETWEEN:
                        self.send_header(name, value)
                self.end_headers()
                for piece in answer.iter_raw():
                    self.wfile.write(piece)
                    self.wfile.flush()

        do_GET = do_POST = handle_any

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}"
    finally:
        server.shutdown()
        server.socket.close()
        thread.join()
