"""How a subjob's script starts a worker: only what the daemon itself put into the spool."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from ejbd.batch.base import WorkerScript

_DIGEST = re.compile(r"worker-([0-9a-f]{64})\.pyz")
# For any Python from 3.8 on. hashlib comes last, since it loads OpenSSL. The worker's shims read the same copy by its
# number in /proc, so that nothing that changes on the disk afterwards counts. A spool that is away is waited for.
_START = """\
import os, sys, time
path, digest = sys.argv[1:3]
for left in range(120, -1, -1):
    try:
        with open(path, "rb") as file: data = file.read(64 << 20)
        break
    except OSError:
        if not left: raise
        time.sleep(1)
try: from _sha2 import sha256
except ImportError:
    try: from _sha256 import sha256
    except ImportError: from hashlib import sha256
if sha256(data).hexdigest() != digest:
    sys.stderr.write("ejb: %s is not what the daemon put there: no worker is started\\n" % path); sys.exit(71)
code = path
if hasattr(os, "memfd_create"):
    copy = os.memfd_create("ejb-worker")
    left = memoryview(data)
    while left: left = left[os.write(copy, left):]
    code = "/proc/%d/fd/%d" % (os.getpid(), copy)
sys.argv[:] = [path] + sys.argv[3:]
sys.path.insert(0, code)
del data
from ejb_worker.__main__ import main
main()
"""


def end_at_once(request: WorkerScript, end: str) -> str:
    """Lines of shell by which a subjob that is not needed any more ends as its job did. `end`: what is given the code.

    No worker comes then, and the daemon may be away.
    """
    file = shlex.quote(str(request.end_file))
    return f'code=\nif [ -r {file} ]; then read -r code < {file}; fi\n[ -z "$code" ] || {end} "$code"'


BEGINS_ALONE = 79
"""With this code all workers of a J0 leave if no manager answers them: the job's own script is to begin there."""


def worker_words(request: WorkerScript) -> list[str]:
    """The words that start a worker on a node, but for `--node` and `--processors`."""
    return [*_start(request), "agent", "--subjob-dir", str(request.subjob_dir)]


def alone_words(request: WorkerScript) -> list[str]:
    """The words that become the job's own script once its workers have left with BEGINS_ALONE."""
    return [*_start(request), "alone", "--subjob-dir", str(request.subjob_dir)]


def _start(request: WorkerScript) -> list[str]:
    """The zipapp is held against the digest in its name before anything of it runs, and what runs is what was read."""
    python = [request.python]
    if request.python_at:
        python = ["/bin/sh", "-c", _FIRST_OF_TWO, request.python_at, request.python]
    digest = _DIGEST.fullmatch(request.worker.name)
    if digest is not None:
        return [*python, "-I", "-S", "-c", _START, str(request.worker), digest[1]]
    return [*python, "-I", "-S", str(request.worker)]


_FIRST_OF_TWO = 'python=$1; shift; [ ! -x "$0" ] || python=$0; exec "$python" "$@"'
_LOOK_S = 20.0


def _is_script(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == b"#!"


@lru_cache(maxsize=4)
def python_behind(python: str) -> str:
    """The program that a name of Python leads to by way of a script (pyenv's, say); "" where there is none between.

    Such a script takes several times as long as Python's own start, once a node. It is run here once: this may wait.
    """
    found = None if "/" in python else shutil.which(python)
    try:
        if found is None or not _is_script(found):
            return ""
        ask = [found, "-I", "-S", "-c", "import sys; print(sys.executable)"]
        path = subprocess.run(ask, capture_output=True, text=True, timeout=_LOOK_S, check=True).stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return path if path.startswith("/") and os.access(path, os.X_OK) else ""
