"""`ejbd`: puts the layers together and runs them. The only module that may import all of them.

`ejbd [--config FILE]` runs the daemon in the foreground, `--detach` in the background until `ejbd stop`; `ejbd doctor`
checks a site without one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from ejbd import __version__
from ejbd.batch.base import BatchSystem
from ejbd.config import Settings, load
from ejbd.errors import EXIT_CODE, Code, EjbError
from ejbd.identity.sessions import Helper
from ejbd.identity.settings import RunsAs
from ejbd.log.names import visible_values
from ejbd.log.rate import Equal, EqualRecords, Rate
from ejbd.log.stream import Unbreakable
from ejbd.plugins.batches import broken_batches
from ejbd.plugins.engines import broken_engines
from ejbd.plugins.policies import broken_policies
from ejbd.release.version import told as told_version

if TYPE_CHECKING:
    from ejbd.store.store import Store

SWITCH_S = 5e-4  # after which a thread that computes lets another go on: the event loop would wait ten times as long
STOP_BOUND_S = 30.0  # from a signal until the process is gone; systemd and its like wait for 90

log = structlog.get_logger(__name__)


def make_batch(settings: Settings) -> BatchSystem:
    """The adapter that the settings name. Raises EjbError where a package's cannot be made."""
    kind = settings.batch_kind
    try:
        made: BatchSystem = kind.made(settings, settings.batch_table)
    except EjbError:
        raise
    except Exception as error:
        raise EjbError(Code.INVALID, f"the batch system {kind.name} cannot be made: {error}", where="batch") from error
    return made


def helper_of(settings: Settings, batch: BatchSystem) -> Helper | None:
    """What acts for each user: the batch system's own, where that has one. A user's session then does both, the batch
    commands and what is done with files, and a submission is one session."""
    if settings.identity is not RunsAs.HELPER:
        return None
    own: Helper | None = getattr(batch, "helper", None)
    return own or Helper.made(settings.helper)


def broken_plugins() -> list[str]:
    """What packages offer and could not be loaded, in sentences; only a user that asks for it needs it."""
    return [*broken_policies().values(), *broken_engines().values(), *broken_batches().values()]


DOCTOR_S = 280.0


async def examined(config: Path | None, build_plugin: bool, mpi: bool) -> list[dict[str, Any]]:
    """The checks of `ejbd doctor`, in a process of their own: they wait for disks, and must not hold the daemon up."""
    argv = [sys.executable, "-m", "ejbd.daemon", "doctor", "--json"]
    argv += ["--config", str(config)] * (config is not None) + ["--build-plugin"] * build_plugin + ["--mpi"] * mpi
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), DOCTOR_S)
        findings: list[dict[str, Any]] = json.loads(out)
    except TimeoutError:
        raise EjbError(Code.INTERNAL, f"the checks were not over after {DOCTOR_S:g} s") from None
    except ValueError:
        said = err.decode(errors="replace").strip().splitlines()
        raise EjbError(Code.INTERNAL, said[-1] if said else "the checks ended without a result") from None
    finally:
        if process.returncode is None:
            process.kill()
    return findings


async def run(settings: Settings, config: Path | None = None) -> None:
    """Run until SIGTERM or SIGINT, by the file `config`. Jobs, workers and ranks outlive the daemon."""
    from ejbd.api.app import create_app
    from ejbd.api.server import serve
    from ejbd.batch.fenced import fenced
    from ejbd.manager.manager import Manager
    from ejbd.manager.service.watchdog import feed, notify
    from ejbd.manager.world import World
    from ejbd.store.engine import place
    from ejbd.store.store import Store
    from ejbd.web.app import install

    sys.setswitchinterval(SWITCH_S)
    _make_state_dir(settings.state_dir)
    store = Store(settings.url_of_database)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        if not settings.standby:
            store.acquire_single_writer()
        elif not await leads(store, settings, loop, stop):
            return
        store.upgrade()
        store.begin_term(lambda: _call_soon(loop, stop.set))
        batch = make_batch(settings)
        helper = helper_of(settings, batch)
        leads_s, prove = settings.standby_after_s / 2, None
        if settings.standby:
            batch, prove = fenced(batch, partial(store.prove_term, leads_s)), partial(store.prove_term_now, leads_s)
        manager = Manager(World(settings, store, batch, helper=helper, prove=prove))
        manager.on_rival = stop.set
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _begin_to_end(loop, stop))
        beating = Beating(store, settings.standby_after_s, stop) if settings.standby else None
        await asyncio.to_thread(_build_calls, settings)
        await manager.start()
        try:

            async def examined_here(build_plugin: bool, mpi: bool) -> list[dict[str, Any]]:
                fault = manager.spool_watch.fault()
                told = [{"subject": "this daemon's spool", "good": False, "text": fault.what}] if fault else []
                return told + await examined(config, build_plugin, mpi)

            app = create_app(manager, examined_here)
            install(app)
            servers = await serve(app, settings)
            try:
                if settings.audit is not None or settings.tls.certificate is not None:
                    loop.add_signal_handler(signal.SIGHUP, servers.reload)
                manager.publish(servers.url)
                freeze()
                for sentence in broken_plugins():
                    log.warning("plugin-broken", error=sentence)
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
            if beating is not None:
                await beating.end()
        if store.fenced:
            raise EjbError(
                Code.CONFLICT,
                "another ejbd has taken the database over: this one has written nothing since, and ends",
                where=place(store.url),
                hint="jobs go on; start it again when the other one has ended",
            )
        if manager.spool_watch.rival:
            raise EjbError(
                Code.CONFLICT,
                f"another ejbd has this daemon's jobs, on another copy of its database: {manager.spool_watch.rival}",
                where=place(store.url),
            )
        if beating is not None and beating.lost:
            raise EjbError(
                Code.STORE,
                f"the database was out of reach for {settings.standby_after_s:g} s: another daemon may lead by now",
                where=place(store.url),
                hint="jobs go on; start it again, and it waits for its turn",
            )
    finally:
        store.close()


def _build_calls(settings: Settings) -> None:
    """What programs under DMTCP load has to be there before the first of them is submitted. Blocks."""
    from ejbd.doctor.plugin import build_calls

    if shutil.which("dmtcp_launch") is None:
        return
    try:
        build_calls(settings.spool_dir)
    except EjbError as error:
        log.warning("no-dmtcp", error=error.sentence())


async def leads(store: Store, settings: Settings, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> bool:
    """Stand by until this daemon leads. False: it was told to end before.

    A database that does not answer is waited for: it may be on the machine that is gone.
    """
    from ejbd.manager.service.watchdog import notify
    from ejbd.store.standby import LOOK_S, Standby

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _begin_to_end(loop, stop))
    standby = Standby(store, settings.standby_after_s)
    stands = False
    while not stop.is_set():
        try:
            found = await asyncio.to_thread(standby.look)
        except EjbError as error:
            if not error.transient:
                raise
            log.warning("standing-by", error=error.sentence())
        else:
            if found.ended:
                log.warning("leader-ended", still_s=round(found.still_s, 1), sessions=found.ended, beat=found.beat)
            if found.leads:
                log.info("leading", waited=stands)
                return True
        if not stands:
            stands = True
            log.info("standing-by", after_s=settings.standby_after_s)
        notify("READY=1", "STATUS=stands by for the daemon that leads", "WATCHDOG=1")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_S)
    return False


class Beating:
    """Tells the daemon that stands by that this one is there, as long as the event loop and the database go on.

    Where no beat was kept for `after_s`, `lost` is set and this daemon is told to `stop`: the other one leads by then.
    """

    def __init__(self, store: Store, after_s: float, stop: asyncio.Event) -> None:
        self.lost = False
        self._task = asyncio.create_task(self._beat(store, after_s, stop), name="beats")

    async def _beat(self, store: Store, after_s: float, stop: asyncio.Event) -> None:
        from ejbd.store.standby import BEATS, beat

        kept_s = time.monotonic()
        while not stop.is_set():
            begun_s = time.monotonic()
            try:
                await asyncio.wait_for(store.write(beat), after_s)
                kept_s = begun_s
            except (EjbError, TimeoutError) as error:
                log.warning("beat-not-kept", error=str(error) or "the database does not answer")
            if time.monotonic() - kept_s > after_s and not stop.is_set():
                self.lost = True
                _begin_to_end(asyncio.get_running_loop(), stop)  # a commit may hang for ever
            await asyncio.sleep(after_s / BEATS)

    async def end(self) -> None:
        """No beat comes after this."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def freeze() -> None:
    """What is imported and set up by now stays, and is walked through by no garbage collection any more. Each full one
    would keep every request waiting for a tenth of a second."""
    gc.collect()
    gc.freeze()


def _begin_to_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """On a signal: end in order, and whatever happens within `STOP_BOUND_S`.

    A handler of the interpreter's own, since the event loop may be what hangs. What is killed at the bound is taken up
    by the next daemon, as after any crash.
    """
    _call_soon(loop, stop.set)
    last = threading.Timer(STOP_BOUND_S, _end_at_once)
    last.daemon = True
    last.start()


def _end_at_once() -> None:
    log.error("stopped-hard", after_s=STOP_BOUND_S, error="something did not end when it was told to")
    os._exit(EXIT_CODE[Code.INTERNAL])


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
            visible_values,
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


KEEPING = {
    "backup": "copy the database into a new file, while the daemon runs",
    "restore": "make the database what such a file holds, while no daemon runs",
    "check": "read the whole database: exit code 1 where something is wrong with it",
    "adopt": "make a copy of a database another site's: its open jobs are left to the daemon that has them",
}


def _keep(options: argparse.Namespace, settings: Settings) -> int:
    from ejbd.store import backup
    from ejbd.store.engine import parse_url, place

    url = parse_url(settings.url_of_database)
    if options.command == "adopt":
        from ejbd.store.another_site import make_another_site

        left = make_another_site(settings.url_of_database, leave_jobs=options.leave_jobs)
        print(f"{place(url)} is another site's now; {left} jobs are left to the daemon that has them")
        return 0
    if options.command == "check":
        faults = backup.check(url)
        print(*(faults or [f"{place(url)} is whole"]), sep="\n")
        return 1 if faults else 0
    if options.command == "backup":
        print(f"{options.file}: {backup.backup(url, options.file):,} bytes of {place(url)}")
    else:
        backup.restore(url, options.file, replace=options.replace)
        print(f"{place(url)} is what {options.file} holds; ejbd upgrades its tables when it starts")
    return 0


def _make_state_dir(folder: Path) -> None:
    """Raises EjbError (INVALID) where it cannot be made, or nothing can be written there."""
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        hint = "set state_dir, XDG_STATE_HOME or HOME to a folder of this user's"
        message = f"the state folder {folder} cannot be used: {error.strerror}"
        raise EjbError(Code.INVALID, message, where="state_dir", hint=hint) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is one of docs/errors.md."""
    parser = argparse.ArgumentParser(
        prog="ejbd", description="The EJB daemon: elastic jobs in front of a batch system."
    )
    parser.add_argument("--config", type=Path, help="TOML file (docs/configuration.md); default: built-in settings")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--detach", action="store_true", help="go on in the background, and return once it answers")
    parser.add_argument("--version", action="version", version=told_version("ejbd"))
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run", help="run in the foreground (the default)")
    stop = commands.add_parser("stop", help="end the daemon in the background; jobs go on")
    stop.add_argument("--config", type=Path, dest="stop_config")
    stop.add_argument("--cluster", action="store_true", help="end the embedded cluster, too, and what runs there")
    doctor = commands.add_parser("doctor", help="check batch commands, spool, clock, engines")
    doctor.add_argument("--json", action="store_true")
    doctor.add_argument("--config", type=Path, dest="doctor_config")
    doctor.add_argument(
        "--build-plugin", action="store_true", help="compile and prove the DMTCP plugin, into the spool"
    )
    doctor.add_argument(
        "--mpi", action="store_true", help="try whether ranks of this site's MPI start without mpiexec, and end"
    )
    keeping = {name: commands.add_parser(name, help=told) for name, told in KEEPING.items()}
    for name, command in keeping.items():
        command.add_argument("--config", type=Path, dest="keeping_config")
        if name in ("backup", "restore"):
            command.add_argument("file", type=Path)
    keeping["adopt"].add_argument("--leave-jobs", action="store_true", help="also where the database has open jobs")
    keeping["restore"].add_argument("--replace", action="store_true", help="also where the database holds jobs")
    options = parser.parse_args(arguments)
    configure_logging(options.log_level)
    try:
        if options.command == "doctor":
            from ejbd.doctor.checks import examine, examine_moving
            from ejbd.store.engine import database_file, is_sqlite, parse_url

            settings = load(options.doctor_config or options.config)
            if options.build_plugin or options.mpi:
                findings = examine_moving(settings, build_plugin=options.build_plugin, mpi=options.mpi)
            else:
                url = parse_url(settings.url_of_database)
                is_set_up = is_sqlite(url) and database_file(url).exists()
                asked = examine(settings, make_batch(settings), broken_plugins(), is_set_up=is_set_up)
                findings = asyncio.run(asked)
            if options.json:
                print(json.dumps([f.to_json() for f in findings]))
            else:
                for finding in findings:
                    print(finding)
            return 0 if all(f.good for f in findings) else 1
        if options.command in KEEPING:
            return _keep(options, load(options.keeping_config or options.config))
        if options.command == "stop":
            from ejbd.cli.background_daemon import stop_daemon

            for sentence in stop_daemon(load(options.stop_config or options.config), with_cluster=options.cluster):
                print(sentence)
            return 0
        if options.detach:
            from ejbd.cli.background_daemon import start_in_background

            words = ["--config", str(options.config.absolute())] if options.config is not None else []
            print(start_in_background(load(options.config), [*words, "--log-level", options.log_level]))
            return 0
        asyncio.run(run(load(options.config), options.config and options.config.absolute()))
    except EjbError as error:
        print(f"ejbd: {error.named()}", file=sys.stderr)
        return EXIT_CODE[error.code]
    return 0


if __name__ == "__main__":
    sys.exit(main())
