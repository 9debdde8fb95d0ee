"""The folder that goes first on the script's PATH: `srun`, `mpirun`, `mpiexec` and their other names.

In front of Slurm `scontrol` and `squeue` are there, too: a script asks them about its own job (own_job.py).
"""

from __future__ import annotations

import os
import pkgutil
import shlex
import sys
from typing import Any, Dict, Sequence

from .files import write_json
from .launch_options import LAUNCHERS
from .own_job import FILE as OWN_JOB

SHIMS = LAUNCHERS
QUERIES = ("scontrol", "squeue")
LINE = "EJB_SHIM_LINE"
"""Where bash stands when it comes to a launch: the file and the line, `/spool/jobs/7/slurm_script:12`."""
_LONGEST_FIRST_LINE = 127  # of a script; kernels before 5.1 cut it off there


def function_name(shim: str) -> str:
    """How bash names an exported function in the environment."""
    return "BASH_FUNC_%s%%%%" % shim


def write_shims(folder: str) -> None:
    """Tiny scripts that run this very worker's code with the Python that runs it.

    No shell stands before it: dash takes functions that bash has exported (`BASH_FUNC_x%%`) off the environment.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # The zipapp, or the folder that holds the package.
    code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python = sys.executable or "/usr/bin/python3"
    if len(os.fsencode(_FIRST_LINE % python)) > _LONGEST_FIRST_LINE or " " in python:
        link = os.path.join(folder, ".python")
        if not os.path.lexists(link):
            os.symlink(python, link)
        python = link
    for name in SHIMS:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write((_FIRST_LINE + _PROGRAM) % (python, code, name))
        os.chmod(path, 0o700)


_FIRST_LINE = "#!%s -IS\n"
_PROGRAM = """\
import sys
sys.path.insert(0, %r)
sys.argv[:1] = [sys.argv[0], "shim", %r]
from ejb_worker.__main__ import main
main()
"""


def write_queries(folder: str, own_job: Dict[str, Any]) -> None:
    """Commands by which Slurm answers for the own job; `own_job`: what own_job.py reads."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    program = os.path.join(folder, "own_job.py")
    with open(program, "wb") as source:
        source.write(pkgutil.get_data(str(__package__), "own_job.py") or b"")
    write_json(os.path.join(folder, OWN_JOB), own_job)
    for name in QUERIES:
        path = os.path.join(folder, name)
        words = [sys.executable or "python3", "-I", "-S", program, name, folder]
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write('#!/bin/sh\nexec %s "$@"\n' % " ".join(map(shlex.quote, words)))
        os.chmod(path, 0o700)


def shim_environment(env: Dict[str, str], folder: str, *, bash: bool, names: Sequence[str] = SHIMS) -> Dict[str, str]:
    """`env` with the shims first; for bash also as functions, which go before whatever `module load` puts on PATH."""
    changed = dict(env)
    changed["PATH"] = folder + os.pathsep + env.get("PATH", os.defpath)
    changed["EJB_SHIMS"] = folder
    if bash:
        for name in names:
            line = '%s="${BASH_SOURCE[1]-}:${BASH_LINENO[0]-}"' % LINE
            changed[function_name(name)] = '() {  %s %s "$@"\n}' % (line, shlex.quote(os.path.join(folder, name)))
    return changed


def without_shims(env: Dict[str, str]) -> Dict[str, str]:
    """The environment for the ranks: as the script's, but without what only the script is to see."""
    folder = env.get("EJB_SHIMS", "")
    hidden = {"EJB_SHIMS", "EJB_LAUNCH_SOCKET", "EJB_LAUNCH_FOLDER", "_", LINE} | {
        function_name(name) for name in SHIMS + QUERIES
    }
    plain = {name: value for name, value in env.items() if name not in hidden}
    if "PATH" in plain:
        plain["PATH"] = os.pathsep.join(
            part for part in plain["PATH"].split(os.pathsep) if part != folder or not folder
        )
    return plain
