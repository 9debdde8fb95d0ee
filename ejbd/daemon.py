"""`ejbd`: puts the layers together and runs them. The only module that may import all of them.

`ejbd [--config FILE]` runs the daemon in the foreground; `ejbd doctor` checks a site without one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from ejbd import __version__
from ejbd.batch.base import BatchSystem
from ejbd.config import PbsSettings, Settings, load
from ejbd.errors import EXIT_CODE, Code, EjbError
from ejbd.logfile import Unbreakable
from ejbd.lograte import Equal, EqualRecords, Rate

log = structlog.get_logger(__name__)


def make_batch(settings: Settings) -> BatchSystem:
    """The adapter that the settings name."""
    if settings.batch == "slurm":
        from ejbd.batch.slurm import SlurmBatch

        slurm = settings.slurm
        path = f"{slurm.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}" if slurm.bin else None
        return SlurmBatch(
            conf=slurm.conf, timeout_s=slurm.timeout_s, submit_timeout_s=slurm.submit_timeout_s, path=path
        )
    if settings.batch == "pbs":
        return _make_pbs(settings.pbs)
    from ejbd.batch.local import LocalBatch

    local = settings.local
    return LocalBatch(settings.cluster_dir, nodes=local.nodes, processors_per_node=local.processors_per_node)


def _make_pbs(pbs: PbsSettings) -> BatchSystem:
    from ejbd.batch.pbs import PbsBatch
    from ejbd.batch.pbs.states import Dialect

    return PbsBatch(
        dialect=None if pbs.dialect == "auto" else Dialect(pbs.dialect),
        server=pbs.server,
        use_maui={"on": True, "off": False}.get(pbs.maui),
        whole_nodes=pbs.whole_nodes,
        longest_name=pbs.longest_name,
        timeout_s=pbs.timeout_s,
        submit_timeout_s=pbs.submit_timeout_s,
        change_timeout_s=pbs.change_timeout_s,
        path=f"{pbs.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}" if pbs.bin else None,
    )


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Jobs, workers and ranks outlive the daemon."""
    from ejbd.api.app import create_app
    from ejbd.api.server import serve
    from ejbd.manager.manager import Manager
    from ejbd.manager.service.watchdog import feed, notify
    from ejbd.store.engine import place
    from ejbd.store.store import Store

    settings.state_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    store = Store(settings.url_of_database)
    try:
        store.acquire_single_writer()
        store.upgrade()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        store.begin_term(lambda: _call_soon(loop, stop.set))
        manager = Manager(settings, store, make_batch(settings))
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await manager.start()
        try:
            servers = await serve(create_app(manager), settings)
            try:
                manager.publish(servers.url)
                freeze()
                log.info("listening", socket=str(settings.socket_path), url=servers.url, version=__version__)
                fed = asyncio.create_task(feed(manager.faults), name="watchdog")
                await stop.wait()
                log.info("stopping", fenced=store.fenced)
                fed.cancel()
                notify("STOPPING=1")
            finally:
                await servers.stop()
        finally:
            await manager.stop()
        if store.fenced:
            raise EjbError(
                Code.CONFLICT,
                "another ejbd has taken the database over: this one has written nothing since, and ends",
                where=place(store.url),
                hint="jobs go on; start it again when the other one has ended",
            )
    finally:
        store.close()


def freeze() -> None:
    """What is imported and set up by now stays, and is walked through by no garbage collection any more: each full one
    would keep every request waiting for a tenth of a second."""
    gc.collect()
    gc.freeze()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself
        loop.call_soon_threadsafe(call)


def configure_logging(level: str) -> None:
    """Structured lines on stderr: readable on a terminal, logfmt-like elsewhere; of equal ones the first few."""
    rate = Rate()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            Equal(rate),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.LogfmtRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(Unbreakable(sys.stderr)),  # type: ignore[arg-type]
    )
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(EqualRecords(rate))
    logging.getLogger("alembic").setLevel(logging.WARNING)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is one of docs/errors.md."""
    parser = argparse.ArgumentParser(
        prog="ejbd", description="The EJB daemon: elastic jobs in front of a batch system."
    )
    parser.add_argument("--config", type=Path, help="TOML file (docs/configuration.md); default: built-in settings")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--version", action="version", version=f"ejbd {__version__}")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run", help="run in the foreground (the default)")
    doctor = commands.add_parser("doctor", help="check batch commands, spool, clock, engines")
    doctor.add_argument("--json", action="store_true")
    doctor.add_argument("--config", type=Path, dest="doctor_config")
    doctor.add_argument(
        "--build-plugin", action="store_true", help="compile and prove the DMTCP plugin, into the spool"
    )
    doctor.add_argument(
        "--mpi", action="store_true", help="try whether ranks of this site's MPI start without mpiexec, and end"
    )
    options = parser.parse_args(arguments)
    configure_logging(options.log_level)
    try:
        if options.command == "doctor":
            from ejbd.doctor import examine, examine_moving

            settings = load(options.doctor_config or options.config)
            if options.build_plugin or options.mpi:
                findings = examine_moving(settings, build_plugin=options.build_plugin, mpi=options.mpi)
            else:
                findings = asyncio.run(examine(settings, make_batch(settings)))
            if options.json:
                print(json.dumps([f.to_json() for f in findings]))
            else:
                for finding in findings:
                    print(finding)
            return 0 if all(f.good for f in findings) else 1
        asyncio.run(run(load(options.config)))
    except EjbError as error:
        print(f"ejbd: {error.sentence()}", file=sys.stderr)
        return EXIT_CODE[error.code]
    return 0


if __name__ == "__main__":
    sys.exit(main())
