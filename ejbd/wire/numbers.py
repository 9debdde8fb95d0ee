"""Jobs by numbers, for tools that take nothing but a number for a job of Slurm's.

The number of a job is its J0's (or, passed through, the batch job's), which the batch system gave. Where a number has
to be told before there is one, it is one of EJB's own: from 2**30 on. Slurm gives a job on one cluster a number below
2**26 and keeps numbers in 32 bits. So its own commands take none of EJB's for another user's job.
"""

from __future__ import annotations

import re

OWN = 2**30
_MOST = 2**32 - 16  # the highest ones mean other things to Slurm (NO_VAL, INFINITE)
_NUMBER = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


def own_number(serial: int) -> str:
    """The number of EJB's own for the job of this serial number, which no other job of this daemon gets."""
    return str(OWN + serial % (_MOST - OWN))


def is_number(word: str) -> bool:
    """Whether a word is a number that a job may have. No id of EJB's is, which all have a letter."""
    return _NUMBER.fullmatch(word) is not None


def may_be_slurms(number: str) -> bool:
    """Whether Slurm's commands take a number for itself, and not for what its lowest 32 bits are."""
    return len(number) <= 10 and int(number) < _MOST


def batch_number(batch_id: str | None) -> str | None:
    """The number in what a batch system calls a job (`12`, `12.head`, `12[].head`); None where there is none."""
    match = _NUMBER.match(batch_id or "")
    return match[0] if match else None
