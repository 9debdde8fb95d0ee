"""The command line of `scripts/compose-test`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from composed import engine as engines
from composed import faults, standins
from composed.engine import Engine
from composed.project import SERVICES, Project, free_subnets
from composed.shell import Skipped, Steps, Wrong, end_others, root_on_debian, say

EPILOGUE = """exit codes: 0 all is well, or nothing can be tested here ("skipped: REASON"); 1 something is wrong.
An engine that runs is used; where none does, root starts a private one (on Debian it is installed), which is gone
afterwards with all that was in it. Nothing is published on this machine's ports."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/compose-test",
        description="Builds the dockerized Slurm, brings it up, plays the demo, breaks it as "
        "deploy/docker/README.md says, checks the result of every job, and takes everything down again.",
        epilog=EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="only the faults with these words in their name")
    parser.add_argument("--no-demo", action="store_true", help="without the demo")
    parser.add_argument("--short", action="store_true", help="without faults that default tests show, too (CI)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _told_to_stop)
    signal.signal(signal.SIGHUP, _told_to_stop)
    steps = Steps()
    try:
        _tested(steps, options)
    except Skipped as why:
        say(f"skipped: {why}")
        return 0
    except (Wrong, KeyboardInterrupt) as error:
        say(f"WRONG: {error or 'interrupted'}")
        return 1
    finally:
        if steps.taken:
            print(steps.told(), flush=True)
    say("everything was as it should be")
    return 0


def _told_to_stop(number: int, frame: FrameType | None) -> None:
    # Not a Wrong: nothing on the way up may take it for a command that failed.
    raise KeyboardInterrupt(f"told to stop by signal {number}")


def _tested(steps: Steps, options: argparse.Namespace) -> None:
    engine = None
    projects: list[Project] = []
    try:
        with steps.step("an engine"):
            engine = _engine()
        with steps.step("base images"):
            standins.provide(engine)
        numbers = ("one",) if options.short else ("one", "two")
        for name, subnet in zip(numbers, free_subnets(len(numbers)), strict=True):
            projects.append(Project(engine, f"ejbtest{os.getpid()}{name}", subnet))
        with steps.step("build"):
            projects[0].build()
            print(engine.run("images", "--format", "{{.Repository}}:{{.Tag}}  {{.Size}}", "--filter", "dangling=false"))
        with steps.step("up: " + ", ".join(f"{one.name} on {one.subnet}.0/24" for one in projects)):
            _together(*(project.up for project in projects))
        names = [name for name in faults.NAMED if options.only in name]
        if options.short:
            _first(projects[0], steps, [name for name in names if name not in SHOWN_BY], demo=not options.no_demo)
            return
        # The demo and two faults in one project, the others in the other: most of it is waiting.
        halves = [[name for name in names if (name in FIRST) == first] for first in (True, False)]
        _together(
            lambda: _first(projects[0], steps, halves[0], demo=not options.no_demo),
            lambda: faults.play(projects[1], steps, halves[1]),
        )
    except (Wrong, KeyboardInterrupt):
        for project in projects:
            _told(project)
        raise
    finally:
        # What takes down is not to be interrupted; each part of it has a bound.
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end_others()
        if engine:
            with steps.step("down"):
                for project in projects:
                    project.down()
                engine.end()


# What `--short` leaves out, and the test of the default suite that shows it.
SHOWN_BY = {
    "what is measured": "tests/unit/test_alerts.py",
    "the daemon away while J0 starts": "tests/acceptance/test_crash_matrix.py",
    "the spool full": "tests/integration/test_worker_checkpoint.py",
    "a node drained": "tests/unit/test_manager_drains.py",
    "a maintenance announced": "tests/integration/test_batch_contract.py",
}
FIRST = (
    "alice and bob at once",
    "what is measured",
    "controller, daemon and database restarted",
    "the daemon away while J0 starts",
)


def _first(project: Project, steps: Steps, names: list[str], *, demo: bool) -> None:
    if demo:
        with steps.step("demo"):
            print(project.compose("run", "--rm", "-T", "demo", bound_s=400))
    if names:
        faults.play(project, steps, names)


def _together(*parts: Callable[[], None]) -> None:
    """All at once; the first that goes wrong ends it. The others are then left to what takes their containers away."""
    wrong: list[BaseException] = []

    def guarded(part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(part,), daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not wrong:
        time.sleep(0.2)
    if wrong:
        raise wrong[0] if isinstance(wrong[0], Wrong) else Wrong(repr(wrong[0]))


def _engine() -> Engine:
    found = engines.running()
    if found is not None:
        # One without a registry has no base images, and stand-ins belong into no engine but our own.
        if all(found.pulled(image) for image in (standins.DEBIAN, standins.PYTHON, standins.POSTGRES)):
            return found
        if not root_on_debian(standins.RELEASE):
            raise Skipped("the engine that runs here cannot pull the base images")
    return engines.started()


def _told(project: Project) -> None:
    """What the services said last, to find out why it went wrong."""
    for service in SERVICES:
        try:
            print(f"== {service}\n{project.last_words(service)}", file=sys.stderr)
        except (Wrong, IndexError):
            continue
