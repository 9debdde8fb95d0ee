"""Fixtures of the integration tests: real Slurm clusters, one a session (and xdist worker) unless a test breaks it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster, slurm_cluster


@pytest.hookimpl(tryfirst=True)  # before the groups are named
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process of pytest has the session's cluster: each other would bring up one, and keep it to the end."""
    for item in items:
        values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "slurm" in getattr(item, "fixturenames", ()) or values.get("batch") == "slurm":
            item.add_marker(pytest.mark.xdist_group("slurm-session"))


def _need_slurm(accounting: bool = False) -> None:
    reason = missing_slurm(accounting)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmCluster]:
    """8 nodes of 4 processors; partition `batch`, and `whole` that gives out whole nodes."""
    _need_slurm()
    with slurm_cluster(8, 4, "--exclusive") as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_session: SlurmCluster) -> Iterator[SlurmCluster]:
    """The session's cluster, without jobs before and after the test."""
    yield slurm_session
    slurm_session.empty()


@pytest.fixture
def own_slurm() -> Iterator[SlurmCluster]:
    """A small cluster of the test's own, to be broken at will: 3 nodes of 2 processors, profile `fail`."""
    _need_slurm()
    with slurm_cluster(3, 2, "--profile=fail") as cluster:
        yield cluster


@pytest.fixture
def accounting_slurm() -> Iterator[SlurmCluster]:
    """A small cluster with slurmdbd and MariaDB: 2 nodes of 2 processors."""
    _need_slurm(accounting=True)
    with shared_cluster(2, 2, "--profile=acct") as cluster:
        yield cluster
