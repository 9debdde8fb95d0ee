"""The page in a browser, in front of a real Slurm: an elastic job from its submission to its end, and a daemon that is
killed and comes back under the open page."""

from __future__ import annotations

import socket
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.browser import chromium, missing_browser, reader
from tests.fakes.daemon import FAST, HEAT, Daemon, until
from tests.integration.background import fill
from tests.integration.slurm_clusters import SlurmCluster, missing_slurm, shared_cluster

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("web-slurm")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    if reason := missing_slurm() or missing_browser():
        pytest.skip(reason)
    with shared_cluster(8, 4) as cluster:
        yield cluster


def noted(daemon: Daemon) -> dict[str, bool]:
    """Other jobs that were seen to start, at a width of their own; whether each was seen to end."""
    with sqlite3.connect(f"file:{daemon.state / 'ejbd.sqlite'}?mode=ro", uri=True) as database:
        query = "SELECT batch_id, end_s >= start_s FROM other_jobs WHERE ready_s <= start_s AND processors > 0"
        return {id: bool(ended) for id, ended in database.execute(query)}


@pytest.mark.nightly(
    "integration/test_web_browser.py leaves a page over a restart; unit/test_manager_others.py notes jobs"
)
def test_a_job_is_watched_to_its_end_over_a_daemon_that_is_killed(cluster: SlurmCluster, tmp_path: Path) -> None:
    # A daemon that comes back is found at the same address, as one with a port of its own in ejbd.toml is.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f'listen = "127.0.0.1:{free.getsockname()[1]}"'
    toml = f'batch = "slurm"\npoll_s = 1.0\n{listen}\n{FAST}'
    daemon = Daemon(tmp_path, toml, {"SLURM_CONF": str(cluster.conf)})
    others = fill(cluster, tmp_path)
    try:
        daemon.start()
        with chromium() as browser:
            link = daemon.client.post("/v1/web", json={}).json()["url"]
            with reader(browser, link) as page:
                base = link.partition("/web/in")[0]
                words = [str(HEAT), "--steps", "150", "--size", "32", "--pace", "20ms"]
                job = daemon.submit(sys.executable, *words, ranks=16, time="10:00")
                page.goto(f"{base}/web/jobs/{job}")
                # From here on nothing loads the page anew but its own script.
                page.evaluate("window.sameDocument = true")
                page.wait_for_selector(".now .state.running")
                daemon.kill()
                page.wait_for_selector("#connection.gone")
                daemon.start()
                others.end(*others.fillers)
                page.wait_for_selector("#connection:not(.gone)")
                page.wait_for_selector(".now .state.completed", timeout=120_000)
                assert page.evaluate("window.sameDocument") is True
                assert page.locator("#moves-table tbody tr").count() >= 1
                seen = page.locator("#events li").all_text_contents()  # folded away
                for kind in ("job.received", "job.running", "job.completed"):
                    assert any(kind in line for line in seen), kind
                page.goto(f"{base}/web/savings")
                assert page.locator("#others").count() == 1
        # Polls of both daemons have noted the jobs that are not EJB's.
        ended = {others.ids[name] for name in others.fillers}
        until(lambda: all(noted(daemon).get(id) for id in ended), "the fillers' ends are not noted", 60)
        assert set(others.ids.values()) <= noted(daemon).keys()
    finally:
        others.end_all()
        daemon.client.close()
        daemon.stop()
