"""Applications that keep all ranks on one node: why, on which one they are put, and whether they can move.

There are two of them. Open MPI's ranks are started by one `mpirun`, which DMTCP checkpoints along with them. Without
DMTCP that mpirun is spread over nodes, where it is one that EJB knows how to spread. And DMTCP without its plugin can
neither checkpoint nor restart connected ranks that span hosts (`can_split_hosts` is false). The plugin may be absent,
not proved, or built for another DMTCP than a node has. Both move as a whole, from one node to another.
"""

from __future__ import annotations

from collections.abc import Sequence

from ejbd.core.policy import Situation
from ejbd.core.view import NodeView
from ejbd.manager.facts.context import Context
from ejbd.manager.facts.jobworld import JobWorld
from ejbd.manager.facts.placing.mpi import is_open_mpi, mpi_of_launch
from ejbd.plugins.engines import moving_engines
from ejbd.store.models import Subjob, Worker
from ejbd.store.states import JobState
from ejbd.wire.kinds import AS_ASKED, OperationKind, SubjobRole


def usable_plugin(ctx: Context, user: str) -> tuple[str | None, str]:
    """The plugin for DMTCP, or None and why there is none that every node can use, as the user's workers told."""
    if user not in ctx.plugin:
        ctx.plugin[user] = _look_for_plugin(ctx, user)
    return ctx.plugin[user]


def _look_for_plugin(ctx: Context, user: str) -> tuple[str | None, str]:
    path, record = ctx.hands.own.dmtcp_plugin(), ctx.hands.own.dmtcp_plugin_record()
    if path is None:
        why = f"the plugin is not trusted: {record.get('why')}" if record else "no plugin was built"
        return None, f"{why} (ejb doctor --build-plugin)"
    for node, said in sorted(dict(ctx.offers_of(user)).items()):
        has = said.get("dmtcp")
        if has and any(record.get(name) != has.get(name) for name in ("version", "library", "machine")):
            return None, f"the plugin was built for another DMTCP than node {node} has (ejb doctor --build-plugin)"
    return path, ""


def cannot_split(ctx: Context, user: str) -> str:
    """Why ranks under DMTCP cannot span hosts if they are to move, or "". The embedded cluster is one host."""
    if ctx.settings.traits.one_host:
        return ""
    path, why = usable_plugin(ctx, user)
    return "" if path is not None else f"can_split_hosts is false: {why}"


def one_mpirun(world: JobWorld) -> bool:
    """Whether the ranks of the launch that is under way (or of the job's only one) are Open MPI's, and on one node."""
    if world.job.engine != "dmtcp" and not not_spread(world):
        return False
    mpi = world.job.spec.get("mpi", "auto")
    if mpi != "auto":
        return is_open_mpi(world.ctx.settings, mpi)
    if _nothing_launched(world):
        return False
    launch = world.launch
    return launch is not None and mpi_of_launch(launch.file, world.ctx.hands.read) == "openmpi"


def not_spread(world: JobWorld) -> str:
    """Why the job's mpirun does not start ranks on several nodes, once a worker has found that out, or ""."""
    if _nothing_launched(world):
        return ""  # and no worker has found out anything: a poll asks this of every job that waits
    for operation in world.operations(OperationKind.LAUNCH):
        if (operation.result or {}).get("one_node"):
            return operation.error or "one mpirun starts Open MPI's ranks"
    return ""


def _nothing_launched(world: JobWorld) -> bool:
    return world.job.state == JobState.WAITING and not world.job.script_run


def why_one_node(world: JobWorld) -> str:
    """Why all ranks have to be on one node, or ""."""
    if one_mpirun(world):
        return not_spread(world) or "one mpirun starts Open MPI's ranks"
    if world.job.engine != "dmtcp":
        return ""
    epoch = world.epoch
    if world.not_movable and (epoch is None or epoch.restart_from is None):
        return ""  # it is started without DMTCP
    if epoch is not None and not world.ctx.settings.traits.one_host:
        launch = world.launch
        if launch is not None and launch.ordinal == epoch.launch_ordinal:
            # It is as it was started: a plugin that came later is not in its images.
            return "" if plugin_of(world, epoch.number) else "it was started without a plugin for DMTCP"
    return cannot_split(world.ctx, world.job.user)


def plugin_of(world: JobWorld, epoch: int) -> str | None:
    """The plugin that an epoch's ranks have in them."""
    for operation in world.operations(OperationKind.LAUNCH, epoch=epoch):
        plugin = (operation.payload.get("dmtcp") or {}).get("plugin")
        return str(plugin) if plugin else None
    return None


def _nodes(world: JobWorld) -> list[NodeView]:
    view = world.ctx.view
    return view.usable_nodes(world.job.queue) if view else []


def fits_a_node(world: JobWorld) -> bool:
    """Whether any node of the queue is wide enough for all ranks at O_max."""
    widest = max((world.needs.most(node) for node in _nodes(world)), default=0)
    return not world.ctx.view or widest * world.parameters().omax >= world.job.processes


def can_move(world: JobWorld) -> bool:
    """Whether the application can be taken from where it is to another placement."""
    if world.job.engine not in moving_engines() or world.not_movable:
        return False
    if not why_one_node(world):
        return True
    epoch = world.epoch
    spread = epoch is not None and len({seat.worker for seat in epoch.placement}) > 1
    return fits_a_node(world) and not spread


def node_room(world: JobWorld, situation: Situation) -> int | None:
    """Processors that one node offers to an application that moves as a whole; None: its ranks may be anywhere.

    When J0 has started it is J0's widest node that is meant, else the one with the most free processors. Ranks that no
    node could hold are not kept together: they are put where there is room, and do not move.
    """
    if not why_one_node(world) or not fits_a_node(world):
        return None
    j0 = world.placeholder
    if situation is Situation.PLACEHOLDER_STARTED and j0 is not None:
        workers = [w.processors for w in world.workers_of(j0.id)]
        return world.needs.places(max(workers, default=-(-j0.processors // max(1, len(j0.nodes)))))
    return max((world.needs.free(node) for node in _nodes(world)), default=0)


def one_node_only(world: JobWorld, subjob: Subjob) -> bool:
    """Whether a subjob has to be asked for on one node."""
    if subjob.role in AS_ASKED and not world.job.elastic:
        return False
    if one_mpirun(world):
        return True
    if world.staged:
        return False  # its ranks are on the script's place as well, and no launch moves
    return subjob.role == SubjobRole.SUBJOB and bool(why_one_node(world)) and fits_a_node(world)


def seats_on(world: JobWorld, size: int, workers: Sequence[Worker], *, restart: bool) -> list[Worker]:
    """The workers that ranks are to be put on, out of those of the wanted subjobs, best first.

    Empty where a checkpoint (or an mpirun) would have to be on one node, and none is wide enough.
    """
    if not why_one_node(world):
        return list(workers)
    widest = max(workers, key=lambda w: w.processors)
    places = world.needs.places(widest.processors)
    fits = places * world.parameters().omax >= size
    if one_mpirun(world):
        return [widest] if fits else []
    on_j0 = any((s := world.subjob(w.subjob_id)) is not None and s.role == SubjobRole.PLACEHOLDER for w in workers)
    if fits and not (on_j0 and places < size):
        return [widest]
    return [] if restart else list(workers)  # begun at the width of J0 it stays there
