"""What an independent implementation of the paper's algorithm with this speed came to, to be set beside our figures.

Changes of the mean turnaround in per cent on CTC, SDSC, BLUE and KTH; lambda 120 s, ties and trim of the paper.
"""

from __future__ import annotations

from typing import NamedTuple

LOGS = ("CTC", "SDSC", "BLUE", "KTH")
CLOSE = 1.5  # points by which ours may differ


class Row(NamedTuple):
    """One line of a table: what it is called, the settings that differ, and the reference's figures by log."""

    name: str
    settings: dict[str, str]
    reference: tuple[float, ...] = ()


_WIDE = {"reshape": "1", "omax": "64"}
_OVER = "over-subscribed, Delta 1, O_max 8"

ONE = (
    Row(_OVER, {}, (-33.1, -48.3, -36.1, -37.7)),
    Row("reshaped, alpha 1, O_max 8", {"reshape": "1"}, (-35.6, -51.9, -38.1, -41.0)),
    Row("reshaped, alpha .9, O_max 8", {"reshape": "0.9"}, (-36.2, -52.7, -38.7, -41.7)),
    Row("reshaped, alpha 1, to P / 64", _WIDE, (-45.6, -59.7, -44.3, -49.2)),
    Row(
        "the same, suspended, acting in a move",
        {**_WIDE, "suspend": "on", "act-in-move": "on", "guard": "off"},
        (-53.6, -63.2, -49.0, -51.4),
    ),
)
"""One elastic job a simulation."""

ALL = (
    Row(_OVER, {}, (-22.7, -39.5, -28.8, -14.9)),
    Row("reshaped, alpha 1, to P / 64", _WIDE, (-23.3, -40.2, -27.3, -14.3)),
    Row("reshaped, alpha .9", {**_WIDE, "reshape": "0.9"}, (-28.5, -45.8, -30.6, -16.8)),
    Row("reshaped, alpha .8", {**_WIDE, "reshape": "0.8"}, (-31.0, -49.7, -34.4, -19.3)),
)
"""All jobs of 8 processors and more elastic, waiting first, the least work first, suspended; no guard."""

BESIDE = tuple(Row(f"over-subscribed, Delta {delta}", {"delta": delta}) for delta in ("1", "1.2", "1.5", "2")) + tuple(
    Row(f"reshaped, alpha {alpha[1:] if alpha < '1' else alpha}", {**_WIDE, "reshape": alpha})
    for alpha in ("1", "0.9", "0.8")
)
"""With the guard on; there is no reference for these."""
