"""The pictures of docs/web.md, taken of the page by Debian's Chromium: `python -m tests.pictures docs/pictures`.

The cluster in them is made up. It has ten nodes, jobs of several users, and what they would show on a real one.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import update
from sqlalchemy.orm import Session

from ejbd.core.room.windows import why_they_end, windows
from ejbd.core.view import BatchState, ClusterView, Reservations
from ejbd.store.models import Epoch, OtherDay, OtherReplay, Subjob
from ejbd.store.states import EpochState
from ejbd.store.transitions import add_event
from ejbd.wire.kinds import EPOCH_EVENT, EventKind
from tests.fakes.api_server import ApiServer
from tests.fakes.browser import chromium, missing_browser, reader
from tests.fakes.port import subjob_row
from tests.fakes.web import batch_job, cluster_view, link, page_server, runs, submit, waits

MOST_BYTES = 150_000
SIZE = {"width": 1180, "height": 760}


def cluster(server: ApiServer) -> None:
    """Fill the cluster, and open in it the windows that core's rule finds there."""
    now = time.time()
    heat = submit(server, "ada", "heat", state="running", start_s=now - 1200, work_s=300.0, work_rate=0.6)
    runs(server, heat, "88", ["n3"], 4)
    fluid = submit(server, "ada", "fluid", state="waiting")
    waits(server, fluid, "101", 64)
    protein = submit(server, "bob", "protein", state="running", start_s=now - 600)
    runs(server, protein, "89", ["n7"], 16)
    view = server.manager.view = _view(now)
    slots = windows(view, "main", now).slots()
    told = [
        {"processors": one.processors, "duration_s": None if math.isinf(one.duration_s) else one.duration_s, "why": why}
        for one, why in zip(slots, why_they_end(view, "main", slots), strict=True)
    ]
    free, total = sum(node.free for node in view.nodes), sum(node.processors for node in view.nodes)
    about: Any = {"queue": "main", "at_s": now, "slots": told, "closed": [], "free": free, "total": total}
    about |= {"by": "", "blind": "", "kept_for": None}

    async def open_now(queue: str | None) -> Any:
        return [about]

    server.manager.windows = open_now  # type: ignore[method-assign]


def _view(now: float) -> ClusterView:
    names = ["n1", "n2", "n5", "n6"]
    jobs = [batch_job(str(70 + at), [name], 16, end_s=now + 1800 * (at + 1)) for at, name in enumerate(names)]
    jobs += [batch_job("88", ["n3"], 4, end_s=now + 2700), batch_job("89", ["n7"], 16, end_s=now + 5400)]
    planned = {"state": BatchState.PENDING, "start_s": None, "end_s": None}
    jobs.append(batch_job("101", [], 64, **planned, planned_start_s=now + 5400, walltime_s=7200.0))
    jobs.append(batch_job("102", [], 32, **planned, planned_start_s=now + 7300, walltime_s=5400.0))
    # A batch system that plans starts without nodes reserves processors, and its windows are counted so.
    return replace(cluster_view(jobs=tuple(jobs)), reservations=Reservations.PROCESSORS)


def moved(server: ApiServer) -> str:
    """A job that began on four processors and was moved to twelve."""
    now = time.time()
    begun, stop, again = now - 1500, now - 620, now - 590
    values: dict[str, Any] = {"start_s": begun, "rigid_start_s": now + 5400, "expected_completion_s": now + 3100}
    values |= {"processes": 16, "walltime_s": 1800.0}
    job = submit(server, "ada", "heat", state="running", work_s=360.0, work_rate=0.0, submit_s=begun - 90, **values)

    def add(session: Session) -> None:
        session.add(
            subjob_row(job, 0, batch_id="101", processors=16, state="pending", planned_start_s=now + 5400, nodes=[])
        )
        session.execute(update(Subjob).where(Subjob.job_id == job, Subjob.ordinal == 0).values(start_s=None))
        for at, processors, start_s in ((1, 4, begun), (2, 8, stop - 20)):
            runs_on = {"batch_id": f"8{at}", "processors": processors, "start_s": start_s, "nodes": [f"n{2 + at}"]}
            session.add(subjob_row(job, at, end_s=now + 3600, **runs_on))
        common = {"job_id": job, "launch_ordinal": 1, "size": 16, "placement": [], "fallback": [], "exits": {}}
        first = {
            "members": [f"{job}.1"],
            "processors": 4,
            "state": "stopped",
            "created_s": begun,
            "running_s": begun + 3,
        }
        session.add(Epoch(number=1, stopping_s=stop, ended_s=stop + 12, checkpoint_bytes=3 * 2**30, **common, **first))
        second = {"members": [f"{job}.1", f"{job}.2"], "processors": 12, "state": "running", "created_s": stop + 12}
        session.add(Epoch(number=2, restart_from=1, running_s=again, **common, **second))
        one = {"epoch": 1, "processors": 4, "subjobs": [f"{job}.1"]}
        two = {"epoch": 2, "processors": 12, "subjobs": [f"{job}.1", f"{job}.2"]}
        told: list[tuple[float, EventKind, dict[str, Any]]] = [
            (begun, EPOCH_EVENT[EpochState.LAUNCHING], one),
            (begun - 90, EventKind.JOB_RECEIVED, {}),
            (begun - 88, EventKind.JOB_WAITING, {}),
            (begun, EventKind.DECISION_START, {}),
            (begun + 3, EPOCH_EVENT[EpochState.RUNNING], one),
            (stop - 30, EventKind.DECISION_EXPAND, {}),
            (stop, EPOCH_EVENT[EpochState.STOPPING], one),
            (stop + 12, EPOCH_EVENT[EpochState.STOPPED], one),
            (stop + 13, EPOCH_EVENT[EpochState.LAUNCHING], two),
            (again, EPOCH_EVENT[EpochState.RUNNING], two),
        ]
        for at_s, kind, data in told:
            add_event(session, kind, at_s, job_id=job, **data)

    server.run(server.store.write(add))
    explain = server.manager.explain

    async def explained(job_id: str) -> Any:
        told = await explain(job_id)
        why = "3.0 GiB of its memory are written in 12 s and read in 18 s"
        parts = {
            "reserve_s": 40.0,
            "samples": 1,
            "checkpoint_s": 12.0,
            "write_s": 11.0,
            "wait_s": 2.0,
            "restart_s": 16.0,
        }
        cost = {"lambda_s": 30.0, "source": "measured", "why": why, "bytes": 3 * 2**30, **parts}
        words = "running on 12 of 16 processors, degree 2; J0 is planned to start later than the job is to end"
        movable = {"movable": True, "why": "engine dmtcp takes all of its ranks along"}
        decisions = [{**one, "at_s": begun} for one in told["decisions"]]
        return {**told, "now": words, "cost": cost, "movable": movable, "decisions": decisions}

    server.manager.explain = explained  # type: ignore[method-assign]
    return job


def saved(server: ApiServer) -> None:
    """Jobs that ended in the last days, one of them later than it was promised."""
    now = time.time()
    server.run(server.store.write(_others))
    for at, (user, by_s) in enumerate([("ada", 5400), ("bob", 2100), ("ada", -300), ("ada", 3000)]):
        end = now - at * 86400 - 3600
        values: dict[str, Any] = {"state": "completed", "start_s": end - 900, "end_s": end, "work_s": 600.0}
        job = submit(server, user, "done", rigid_start_s=end - 600 + by_s, **values)
        runs(server, job, f"5{at}", ["n9"], 8)
        server.run(server.store.write(lambda session, job=job, end=end: _ended(session, job, end)))  # type: ignore[misc]


def _others(session: Session) -> None:
    """Three days, replayed: what other jobs gained on two of them, and lost on one."""
    today = math.floor(time.time() / 86400) * 86400.0
    for back, user, gained_h, lost_h in (
        (1, "cyd", 6.2, 0.4),
        (1, "eve", 2.5, 0.0),
        (2, "cyd", 0.6, 1.9),
        (3, "eve", 3.1, 0.0),
    ):
        sums = {
            "gained_s": gained_h * 3600,
            "lost_s": lost_h * 3600,
            "error_s": 2300.0,
            "before_real_s": gained_h * 3500,
        }
        counts = {"jobs": 31, "gained": 9, "lost": 4 if lost_h else 0, "unsure": 1 if lost_h else 0}
        session.add(OtherDay(day_s=today - back * 86400, user=user, queue="main", **counts, **sums))
        known = {"away_s": 0.0, "unknown": 0, "left_out": 0, "ranked": True, "limits": ""}
        session.merge(OtherReplay(day_s=today - back * 86400, as_of_s=time.time(), **known))


def _ended(session: Session, job: str, end_s: float) -> None:
    rows = update(Subjob).where(Subjob.job_id == job)
    session.execute(rows.values(state="ended", start_s=end_s - 900, end_s=end_s))


def take(into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, page_server(Path(folder)) as server, chromium() as browser:
        saved(server)
        cluster(server)
        server.run(server.manager.set_queue_window("main", "mon-fri 20:00-08:00", {"elasticity": "on"}, "otto"))
        server.manager.calendar["mon-fri 20:00-08:00"]["changed_s"] = time.time() - 86400
        pages = {
            "cluster": "/",
            "queues": "/web/queues",
            "savings": "/web/savings?by=day,user",
            "job": f"/web/jobs/{moved(server)}",
        }
        options = {"viewport": SIZE, "color_scheme": "light", "timezone_id": "Europe/Berlin", "locale": "en-GB"}
        user = {"cluster": "ada", "job": "ada"}
        for name, path in pages.items():
            with reader(browser, link(server, user.get(name, "otto")), **options) as page:
                page.goto(server.servers.url + path)
                page.wait_for_selector("#connection:has-text('live')")
                file = into / f"web-{name}.png"
                page.screenshot(path=file)
                size = file.stat().st_size
                print(f"{file}: {size / 1000:.0f} kB")
                if size > MOST_BYTES:
                    raise SystemExit(f"{file} is larger than {MOST_BYTES / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path)
    into = parser.parse_args().into
    if reason := missing_browser():
        raise SystemExit(reason)
    take(into)


if __name__ == "__main__":
    main()
