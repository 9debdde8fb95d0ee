"""How long the work of a cluster lasts: by processor-seconds, and by what has ended lately."""

from __future__ import annotations

import pytest

from ejbd.core.lasting import lasting_s


def test_a_long_run_counts_by_the_processors_that_it_took() -> None:
    assert lasting_s([]) == lasting_s([(4, 600.0)] * 19) == 0.0, "of so few nothing is told"
    assert lasting_s([(4, 600.0)] * 20) == pytest.approx(600.0)
    assert lasting_s([(1, 100.0)] * 100 + [(8, 10_000.0)]) > 8000.0, "that is what busy processors are busy with"


def test_what_has_ended_lately_counts_and_what_took_no_time_does_no_harm() -> None:
    assert lasting_s([(4, 10_000.0)] * 50 + [(4, 100.0)] * 1000) < 150.0
    assert lasting_s([(4, 0.0)] * 20) == pytest.approx(1.0)
