"""`ejb demo`: the main journey on an embedded cluster of its own, from nothing but Python.

A 16-rank job that could not start now starts at once on 4 idle processors, grows as more come free, and ends before its
rigid twin would have.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ejbd.cli.own_daemon import own_daemon
from ejbd.errors import Code, EjbError
from ejbd.release.shipped import EXAMPLES

RANKS, STEPS, PACE = 16, 1000, "20ms"
SETTINGS = """poll_s = 1.0

[queues.default]
elasticity = "on"
lambda_s = 3       # what a move of this small program costs

[limits]
start_grace_s = 20
heartbeat_s = 3
"""
# Processors, the time that is asked for, name, seconds that it takes. Two of them end early, as jobs do: that is not
# known beforehand, and EJB is not told.
BUSY = ((4, "400s", "early-1", 18), (8, "400s", "early-2", 32), (15, "120s", "on-time", 120))
STEP_S = 300.0


class Journey:
    """The steps, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster = folder, folder / "state" / "cluster"
        self.env = dict(os.environ)
        self.heat = [sys.executable, str(EXAMPLES / "heat.py"), "--steps", str(STEPS), "--pace", PACE, "--result"]

    def call(self, words: Sequence[str], *, quiet: bool = False) -> str:
        """Run a command, with its output for all to see or as the answer. Raises EjbError where it fails."""
        pipe = subprocess.PIPE if quiet else None
        done = subprocess.run(words, env=self.env, stdout=pipe, text=True, timeout=STEP_S, check=False)
        if done.returncode:
            raise EjbError(Code.INTERNAL, f"{' '.join(words[:4])} ended with {done.returncode}")
        return done.stdout or ""

    def ejb(self, *words: str, quiet: bool = False) -> str:
        return self.call([sys.executable, "-m", "ejbd.cli.main", *words], quiet=quiet)

    def local(self, *words: str, quiet: bool = False) -> str:
        return self.call(
            [sys.executable, "-m", "ejbd.batch.local", words[0], str(self.cluster), *words[1:]], quiet=quiet
        )

    def go(self) -> bool:
        say(f"1. The undisturbed run, {RANKS} ranks on {RANKS} processors, for its result and its time")
        begin_s = time.monotonic()
        self.call([*self.heat, str(self.folder / "undisturbed"), "--spawn", str(RANKS)])
        alone_s = time.monotonic() - begin_s
        print(f"took {alone_s:.1f} s")

        say("2. The daemon, with its embedded cluster of 8 nodes x 4 processors")
        with own_daemon(self.folder, SETTINGS, {}) as daemon:
            self.env["EJB_SOCKET"] = daemon.place.socket
            say("3. Other people's jobs: 27 of 32 processors are busy")
            for processors, asked, name, takes_s in BUSY:
                options = ["-n", str(processors), "-t", asked, "-J", name, "-o", "/dev/null"]
                self.local("submit", *options, "--", "sleep", str(takes_s), quiet=True)
            self.local("queue")
            time.sleep(2)  # the daemon looks once a second

            say(f"4. A job of {RANKS} ranks. Rigid, it would have to wait:")
            submit = ["submit", "-n", str(RANKS), "-t", "0:30", "--engine", "application", "-J", "heat"]
            submit += ["-D", str(self.folder)]
            run = ["--", *self.heat, str(self.folder / "elastic")]
            self.ejb(*submit, "--dry-run", *run)
            self.ejb(*submit, *run)
            time.sleep(6)
            say("   ... which it need not: what has been, and what is planned")
            self.ejb("timeline", "last")
            self.ejb("timeline", "last", "--svg", str(self.folder / "planned.svg"))
            self.ejb("watch", "last")

            say("5. Why it went so")
            self.ejb("explain", "last")
            say("6. Elastic against rigid")
            self.ejb("logs", "last")
            return self.told(json.loads(self.ejb("status", "last", "--json", quiet=True)), alone_s)

    def told(self, job: dict[str, Any], alone_s: float) -> bool:
        if job["state"] != "completed":
            raise EjbError(Code.INTERNAL, f"the elastic job is {job['state']}: {job['reason']}")
        elastic_s = job["end_s"] - job["submit_s"]
        waited_s = job["rigid_start_s"] - job["submit_s"]
        rigid_s = waited_s + alone_s
        same = (self.folder / "elastic").read_bytes() == (self.folder / "undisturbed").read_bytes()
        moves = sum(1 for subjob in job["subjobs"] if subjob["ordinal"] and subjob["start_s"])
        print(
            f"rigid:   would have started after {waited_s:.0f} s (EASY's promise) and run {alone_s:.0f} s: "
            f"{rigid_s:.0f} s\n"
            f"elastic: started after {job['start_s'] - job['submit_s']:.0f} s, ran on {moves} subjobs:  "
            f"{elastic_s:.0f} s, {1 - elastic_s / rigid_s:.0%} earlier\n"
            f"result:  {'bit-identical to' if same else 'DIFFERS from'} the undisturbed run",
            flush=True,
        )
        return same and elastic_s < rigid_s


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, and say where it is.")] = False,
) -> None:
    """Play the main journey on an embedded cluster, under 3 minutes. Exit with 1 if the elastic job was not faster."""
    folder = Path(tempfile.mkdtemp(prefix="ejb-demo."))
    journey = Journey(folder)
    good = False
    try:
        good = journey.go()
    finally:
        if not good and (folder / "ejbd.log").exists():
            said = (folder / "ejbd.log").read_text(errors="replace").splitlines()[-20:]
            print("demo: failed; the daemon's last words:", *said, sep="\n", file=sys.stderr)
        down = [sys.executable, "-m", "ejbd.batch.local", "down", str(journey.cluster)]
        subprocess.run(down, capture_output=True, timeout=60, check=False)
        if keep:
            print(f"demo: everything is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if not good:
        raise typer.Exit(1)


def add_to(app: typer.Typer) -> None:
    app.command("demo")(demo)
