"""When the end of DMTCP's coordinator is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workers.ejb_worker.engines.dmtcp import _coordinator_ended


@pytest.mark.parametrize(
    ("codes", "closed", "told"),
    [
        ([None, None], False, True),
        ([99, 99], False, True),  # its ranks end with it, and may be seen to have ended before
        ([0, 0], False, False),
        ([None, 0], True, False),
        ([], False, False),
    ],
)
def test_a_coordinator_that_ends_with_its_worker_after_the_ranks_ended_well_is_not_told_as_lost(
    codes: list[int | None], closed: bool, told: bool
) -> None:
    said: list[str] = []
    ranks = {rank: SimpleNamespace(code=code) for rank, code in enumerate(codes)}
    epoch: Any = SimpleNamespace(ranks=ranks, state={"closed": closed}, lost=said.append)
    _coordinator_ended(epoch, 137)
    assert bool(said) is told
