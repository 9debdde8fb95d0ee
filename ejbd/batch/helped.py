"""Batch commands that act for another user: made and run by `ejb-as`, and counted with the daemon's own."""

from __future__ import annotations

import math
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ejbd.batch.base import Identity
from ejbd.batch.process import CommandCount, CommandResult, CommandTimedOut
from ejbd.errors import BatchError, Code, EjbError, SubmitOutcomeUnknown
from ejbd.identity.sessions import Helper, NoAnswer, UsersSessionsAway

LEAST_ANSWER_S = 20  # a session may have to begin first, and one that does not answer keeps its user waiting


@dataclass(frozen=True, slots=True)
class Helped:
    """One user's. `system`: what the batch system is called."""

    helper: Helper
    user: pwd.struct_passwd
    counts: dict[str, CommandCount]
    system: str

    async def asked(self, name: str, verb: str, timeout_s: float, told: Mapping[str, Any]) -> CommandResult:
        """What the command `name` answers, which `ejb-as` makes of a request.

        Raises CommandTimedOut, BatchError where nothing was done, and SubmitOutcomeUnknown of a submission where that
        is not known.
        """
        count = self.counts.setdefault(name, CommandCount())
        count.calls += 1
        count.failures += 1  # until it has ended well
        seconds, user = math.ceil(timeout_s), self.user.pw_name
        if verb in ("cancel", "update"):  # later what was seen of the jobs is old, also where a session is waited for
            told = {**told, "until_s": time.monotonic() + timeout_s}
        try:
            answer = await self.helper.asked(
                user, verb, answer_s=max(seconds, LEAST_ANSWER_S) + 5, timeout_s=seconds, **told
            )
        except NoAnswer as error:
            if verb == "submit":
                text = f"{self.system} may have taken the job or not: {error}"
                raise SubmitOutcomeUnknown(text) from error
            raise BatchError(error.message, transient=True) from error
        except EjbError as error:
            # What it refuses, and what keeps this user's sessions, is the user's own matter, and no fault of the queue.
            own = error.code is Code.FORBIDDEN or isinstance(error, UsersSessionsAway)
            raise BatchError(error.message, transient=error.transient, hint=error.hint, of_account=own) from error
        except OSError as error:
            raise BatchError(f"{name} cannot be started: {error.strerror}", transient=False) from error
        said = str(answer["stdout"]), str(answer["stderr"])
        result = CommandResult(name, int(answer["code"]), *said, float(answer["seconds"]))
        count.seconds += result.seconds
        if answer["timed_out"]:
            raise CommandTimedOut(name, timeout_s, result.stderr, result.stdout)
        count.failures -= result.code == 0
        return result


def entry_of(identity: Identity) -> pwd.struct_passwd:
    """Raises BatchError where there is no such user."""
    try:
        return pwd.getpwnam(identity.user)
    except (KeyError, ValueError):
        raise BatchError(f"there is no user {identity.user!r} here", transient=False) from None
