"""The group that a job runs with is that of the process that submits it, as with sbatch, or there is no job."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd

from ejbd.api.auth import Principal
from ejbd.config import Settings
from ejbd.errors import Code, EjbError


def refuse_another_group(caller: Principal, settings: Settings) -> None:
    """Raise EjbError (UNSUPPORTED) for a peer with a group that no job of its user would have here.

    sbatch submits with the group that its caller has taken (`newgrp`, `sg`). Jobs of EJB are submitted with the user's
    own group as the accounts name it, or, with `identity = "self"`, with that of the daemon. Of a caller with a token
    no group is known.
    """
    if caller.gid is None:
        return
    jobs = os.getegid()
    if settings.identity == "helper":
        try:
            jobs = pwd.getpwnam(caller.user).pw_gid
        except KeyError:
            return  # which ejb-as refuses, and says so
    if caller.gid != jobs:
        theirs, ours = _name(caller.gid), _name(jobs)
        raise EjbError(
            Code.UNSUPPORTED,
            f"this process has group {theirs}, and jobs of EJB run with group {ours}",
            hint=f"leave the shell of newgrp or sg, or submit by `sg {ours} -c 'ejb submit ...'`; "
            "sbatch submits a job that needs the other group",
        )


def _name(gid: int) -> str:
    with contextlib.suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)
