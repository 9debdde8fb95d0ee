"""A short soak, of another seed each day, or that of EJB_SOAK_SEED; the long one is `python -m tests.acceptance.soak`.

A run of the tests says the seed at its end.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.acceptance.soak import soak_on


def test_nothing_is_lost_doubled_orphaned_or_told_wrong_whoever_is_killed_when(tmp_path: Path) -> None:
    with soak_on(tmp_path) as soak:
        soak.round(int(os.environ["EJB_SOAK_SEED"]), 12)
        assert soak.jobs and soak.kills.total() + soak.others.total()
