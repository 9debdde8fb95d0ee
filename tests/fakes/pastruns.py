"""Runs of the past, as a daemon keeps them."""

from __future__ import annotations

from sqlalchemy.orm import Session

from ejbd.core.overhead import Hop
from ejbd.store.models import Overhead, PastRun
from tests.fakes.live import LiveWorld


def remember(
    live: LiveWorld, runs: int, run_s: float, *, application: str, processors: int = 16, user: str = "ada"
) -> None:
    """So many newer runs of an application, and that a start took 3 s."""

    def write(session: Session) -> None:
        known = session.query(PastRun).count()
        for at in range(known, known + runs):
            session.add(
                PastRun(
                    key=at, user=user, application=application, processors=processors, input_class="", run_s=run_s,
                    requested_s=100.0, outcome="completed", end_s=float(at),
                )
            )  # fmt: skip
        if not known:
            session.add(
                Overhead(
                    hop=Hop.READY.value, queue="batch", application="", job_id="a", subjob_id="a.1", at_s=1.0,
                    processors=processors, seconds=3.0,
                )
            )  # fmt: skip

    live.store.write_sync(write)
