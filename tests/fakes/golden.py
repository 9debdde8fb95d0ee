"""What a day has left in the database, as lines that are the same each time, and a recording of them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import select

from ejbd.store.models import (
    Array,
    Dependency,
    Epoch,
    Event,
    Intent,
    Job,
    Launch,
    Move,
    Obstacle,
    Operation,
    Overhead,
    PastRun,
    QueuePause,
    Run,
    Speed,
    Subjob,
    Worker,
)
from tests.fakes.days import Day

TABLES: tuple[tuple[Any, Any], ...] = (
    (Event, Event.id),
    (Operation, Operation.seq),
    (Intent, Intent.id),
    (Job, Job.seq),
    (Subjob, (Subjob.job_id, Subjob.ordinal)),
    (Epoch, (Epoch.job_id, Epoch.number)),
    (Launch, (Launch.job_id, Launch.ordinal)),
    (Worker, (Worker.registered_s, Worker.id)),
    (Array, Array.job_id),
    (Dependency, Dependency.job_id),
    (Move, Move.id),
    (Speed, Speed.id),
    (Run, Run.id),
    (PastRun, PastRun.id),
    (Overhead, Overhead.id),
    (Obstacle, Obstacle.id),
    (QueuePause, (QueuePause.name, QueuePause.what, QueuePause.whose)),
)
LEFT_OUT = {"worker_secret", "decision_key", "spec", "work"}  # the last is made of the folder's name, too
DIGESTED = {"question", "decision"}  # long: their kind and reason, and what the rest of them comes to


def lines(day: Day) -> list[str]:
    """Everything that a day has left, in its order."""
    folder = str(day.live.folder)
    found = [f"seen {line}" for line in day.seen]
    asked = ("submit", "cancel", "update", "begin", "stay", "reduce", "set-aside")
    found += [f"batch {call}" for call in day.live.batch.calls if call.split()[0] in asked]
    found += [f"shown {path} {status} {_text(answer)}" for path, status, answer in day.shown]
    for table, order in TABLES:
        by = order if isinstance(order, tuple) else (order,)
        names = [column.key for column in table.__mapper__.columns if column.key not in LEFT_OUT]
        query = select(table).order_by(*by)
        for row in day.live.store.read_sync(lambda s, query=query: list(s.scalars(query))):  # type: ignore[misc]
            values = {name: getattr(row, name) for name in names}
            found.append(f"{table.__tablename__} {_text({k: v for k, v in values.items() if v not in (None, '')})}")
    return [line.replace(folder, "FOLDER") for line in found]


def _text(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k != "now_s"}  # by the machine's own clock
        return {str(k): _digest(v) if k in DIGESTED and isinstance(v, dict) else _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return _rounded(value)
    return value


def _rounded(value: float) -> float | str:
    """Ten figures: what the last bits of a processor's arithmetic make of it is no difference."""
    return float(f"{value:.10g}") if math.isfinite(value) else str(value)


def _digest(value: dict[str, Any]) -> dict[str, Any]:
    told = {key: value[key] for key in ("kind", "reason") if key in value}
    whole = json.dumps(_plain_all(value), sort_keys=True, default=str)
    return told | {"sha": hashlib.sha256(whole.encode()).hexdigest()[:12]}


def _plain_all(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain_all(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_all(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def counts(found: list[str]) -> dict[str, int]:
    """How many events of each kind there are, and lines of each table."""
    kinds = Counter(line.partition(" ")[0] for line in found)
    kinds.update(f"event {kind}" for line in found if line.startswith("events ") for kind in _kind(line))
    return dict(sorted(kinds.items()))


def _kind(line: str) -> list[str]:
    return re.findall(r'"kind":"([a-z.-]+[a-z_]*)"', line)[-1:]


def write(path: Path, found: list[str]) -> None:
    """Lines as they are would be megabytes."""
    packed = base64.b85encode(zlib.compress("\n".join(found).encode(), 9)).decode()
    text = [packed[at : at + 4000] for at in range(0, len(packed), 4000)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"lines": len(found), "counts": counts(found), "text": text}, indent=1) + "\n")


def read(path: Path) -> list[str]:
    packed = "".join(json.loads(path.read_text())["text"])
    return zlib.decompress(base64.b85decode(packed)).decode().split("\n")


if __name__ == "__main__":
    import sys

    for name in sys.argv[1:]:
        print("\n".join(read(Path(name))))
