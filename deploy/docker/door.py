"""What systemd does for `ejb-as.socket` on a machine that has it: one process of the helper for each connection.

Usage: door.py SOCKET USER PROGRAM. Runs as root; the socket is USER's alone, and PROGRAM asks the kernel once more.
"""

import os
import pwd
import signal
import socket
import subprocess
import sys
from pathlib import Path

MOST = 64  # sessions at once, as in deploy/systemd/ejb-as.socket


def main(path: str, user: str, program: str) -> None:
    entry = pwd.getpwnam(user)
    with socket.socket(socket.AF_UNIX) as door:
        if os.path.lexists(path):
            Path(path).unlink()
        os.umask(0o177)
        door.bind(path)
        os.chown(path, entry.pw_uid, entry.pw_gid)
        os.umask(0o022)
        door.listen(MOST)
        sessions: list[subprocess.Popen[bytes]] = []
        while True:
            end, _ = door.accept()
            with end:
                sessions = [one for one in sessions if one.poll() is None]
                if len(sessions) < MOST:
                    sessions.append(subprocess.Popen([program], stdin=end.fileno(), stdout=end.fileno(), env={}))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(*sys.argv[1:])
