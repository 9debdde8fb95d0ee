"""What the nightly run adds (EJB_TEST_ALL=1): tests marked `nightly`, and those of a family that its sample leaves out.

`@pytest.mark.nightly("why another test shows it, too")` leaves a test out. `@pytest.mark.sampled(4, by=("mode",))`
keeps one in four of a family, of each kind by itself. The parameters of `by` say the kind; its first is always kept.
A family is one function's tests, or with `of="a name"` those of several. `first=1` keeps the second of each four.
Of the unit tests that PostgreSQL runs, too, one in twelve is kept there.
A test asked for by its id always runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest

WORD = "EJB_TEST_ALL"
# Words of single rooms, each of which one may say by itself.
WORDS = ("EJB_TEST_DATABASES", "EJB_TEST_CRASHES", "EJB_TEST_SCRIPTS", "EJB_TEST_EVOLVING", "EJB_TEST_PBS")
ON_POSTGRESQL = 12  # one in so many
_LEFT: pytest.StashKey[int] = pytest.StashKey()


def everything() -> bool:
    return os.environ.get(WORD, "") not in ("", "0")


def examples(count: int) -> int:
    """Of `count` examples of a property so many as this run draws: a third of them by default."""
    return count if everything() else max(count // 3, 1)


def say_all() -> None:
    """The one word says the others, which tests read as they are collected."""
    if everything():
        for word in WORDS:
            os.environ.setdefault(word, "all")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out of `items` what is left to the nightly run."""
    asked_by_id = bool(config.args) and all("::" in arg for arg in config.args)
    left = set() if everything() or asked_by_id else _left(items)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]
    _count(config, len(left))


def _left(items: Sequence[pytest.Item]) -> set[str]:
    seen: Counter[tuple[str, ...]] = Counter()
    left = {item.nodeid for item in items if item.get_closest_marker("nightly")}
    for item in items:
        if (sample := _sample(item)) is None:
            continue
        kind, one_in, first = sample
        if seen[kind] % one_in != first:
            left.add(item.nodeid)
        seen[kind] += 1
    return left


def _sample(item: pytest.Item) -> tuple[tuple[str, ...], int, int] | None:
    """The kind that a test is of, in how many of it one is kept, and which; None: it is in no sample."""
    if (mark := item.get_closest_marker("sampled")) is not None:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        by = (str(values.get(name, "")) for name in mark.kwargs.get("by", ()))
        family = str(mark.kwargs.get("of", item.nodeid.partition("[")[0]))
        return (family, *by), int(mark.args[0]), int(mark.kwargs.get("first", 0))
    if "unit" in item.path.parts and item.get_closest_marker("postgresql"):
        return ("on PostgreSQL",), ON_POSTGRESQL, 0
    return None


def _count(config: pytest.Config, left: int) -> None:
    """Under xdist the workers collect, and the process that prints the summary does not."""
    config.stash[_LEFT] = left
    if (output := getattr(config, "workeroutput", None)) is not None:
        output["left_to_the_nightly_run"] = left


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    told = getattr(node, "workeroutput", {}).get("left_to_the_nightly_run", 0)
    config: pytest.Config = node.config  # type: ignore[attr-defined]
    config.stash[_LEFT] = max(told, config.stash.get(_LEFT, 0))


def told(config: pytest.Config) -> str:
    """The line of the summary."""
    if everything():
        return f"all tests ran ({WORD}={os.environ[WORD]})"
    return f"{config.stash.get(_LEFT, 0)} left to the nightly run ({WORD}=1)"
