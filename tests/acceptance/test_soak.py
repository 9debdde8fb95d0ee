"""A short soak, of another seed by EJB_SOAK_SEED; the long one is `python -m tests.acceptance.soak`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.soak import soak_on

SEED = int(os.environ.get("EJB_SOAK_SEED", "1"))


def test_nothing_is_lost_doubled_orphaned_or_told_wrong_whoever_is_killed_when(tmp_path: Path) -> None:
    with soak_on(tmp_path) as soak:
        soak.round(SEED, 20)
