"""What systemd does for `ejb-as.socket` (Accept=yes): one process of the helper for each connection, as root."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from ejbd.identity import ejb_as

PYTHON = "/usr/bin/python3"  # which other users can read, unlike that of a checkout of root's


_RELAY = """
import os, socket, sys, threading
end = socket.socket(socket.AF_UNIX)
end.connect(sys.argv[1])
def on():
    while data := os.read(0, 65536): end.sendall(data)
    os._exit(0)
threading.Thread(target=on, daemon=True).start()
while data := end.recv(65536): os.write(1, data)
os._exit(0)
"""


class SocketUnit:
    """A copy of the helper that root owns, its configuration, and a socket for the service user alone.

    `folder` is root's, and others may look into it. What the helper says is in `log`.
    """

    def __init__(self, folder: Path, service: str, spool: str, **more: Any) -> None:
        self.folder = folder
        self.service = pwd.getpwnam(service)
        self.path = folder / "ejb-as.sock"
        self.log = folder / "ejb-as.log"
        self.program = folder / "ejb-as"
        shutil.copyfile(ejb_as.__file__, self.program)
        self.config = folder / "ejb-as.json"
        self.config.write_text(json.dumps({"service": service, "spool": spool, **more}))
        self.program.chmod(0o755)
        self.config.chmod(0o644)
        self.children: list[subprocess.Popen[bytes]] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.path))
        self.path.chmod(0o600)
        os.chown(self.path, self.service.pw_uid, self.service.pw_gid)
        self._door.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def argv(self) -> list[str]:
        return [PYTHON, "-IS", str(self.program), str(self.config)]

    def command(self) -> list[str]:
        """What asks it as the service user, for a test that is root: the helper hears of another user's socket."""
        ids = (f"--reuid={self.service.pw_uid}", f"--regid={self.service.pw_gid}", "--clear-groups")
        return ["/usr/bin/setpriv", *ids, PYTHON, "-IS", "-c", _RELAY, str(self.path)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                end, _ = self._door.accept()
                with end, self.log.open("ab") as log:
                    child = subprocess.Popen(
                        self.argv(), stdin=end.fileno(), stdout=end.fileno(), stderr=log, env={"PATH": os.defpath}
                    )
                self.children = [one for one in self.children if one.poll() is None] + [child]

    def kill(self) -> int:
        """SIGKILL to every session; how many there were."""
        living = [one for one in self.children if one.poll() is None]
        for one in living:
            one.kill()
            one.wait()
        return len(living)

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.kill()
