"""The mails of a job, under sbatch and as an elastic job of EJB, by the same MailProg of one real Slurm."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.daemon import Daemon, until
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, slurm_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("passed-through-slurm")]
# One write for each mail: two may be sent at a time.
PROGRAM = '#!/bin/sh\nline=$(printf "%s|" "$@")\nprintf "%s\\n" "$line" >> "$(dirname "$0")/mails"\n'
TOML = f"""batch = "slurm"
poll_s = 0.5
worker_python = "{sys.executable}"
[queues.default]
elasticity = "on"
min_processors = 2
[limits]
missing_grace_s = 3
settle_s = 1
"""
SCRIPT = "#!/bin/bash\n#SBATCH -n 2 -t 2 -o /dev/null --mail-type={kinds} --mail-user=ada@example.org\n{does}\n"
# --mail-type, what the script does, and how many mails come of it.
DOES = {
    "ends well": ("ALL", "srun sleep 0", 2),
    "fails": ("BEGIN,FAIL", "srun sleep 0; exit 3", 2),
    "fails and only its end is wanted": ("END", "srun sleep 0; exit 3", 0),
    "ends well and only failures are wanted": ("FAIL", "srun sleep 0", 0),
    "is cancelled": ("ALL", "srun sleep 60", 2),
}


@dataclass
class Post:
    cluster: SlurmCluster
    daemon: Daemon
    expected: int = 0

    def mails(self, who: str) -> list[str]:
        """Those of Slurm or EJB: recipient and subject, without what differs between any two jobs."""
        file = self.cluster.directory / "mails"
        lines = file.read_text().splitlines() if file.exists() else []
        fields = [line.split("|") for line in lines]
        assert all(option == "-s" for option, *_ in fields)
        ours = [(subject, to) for _, subject, to, *_ in fields if subject.startswith(f"{who} Job_id=")]
        return sorted(f"{to}: {re.sub(r'[0-9:]{8}', 'TIME', s.partition(' ')[2].partition(' ')[2])}" for s, to in ours)


@pytest.fixture(scope="module")
def post(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Post]:
    if reason := missing_slurm():
        pytest.skip(reason)
    with slurm_cluster(2, 2, more="MailProg=$dir/mailprog\n") as cluster:
        program = cluster.directory / "mailprog"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        daemon = Daemon(tmp_path_factory.mktemp("mails"), TOML, {"SLURM_CONF": str(cluster.conf)})
        try:
            daemon.start()
            yield Post(cluster, daemon)
        finally:
            daemon.stop()


def run_both(post: Post, kinds: str, does: str, folder: Path, cancel: bool) -> None:
    """The same script under sbatch, as a job named `job`, and as an elastic job of EJB, until both are over."""
    text = SCRIPT.format(kinds=kinds, does=does)
    (folder / "job").write_text(text)
    run = post.cluster.run
    id = run("sbatch", "--parsable", f"--chdir={folder}", str(folder / "job")).strip()
    if cancel:
        post.cluster.until(
            lambda: run("squeue", "--noheader", f"--job={id}", "--format=%T").strip() == "RUNNING", "no start", 60
        )
        run("scancel", id)
    post.cluster.until(lambda: id not in run("squeue", "--noheader", "--format=%A").split(), "it runs on", 60)
    answer = post.daemon.post_job(script=text, script_name="job", overrides={"ntasks": 2, "time": "2"})
    assert answer["elastic"] and not any("mail" in note for note in answer["notes"]), answer
    if cancel:
        post.daemon.wait(answer["id"], "running")
        assert post.daemon.client.post(f"/v1/jobs/{answer['id']}/cancel").status_code < 300
    post.daemon.wait(answer["id"])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", DOES)
def test_the_mails_are_those_of_sbatch(post: Post, case: str, tmp_path: Path) -> None:
    kinds, does, count = DOES[case]
    post.expected += count
    run_both(post, kinds, does, tmp_path, case == "is cancelled")
    mails: dict[str, list[str]] = {}

    def as_many() -> bool:
        """Of all jobs so far; a subjob that sent one of its own would be one of Slurm's too many."""
        mails.update((who, post.mails(who)) for who in ("Slurm", "EJB"))
        return len(mails["EJB"]) == len(mails["Slurm"]) == post.expected

    until(as_many, "not as many mails of EJB as of Slurm", 60, lambda: str(mails))
    assert mails["EJB"] == mails["Slurm"]
