"""Standing orders: what the workers of a J0 may begin by themselves while no daemon is there, and which may begin it.

An order lies in J0's folder of the spool, signed with J0's secret. It is claimed by making the name `claim.json` there,
which can be done once only. A worker does it with the word that the job has begun. The daemon makes the order void by
linking it to that name, before anything of the job begins. The second one to come sees which was first.
"""

from __future__ import annotations

import errno
import hmac
import json
from pathlib import Path
from typing import Any

from ejbd.errors import Code, EjbError
from ejbd.manager.hands.spool import Spool

_MOST_BYTES = 1 << 20
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)  # where no claim can be made


def _folder(spool: Spool, job: str, subjob: str) -> Path:
    return spool.subjob_dir(job, subjob) / "alone"


def give(
    spool: Spool,
    job: str,
    subjob: str,
    secret: str,
    order: dict[str, Any],
    script: str | None,
    prolog: str | None = None,
) -> None:
    """Put an order into a J0's folder, and before it the script that it names, where it has one of its own.

    `prolog`: what srun is to run before each rank.

    Raises EjbError (SPOOL).
    """
    folder, text = _folder(spool, job, subjob), json.dumps(order)
    spool.files.folder(folder)
    if script is not None:
        spool.files.put(Path(order["script"]), script.encode(), 0o700)
    if prolog is not None:
        spool.files.put(folder / "task-prolog", prolog.encode(), 0o700)
    proof = hmac.new(secret.encode(), "\n".join(("ejb order", subjob, text)).encode(), "sha256").hexdigest()
    spool.files.put(folder / "order.json", json.dumps({"order": text, "proof": proof}).encode())


def withdraw(spool: Spool, job: str, subjob: str) -> bool:
    """See that a J0's workers begin nothing by themselves. False: they have begun. Repeatable.

    Raises EjbError (SPOOL) where that cannot be known: then nothing of the job may begin.
    """
    folder = _folder(spool, job, subjob)
    claim = folder / "claim.json"
    try:
        spool.files.link(folder / "order.json", claim.name)
    except FileNotFoundError:
        return True  # there is no order
    except FileExistsError:
        return begun_s(spool, job, subjob) is None
    except OSError as error:
        if error.errno in _NO_LINKS:
            return True
        message = f"cannot be made: {error.strerror}"
        raise EjbError(Code.SPOOL, message, where=str(claim), transient=True) from error
    return True


def begun_s(spool: Spool, job: str, subjob: str) -> float | None:
    """When a J0 began the job by itself (seconds, by its node's clock). None: it has not."""
    try:
        return float(_begun(spool, job, subjob)["at_s"])
    except (ValueError, KeyError, TypeError):
        return None


def begun_at_once(spool: Spool, job: str, subjob: str) -> bool:
    """Whether it did so as its order said, and not because no daemon was there."""
    return bool(_begun(spool, job, subjob).get("at_once"))


def _begun(spool: Spool, job: str, subjob: str) -> dict[str, Any]:
    claim = _folder(spool, job, subjob) / "claim.json"
    try:
        found = json.loads(spool.files.read(claim, _MOST_BYTES)[0])["begun"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
