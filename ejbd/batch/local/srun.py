"""The launcher that jobs of the embedded cluster find as `srun`: processes on the processors that the job was given.

Standard library only, run by path. It takes the options of srun that change nothing here, -n, and refuses the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from types import FrameType

WITH_VALUE = {"-J", "--job-name", "--mpi", "-t", "--time", "--kill-on-bad-exit"}
WITHOUT_VALUE = {"-u", "--unbuffered", "-Q", "--quiet", "-K"}


class UsageError(Exception):
    """The command line cannot be carried out; the text says why."""


def parse(arguments: list[str], most: int) -> tuple[int, list[str]]:
    """Number of processes (the job's processors where none is given) and the command."""
    number = most
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if word.startswith("-n") and len(word) > 2 and not word.startswith("--"):
            option, equals, value = "-n", "=", word[2:]
        if option in ("-n", "--ntasks") or (option in WITH_VALUE and option != "--kill-on-bad-exit"):
            if not equals:
                if not rest:
                    raise UsageError(f"{option} needs a value")
                value = rest.pop(0)
            if option in ("-n", "--ntasks"):
                if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= most):
                    raise UsageError(f"{option} must be between 1 and the job's {most} processors, not {value!r}")
                number = int(value)
        elif option not in WITHOUT_VALUE | WITH_VALUE:
            raise UsageError(f"the embedded cluster's srun does not know {word!r}")
    if not rest:
        raise UsageError("there is no command to run")
    return number, rest


def processors() -> list[tuple[str, int]]:
    """Node and index of each processor of this job, in order."""
    found = []
    for share in os.environ["EJB_LOCAL_NODES"].split(","):
        node, _, count = share.partition(":")
        found += [(node, index) for index in range(int(count))]
    return found


def main() -> int:
    """The greatest exit code of the processes; 2 for a wrong command line, 127 for a command that is not there."""
    try:
        places = processors()
        job, folder = os.environ["EJB_LOCAL_JOB_ID"], os.environ["EJB_LOCAL_JOB_DIR"]
    except KeyError:
        print("srun: this is the launcher of EJB's embedded cluster and works inside its jobs only", file=sys.stderr)
        return 2
    try:
        size, command = parse(sys.argv[1:], len(places))
    except UsageError as error:
        print(f"srun: {error}", file=sys.stderr)
        return 2
    rendezvous = tempfile.mkdtemp(prefix="rendezvous-", dir=folder)
    ranks: list[subprocess.Popen[bytes]] = []

    def forward(signum: int, frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, forward)
    code = 0
    for number, (node, index) in enumerate(places[:size]):
        environment = {
            **os.environ,
            "EJB_RANK": str(number),
            "EJB_SIZE": str(size),
            "EJB_EPOCH": "1",
            "EJB_RENDEZVOUS": rendezvous,
            "EJB_NODE": node,
            "EJB_PROCESSOR": f"{job}.{node}.{index}",
            "EJB_PROCESSOR_DIR": f"{folder}/processors",
            "EJB_ADDRESS": "127.0.0.1",
        }
        try:
            ranks.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        except OSError as error:
            print(f"srun: {command[0]}: {error.strerror}", file=sys.stderr)
            forward(signal.SIGTERM, None)
            code = 127
            break
    for rank in ranks:
        ended = rank.wait()
        code = max(code, ended if ended >= 0 else 128 - ended)
    return code


if __name__ == "__main__":
    sys.exit(main())
