"""scripts/cluster with OpenPBS and Torque: what is said without them, and that `down` leaves nothing of real ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clusters import pbs
from clusters.errors import ClusterError
from clusters.openpbs import OpenPbs
from clusters.torque import Torque
from tests.integration.pbs_clusters import REAL, missing, pbs_cluster
from tests.integration.slurm_clusters import SCRIPT


def test_each_kind_finds_its_own_server_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a pbs_server: the first on PATH need not be the right one."""
    for name, beside in (("torque", "sbin/trqauthd"), ("openpbs", "libexec/pbs_habitat")):
        for file in (tmp_path / name / "sbin" / "pbs_server", tmp_path / name / beside):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o755)
    monkeypatch.setattr(pbs, "SEARCH_PATH", f"{tmp_path}/torque/sbin:{tmp_path}/openpbs/sbin")
    assert (OpenPbs.prefix(), Torque.prefix()) == (tmp_path / "openpbs", tmp_path / "torque")
    assert Torque.maui() is None
    monkeypatch.setattr(pbs, "SEARCH_PATH", f"{tmp_path}/torque/sbin")
    with pytest.raises(ClusterError, match="OpenPBS is not installed") as caught:
        OpenPbs.prefix()
    assert caught.value.code == 69


@pytest.mark.parametrize("batch", list(REAL.values()))
def test_down_leaves_nothing(batch: str) -> None:
    """Daemons, a job, what a job has put into a session of its own, the network and its files."""
    if reason := missing(batch):
        pytest.skip(reason)
    with pbs_cluster(batch, 2, 2) as cluster:
        network = f"ejb{cluster.cluster.settings['network']}"
        mark = f"{300 + cluster.cluster.settings['network']}.25"
        shape = "nodes=2:ppn=1" if cluster.maui else "select=2:ncpus=1"
        cluster.run("qsub", "-l", shape, stdin=f"setsid sleep {mark} & sleep {mark}\n", cwd=Path("/"))
        for _ in range(120):
            if subprocess.run(["pgrep", "-fx", f"sleep {mark}"], capture_output=True, timeout=180).returncode == 0:
                break
            subprocess.run(["sleep", "0.5"], timeout=180)
        else:
            pytest.fail("the job did not begin")
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "down", str(cluster.directory)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert subprocess.run(["pgrep", "-fx", f"sleep {mark}"], capture_output=True, timeout=180).returncode == 1
        assert subprocess.run(["pgrep", "-f", str(cluster.directory)], capture_output=True, timeout=180).returncode == 1
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=180).stdout.split()
        assert not [name for name in names if name == network or name.startswith(f"{network}-")]
        assert sorted(path.name for path in cluster.directory.iterdir()) == [".lock", "cluster.json", "log"]
