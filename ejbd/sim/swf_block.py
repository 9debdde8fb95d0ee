"""The rows of one block of a workload log, many at a time: numbers are read from the bytes by whole vectors.

What is no row of 18 plain numbers is left to the caller, line by line.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

COLUMNS = 18
_ZEROS = np.uint64(0x3030303030303030)
_PAD = b" " * 16  # so that the word before any number's last byte is within the block
_WIDEST = 24  # bytes of a number with a fraction; a longer one is read by Python
_EXACT = 15  # as many digits fit into a double


class Block(NamedTuple):
    """`rows[i]` is line `lines[i]` (counted from 0). `others`: lines that are no row and not empty, with their text.
    `all_lines`: how many lines there are."""

    rows: Any
    lines: Any
    others: list[tuple[int, str]]
    all_lines: int


def parse_block(data: bytes) -> Block:
    """Read whole lines, each of which ends with a line feed."""
    padded = _PAD + data
    text = np.frombuffer(padded, dtype=np.uint8)
    blank = (text == 32) | ((text - 9) < 5)
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    starts, ends = edges[0::2] + 1, edges[1::2] + 1
    breaks = np.flatnonzero(text == 10)
    words_by = np.searchsorted(starts, breaks)
    words = np.diff(words_by, prepend=0)
    first = words_by - words
    full = words == COLUMNS
    full[full] = text[starts[first[full]]] != ord(";")
    if not full.all():
        at = (first[full][:, None] + np.arange(COLUMNS)).ravel()
        starts, ends = starts[at], ends[at]
    lines = np.flatnonzero(full)
    rows, sound = _numbers(padded, text, starts, ends)
    rows = rows.reshape(-1, COLUMNS)
    sound = sound.reshape(-1, COLUMNS).all(axis=1)
    odd = (words > 0) & ~full
    if not sound.all():
        odd[lines[~sound]] = True
        rows, lines = rows[sound], lines[sound]
    others = []
    for line in np.flatnonzero(odd).tolist():
        begin = int(breaks[line - 1]) + 1 if line else len(_PAD)
        others.append((line, padded[begin : int(breaks[line])].decode("utf-8", "replace").strip()))
    return Block(rows, lines, others, int(breaks.size))


def _numbers(data: bytes, text: Any, starts: Any, ends: Any) -> tuple[Any, Any]:
    """The words from `starts` to `ends` as numbers, and which of them are finite numbers."""
    if not starts.size:
        return np.empty(0), np.empty(0, dtype=bool)
    negative = text[starts] == ord("-")
    digits = ends - starts - negative
    eights = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    low, valid = _eight_digits(eights[ends - 8], digits)
    values = low.astype(np.float64)
    long = np.flatnonzero(digits > 8)
    if long.size:
        high, good = _eight_digits(eights[ends[long] - 16], digits[long] - 8)
        values[long] += 1e8 * high
        valid[long] &= good & (digits[long] <= _EXACT)
    valid &= digits > 0
    np.negative(values, out=values, where=negative)
    sound = np.full(values.size, True)
    rest = np.flatnonzero(~valid)
    if rest.size:
        rest = rest[~_fractions(text, starts, ends, negative, rest, values)]
        for at in rest.tolist():
            try:
                values[at] = float(data[starts[at] : ends[at]])
            except ValueError:
                values[at] = np.nan
        sound[rest] = np.isfinite(values[rest])
    return values, sound


def _eight_digits(words: Any, digits: Any) -> tuple[Any, Any]:
    """The last `digits` (8 at most) characters of words of eight as a number; and where they are all digits."""
    shift = (8 * (8 - np.minimum(digits, 8))).astype(np.uint64)
    shift[digits <= 0] = 0  # a lone sign; told by the caller
    words = ((words >> shift) << shift) ^ ((_ZEROS >> shift) << shift)
    valid = ((words + np.uint64(0x7676767676767676)) | words) & np.uint64(0x8080808080808080) == 0
    words = (words * np.uint64(2561)) >> np.uint64(8)  # pairs of digits, then fours, then all eight
    words = ((words & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    words = ((words & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return words, valid


def _fractions(text: Any, starts: Any, ends: Any, negative: Any, at: Any, values: Any) -> Any:
    """Read the words numbered `at` that are digits with one point among them; which of them were."""
    begin = starts[at] + negative[at]
    length = ends[at] - begin
    number = np.zeros(at.size)
    behind = np.zeros(at.size, dtype=np.int64)  # digits behind the point
    points = np.zeros(at.size, dtype=np.int64)
    fine = (length > 1) & (length <= _WIDEST)
    for place in range(int(min(length.max(), _WIDEST))):
        within = place < length
        character = text[np.minimum(begin + place, text.size - 1)].astype(np.int64) - 48
        digit = (character >= 0) & (character <= 9)
        point = character == ord(".") - 48
        number = np.where(within & digit, 10 * number + character, number)
        behind += within & digit & (points > 0)
        points += within & point
        fine &= digit | point | ~within
    fine &= (points == 1) & (length - 1 <= _EXACT)
    exact = number / 10.0 ** behind.astype(np.float64)  # both are exact, so that the quotient is the nearest double
    values[at[fine]] = np.where(negative[at], -exact, exact)[fine]
    return fine
