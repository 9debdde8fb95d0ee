"""The folder of `srun`, `mpirun`, `mpiexec` and their other names that goes first on the script's PATH."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Dict

from .launch_options import LAUNCHERS as SHIMS

_LOCALE = "EJB_SHIM_LOCALE"
LINE = "EJB_SHIM_LINE"
"""Where bash stands when it comes to a launch: the file and the line, `/spool/jobs/7/slurm_script:12`."""


def function_name(shim: str) -> str:
    """How bash names an exported function in the environment."""
    return "BASH_FUNC_%s%%%%" % shim


def write_shims(folder: str) -> None:
    """Tiny shell scripts that run this very worker's code with the Python that runs it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    # The zipapp, or the folder that holds the package.
    code = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ejb_worker.__main__ import main; main()"
    python = sys.executable or "python3"
    for name in SHIMS:
        words = [python, "-I", "-S", "-c", program, code, "shim", name]
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            # Python sets LC_CTYPE for itself where the locale is C: the ranks are to have it as the script has it.
            command = " ".join(shlex.quote(word) for word in words)
            file.write('#!/bin/sh\n%s="${LC_CTYPE+set}" exec %s "$@"\n' % (_LOCALE, command))
        os.chmod(path, 0o700)


def shim_environment(env: Dict[str, str], folder: str, *, bash: bool) -> Dict[str, str]:
    """`env` with the shims first; for bash also as functions, which go before whatever `module load` puts on PATH."""
    changed = dict(env)
    changed["PATH"] = folder + os.pathsep + env.get("PATH", os.defpath)
    changed["EJB_SHIMS"] = folder
    if bash:
        for name in SHIMS:
            line = '%s="${BASH_SOURCE[1]-}:${BASH_LINENO[0]-}"' % LINE
            changed[function_name(name)] = '() {  %s %s "$@"\n}' % (line, shlex.quote(os.path.join(folder, name)))
    return changed


def without_shims(env: Dict[str, str]) -> Dict[str, str]:
    """The environment for the ranks: as the script's, but without what only the script is to see."""
    folder = env.get("EJB_SHIMS", "")
    hidden = {"EJB_SHIMS", "EJB_LAUNCH_SOCKET", "EJB_LAUNCH_FOLDER", "_", LINE, _LOCALE} | {
        function_name(name) for name in SHIMS
    }
    if env.get(_LOCALE) == "":
        hidden.add("LC_CTYPE")
    plain = {name: value for name, value in env.items() if name not in hidden}
    if "PATH" in plain:
        plain["PATH"] = os.pathsep.join(
            part for part in plain["PATH"].split(os.pathsep) if part != folder or not folder
        )
    return plain
