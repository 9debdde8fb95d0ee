"""Arrays that are passed through in front of a PBS, in both dialects: each element is a job of its own under one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST, ROOT, until
from tests.fakes.pbs.site import PbsSite, pbs_site

QSUB = """\
#!/bin/sh
#PBS -N many -l {shape},walltime=90
#PBS -j oe
#PBS {array}
cd $PBS_O_WORKDIR
echo $PBS_ARRAY_INDEX $PBS_ARRAYID $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT >> said
[ "$PBS_ARRAY_ID" = "$SLURM_ARRAY_JOB_ID" ] || exit 9
exit $((PBS_ARRAY_INDEX == 3 ? 4 : 0))
"""

SBATCH = """\
#!/bin/sh
#SBATCH --array=1-6%2 -n 1 --time=2 --output=at-%a.txt
echo began $SLURM_ARRAY_TASK_ID
until [ -e "go-$SLURM_ARRAY_TASK_ID" ]; do sleep 0.2; done
"""


@pytest.fixture(params=["openpbs", "torque"], scope="module")
def pbs(request: pytest.FixtureRequest) -> Iterator[PbsSite]:
    with pbs_site(request.param, nodes=2, cpus=2) as site:
        yield site


@pytest.fixture
def site(pbs: PbsSite, tmp_path: Path) -> Iterator[Site]:
    top = f'batch = "pbs"\npoll_s = 0.5\nworker_python = "{sys.executable}"\n{FAST}\n[pbs]\nbin = "{pbs.bin}"\n'
    with running_site(tmp_path, top, {}) as site:
        yield site
    pbs.empty()


def elements(site: Site, array: str) -> Any:
    return site.daemon.job(array)["elements"]


@pytest.mark.sampled(2)
def test_a_qsub_array_is_run_element_by_element(pbs: PbsSite, site: Site) -> None:
    shape, indices = "nodes=1:ppn=1", "-t 1-5:2%2"
    if pbs.dialect == "openpbs":
        shape, indices = "select=1:ncpus=1", "-J 1-5:2 -W max_run_subjobs=2"
    text = QSUB.format(shape=shape, array=indices)
    array = site.submit(text, script_name="many.pbs", overrides={"elastic": "off"})
    done = site.daemon.wait(array)
    assert (done["state"], done["exit_code"], done["elastic"]) == ("failed", 4, False), done
    assert done["elements"] == {"completed": 2, "failed": 1} and "1 failed (3)" in done["reason"]
    said = sorted((site.folder / "said").read_text().splitlines())
    assert said == [f"{index} {index} {index} of 3" for index in (1, 3, 5)]
    third = site.daemon.job(f"{array}_3")
    assert (third["state"], third["exit_code"], third["array"]) == ("failed", 4, array)
    between = {"openpbs": ".", "torque": "-"}[pbs.dialect]  # okjob.o22.3 and arr.o26-3 as they were recorded
    files = {file.name for file in site.folder.glob("many.*")}
    assert files == {f"many.o{third['array_number']}{between}{index}" for index in (1, 3, 5)}
    assert not pbs.numbers()


@pytest.mark.nightly("unit/test_manager_arrays.py cancels some, and has more follow as the first end")
@pytest.mark.sampled(2)
def test_elements_are_throttled_told_of_and_cancelled_one_by_one(pbs: PbsSite, site: Site) -> None:
    array = site.submit(SBATCH, script_name="some.sh", overrides={"elastic": "off"})
    until(lambda: elements(site, array) == {"running": 2, "to come": 4}, "two of them do not run")
    assert len(pbs.numbers()) == 2
    assert site.daemon.client.post(f"/v1/jobs/{array}_[2,5-6]/cancel").status_code == 200
    until(lambda: (site.folder / "at-3.txt").exists(), "the next one does not begin")
    assert (site.folder / "at-1.txt").read_text() == "began 1\n"
    for index in (1, 3):
        (site.folder / f"go-{index}").touch()
    until(lambda: elements(site, array) == {"running": 1, "completed": 2, "cancelled": 3}, "it does not go on")
    assert site.daemon.client.post(f"/v1/jobs/{array}/cancel").status_code == 200
    done = site.daemon.wait(array)
    assert (done["state"], done["elements"]) == ("cancelled", {"completed": 2, "cancelled": 4})
    assert "2,4-6" in done["reason"]
    until(lambda: not pbs.numbers(), "something is left at PBS")


@pytest.mark.nightly("unit/test_jobspec_pbs.py refuses them")
@pytest.mark.sampled(2)
def test_indices_that_cannot_be_read_are_refused(site: Site) -> None:
    body = {"script": "#!/bin/sh\n#SBATCH --array=x -n 1 --time=1\n:\n", "cwd": str(site.folder), "env": {}}
    answer = site.daemon.client.post("/v1/jobs", json={**body, "overrides": {"elastic": "off"}})
    assert answer.status_code == 422 and "names no indices of an array" in answer.text


def test_the_embedded_cluster_runs_them_likewise(tmp_path: Path) -> None:
    local = "[local]\nnodes = 2\nprocessors_per_node = 2\n"
    top = f'batch = "local"\npoll_s = 0.5\nworker_python = "{sys.executable}"\n{FAST}\n{local}'
    text = "#!/bin/sh\n#SBATCH -a 1-3 -n 1 -t 2 -o out-%a\necho $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT\n"
    try:
        with running_site(tmp_path, top, {}) as site:
            done = site.daemon.wait(site.submit(text, script_name="three.sh", overrides={"elastic": "off"}))
    finally:
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(tmp_path / "state" / "cluster")]
        subprocess.run(down, cwd=ROOT, check=False, capture_output=True, timeout=90)
    assert (done["state"], done["elements"], done["elastic"]) == ("completed", {"completed": 3}, False), done
    said = [(site.folder / f"out-{index}").read_text() for index in (1, 2, 3)]
    assert said == [f"{index} of 3\n" for index in (1, 2, 3)]
