"""What systemd does for `ejb-as.socket` on a machine that has it: the helper, with the socket as its standard input.

Usage: door.py SOCKET USER PROGRAM. Runs as root; the socket is USER's alone, and PROGRAM asks the kernel once more.
"""

import os
import pwd
import signal
import socket
import subprocess
import sys
from pathlib import Path

BACKLOG = 64  # connections that wait


def main(path: str, user: str, program: str) -> None:
    entry = pwd.getpwnam(user)
    with socket.socket(socket.AF_UNIX) as door:
        if os.path.lexists(path):
            Path(path).unlink()
        os.umask(0o177)
        door.bind(path)
        os.chown(path, entry.pw_uid, entry.pw_gid)
        os.umask(0o022)
        door.listen(BACKLOG)
        while subprocess.run([program], stdin=door.fileno(), env={}, check=False).returncode == 0:
            pass  # another file is in its place


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main(*sys.argv[1:])
