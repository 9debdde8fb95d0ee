"""The main journey on the containers: a 16-rank job that would have to wait two minutes starts at once on what is free,
grows as more comes free, and ends before its rigid twin would have, with the very same result.

Runs as root in the service `demo`, and is by turns alice (the user of the daemon) and bob (other people). Exit code 0
only if the elastic job grew, was faster than EASY's promise to the rigid one, and its result is bit-identical.
"""

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

RANKS, STEPS, PACE = 16, 700, "20ms"
HEAT = ["python3", "/opt/examples/heat.py", "--steps", str(STEPS), "--pace", PACE]
HOME = Path("/home/alice")
# Bob's jobs: what they hold of three nodes with 16 processors each, and the minutes that they ask for. The rigid job
# would be planned on c1. Two of them end early, as jobs do: the first once the elastic job runs on the four processors
# that are idle, the second once it has grown. That is not known beforehand, and EJB is not told.
BUSY = (
    ("on-time", "c1", 16, 2),
    ("early-1", "c3", 4, 7),
    ("late-1", "c3", 8, 7),
    ("early-2", "c2", 8, 7),
    ("late-2", "c2", 8, 7),
)


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def call(user: str, *words: str, timeout_s: float = 60) -> str:
    """What a command prints that this user runs. Raises CalledProcessError, or TimeoutExpired."""
    entry = pwd.getpwnam(user)
    environment = {**os.environ, "HOME": entry.pw_dir, "USER": user, "LOGNAME": user}
    done = subprocess.run(
        words,
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=[],
        env=environment,
        cwd=entry.pw_dir,
        stdout=subprocess.PIPE,
        timeout=timeout_s,
        check=True,
        text=True,
    )
    return done.stdout


def shown(user: str, *words: str, timeout_s: float = 60) -> None:
    print(call(user, *words, timeout_s=timeout_s), end="", flush=True)


def main() -> int:
    folder = HOME / f"demo-{int(time.time())}"
    call("alice", "mkdir", str(folder))
    say(f"1. The undisturbed run, {RANKS} ranks on {RANKS} processors, for its result and its time")
    begin = time.monotonic()
    call("alice", *HEAT, "--result", str(folder / "undisturbed"), "--spawn", str(RANKS), timeout_s=300)
    alone_s = time.monotonic() - begin
    print(f"took {alone_s:.1f} s")

    say("2. An administrator makes the queue elastic")
    shown("root", "ejb", "queue", "set", "batch", "elasticity=on")

    say("3. Other people's jobs: 44 of 48 processors are busy")
    ends = Path(pwd.getpwnam("bob").pw_dir) / folder.name
    call("bob", "mkdir", str(ends))
    others = {}
    for name, node, processors, minutes in BUSY:
        words = ["sbatch", "--parsable", f"-w{node}", f"-n{processors}", f"-t{minutes}", f"-J{name}", "-o", "/dev/null"]
        others[name] = call("bob", *words, "--wrap", f"until [ -e {ends}/{name} ]; do sleep 0.2; done").strip()
    try:
        until("bob's jobs run", lambda: running(*others.values()), 60)
        shown("bob", "squeue")
        time.sleep(2)  # the daemon looks once a second
        return journey(folder, ends, others, alone_s)
    finally:
        call("bob", "scancel", *others.values())


def running(*ids: str) -> bool:
    return set(ids) == set(call("bob", "squeue", "-hu", "bob", "-t", "running", "-o", "%i").split())


def until(what: str, true: Callable[[], bool], bound_s: float) -> None:
    """Wait, with a bound. Raises TimeoutError."""
    end = time.monotonic() + bound_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {bound_s:.0f} s: {what}")
        time.sleep(0.5)


def status(job: str) -> Any:
    return json.loads(call("alice", "ejb", "status", job, "--json"))


def has_run_on(job: str, subjobs: int) -> bool:
    """Whether so many have started, or no more will."""
    told = status(job)
    return len(widths(told)) >= subjobs or bool(told["end_s"])


def widths(told: Any) -> list[int]:
    """Processors of the subjobs that have started, in their order."""
    return [one["processors"] for one in told["subjobs"] if one["ordinal"] and one["start_s"]]


def journey(folder: Path, ends: Path, others: dict[str, str], alone_s: float) -> int:
    say(f"4. A job of {RANKS} ranks. Rigid, it would have to wait:")
    words = ["ejb", "submit", "-n", str(RANKS), "-t", "1", "--engine", "application", "-J", "heat", "-D", str(folder)]
    program = ["--", *HEAT, "--result", str(folder / "elastic")]
    shown("alice", *words, "--dry-run", *program)
    job = call("alice", *words, "--parsable", *program).strip()
    print(f"submitted: {job}")
    for name, held in (("early-1", 1), ("early-2", 2)):
        until(f"{held} subjobs have started", partial(has_run_on, job, held), 90)
        time.sleep(5)
        call("bob", "touch", str(ends / name))
        print(f"running on subjobs of {widths(status(job))} processors; now bob's {name} ends")
    shown("alice", "ejb", "timeline", job)
    call("alice", "ejb", "wait", "--timeout", "240", job, timeout_s=250)

    say("5. What has been")
    shown("alice", "ejb", "timeline", job)
    call("alice", "ejb", "timeline", job, "--svg", str(folder / "timeline.svg"))
    shown("alice", "ejb", "explain", "--moves", job)

    say("6. Elastic against rigid")
    told = status(job)
    if told["state"] != "completed":
        print(f"the elastic job is {told['state']}: {told['reason']}")
        return 1
    elastic_s = told["end_s"] - told["submit_s"]
    waited_s = told["rigid_start_s"] - told["submit_s"]
    print(
        f"rigid:   would have started after {waited_s:.0f} s (EASY's promise) and run {alone_s:.0f} s: "
        f"{waited_s + alone_s:.0f} s"
    )
    print(
        f"elastic: started after {told['start_s'] - told['submit_s']:.0f} s, ran on subjobs of {widths(told)} "
        f"processors: {elastic_s:.0f} s, {1 - elastic_s / (waited_s + alone_s):.0%} earlier"
    )
    same = subprocess.run(["cmp", str(folder / "elastic"), str(folder / "undisturbed")], check=False).returncode == 0
    print(f"result:  {'bit-identical to' if same else 'DIFFERS from'} the undisturbed run")
    print(f"picture: {folder}/timeline.svg")
    return 0 if same and elastic_s < waited_s + alone_s and len(widths(told)) > 1 else 1


sys.exit(main())
