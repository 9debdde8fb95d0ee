"""systemd's notifications: that the daemon is up, what its state is, and that it is not stuck (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from ejbd.manager.service.health import Fault

LOOK_S = 10.0


def notify(*lines: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Tell the service manager; False where there is none, or it is not listening."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


async def feed(faults: Callable[[], list[Fault]], environment: Mapping[str, str] = os.environ) -> None:
    """Say how the daemon is for as long as it lives, and feed the watchdog unless it is stuck.

    What a restart would not mend (a batch system that is silent, a full disk) does not starve it. Without systemd this
    returns at once.
    """
    if not notify("READY=1", environment=environment):
        return
    watched = environment.get("WATCHDOG_USEC", "")
    mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    pause_s = min(LOOK_S, int(watched) / 3e6) if watched.isdigit() and int(watched) and mine else LOOK_S
    while True:
        found = faults()
        lines = ["STATUS=" + ("; ".join(fault.what for fault in found) or "at work").replace("\n", " ")]
        if not any(fault.stuck for fault in found):
            lines.append("WATCHDOG=1")
        notify(*lines, environment=environment)
        await asyncio.sleep(pause_s)
