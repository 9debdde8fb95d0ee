"""What goes wrong with a launch, and what that says of its program."""

from __future__ import annotations

import errno
import os
from typing import Any, Dict

from .settings import Subjob

# What a launch meets where a disk or a table of the system is full, or a disk is gone.
_NOT_THE_PROGRAMS_FAULT = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ESTALE,
        errno.EROFS,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EMFILE,
        errno.ENFILE,
    )
)

DISK_PATIENCE_S = 20.0
"""How long a script, or ranks, wait to be started where a disk of EJB's own is full or gone."""
DISK_PAUSE_S = 0.5


class LaunchError(Exception):
    """One sentence; `code` is what a shell would say (127 not found, 126 not executable); 0: not its fault.

    `spoiled`: the checkpoint to restart from is, wherever one tries. `broken`: ranks were being restored and ended, or
    did not come back in time. `one_node`: what starts them cannot do so on several.
    """

    def __init__(self, message: str, code: int = 1, *, spoiled: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.spoiled = spoiled
        self.broken = False
        self.one_node = False

    @property
    def data(self) -> Dict[str, Any]:
        """For the result of the operation."""
        if self.one_node:
            return {"one_node": True}
        if self.spoiled or self.broken:
            return {"spoiled": True} if self.spoiled else {"broken": True}
        return {"code": self.code} if self.code else {}


def confined(payload: Dict[str, Any], subjob: Subjob) -> None:
    """Raises LaunchError where a launch would read or write elsewhere than in the job's own folder."""
    try:
        subjob.inside(str(payload["epoch_dir"]), "epochs")
        subjob.inside(str(payload["launch_file"]), "launches")
        if payload.get("restart_dir") is not None:
            subjob.inside(str(payload["restart_dir"]), "epochs")
        spool, told = os.path.realpath(subjob.spool) + os.sep, payload.get("dmtcp") or {}
        for library in (told.get("calls"), told.get("plugin")):
            if library is not None and not os.path.realpath(library).startswith(spool):
                raise ValueError("%s is not in the spool" % library)
    except ValueError as error:
        raise LaunchError(str(error)) from None


def code_of(error: Exception) -> int:
    """What a launch that met this error says of its program."""
    return 0 if isinstance(error, OSError) and error.errno in _NOT_THE_PROGRAMS_FAULT else 1


def sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return "%s is missing" % error
    return str(error) or type(error).__name__
