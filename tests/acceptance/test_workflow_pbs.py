"""The journey of a workflow of four stages behind qsub: as a plan, and as launches of one script."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.test_workflow_slurm import PLAN, files, in_bash, launches_of_one_script
from tests.acceptance.workflows import working
from tests.fakes.daemon import until
from tests.fakes.pbs.site import PbsSite, pbs_site
from tests.integration.pbs_clusters import REAL, PbsCluster, real_ones


@pytest.fixture(params=["openpbs", "torque-maui", *REAL])
def site(request: pytest.FixtureRequest) -> Iterator[PbsSite | PbsCluster]:
    if request.param in REAL:
        with real_ones(8, 4) as cluster:
            yield cluster(request.param)
        return
    if request.param == "torque-maui" and os.environ.get("EJB_TEST_PBS") != "all":
        pytest.skip("the journey on a second dialect takes a minute: EJB_TEST_PBS=all runs it")
    dialect, _, maui = request.param.partition("-")
    with pbs_site(dialect, maui=bool(maui)) as site:
        yield site


@pytest.mark.nightly("test_workflow_slurm.py has the same stages; test_journey_pbs.py a PBS")
def test_stages_hold_what_they_need_and_make_what_bash_makes(
    site: PbsSite | PbsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = in_bash(tmp_path / "bash")
    more = f'[pbs]\nbin = "{site.bin}"'
    with working(tmp_path, monkeypatch, 'batch = "pbs"\npoll_s = 0.5', more=more) as (_, client, work):
        id = client.submit_workflow(PLAN)["id"]
        ended = ("completed", "failed")
        until(lambda: client.workflow(id)["state"] in ended, "it did not end", 240)
        found, told = client.workflow(id), client.workflow_report(id)
        assert (found["state"], files(work)) == ("completed", wanted), found
        assert [(one["tasks"], one["outcome"]) for one in told["attempts"]] == [
            *((4, "completed"), (16, "completed"), (4, "completed"), (16, "failed"), (16, "completed"))
        ]
        assert told["core_h"]["held"] < told["one_allocation_core_h"], told
        launches_of_one_script(client, tmp_path / "staged", wanted, ahead=False)
