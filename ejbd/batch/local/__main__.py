"""A small command for people, the demo and tests: `python -m ejbd.batch.local up|submit|queue|cancel|down DIR ...`."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import sys
import time
from pathlib import Path

from ejbd.batch.base import Identity, SubmitRequest
from ejbd.batch.local.adapter import LocalBatch
from ejbd.batch.local.client import Client
from ejbd.batch.local.options import QUEUE
from ejbd.core.view import BatchState
from ejbd.core.walltime import parse_walltime
from ejbd.errors import EXIT_CODE, EjbError

DOWN_S = 60.0


def walltime(text: str) -> float:
    """Seconds: 90s, 5m, 1h, or as Slurm spells it (a number alone is minutes)."""
    match = re.fullmatch(r"([0-9]{1,9})([smh])", text)
    if match is not None:
        return int(match[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]
    try:
        seconds = parse_walltime(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds is None:
        raise argparse.ArgumentTypeError("the embedded cluster needs a walltime that ends")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ejbd.batch.local", description="EJB's embedded cluster")
    actions = parser.add_subparsers(dest="action", required=True)
    words = {
        "up": "start the cluster's server where none runs",
        "submit": "queue a command",
        "queue": "show nodes and jobs",
        "cancel": "cancel jobs",
        "leave": "end the server; what waits stays in the queue, and what runs goes on",
        "down": "cancel everything and end the server",
    }
    for action, text in words.items():
        one = actions.add_parser(action, help=text, description=text)
        one.add_argument("directory", type=Path, metavar="DIR")
        one.add_argument("--nodes", type=int, default=8, help="virtual nodes (default: 8)")
        one.add_argument("--cpus", type=int, default=4, help="processors of each (default: 4)")
        if action == "submit":
            one.add_argument("-n", "--processors", type=int, default=1)
            one.add_argument("-t", "--walltime", type=walltime, default=60.0, help="60s, 5m, 1h or as in Slurm")
            one.add_argument("-J", "--name", default=None)
            one.add_argument("-o", "--output", type=Path, default=Path("local-%j.out"), help="%%j is the job's number")
            one.add_argument("--hold", action="store_true")
            one.add_argument("--launch", action="store_true", help="run the command once on every processor (srun)")
            one.add_argument("command", nargs="+", metavar="-- COMMAND")
        if action == "cancel":
            one.add_argument("ids", nargs="+", metavar="ID")
    return parser


async def _submit(batch: LocalBatch, options: argparse.Namespace) -> None:
    command: list[str] = options.command
    body = batch.rigid_command(command, options.processors) if options.launch else shlex.join(command)
    id = await batch.submit(
        Identity.own(),
        SubmitRequest(
            tag=options.name or Path(command[0]).name,
            comment="",
            queue=QUEUE,
            processors=options.processors,
            walltime_s=options.walltime,
            script=f"#!/bin/sh\nexec {body}\n",
            workdir=Path.cwd(),
            output=options.output.absolute(),
            environment={name: value for name, value in os.environ.items() if not name.startswith("EJB_")},
            hold=options.hold,
        ),
    )
    print(id)


async def _queue(batch: LocalBatch) -> None:
    view = await batch.observe()
    free = sum(node.free for node in view.nodes)
    print(f"{len(view.nodes)} nodes, {view.queues[0].total_processors} processors, {free} free")
    for node in view.nodes:
        print(f"  {node.name:<5} {node.free} of {node.processors} free")
    for job in view.jobs:
        print(
            f"{job.id:>6} {job.state:<10} {job.processors:>4} processors {job.walltime_s:>6g} s"
            f"  {_when(job.state, job.planned_start_s, job.end_s):<12} {job.name!r}"
        )


def _when(state: BatchState, planned_start_s: float | None, end_s: float | None) -> str:
    if planned_start_s is not None:
        return "at " + time.strftime("%H:%M:%S", time.localtime(planned_start_s))
    if state.holds_processors and end_s is not None:
        return "to " + time.strftime("%H:%M:%S", time.localtime(end_s))
    return ""


async def _run(options: argparse.Namespace) -> None:
    directory: Path = options.directory.absolute()
    client = Client(directory, options.nodes, options.cpus, timeout_s=10.0)
    if options.action in ("down", "leave"):
        try:
            await client.call("hello", start=False)
        except EjbError:
            return  # nothing runs
        await client.call(options.action, start=False, timeout_s=DOWN_S)
        await asyncio.to_thread(client.wait_until_gone)
        return
    there = await client.call("hello")
    if options.action == "up":
        print(f"{there['nodes']} nodes of {there['processors']} processors, server process {there['pid']}")
        return
    batch = LocalBatch(directory, there["nodes"], there["processors"])
    if options.action == "submit":
        await _submit(batch, options)
    elif options.action == "queue":
        await _queue(batch)
    else:
        await batch.cancel(Identity.own(), options.ids)


def main() -> int:
    """0, or the exit code of the error as `ejb` has it."""
    options = _parser().parse_args()
    try:
        asyncio.run(_run(options))
    except EjbError as error:
        print(f"ejbd.batch.local: {error.sentence()}", file=sys.stderr)
        return EXIT_CODE[error.code]
    return 0


if __name__ == "__main__":
    sys.exit(main())
