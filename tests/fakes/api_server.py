"""The real API server over the fake manager, in a thread with an event loop of its own: for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from ejbd.api.app import create_app
from ejbd.api.server import Servers, serve
from ejbd.config import Limits, Settings
from ejbd.web.app import install
from tests.fakes.port import FakeManager, new_store

T = TypeVar("T")


class ApiServer:
    """Listens on `<folder>/ejbd.sock` and on a free port of the loopback.

    `port_held`: that port counts as one that no other user could have, as where systemd holds it.
    """

    def __init__(
        self, folder: Path, elasticity: str = "on", settings: dict[str, Any] | None = None, port_held: bool = True
    ) -> None:
        self.port_held = port_held
        given = {"limits": Limits(max_body_bytes=8 * 1024 * 1024), **(settings or {})}
        self.settings = Settings(state_dir=folder, **given)
        self.store = new_store(folder / "ejbd.sqlite")
        self.manager = FakeManager(self.settings, self.store, elasticity)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="api-server")
        self._thread.start()
        try:
            self.servers: Servers = self.run(self._serve())
        except BaseException:
            self._end_loop()  # a thread that is left keeps its process from ending
            raise

    async def _serve(self) -> Servers:
        app = create_app(self.manager, self._examine)
        install(app)
        servers = await serve(app, self.settings)
        if self.port_held:
            app.state.open_ports = frozenset()
        return servers

    async def _examine(self, build_plugin: bool, mpi: bool) -> list[dict[str, Any]]:
        return [{"subject": "spool", "good": False, "text": "/shared: not there" + ", mpi" * mpi}]

    @property
    def socket(self) -> str:
        return str(self.settings.socket_path)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(180)

    def stop_listening(self) -> None:
        self.run(self.servers.stop())

    def listen_again(self) -> None:
        self.servers = self.run(self._serve())

    def close(self) -> None:
        self.stop_listening()
        self._end_loop()

    def _end_loop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.store.close()
