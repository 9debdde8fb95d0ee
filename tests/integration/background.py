"""Other people's jobs that leave a chosen number of processors idle, beside which a wide job has to wait for minutes.

On n1 … nN of C processors each:

- the *block* holds n1 … n4 for `block_minutes`: a job of 4 * C ranks is planned to start there when it ends;
- the last processors are left idle (5 of 8 x 4: all of n8 and one of n7), and belong to nobody's plan;
- each node in between is held by a *filler* of its own, for longer than the block.

Slurm plans the wide job on the block's nodes, since they are the smallest row of neighbours that is wide enough; so a
job of any length on the idle processors delays nobody and is backfilled at once. Ended fillers make further such holes.
Jobs end when they are told to (a file appears), not after a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration.slurm_clusters import SlurmCluster


@dataclass(frozen=True, slots=True)
class Background:
    """The jobs that run. `fillers` are in the order in which they are best ended; each frees one node's share."""

    cluster: SlurmCluster
    folder: Path
    ids: dict[str, str]
    fillers: tuple[str, ...]
    block: str
    block_processors: int

    def end(self, *names: str) -> None:
        """Let these jobs end by themselves (COMPLETED), and wait until their processors are free."""
        for name in names:
            (self.folder / f"end-{name}").touch()
        wanted = {self.ids[name] for name in names}
        self.cluster.until(
            lambda: all(self.cluster.states().get(id) == "COMPLETED" for id in wanted), f"{names} did not end"
        )

    def end_all(self) -> None:
        """End what still runs."""
        states = self.cluster.states()
        self.end(*(name for name, id in self.ids.items() if states.get(id) == "RUNNING"))


def fill(
    cluster: SlurmCluster,
    folder: Path,
    free: int = 5,
    *,
    block_nodes: int = 4,
    block_minutes: int = 6,
    filler_minutes: int = 60,
) -> Background:
    """Start the background jobs in `folder` and wait until all of them run.

    Raises ValueError where the shape leaves no filler to end.
    """
    share = {f"n{i}": cluster.cpus for i in range(1, cluster.nodes + 1)}
    left = free
    for name in reversed(share):
        idle = min(left, share[name])
        share[name] -= idle
        left -= idle
    names = list(share)
    fillers = [name for name in names[block_nodes:] if share[name]]
    if not fillers or any(share[name] < cluster.cpus for name in names[:block_nodes]):
        raise ValueError(f"{free} idle processors leave no room for a block of {block_nodes} nodes and fillers")
    ids: dict[str, str] = {}

    def start(name: str, nodes: str, count: int, processors: int, minutes: int) -> None:
        ids[name] = cluster.sbatch(
            f"--job-name=background-{name}",
            f"--nodelist={nodes}",
            f"--nodes={count}",
            f"--ntasks-per-node={processors}",
            f"--time={minutes}",
            script=f"until [ -e '{folder}/end-{name}' ]; do sleep 0.3; done",
        )

    start("block", f"n[1-{block_nodes}]", block_nodes, cluster.cpus, block_minutes)
    for name in fillers:
        start(name, name, 1, share[name], filler_minutes)
    cluster.until(
        lambda: all(cluster.states().get(id) == "RUNNING" for id in ids.values()), "the background did not start"
    )
    # Whole nodes first: they are the larger holes.
    fillers.sort(key=lambda name: -share[name])
    return Background(cluster, folder, ids, tuple(fillers), "block", block_nodes * cluster.cpus)
