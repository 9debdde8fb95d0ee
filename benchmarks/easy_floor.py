#!/usr/bin/env python3
"""How far plays of plain EASY are from each other, and what EJB's plays are beside all of them.

    benchmarks/easy_floor.py FOLDER [FOLDER ...]

Reads what `sim_to_real.py` left in these folders (WINDOW-easy-N.json, WINDOW-ejb-N.json), and plays nothing. Each
distinct play of EASY counts, of whatever folder; of EJB those of the first folder do. Windows are told apart by the
scale that they were played at. A single pair of plays compares EJB with one way in which EASY's queue may go. Here the
change is from the mean of all plays of EASY, and beside it stands how far one of them alone would be from the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ejbd.studies.live.pairs import GROUPS, turnarounds

NAMES = {"all": "all", "elastic": "elastic", "non_elastic": "others"}


class Window(NamedTuple):
    name: str
    scale: str


class Plays(NamedTuple):
    """Of each group, and then of each play, the sum of the turnarounds of its jobs (s)."""

    easy: list[dict[str, float]]
    ejb: list[dict[str, float]]


def sums(play: dict[str, Any]) -> dict[str, float]:
    return {group: float(turnarounds(play, group).sum()) for group in GROUPS}


def found_in(folders: list[Path]) -> dict[Window, Plays]:
    found: dict[Window, Plays] = defaultdict(lambda: Plays([], []))
    seen = set()
    for number, folder in enumerate(folders):
        for path in sorted(folder.glob("*-*-*-*.json")):
            play = json.loads(path.read_text())
            window, policy = path.stem.rsplit("-", 2)[0], play["policy"]
            key = (window, policy, tuple(tuple(job["live"]) for job in play["each"]))
            if key in seen or (policy == "ejb" and number):
                continue
            seen.add(key)
            scale = str(Fraction(play["parameters"]["scale"]).limit_denominator(10_000))
            plays = found[Window(window, scale)]
            (plays.ejb if policy == "ejb" else plays.easy).append(sums(play))
    return found


def change(value: float, of: float) -> float:
    """In per cent."""
    return 100.0 * (value / of - 1.0) if of else 0.0


def row(window: Window, plays: Plays) -> str:
    cells = [f"{window.name:8} {window.scale:5} {len(plays.easy):5}"]
    for group in GROUPS:
        easy = np.array([one[group] for one in plays.easy])
        mean = float(easy.mean())
        low, high = change(float(easy.min()), mean), change(float(easy.max()), mean)
        ejb = ", ".join(f"{change(one[group], mean):+.1f}" for one in plays.ejb)
        cells.append(f"{low:+5.1f} to {high:+4.1f}: {ejb:18}")
    return " | ".join(cells)


def pooled(found: list[Plays]) -> str:
    """Over all windows: EJB's plays against the means of EASY's, each window with the weight of its jobs."""
    cells = []
    for group in GROUPS:
        easy = sum(float(np.mean([one[group] for one in plays.easy])) for plays in found)
        ejb = sum(float(np.mean([one[group] for one in plays.ejb])) for plays in found)
        # One play of EASY a window, drawn anew: how far the pooled mean of EASY alone would be off.
        random = np.random.default_rng(1)
        drawn = [sum(float(random.choice([one[group] for one in plays.easy])) for plays in found) for _ in range(4000)]
        low, high = np.percentile([change(one, easy) for one in drawn], [2.5, 97.5])
        cells.append(f"{low:+5.1f} to {high:+4.1f}: {change(ejb, easy):<+18.1f}")
    return " | ".join([f"{'together':8} {'':5} {'':5}", *cells])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    args = parser.parse_args()
    found = found_in(args.folders)
    there = {window: plays for window, plays in sorted(found.items()) if plays.easy and plays.ejb}
    if not there:
        print("easy_floor: no window has plays of both policies in these folders", file=sys.stderr)
        return 1
    print("EASY's plays beside their mean, least to most (%): EJB's plays beside it (%)")
    print(f"{'window':8} scale plays | " + " | ".join(f"{NAMES[group]:34}" for group in GROUPS))
    for window, plays in there.items():
        print(row(window, plays))
    for scale in dict.fromkeys(window.scale for window in there):
        print(pooled([plays for window, plays in there.items() if window.scale == scale]) + f" | {scale}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
