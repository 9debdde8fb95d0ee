"""For whom tests ask a batch system to do something: themselves."""

from __future__ import annotations

from ejbd.batch.base import Identity

ME = Identity.own()
