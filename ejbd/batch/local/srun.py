"""The launcher that jobs of the embedded cluster find as `srun`: processes on the processors that the job was given.

Standard library only, run by path. A step waits until its processors are free of the job's other steps, as on a Slurm.
Options about what one machine has not, such as binding or accounting, change nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple, TextIO

_VALUED = {
    "ntasks": "n", "nodes": "N", "cpus-per-task": "c", "nodelist": "w", "exclude": "x", "relative": "r", "chdir": "D",
    "output": "o", "error": "e", "input": "i", "time": "t", "distribution": "m", "ntasks-per-node": "",
    "tasks-per-node": "", "export": "", "open-mode": "",
    # these change nothing here
    "job-name": "J", "partition": "p", "account": "A", "qos": "q", "constraint": "C", "wait": "W", "licenses": "L",
    "extra-node-info": "B", "core-spec": "S", "mpi": "", "mem": "", "mem-per-cpu": "", "mem-bind": "", "cpu-bind": "",
    "cpu_bind": "", "hint": "", "comment": "", "threads-per-core": "", "ntasks-per-core": "", "ntasks-per-socket": "",
    "sockets-per-node": "", "cores-per-socket": "", "cpu-freq": "", "network": "", "profile": "", "acctg-freq": "",
    "reservation": "", "switches": "", "accel-bind": "", "tmp": "", "jobid": "", "slurmd-debug": "", "nice": "",
}  # fmt: skip
# Those of the second line change nothing here.
_BARE = {
    "label": "l", "overcommit": "O", "overlap": "", "kill-on-bad-exit": "K", "pty": "", "exclusive": "",
    "oversubscribe": "s", "unbuffered": "u", "verbose": "v", "quiet": "Q", "disable-status": "X", "preserve-env": "E",
    "no-kill": "k", "immediate": "I", "exact": "", "whole": "", "contiguous": "", "propagate": "", "spread-job": "",
    "use-min-nodes": "",
}  # fmt: skip
_LETTERS = {letter: name for name, letter in (*_VALUED.items(), *_BARE.items()) if letter}
_ALIASES = {"tasks-per-node": "ntasks-per-node"}
_LISTED = re.compile(r"([^,\[\]]+)(?:\[([^\]]*)\])?(?:,|$)")
_PAUSE_S = 0.1  # between two looks for processors that are free
_GRACE_S = 2.0  # between TERM and KILL of a step that is out of time


class UsageError(Exception):
    """The command line cannot be carried out; the text says why."""


class Task(NamedTuple):
    """A process of a step: its node, the place of that among the step's nodes, and its own place there."""

    node: str
    node_id: int
    local_id: int


def parse(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options by their long names ("" without a value), and the command. Raises UsageError."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = _full(name)
            if name in _VALUED and not equals:
                value = _next(word, rest)
        else:
            name, value = _LETTERS.get(word[1], ""), word[2:]
            if not name:
                raise UsageError(f"invalid option -- '{word[1]}'; the embedded cluster has none of it")
            if name in _VALUED:
                value = value.removeprefix("=") or _next(word, rest)
            elif value and not value.isdigit():  # several letters in one word
                rest.insert(0, f"-{value}")
                value = ""
        options[_ALIASES.get(name, name)] = value
    if not rest:
        raise UsageError("No command given to execute")
    return options, rest


def _full(name: str) -> str:
    known = [one for one in (*_VALUED, *_BARE) if one.startswith(name)]
    if name in known or len(known) == 1:
        return name if name in known else known[0]
    raise UsageError(f"unrecognized option '--{name}'; the embedded cluster has none of it")


def _next(word: str, rest: list[str]) -> str:
    if not rest:
        raise UsageError(f"option requires an argument -- '{word.lstrip('-')}'")
    return rest.pop(0)


def unfold(text: str) -> list[str]:
    """`n[1-3],m7` as names."""
    found = []
    for name, ranges in _LISTED.findall(text):
        for part in ranges.split(",") if ranges else [""]:
            first, dash, last = part.partition("-")
            if not dash:
                found.append(name + part)
            else:
                found += [f"{name}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found


def lay_out(options: Mapping[str, str], shares: Sequence[tuple[str, int]], environ: Mapping[str, str]) -> list[Task]:
    """The tasks of a step in a job with these processors of nodes. Raises UsageError, in Slurm's words."""
    only = unfold(options.get("nodelist", ""))
    never = unfold(options.get("exclude", ""))
    held = dict(shares)
    if any(name not in held for name in only):
        raise UsageError(f"Requested node configuration is not available: the job has {', '.join(held)}")
    skipped = _number(options, "relative", 0, least=0)
    names = [name for name in list(held)[skipped:] if name not in never and (not only or name in only)]
    most = _number({"nodes": options.get("nodes", "").rpartition("-")[2]}, "nodes", 0)
    threads = _number(options, "cpus-per-task", 1)
    each = _number(options, "ntasks-per-node", 0)
    if not names or ("-" not in options.get("nodes", "") and most > len(names)):
        raise UsageError("Requested node configuration is not available: the job has fewer nodes")
    told = environ.get("SLURM_NTASKS", "")
    # A job of Slurm's has one task a node where it says nothing; what has no such variables, one a processor.
    default = most or len(names) if "SLURM_JOB_ID" in environ else sum(held[name] for name in names)
    size = _number(options, "ntasks", most * each or int(told or 0) or (each * len(names)) or default)
    names = names[: min(most or len(names), size)]
    room = [min(held[name] // threads, each or held[name]) for name in names]
    if "overcommit" in options or environ.get("SLURM_OVERCOMMIT"):
        room = [max(one, -(-size // len(names))) for one in room]
    if sum(room) < size:
        raise UsageError("More processors requested than permitted")
    counts, left = [], size
    for place, one in enumerate(room):
        counts.append(max(min(one, left - (len(room) - 1 - place)), 0))
        left -= counts[-1]
    tasks = [Task(name, node, local) for node, name in enumerate(names) for local in range(counts[node])]
    if (options.get("distribution") or environ.get("SLURM_DISTRIBUTION", "")).lower().startswith("cyclic"):
        tasks.sort(key=lambda task: (task.local_id, task.node_id))
    return tasks


def _number(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    value = options.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdecimal() and least <= int(value) < 10**6):
        raise UsageError(f"Invalid numeric value {value!r} for --{name}")
    return int(value)


class Claims:
    """Processors that this process keeps from the job's other steps: a locked file each, which no crash leaves so."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 pathlib doubles the time of a start
        self._held: list[IO[str]] = []

    def take(self, shares: Sequence[tuple[str, int]], wanted: Mapping[str, int]) -> dict[str, list[int]]:
        """Wait until so many of each node are free; their numbers."""
        while True:
            found: dict[str, list[int]] = {}
            for node, count in shares:
                free = (index for index in range(count) if self._lock(f"{node}.{index}"))
                found[node] = [index for _, index in zip(range(wanted.get(node, 0)), free, strict=False)]
            if all(len(found[node]) == count for node, count in wanted.items()):
                return found
            for file in self._held:
                file.close()
            self._held = []
            time.sleep(_PAUSE_S)

    def _lock(self, name: str) -> bool:
        file = open(f"{self._folder}/{name}", "w")  # noqa: SIM115 held as long as this process
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._held.append(file)
        return True


def _next_step(folder: str) -> int:
    with open(f"{folder}/steps", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(".")
        file.flush()
        return file.tell() - 1


def _counts(tasks: Sequence[Task]) -> list[int]:
    nodes = [task.node_id for task in tasks]
    return [nodes.count(node) for node in range(max(nodes) + 1)]


def _environment(options: Mapping[str, str]) -> dict[str, str]:
    words = [word for word in options.get("export", "ALL").split(",") if word]
    if "ALL" in (word.upper() for word in words):
        found = dict(os.environ)
    else:
        kept = ("SLURM", "EJB_", "PATH", "HOME", "USER")
        found = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        found.update({word: os.environ[word] for word in words if word in os.environ})
    found.update(dict(word.split("=", 1) for word in words if "=" in word))
    return found


def _of_step(tasks: Sequence[Task], step: int, options: Mapping[str, str]) -> dict[str, str]:
    names = ",".join(dict.fromkeys(task.node for task in sorted(tasks, key=lambda task: task.node_id)))
    counts = _counts(tasks)
    a_node = ",".join(map(str, counts))
    found = {
        "SLURM_STEP_ID": str(step), "SLURM_STEPID": str(step), "SLURM_NTASKS": str(len(tasks)),
        "SLURM_NPROCS": str(len(tasks)), "SLURM_STEP_NUM_TASKS": str(len(tasks)), "SLURM_STEP_NODELIST": names,
        "SLURM_STEP_NUM_NODES": str(len(counts)), "SLURM_NNODES": str(len(counts)), "SLURM_TASKS_PER_NODE": a_node,
        "SLURM_STEP_TASKS_PER_NODE": a_node, "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "EJB_LOCAL_TASK": str(step),
    }  # fmt: skip
    if "cpus-per-task" in options:
        found["SLURM_CPUS_PER_TASK"] = options["cpus-per-task"]
    return found


def _of_task(tasks: Sequence[Task], rank: int) -> dict[str, str]:
    task = tasks[rank]
    here = [str(number) for number, one in enumerate(tasks) if one.node_id == task.node_id]
    return {
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(task.local_id), "SLURM_NODEID": str(task.node_id),
        "SLURM_GTIDS": ",".join(here), "SLURMD_NODENAME": task.node, "EJB_RANK": str(rank), "EJB_SIZE": str(len(tasks)),
        "EJB_NODE": task.node,
    }  # fmt: skip


class Step:
    """The processes of one launch, from their start to the code that they come to."""

    def __init__(self, options: Mapping[str, str], tasks: Sequence[Task], job: str, number: int) -> None:
        self._options = options
        self._tasks = tasks
        self._job, self._number = job, number
        self._processes: list[subprocess.Popen[bytes]] = []
        self._copying: list[threading.Thread] = []
        self._writing = threading.Lock()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, lambda signum, _: self.send(signum))

    def send(self, signum: int) -> None:
        """Signal the processes that have not ended."""
        for process in self._processes:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signum)

    def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Start the next process. Raises OSError."""
        rank = len(self._processes)
        output, error = self._file("output", rank), self._file("error", rank)
        default = subprocess.PIPE if "label" in self._options else None
        stdin = self._input(rank)
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=self._options.get("chdir") or None,
            stdin=stdin,
            stdout=default if output is None else output,
            stderr=error if error is not None else default if output is None else subprocess.STDOUT,
        )
        self._processes.append(process)
        for pipe, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            if pipe is not None:
                self._copying.append(threading.Thread(target=self._label, args=(pipe, to, rank)))
                self._copying[-1].start()
        for file in (output, error, stdin):
            if file is not None and not isinstance(file, int):
                file.close()

    def _input(self, rank: int) -> IO[bytes] | int | None:
        """What a process reads: what this one does, where that is all, a file, or nothing."""
        value = self._options.get("input", "all")
        if value == "none" or (value.isdecimal() and int(value) != rank):
            return subprocess.DEVNULL
        if value != "all" and not value.isdecimal():
            return open(value, "rb")
        if value == "all" and len(self._tasks) > 1:
            return subprocess.DEVNULL if os.fstat(0).st_rdev == os.stat(os.devnull).st_rdev else subprocess.PIPE  # noqa: PTH116
        return None

    def _file(self, option: str, rank: int) -> IO[bytes] | None:
        pattern = self._options.get(option, "all")
        if pattern == "all":
            return None
        task = self._tasks[rank]
        words = {"t": rank, "n": task.node_id, "N": task.node, "j": self._job, "s": self._number, "%": "%"}
        words["J"] = f"{self._job}.{self._number}"
        name = re.sub(
            "%([0-9]*)([tnNjsJ%])", lambda found: str(words[found[2]]).rjust(int(found[1] or 0), "0"), pattern
        )
        appends = self._options.get("open-mode", "").startswith("a") or (
            rank > 0 and not re.search("%[0-9]*[tnN]", pattern)
        )
        return open(os.devnull if pattern == "none" else name, "ab" if appends else "wb")

    def _label(self, pipe: IO[bytes], to: TextIO, rank: int) -> None:
        for line in pipe:
            with self._writing:
                to.buffer.write(b"%d: %s" % (rank, line if line.endswith(b"\n") else line + b"\n"))
                to.flush()

    def wait(self) -> int:
        """The greatest exit code."""
        if fed := [process.stdin for process in self._processes if process.stdin is not None]:
            threading.Thread(target=_feed, args=(fed,), daemon=True).start()
        if (seconds := _seconds(self._options.get("time", ""))) is not None:
            threading.Thread(target=self._end_in, args=(seconds,), daemon=True).start()
        code = 0
        running = {process.pid: rank for rank, process in enumerate(self._processes)}
        while running:
            pid, status = os.wait()
            if pid not in running:
                continue
            rank, ended = running.pop(pid), os.waitstatus_to_exitcode(status)
            self._processes[rank].returncode = ended
            code = max(code, ended if ended >= 0 else 128 - ended)
            if ended:
                why = f"Exited with exit code {ended}" if ended > 0 else signal.strsignal(-ended)
                print(f"srun: error: {self._tasks[rank].node}: task {rank}: {why}", file=sys.stderr, flush=True)
                if self._options.get("kill-on-bad-exit", "0") != "0":
                    self.send(signal.SIGTERM)
        for thread in self._copying:
            thread.join()
        return code

    def _end_in(self, seconds: float) -> None:
        time.sleep(seconds)
        step = f"{self._job}.{self._number}"
        print(f"srun: error: *** STEP {step} CANCELLED DUE TO TIME LIMIT ***", file=sys.stderr, flush=True)
        self.send(signal.SIGTERM)
        time.sleep(_GRACE_S)
        self.send(signal.SIGKILL)


def _feed(pipes: Sequence[IO[bytes]]) -> None:
    """Every process that reads gets all of this process's input."""
    while chunk := os.read(0, 65536):
        for pipe in pipes:
            with suppress(OSError):
                pipe.write(chunk)
                pipe.flush()
    for pipe in pipes:
        with suppress(OSError):
            pipe.close()


def _seconds(text: str) -> float | None:
    """MIN, MIN:SEC, H:M:S or D-H[:M[:S]]; None: it is no time, or has no end."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in (*parts, *([days] if dash else []))):
        return None
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    found = int(days or 0) * 86400.0 + sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
    return found or None


def main() -> int:
    """The greatest exit code of the processes; 1 for a wrong command line, 2 for a command that is not there."""
    try:
        job, folder, nodes = (os.environ[f"EJB_LOCAL_{word}"] for word in ("JOB_ID", "JOB_DIR", "NODES"))
    except KeyError:
        print("srun: this is the launcher of EJB's embedded cluster and works inside its jobs only", file=sys.stderr)
        return 2
    shares = [(node, int(count)) for node, _, count in (one.partition(":") for one in nodes.split(","))]
    try:
        options, command = parse(sys.argv[1:])
        tasks = lay_out(options, shares, os.environ)
    except UsageError as error:
        print(f"srun: error: {error}", file=sys.stderr)
        return 1
    if options.get("kill-on-bad-exit") == "":
        options["kill-on-bad-exit"] = "1"
    threads = int(options.get("cpus-per-task", "1"))
    crowded = "overlap" in options or "overcommit" in options or "SLURM_OVERCOMMIT" in os.environ
    claims = Claims(f"{folder}/claims")
    wanted = {task.node: threads * sum(one.node == task.node for one in tasks) for task in tasks}
    # A step inside a step would wait for its own processors.
    apart = not crowded and "EJB_LOCAL_TASK" not in os.environ
    numbers = claims.take(shares, wanted) if apart else {node: list(range(count)) for node, count in shares}
    step = Step(options, tasks, job, number := _next_step(folder))
    of_step = {
        **_environment(options),
        **_of_step(tasks, number, options),
        "EJB_EPOCH": "1",
        "EJB_RENDEZVOUS": tempfile.mkdtemp(prefix="rendezvous-", dir=folder),
        "EJB_PROCESSOR_DIR": f"{folder}/processors",
        "EJB_ADDRESS": "127.0.0.1",
    }
    missing = 0
    for rank, task in enumerate(tasks):
        index = numbers[task.node][task.local_id * threads % len(numbers[task.node])]
        try:
            step.start(command, {**of_step, **_of_task(tasks, rank), "EJB_PROCESSOR": f"{job}.{task.node}.{index}"})
        except OSError as error:
            print(f"srun: error: {task.node}: {error.filename or command[0]}: {error.strerror}", file=sys.stderr)
            step.send(signal.SIGTERM)
            missing = 2
            break
    return max(step.wait(), missing)


if __name__ == "__main__":
    sys.exit(main())
