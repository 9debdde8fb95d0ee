"""How many processes a job has, and how it wants them laid out: -n, -N, --ntasks-per-node, -c."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ejbd.manager.jobspec import values
from ejbd.manager.jobspec.findings import Given, Refusal, invalid, shortened
from ejbd.manager.jobspec.pbsresources import FREE


@dataclass(frozen=True, slots=True)
class Layout:
    """Processes, the layout that was asked for (None: any), and what only a passed-through job can keep of it.

    `tasks_asked`: the number of processes was said, by -n or by --ntasks-per-node. `threads`: processors a process.
    """

    processes: int
    nodes: int | None
    processors_per_node: int | None
    tasks_asked: bool = False
    threads: int = 1
    threads_asked: bool = False
    rigid: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()


def read_layout(settings: Mapping[str, Given]) -> Layout:
    """The layout by sbatch's rules: ranks as -n says, else nodes times --ntasks-per-node, else one a node.

    Raises EjbError (INVALID) for numbers that are none and for shapes that cannot be.
    """
    ntasks = settings.get("ntasks")
    per_node = settings.get("ntasks-per-node")
    wanted = settings.get("nodes")
    rigid: list[str] = []
    refusals: list[Refusal] = []
    processes = values.count(ntasks, "the number of processes") if ntasks else None
    each = values.count(per_node, "the number of processes a node") if per_node else None
    nodes = values.node_count(wanted) if wanted else None
    if wanted and nodes is None:
        rigid.append(f"--nodes={wanted.value}")
        message = f"an elastic job cannot choose among {shortened(wanted.value or '')} nodes"
        refusals.append(Refusal(wanted.where, message, "give one number of nodes, or none, or --elastic off"))
    cpus = settings.get("cpus-per-task")
    threads = values.count(cpus, "the number of processors a process") if cpus else 1
    if cpus and threads > 1:
        rigid.append(f"--cpus-per-task={cpus.value}")
    if processes is None:
        processes = (nodes or 1) * (each or 1)
        if processes > values.MOST_PROCESSES:
            where = wanted.where if wanted else "nodes"
            raise invalid(where, f"{nodes} nodes of {each} processes are more than {values.MOST_PROCESSES} processes")
    if nodes is not None and nodes > processes:
        where = wanted.where if wanted else "nodes"
        message = f"{processes} processes cannot fill {nodes} nodes"
        refusals.append(Refusal(where, message, "ask for fewer nodes, or pass the job through with --elastic off"))
    if nodes is not None and each is not None and nodes * each < processes:
        where = ntasks.where if ntasks else "ntasks"
        message = f"{processes} processes do not fit on {nodes} nodes with {each} on each"
        hint = "ask for more nodes, for more processes a node, or pass the job through with --elastic off"
        refusals.append(Refusal(where, message, hint))
    if each is not None and processes % each and per_node:
        message = f"{processes} processes cannot be laid out with {each} on each node"
        refusals.append(
            Refusal(per_node.where, message, "choose a divisor, or pass the job through with --elastic off")
        )
    if each is not None and nodes is None and not wanted and processes % each == 0 and FREE not in settings:
        nodes = processes // each
    if nodes is not None and each is not None and processes < nodes * each and processes % each == 0 and per_node:
        message = f"{processes} processes would leave some of {nodes} nodes with {each} on each empty"
        refusals.append(Refusal(per_node.where, message, "let -n be nodes times --ntasks-per-node, or --elastic off"))
    if processes * threads > values.MOST_PROCESSES:
        where = cpus.where if cpus else "ntasks"
        raise invalid(where, f"{processes} processes of {threads} processors are more than {values.MOST_PROCESSES}")
    asked = ntasks is not None or per_node is not None
    return Layout(processes, nodes, each, asked, threads, cpus is not None, tuple(rigid), tuple(refusals))
