"""A profile's names out of a command line and the files beside it."""

from __future__ import annotations

from collections.abc import Sequence

from ejbd._workers.ejb_worker.profiles.filling import NotFound, ReadsFile
from ejbd._workers.ejb_worker.profiles.filling import values_of as _values_of
from ejbd.errors import Code, EjbError
from ejbd.profiles.profile import Profile


def values_of(profile: Profile, program: Sequence[str], reads: ReadsFile) -> dict[str, str]:
    """What the profile's names stand for. Raises EjbError where one stands for nothing, and says where it was looked
    for."""
    try:
        return _values_of(profile, program, reads)
    except NotFound as error:
        raise EjbError(Code.INVALID, str(error)) from None
