"""Fixtures that every test may use."""

from __future__ import annotations

from tests.store_fixtures import postgres_server, postgres_url, sqlite_url, store, store_url

__all__ = ["postgres_server", "postgres_url", "sqlite_url", "store", "store_url"]
