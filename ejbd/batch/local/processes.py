"""Processes of this machine as /proc shows them: which is which, and which belong to a job."""

# pathlib would double the time in which a step starts
# ruff: noqa: PTH208

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

JOB_VARIABLE = "EJB_LOCAL_JOB_ID"
CLUSTER_VARIABLE = "EJB_LOCAL_CLUSTER"
TASK_VARIABLE = "EJB_LOCAL_TASK"  # of what a launcher starts: the number of its step


class Identity(NamedTuple):
    """A process that no later one with its pid is mistaken for: its start (clock ticks after boot) and the boot."""

    pid: int
    started: int
    boot: str


class Stat(NamedTuple):
    """The part of /proc/PID/stat that is needed here."""

    state: str
    parent: int
    session: int
    started: int


def boot_id() -> str:
    """The kernel's name for this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The name stands in parentheses and may hold anything, parentheses too: what follows the last one is regular.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def identify(pid: int) -> Identity | None:
    """None where there is no such process."""
    found = stat(pid)
    return None if found is None else Identity(pid, found.started, boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    found = stat(identity.pid)
    return (
        found is not None
        and found.started == identity.started
        and found.state not in "ZX"
        and boot_id() == identity.boot
    )


def pids() -> Iterator[int]:
    """All processes of this machine."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            yield int(name)


def members(
    cluster: str, job: int, *, ancestor: int | None = None, session: int | None = None, spare: Iterable[int] = ()
) -> list[int]:
    """The living processes of a job: those with its mark in their environment, the descendants of `ancestor`, and
    those of `session`. `spare`, `ancestor` and this process are left out."""
    marks = {f"{CLUSTER_VARIABLE}={cluster}".encode(), f"{JOB_VARIABLE}={job}".encode()}
    left_out = {os.getpid(), *spare}
    seen: dict[int, Stat] = {}
    for pid in pids():
        found = stat(pid)
        if found is not None and found.state not in "ZX":
            seen[pid] = found
    belongs = set()
    if ancestor is not None:
        left_out.add(ancestor)
        children: dict[int, list[int]] = {}
        for pid, found in seen.items():
            children.setdefault(found.parent, []).append(pid)
        todo = [ancestor]
        while todo:
            for child in children.get(todo.pop(), ()):
                if child not in belongs:
                    belongs.add(child)
                    todo.append(child)
    for pid, found in seen.items():
        if pid not in belongs and ((session is not None and found.session == session) or _has_marks(pid, marks)):
            belongs.add(pid)
    return sorted(belongs - left_out)


def signal_tasks(pids: Iterable[int], signum: int) -> None:
    """Signal those of these processes that a launcher of the cluster has started, and what they started."""
    mark = f"{TASK_VARIABLE}=".encode()
    send([pid for pid in pids if any(one.startswith(mark) for one in _environment(pid))], signum)


def send(pids: Iterable[int], signum: int) -> None:
    """Signal each of them; those that have gone meanwhile, or are not ours, are passed over."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            pass


def _has_marks(pid: int, marks: set[bytes]) -> bool:
    return marks <= set(_environment(pid))


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []  # gone, or another user's
