"""Fixtures that every test may use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.bounds import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown
from tests.store_fixtures import postgres_server, postgres_url, sqlite_url, sqlite_with_tables, store, store_url

__all__ = [
    "postgres_server",
    "postgres_url",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "sqlite_url",
    "sqlite_with_tables",
    "store",
    "store_url",
]

# No test asserts how fast this machine is, not even an example of a property.
settings.register_profile("ejb", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ejb")
