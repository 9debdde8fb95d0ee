"""What systemd does for `ejb-as.socket`: the helper, as root, with the socket as its standard input, as often as it
ends."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

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
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.path))
        self.path.chmod(0o600)
        os.chown(self.path, self.service.pw_uid, self.service.pw_gid)
        self._door.listen(64)
        self._over = threading.Event()
        self.starts = 0
        self.server = self._started()
        threading.Thread(target=self._restart, daemon=True).start()

    def argv(self) -> list[str]:
        return [PYTHON, "-IS", str(self.program), str(self.config)]

    def command(self) -> list[str]:
        """What asks it as the service user, for a test that is root: the helper hears of another user's socket."""
        ids = (f"--reuid={self.service.pw_uid}", f"--regid={self.service.pw_gid}", "--clear-groups")
        return ["/usr/bin/setpriv", *ids, PYTHON, "-IS", "-c", _RELAY, str(self.path)]

    def sessions(self) -> list[psutil.Process]:
        """Those that live, also of a program that was in this one's place."""
        found = psutil.process_iter(["cmdline"])
        mine = [one for one in found if str(self.program) in (one.info["cmdline"] or ()) and one.pid != self.server.pid]
        return [one for one in mine if _lives(one)]

    def cpu_s(self) -> float:
        """Of what forks, of sessions, and of their commands: those that have ended and those that live."""
        found = 0.0
        for one in (psutil.Process(self.server.pid), *self.sessions()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += sum(one.cpu_times()[:4])
        return found

    def sessions_begun(self) -> int:
        """That have done anything, where their lines are in the log (there is no syslog)."""
        return len(set(re.findall(r"ejb-as\[(\d+)\]", self.log.read_text(errors="replace"))))

    def _started(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with self.log.open("ab") as log:
            silent, plain = subprocess.DEVNULL, {"PATH": os.defpath}
            return subprocess.Popen(self.argv(), stdin=self._door.fileno(), stdout=silent, stderr=log, env=plain)

    def _restart(self) -> None:
        """A unit that has ended is started by the next connection; here at once."""
        while self.server.wait() == 0 and not self._over.is_set():
            self.server = self._started()

    def kill(self) -> int:
        """SIGKILL to every session; how many there were."""
        living = self.sessions()
        for one in living:
            one.kill()
        end_s = time.monotonic() + 60
        while any(_lives(one) for one in living):  # what has forked them waits for them only later
            assert time.monotonic() < end_s
            time.sleep(0.005)
        return len(living)

    def close(self) -> None:
        self._over.set()
        self.kill()
        self.server.kill()
        self.server.wait()
        self._door.close()


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
