"""Which processors of its nodes each job of a pool has, by their numbers: none is two jobs' at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ejbd.batch.local.jobs import Job, Places


def places(running: Iterable[Job], nodes: Iterable[str], processors: int) -> Mapping[int, Places]:
    """Of each job, by its id: on each of its nodes as many as it holds there.

    It keeps what it has, the first of them where it is folded; where it has more than before it gets the lowest that
    are free. So a job that is unfolded may have other processors than those that it gave.
    """
    free = {name: set(range(processors)) for name in nodes}
    kept: dict[int, dict[str, tuple[int, ...]]] = {}
    jobs = sorted(running, key=lambda job: job.id)
    for job in jobs:
        had = dict(job.places)
        kept[job.id] = {name: had.get(name, ())[:count] for name, count in job.held if name in free}
        for name, numbers in kept[job.id].items():
            free[name] -= set(numbers)
    for job in jobs:
        for name, count in job.held:
            if name not in free:
                continue
            more = sorted(free[name])[: count - len(kept[job.id][name])]
            kept[job.id][name] += tuple(more)
            free[name] -= set(more)
    return {id: tuple(mine.items()) for id, mine in kept.items()}
