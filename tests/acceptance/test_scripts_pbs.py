"""qsub scripts as their users wrote them, in front of a fake PBS and of a real Slurm: elastic and passed through."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.scripting import Site, running_site
from tests.fakes.daemon import FAST
from tests.fakes.pbs.site import pbs_site
from tests.integration.slurm_clusters import missing_slurm, shared_cluster

POLL_S = 0.5

ELASTIC = """\
#PBS -N heat -l select=2:ncpus=2:mpiprocs=2,place=scatter -l walltime=120
#PBS -j oe -V -v MORE=more -S /bin/sh
cd $PBS_O_WORKDIR
NP=$(wc -l < $PBS_NODEFILE)
echo np $NP nodes $(sort -u $PBS_NODEFILE | wc -l) $PBS_NUM_NODES $PBS_NUM_PPN $PBS_NP $MORE $PBS_O_WORKDIR
mpirun -np $NP -machinefile $PBS_NODEFILE sh -c 'echo rank $EJB_RANK $(wc -l < $PBS_NODEFILE) $PBS_JOBNAME'
pbsdsh -- sh -c 'echo task $EJB_RANK'
echo job $PBS_JOBID
exit 3
"""

PASSED = """\
#!/bin/sh
#PBS -N apart -l nodes=1:ppn=2+1:ppn=1,walltime=90
#PBS -e apart.err
cd $PBS_O_WORKDIR
echo in $PBS_O_WORKDIR as $PBS_JOBNAME
echo to the errors >&2
exit 4
"""


@pytest.fixture(params=["pbs", pytest.param("slurm", marks=pytest.mark.slurm)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    top = f'batch = "{request.param}"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n{FAST}\n'
    if request.param == "pbs":
        fake = pbs_site("openpbs", nodes=2, cpus=2)
        with fake as pbs, running_site(tmp_path, f'{top}[pbs]\nbin = "{pbs.bin}"\n', {}) as site:
            yield site
        return
    if reason := missing_slurm():
        pytest.skip(reason)
    with shared_cluster(2, 2) as cluster, running_site(tmp_path, top, {"SLURM_CONF": str(cluster.conf)}) as site:
        yield site


@pytest.mark.sampled(2)
def test_a_qsub_script_runs_as_it_is(site: Site) -> None:
    elastic = site.submit(ELASTIC, script_name="heat.pbs")
    passed = site.submit(PASSED, script_name="apart.pbs", overrides={"elastic": "auto"})
    first = site.daemon.wait(elastic)
    assert (first["state"], first["exit_code"], first["elastic"]) == ("failed", 3, True), first["reason"]
    number = first["subjobs"][0]["batch_id"].partition(".")[0]
    lines = (site.folder / f"heat.o{number}").read_text().splitlines()
    assert lines[0] == f"np 4 nodes 2 2 2 4 more {site.folder}"
    assert sorted(lines[1:5]) == [f"rank {rank} 4 heat" for rank in range(4)]
    assert sorted(lines[5:9]) == [f"task {rank}" for rank in range(4)]
    assert lines[9].removeprefix("job ").partition(".")[0] == number

    second = site.daemon.wait(passed)
    assert (second["state"], second["exit_code"], second["elastic"]) == ("failed", 4, False), second["reason"]
    number = second["subjobs"][-1]["batch_id"].partition(".")[0]
    assert (site.folder / f"apart.o{number}").read_text() == f"in {site.folder} as apart\n"
    assert (site.folder / "apart.err").read_text() == "to the errors\n"
    log = site.daemon.client.get(f"/v1/jobs/{passed}/logs")
    assert os.fsencode(f"in {site.folder}") in log.content, log.text
