"""`ejb pool`: allocations in which EJB runs its user's own jobs, folded in place so that the next one can start."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Annotated

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
    """Take one allocation of Slurm for a pool; it is submitted as a job that is not elastic."""
    folder = pools.folder_of(name)
    if folder.exists():
        raise EjbError(Code.CONFLICT, f"there is a pool {name} already", hint=f"ejb pool stop {name}, or another name")
    folder.mkdir(parents=True, mode=0o700)
    lines = [f"-N {nodes} --exclusive -t {time} -J ejb-pool-{name} -o {folder}/pool.out"]
    lines += [f"-p {partition}"] if partition is not None else []
    serving = shlex.join([sys.executable, "-m", "ejbd.cli.pool_serving", str(folder)])
    text = "".join(["#!/bin/sh\n", *(f"#SBATCH {line}\n" for line in lines), f"#EJB elastic=off\nexec {serving}\n"])
    script = folder / "pool.sbatch"
    script.write_text(text)
    try:
        job = client(context).submit(script=str(script)).id
    except EjbError:
        shutil.rmtree(folder)
        raise
    (folder / "job").write_text(job)
    out = output(as_json, quiet)
    out.result({"pool": name, "job": job}, lambda: out.line(f"Submitted pool {name} as job {job}"), quiet=name)


@pool.command("list")
def listing(as_json: AsJson = False) -> None:
    """List your pools: whether they run, on which nodes, and until when."""
    out = output(as_json, False)
    found = [{"pool": name, "runs": (told := pools.read(name)) is not None, **(told or {})} for name in pools.names()]
    rows = [
        [one["pool"], ",".join(one["nodes"]), str(one["processors_per_node"]), clock(one["end_s"])]
        if one["runs"]
        else [one["pool"], "waits", "", ""]
        for one in found
    ]
    out.result(found, lambda: out.table(["POOL", "NODES", "PROCESSORS OF EACH", "END"], rows, frozenset({2})))


@pool.command()
def stop(context: typer.Context, name: _Name = "pool") -> None:
    """End a pool with all of its jobs, and forget it."""
    folder = pools.folder_of(name)
    if not folder.is_dir():
        raise EjbError(Code.NOT_FOUND, f"there is no pool {name}", hint="ejb pool list")
    job = (folder / "job").read_text() if (folder / "job").exists() else None
    if job is not None:
        handle = client(context).job(job)
        handle.cancel()
        handle.wait()
    shutil.rmtree(folder, ignore_errors=True)


def add_to(app: typer.Typer) -> None:
    app.add_typer(pool, name="pool")
