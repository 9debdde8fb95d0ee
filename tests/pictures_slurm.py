"""Pictures of the page in front of a real Slurm: `python -m tests.pictures_slurm docs/pictures`.

A daemon, a Slurm of eight nodes, two of another user's batch jobs in the way, and elastic jobs of examples/heat.py.
Nothing in them is made up. They are taken dark and 360 px wide, and that of a
job light and wide, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fakes.browser import chromium, missing_browser, reader
from tests.fakes.daemon import FAST, HEAT, Daemon
from tests.integration.background import fill
from tests.integration.slurm_clusters import missing_slurm, slurm_cluster
from tests.pictures import MOST_BYTES, SIZE

NARROW = {"width": 360, "height": 740}
GETS_ON_S = 20.0  # so that there is something to see of it


def take(into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with slurm_cluster(8, 4) as cluster, tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        daemon = Daemon(where, f'batch = "slurm"\npoll_s = 1.0\n{FAST}', {"SLURM_CONF": str(cluster.conf)})
        others = fill(cluster, where)
        try:
            daemon.start()
            words = [str(HEAT), "--size", "32", "--pace", "50ms"]
            done = daemon.submit(sys.executable, *words, "--steps", "20", ranks=4, time="10:00")
            daemon.wait(done, "completed")
            job = daemon.submit(sys.executable, *words, "--steps", "4000", ranks=16, time="10:00")
            daemon.submit(sys.executable, *words, "--steps", "4000", ranks=32, time="20:00")
            daemon.wait(job, "running")
            others.end(others.fillers[0])
            time.sleep(GETS_ON_S)
            _pictures(daemon, {"cluster": "/", "jobs": "/web/jobs", "job": f"/web/jobs/{job}"}, into)
        finally:
            others.end_all()
            daemon.client.close()
            daemon.stop()


def _pictures(daemon: Daemon, pages: dict[str, str], into: Path) -> None:
    looks: dict[str, dict[str, Any]] = {
        "": {"viewport": SIZE, "color_scheme": "light"},
        "-narrow": {"viewport": NARROW, "color_scheme": "dark"},
    }
    shown = {"": ["job"], "-narrow": list(pages)}
    with chromium() as browser:
        for look, options in looks.items():
            link = daemon.client.post("/v1/web", json={}).json()["url"]
            with reader(browser, link, timezone_id="Europe/Berlin", locale="en-GB", **options) as page:
                for name in shown[look]:
                    page.goto(link.partition("/web/in")[0] + pages[name])
                    page.wait_for_selector("#connection:has-text('live')")
                    file = into / f"slurm-{name}{look}.png"
                    page.screenshot(path=file)
                    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
                    if file.stat().st_size > MOST_BYTES:
                        raise SystemExit(f"{file} is larger than {MOST_BYTES / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path)
    into = parser.parse_args().into
    if reason := missing_browser() or missing_slurm():
        raise SystemExit(reason)
    take(into)


if __name__ == "__main__":
    main()
