"""Users that lose much under the guard are told by their numbers, the worst first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ejbd.core.bundling.parameters import BundlingParameters, Guard
from ejbd.sim.metrics import Outcome
from ejbd.sim.models import Model, generate
from ejbd.sim.run import Policy, run
from ejbd.sim.workload import workload_of
from ejbd.studies.paper.stopping import FEW_JOBS, Stopping
from ejbd.studies.paper.turns import OFF, Line, figures_of, write


def test_a_user_that_loses_much_is_told(tmp_path: Path) -> None:
    log = generate(Model.UNIFORM, jobs=900, processors=32, seed=3, load=0.5)
    made = workload_of(log, "made")
    users = np.full(900, -1)
    users[100 : 100 + 4 * FEW_JOBS - 1] = np.repeat([7, 8, 9, 10], FEW_JOBS)[:-1]  # the last has too few to count
    load = replace(made, users=users)
    easy = run(load, Policy.EASY, plain=True)
    later = np.zeros(len(load))
    mean = [float((easy.end - load.jobs.submit)[users == user].mean()) for user in (7, 8, 9, 10)]
    later[users == 8], later[users == 9], later[users == 10] = mean[1] + 700.0, 3 * mean[2] + 700.0, 9 * mean[3] + 700.0
    later[users == 7] = 599.0  # not ten minutes, however many times that is
    _, _, _, count, lose, worst = figures_of(load, easy, replace(easy, end=easy.end + later))
    assert count == 3
    assert [one.user for one in lose] == [9, 8]
    assert worst == lose[0].times > 3.0
    paths = write(tmp_path, [Line("made", 1.5, 120.0, OFF, 0.0, 0.0, 0.0, count, lose, worst)], None)
    rows = [line.split(" | ") for line in paths[0].read_text().splitlines() if line.startswith("| made")]
    assert [row[4] for row in rows[1:]] == ["9", "8"]


@pytest.mark.parametrize("only_waiting", [False, True])
def test_nothing_is_elastic_while_a_user_of_ten_jobs_has_lost_much(only_waiting: bool) -> None:
    """EASY is told to have been so much better for one user that it loses from its tenth job on."""
    log = generate(Model.UNIFORM, jobs=200, processors=32, seed=3, load=0.95)
    load = replace(workload_of(log, "made"), users=np.arange(200) % 4)
    given = BundlingParameters(suspend=True, guard=Guard.ON)
    easy = run(load, Policy.EASY, plain=True)
    free = run(load, Policy.EJB, parameters=given, plain=True)

    def played(watch: Stopping) -> Outcome:
        return run(load, Policy.EJB, parameters=given, plain=True, look=watch)

    nothing = Stopping(load, replace(easy, end=easy.end + 1e9), only_waiting=only_waiting)
    assert np.array_equal(played(nothing).end, free.end) and nothing.stopped == 0.0, "none loses, so that none stops"
    soon = np.where(load.users == 2, load.jobs.submit + 1.0, easy.end + 1e9)
    watch = Stopping(load, replace(easy, end=soon), only_waiting=only_waiting)
    outcome = played(watch)
    assert watch.stopped > 0.5
    assert 0 < np.count_nonzero(outcome.elastic) < np.count_nonzero(free.elastic)
