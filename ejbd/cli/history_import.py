"""`ejb history import`: finished runs from a file to the daemon, so many at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ejbd.accounting.reading import STANDARD, Format, read_runs
from ejbd.accounting.rows import Oddities
from ejbd.cli.sim.progress import Shown
from ejbd.client.client import Client
from ejbd.wire.naming import application_name
from ejbd.wire.toldruns import ToldRun

AT_ONCE = 10_000  # runs in one request
SORTED = 100_000  # runs that are put in order before they are sent
_SECONDS = 2**31 - 1  # of an end that fit into a key
LONGEST_S = 1e9
MOST_PROCESSORS = 2**31 - 1


def import_runs(
    daemon: Client, file: Path, format: str | None, *, cluster: str, only: str | None, as_user: str | None
) -> dict[str, Any]:
    """Send what a file has: {"read", "new", "odd"}. Raises EjbError; what was sent before that is kept."""
    odd = Oddities()
    size = 0 if str(file) == STANDARD or not file.exists() else file.stat().st_size
    shown = Shown()
    what = f"reading {file.name}"
    done = {"read": 0, "new": 0}

    def progress(read: int) -> None:
        shown(f"{what}, {done['read']:,} runs", min(1.0, read / size) if size else None)

    rows: list[ToldRun] = []

    def post(ready: list[ToldRun]) -> None:
        body = dict(zip(ToldRun._fields, zip(*ready, strict=True), strict=True))
        done["new"] += daemon.request("POST", "/v1/history", body=body).json()["new"]
        done["read"] += len(ready)

    def post_all(ready: list[ToldRun]) -> None:
        ready.sort(key=_of)
        for first in range(0, len(ready), AT_ONCE):
            post(ready[first : first + AT_ONCE])

    with _ended(shown), ThreadPoolExecutor(1) as sender:
        under_way: Future[None] | None = None

        def send() -> None:
            """Hand the rows over; the next ones are read while the daemon takes them in."""
            nonlocal under_way, rows
            if under_way is not None:
                under_way.result()
            under_way = sender.submit(post_all, rows)
            rows = []

        source = _of_swf if format == "swf" or (format is None and ".swf" in file.suffixes) else _of_accounting
        for row in source(file, format, odd, progress, cluster):
            if only is not None and row.user != only:
                continue
            if not 0 < row.run_s <= LONGEST_S or row.processors > MOST_PROCESSORS or not 0 <= row.end_s <= 1e11:
                odd.tell(0, "figures that cannot be")
                continue
            if as_user is not None:
                row = row._replace(user=as_user)
            rows.append(row)
            if len(rows) == SORTED:
                send()
        if rows:
            send()
        if under_way is not None:
            under_way.result()
    return {**done, "odd": odd.sentences()}


class _ended:
    """The bar goes when the reading ends, however it ends."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def __enter__(self) -> None:
        self._shown.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._shown.__exit__(*error)


def _of(run: ToldRun) -> str:
    """About the order of the daemon's index of applications: each request then changes a part of it, not all of it."""
    return f"{run[1]}\0{run[2]}"  # user and application; by their places, since a million are asked


def _key(what: str, end_s: float) -> int:
    """A number for what tells a run from all others, in the order in which they ended.

    Files are in about that order, too: the daemon's index of a million random numbers took twice the time.
    """
    digest = hashlib.blake2b(what.encode("utf-8", "replace"), digest_size=4).digest()
    return int(max(0.0, min(end_s, _SECONDS))) << 32 | int.from_bytes(digest, "big")


def _plain(text: str) -> str:
    """A name as it may be kept: without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


Progress = Callable[[int], None]


def _of_accounting(
    file: Path, format: str | None, odd: Oddities, progress: Progress, cluster: str
) -> Iterator[ToldRun]:
    names: dict[str, str] = {}
    users: dict[str, str] = {}
    for run in read_runs(file, odd, Format(format) if format else None, progress=progress):
        application = names.get(run.name)
        if application is None:
            if len(names) > 100_000:
                names.clear()
            application = names[run.name] = application_name(_plain(run.name)) or "job"
        user = users.get(run.user)
        if user is None:
            user = users[run.user] = _plain(run.user)[:256]
        asked = run.requested_s if run.requested_s is not None and 0 < run.requested_s <= LONGEST_S else None
        yield ToldRun(
            _key(f"{cluster}\0{run.job}\0{run.user}\0{run.start_s}\0{run.run_s}", run.end_s), user, application, "",
            run.processors, run.run_s, asked, run.ending, run.end_s,
        )  # fmt: skip


_SWF_ENDS = {1: "completed", 0: "failed", 5: "cancelled"}


def _of_swf(file: Path, format: str | None, odd: Oddities, progress: Progress, cluster: str) -> Iterator[ToldRun]:
    """A log of the archive: users and applications are its numbers; times begin with the log's UnixStartTime."""
    from ejbd.sim.swf import read_swf

    log = read_swf(file)
    for one in log.odd:
        odd.tell(one.lines[0], one.what, not one.kept)
    said = (log.value("UnixStartTime") or "0").split()
    begun = float(said[0]) if said and said[0].isdigit() else 0.0
    names = ("job", "submit_s", "wait_s", "run_s", "processors", "requested_processors", "requested_s", "status")
    fields = zip(*(log.column(name).tolist() for name in (*names, "user", "application")), strict=True)
    lines = log.lines if log.lines is not None else range(1, len(log) + 1)
    for line, (job, submit, wait, run, procs, asked_procs, asked, status, user, application) in zip(
        lines, fields, strict=True
    ):
        processors = int(procs if procs > 0 else asked_procs)
        if run < 0 or submit < 0:
            odd.tell(int(line), "a negative run time or submit time")
            continue
        if run == 0 or processors < 1:
            odd.tell(int(line), "never ran")
            continue
        if status not in (-1, 0, 1, 5):
            odd.tell(int(line), "a part of a job, or a status that is not known")
            continue
        ending = _SWF_ENDS.get(int(status), "completed")
        if ending != "completed" and asked > 0 and run >= asked:
            ending = "timeout"
        end_s = begun + submit + max(0.0, wait) + run
        yield ToldRun(
            _key(f"{cluster or file.name}\0{job}\0{user}\0{submit}\0{run}", end_s), f"user{user:.0f}",
            f"application{application:.0f}" if application >= 0 else "job", "", processors, float(run),
            float(asked) if asked > 0 else None, ending, end_s,
        )  # fmt: skip
    progress(file.stat().st_size if file.exists() else 0)
