"""A pool in one allocation of a real Slurm: its jobs are folded on real nodes, by one worker a node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ejbd.client.client import Client
from tests.acceptance.sites import POLL_S
from tests.fakes.daemon import ROOT, Daemon, until
from tests.integration.slurm_clusters import missing_slurm, shared_cluster


def test_two_jobs_share_an_allocation_and_compute_the_same(tmp_path: Path) -> None:
    if reason := missing_slurm():
        pytest.skip(reason)
    paced = tmp_path / "paced"
    subprocess.run(["cc", "-O2", "-o", paced, ROOT / "examples" / "paced.c"], check=True, timeout=120)
    with shared_cluster(8, 4) as cluster:
        settings = f'batch = "slurm"\npoll_s = {POLL_S}\nworker_python = "{sys.executable}"\n'
        there = {"SLURM_CONF": str(cluster.conf), "XDG_STATE_HOME": str(tmp_path / "a-state-folder" / ("deep" * 25))}
        daemon = Daemon(tmp_path, settings, there)
        environment = {**daemon.environment, "EJB_SOCKET": str(daemon.state / "ejbd.sock")}

        def ejb(*words: str) -> str:
            argv = [sys.executable, "-m", "ejbd.cli.main", *words]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.strip()

        def told() -> dict[str, object]:
            (found,) = json.loads(ejb("pool", "list", "--json"))
            return dict(found)

        def pool_says() -> str:
            logs = [*tmp_path.rglob("pool.out"), *tmp_path.rglob("ejbd.log")]
            states = cluster.run("squeue", "--all")
            return "\n".join([states, *(f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in logs)])

        daemon.start()
        try:
            ejb("pool", "start", "-N", "2", "-t", "10", "play")
            until(lambda: bool(told()["runs"]), "the pool does not run", 180, pool_says)
            assert len(told()["nodes"]) == 2  # type: ignore[arg-type]
            sock = Path(str(told()["socket"]))
            inside = Client(socket=str(sock))
            (of_rest,) = Client(socket=environment["EJB_SOCKET"]).pools()
            assert (of_rest["name"], of_rest["state"], len(of_rest["nodes"])) == ("play", "running", 2)

            def submit(name: str, ranks: int, steps: int) -> str:
                work = [str(paced), "--steps", str(steps), "--pace", "100ms", "--result", str(tmp_path / name)]
                return ejb("submit", "--pool", "play", "--quiet", "-n", str(ranks), "-t", "5", "--", *work)

            def kinds(job: str) -> list[str]:
                return [event["kind"] for event in inside.get(f"/v1/jobs/{job}/events", limit=1000)["events"]]

            one = submit("first", 8, 120)
            until(lambda: "epoch.running" in kinds(one), "the first job does not run", 60)
            sock.rename(hidden := sock.with_name("hidden"))  # as seen from another host
            two = submit("second", 4, 20)
            hidden.rename(sock)
            until(lambda: inside.get(f"/v1/jobs/{two}")["state"] == "completed", "the second job does not end", 60)
            until(lambda: kinds(one).count("epoch.resized") == 2, "not folded and unfolded", 30)
            until(lambda: inside.get(f"/v1/jobs/{one}")["state"] == "completed", "the first job does not end", 60)
            assert kinds(one).count("epoch.launching") == 1, "no checkpoint"
            for name, ranks, steps in (("first", 8, 120), ("second", 4, 20)):
                alone = [str(paced), "--steps", str(steps), "--expect", str(ranks)]
                want = subprocess.run(alone, check=True, capture_output=True, timeout=60).stdout
                assert (tmp_path / name).read_bytes() == want
            ejb("pool", "stop", "play")
            assert json.loads(ejb("pool", "list", "--json")) == []
        finally:
            daemon.stop()
