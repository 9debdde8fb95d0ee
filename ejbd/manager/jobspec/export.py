"""The environment that a job gets: the submitter's, as --export says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ejbd.manager.jobspec.findings import invalid, shortened
from ejbd.options.sbatch import export_parts
from ejbd.wire.reaching import PLACES, REACHING

# Of another job, or for the daemon's own commands: never the new job's.
_FOREIGN = ("SLURM_", "SLURMD_", "SBATCH_", "SRUN_", "SALLOC_", "EJB_", "EJBD_")
# What a login would set at the least, and where the daemon is, as Slurm tells every job where Slurm is.
_BASE = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", *PLACES)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_environment(env: Mapping[str, str]) -> None:
    """Raise EjbError (INVALID) for a variable that no process can be given."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise invalid("env", f"{shortened(name)} is not the name of an environment variable")
        if "\0" in value:
            raise invalid("env", f"the value of {shortened(name)} holds a NUL character")
        if not _encodable(name) or not _encodable(value):
            raise invalid("env", f"the variable {shortened(name)} is not valid Unicode")


def exported(env: Mapping[str, str], export: str | None, where: str) -> dict[str, str]:
    """The variables that `--export` lets through (None: all). Raises EjbError (INVALID) for what is no such list.

    ALL, NONE, NIL, or names and NAME=value separated by commas (a value with commas in quotes). Names without ALL leave
    out everything else but what a login sets.
    """
    own = {name: value for name, value in env.items() if name in REACHING or not name.startswith(_FOREIGN)}
    base = {name: own[name] for name in _BASE if name in own}
    if export is None or export.upper() == "ALL":
        return own
    if export.upper() == "NIL":
        return {}
    if export.upper() == "NONE":
        return base
    result = base
    settings: dict[str, str] = {}
    parts = export_parts(export)
    if not parts or ",".join(parts) != export:
        raise invalid(where, f"{shortened(export)} is not a list of variables", "ALL, NONE, or NAME,NAME=value,...")
    for part in parts:
        name, equals, value = part.partition("=")
        if name.upper() == "ALL" and not equals:
            result = dict(own)
        elif not _NAME.fullmatch(name):
            raise invalid(where, f"{shortened(name)} is not the name of an environment variable")
        elif equals:
            quoted = len(value) >= 2 and value[0] in "'\"" and value[-1] == value[0]
            settings[name] = value[1:-1] if quoted else value
        elif name in own:
            settings[name] = own[name]
    return {**result, **settings}


def _encodable(text: str) -> bool:
    # Python passes bytes that are not UTF-8 as U+DC80..U+DCFF; those do not survive JSON.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
