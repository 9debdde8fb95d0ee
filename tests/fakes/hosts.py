"""Hosts that are network namespaces: an address and a host name each, one machine, one file system. Needs root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clusters import netns


def missing_hosts() -> str:
    """Why there can be no such hosts here; "" where there can."""
    return netns.impossible()


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts 1 to `count`, named host1 and so on, of a network that no one else on this machine uses."""

    network: int
    count: int
    hosts_file: Path

    @property
    def machine(self) -> str:
        """The address at which hosts reach processes of the machine itself."""
        return netns.address(self.network, netns.MACHINE)

    def address(self, host: int) -> str:
        return netns.address(self.network, host)

    def on(self, host: int, words: list[str]) -> list[str]:
        """The command line that runs `words` on a host."""
        return netns.command(self.network, host, f"host{host}", self.hosts_file, words)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """A network of its own for the length of a `with`; end the processes in it before."""
    with tempfile.TemporaryDirectory(prefix="ejb-hosts-") as folder:
        network = netns.make(count, os.urandom(8).hex())
        try:
            file = Path(folder) / "hosts"
            netns.write_hosts(file, network, {f"host{host}": host for host in range(1, count + 1)})
            yield Hosts(network, count, file)
        finally:
            netns.remove(network)
