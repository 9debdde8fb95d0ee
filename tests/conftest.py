"""Fixtures that every test may use."""

from __future__ import annotations

import datetime
import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.bounds import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown
from tests.fakes.daemon import end_clusters
from tests.groups import keep_together, name_groups
from tests.integration.slurm_clusters import take_down
from tests.nightly import examples, leave_out, pytest_testnodedown, say_all, told
from tests.statements import share
from tests.store_fixtures import (
    postgres_server,
    postgres_tables_url,
    postgres_url,
    postgres_with_tables,
    pytest_generate_tests,
    sqlite_url,
    sqlite_with_tables,
    store,
    store_url,
)
from tests.times import by_file

__all__ = [
    "postgres_server",
    "postgres_tables_url",
    "postgres_url",
    "postgres_with_tables",
    "pytest_generate_tests",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_testnodedown",
    "sqlite_url",
    "sqlite_with_tables",
    "store",
    "store_url",
]

say_all()
share()

# No test asserts how fast this machine is, not even an example of a property. In CI the examples are the same each
# time: it judges a change, not the draw; everywhere else they are drawn anew.
settings.register_profile(
    "ejb",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("ejb")


def pytest_configure(config: pytest.Config) -> None:
    """The soak draws another seed each day: here, so that all workers of a run have one."""
    os.environ.setdefault("EJB_SOAK_SEED", str(datetime.datetime.now(datetime.UTC).date().toordinal()))


GARBAGE = 20_000  # new objects between two looks for it: at Python's 700, one second in fifteen of a test goes there


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives until the end: nothing looks for garbage in it, neither meanwhile nor later.

    What is read is compiled once, also where tests are not to write bytecode.
    """
    gc.disable()
    unwritten, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = unwritten
        gc.freeze()
        gc.set_threshold(GARBAGE, 20, 50)
        gc.enable()


def pytest_sessionfinish() -> None:
    take_down()
    end_clusters()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := by_file(terminalreporter):
        terminalreporter.section("the longest files")
        for line in lines:
            terminalreporter.write_line(line)
    terminalreporter.write_line(f"soak: EJB_SOAK_SEED={os.environ['EJB_SOAK_SEED']}")
    terminalreporter.write_line(told(terminalreporter.config))
    if os.environ.get("EJB_TEST_DATABASES") != "all":
        terminalreporter.write_line(
            "unit tests without the mark `sql` ran on SQLite alone (EJB_TEST_DATABASES=all: on both)"
        )


# Of tests that one process has to run one after the other: begun last they would be what the others wait for.
LONG_GROUPS = (
    *("journey-slurm", "docs-commands", "slurm-session", "web-browser"),
    *("faults-slurm", "faults-outside", "alone-slurm", "limits-slurm", "workflow-tools"),
    *("faults-daemon", "site-plans-slurm", "mpich", "crash-matrix-slurm", "journey-suspend-slurm", "kept-place-slurm"),
    "api-schema",
)


def _turn(item: pytest.Item) -> int:
    names = [mark.args[0] for mark in item.iter_markers("xdist_group")]
    return min((LONG_GROUPS.index(name) for name in names if name in LONG_GROUPS), default=len(LONG_GROUPS))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What works on a database of its own is left out of the quick loop: whole lives of jobs in a manager, mostly."""
    for item in items:
        if "store_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.database)
    leave_out(config, items)
    keep_together(items)
    items.sort(key=_turn)
    name_groups(config, items)
