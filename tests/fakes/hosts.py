"""Hosts that are network namespaces: an address and a host name each, one machine, one file system. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NETWORK = "10.97.31"
MANAGER = f"{NETWORK}.254"


def missing_hosts() -> str:
    if os.getuid() != 0:
        return "only root can make network namespaces with names"
    return "" if shutil.which("ip") else "ip (iproute2) is not installed"


def address(host: int) -> str:
    return f"{NETWORK}.{host}"


def on(host: int, words: list[str]) -> list[str]:
    """The command line that runs `words` on a host."""
    name = f'hostname ejbhost{host}; exec "$@"'
    return ["ip", "netns", "exec", f"ejbt{host}", "unshare", "--uts", "sh", "-c", name, "sh", *words]


def _run(line: str, *, check: bool = True) -> None:
    subprocess.run(line.split(), check=check, timeout=20, capture_output=not check)


@contextmanager
def hosts(count: int) -> Iterator[None]:
    """Hosts 1 to `count`, and the manager's own address on the bridge between them."""
    try:
        _run("ip link add ejbtbr type bridge")
        _run(f"ip addr add {MANAGER}/24 dev ejbtbr")
        _run("ip link set ejbtbr up")
        for host in range(1, count + 1):
            _run(f"ip netns add ejbt{host}")
            _run(f"ip link add ejbtv{host} type veth peer name eth0 netns ejbt{host}")
            _run(f"ip link set ejbtv{host} master ejbtbr up")
            _run(f"ip -n ejbt{host} addr add {address(host)}/24 dev eth0")
            _run(f"ip -n ejbt{host} link set eth0 up")
            _run(f"ip -n ejbt{host} link set lo up")
        yield
    finally:
        for host in range(1, count + 1):
            _run(f"ip netns del ejbt{host}", check=False)
        _run("ip link del ejbtbr", check=False)
