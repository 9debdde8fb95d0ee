"""Lists of nodes as Slurm and its users write them, bounded before they are unfolded: a dozen characters name millions
(`n[10-2000000]`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

MOST_HOSTS = 65_536  # as many as Slurm takes in one list
_RANGES = re.compile(r"\[([^][]*)\]")
_NUMBERS = re.compile(r"([0-9]+)")
_WORDS = re.compile(r"(?:\[[^][]*\]|[^][,])+")


def unfold(text: str) -> NodeSet:
    """The nodes that `n[1-3],m7` names. Raises ValueError, with a sentence, for no such list and for too long a one."""
    if _how_many(text) > MOST_HOSTS:
        raise ValueError(f"it names more than {MOST_HOSTS} nodes")
    try:
        return NodeSet(text, resolver=RESOLVER_NOGROUP)
    except NodeSetException as error:
        raise ValueError(f"it is no list of nodes: {error}") from error


def fold(nodes: Iterable[str]) -> str:
    """`n1`, `n2`, `n3` -> `n[1-3]`; names that do not fold stay as they are."""
    names = list(nodes)
    try:
        return str(folded(names))
    except NodeSetException:
        return ",".join(names)


def folded(nodes: Iterable[str]) -> NodeSet:
    """These nodes, to be held against a list of which only they are to be written out. Raises NodeSetException."""
    return NodeSet.fromlist(list(nodes), resolver=RESOLVER_NOGROUP)


@lru_cache(65_536)
def natural(node: str) -> tuple[tuple[int, str], ...]:
    """The order of node names by their numbers: n2 before n10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _NUMBERS.split(node))


def _how_many(text: str) -> int:
    """Nodes that a list names, counted without unfolding it; more than MOST_HOSTS is only said to be more."""
    found = 0
    for word in _WORDS.finditer(text):
        product = 1
        for ranges in _RANGES.findall(word[0]):
            product *= sum(map(_width, ranges.split(",")))
        found += product
        if found > MOST_HOSTS:
            break
    return found


def _width(part: str) -> int:
    first, dash, last = part.partition("-")
    last, _, step = last.partition("/")
    if not dash or not all(word.strip().isdecimal() and len(word) < 20 for word in (first, last)):
        return MOST_HOSTS + 1 if len(part) > 40 else 1
    every = int(step) if step.isdecimal() and len(step) < 20 else 1
    return max(1, (int(last) - int(first)) // max(1, every) + 1)
