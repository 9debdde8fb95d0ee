"""`ejb pool`: allocations in which EJB runs its user's own jobs, folded in place so that the next one can start."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ejbd.cli.options import AsJson, MaybeText, Quiet, client, output
from ejbd.cli.show.words import clock
from ejbd.client import pools
from ejbd.errors import Code, EjbError

pool = typer.Typer(help="Run your own jobs in one allocation, folded in place for the next one (docs/malleable.md).")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name the pool.")]


@pool.command()
def start(
    context: typer.Context,
    name: _Name = "pool",
    nodes: Annotated[int, typer.Option("-N", "--nodes", min=1, help="Take so many whole nodes.")] = 1,
    time: Annotated[str, typer.Option("-t", "--time", help="Take them for this long, as sbatch has it.")] = "1:00:00",
    partition: Annotated[MaybeText, typer.Option("-p", "--partition", help="Of this partition.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Take one allocation of Slurm for a pool; one that has ended goes on with the jobs that it has left."""
    job = client(context).start_pool(name, nodes=nodes, time=time, partition=partition)["job"]
    out = output(as_json, quiet)
    out.result({"pool": name, "job": job}, lambda: out.line(f"Submitted pool {name} as job {job}"), quiet=name)


@pool.command("list")
def listing(as_json: AsJson = False) -> None:
    """List your pools: whether they run, on which nodes, until when, and the jobs that will not end by then."""
    out = output(as_json, False)
    found = [_told(name) for name in pools.names()]
    heads = ["POOL", "NODES", "PROCESSORS OF EACH", "END", "JOBS"]
    out.result(found, lambda: out.table(heads, [_row(one) for one in found], frozenset({2})))


def _told(name: str) -> dict[str, Any]:
    told = pools.read(name)
    return {"pool": name, "runs": told is not None, "left": pools.left(name), **(told or {})}


def _row(one: dict[str, Any]) -> list[str]:
    if one["runs"]:
        stay = one.get("stay") or []
        jobs = f"do not end in time: {', '.join(stay)}" if stay else ""
        return [one["pool"], ",".join(one["nodes"]), str(one["processors_per_node"]), clock(one["end_s"]), jobs]
    if one["left"] is not None:
        return [one["pool"], "ended", "", "", f"wait for `ejb pool start {one['pool']}`: {', '.join(one['left'])}"]
    return [one["pool"], "waits", "", "", ""]


@pool.command()
def stop(context: typer.Context, name: _Name = "pool") -> None:
    """End a pool with all of its jobs, and forget it."""
    if name not in pools.names():
        raise EjbError(Code.NOT_FOUND, f"there is no pool {name}", hint="ejb pool list")
    daemon = client(context)
    try:
        daemon.job(daemon.stop_pool(name)["job"]).wait()
    except EjbError as error:
        if error.code is not Code.NOT_FOUND:  # it has ended by itself
            raise
    pools.forget(name)


def add_to(app: typer.Typer) -> None:
    app.add_typer(pool, name="pool")
