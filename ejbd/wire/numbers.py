"""Jobs by numbers, for tools that take nothing but a number for a job of sbatch's.

EJB's ids are eight hexadecimal digits. The number of a job is its id's above 2**32, so that it is never one of Slurm's
own, which have 32 bits; of an element it is that with `_INDEX` behind it.
"""

from __future__ import annotations

import re

ABOVE = 2**32
_NUMBER = re.compile(r"(?P<number>[1-9][0-9]{9})(?P<index>_[0-9]{1,7})?", re.ASCII)


def number_of(id: str) -> str:
    """`d6f8c0b3` -> `7901593779`, `d6f8c0b3_7` -> `7901593779_7`."""
    base, _, index = id.partition("_")
    return str(ABOVE + int(base, 16)) + (f"_{index}" if index else "")


def id_of(word: str) -> str:
    """The inverse; a word that is no such number stays as it is."""
    match = _NUMBER.fullmatch(word)
    if match is None or not ABOVE <= int(match["number"]) < 2 * ABOVE:
        return word
    return f"{int(match['number']) - ABOVE:08x}{match['index'] or ''}"
