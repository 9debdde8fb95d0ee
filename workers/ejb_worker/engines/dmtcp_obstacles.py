"""What DMTCP 5.0 does not bring back, looked for in the running processes before any of them is checkpointed.

Each row of docs/faults.md's table of features that does not move, and that /proc shows, is one here.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

_NAMELESS = re.compile(r"/#\d+ \(deleted\)$")
_SHARED = re.compile(r"^\S+ ..{2}s \S+ (\S+) (\d+)\s+/dev/zero \(deleted\)$", re.MULTILINE)
LONGEST_MAPS = 4 << 20


class Process(NamedTuple):
    """One of the processes of a rank. `state` and `parent` are /proc/PID/stat's."""

    pid: int
    parent: int
    state: str


def processes() -> Dict[int, Process]:
    """Every process of this node."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry)] = Process(int(entry), int(fields[1]), fields[0])
    return found


def family(root: int, known: Dict[int, Process]) -> List[Process]:
    """A process and all that have come from it, the process first."""
    if root not in known:
        return []
    children: Dict[int, List[Process]] = {}
    for one in known.values():
        children.setdefault(one.parent, []).append(one)
    found = [known[root]]
    for one in found:
        found.extend(children.get(one.pid, ()))
    return found


def obstacle(ranks: Dict[int, int]) -> str:
    """Why these ranks (their process ids) cannot be moved, in a sentence, or "" where nothing is seen against it."""
    known = processes()
    for rank, root in sorted(ranks.items()):
        mine = family(root, known)
        why = _stopped(mine) or _open_files(mine) or _shared_memory(mine) or _inherited(mine)
        if why:
            return "rank %d %s" % (rank, why)
    return ""


def restless(roots: Iterable[int]) -> bool:
    """Whether a process of these has just ended and was not waited for: its end would be lost at the restart."""
    known = processes()
    return any(one.state == "Z" for root in roots for one in family(root, known)[1:])


def _stopped(mine: List[Process]) -> str:
    if any(one.state in "Tt" for one in mine):
        return "is stopped (by a signal or a debugger), and a checkpoint would wait for it"
    return ""


def _targets(pid: int) -> Dict[int, str]:
    """What the descriptors of a process lead to."""
    found = {}
    try:
        for name in os.listdir("/proc/%d/fd" % pid):
            try:
                found[int(name)] = os.readlink("/proc/%d/fd/%s" % (pid, name))
            except OSError:
                continue
    except OSError:
        pass
    return found


def _open_files(mine: List[Process]) -> str:
    for one in mine:
        for fd, target in sorted(_targets(one.pid).items()):
            if target == "anon_inode:[timerfd]":
                return "has a timer of timerfd_create, which DMTCP does not bring back"
            if target.startswith(("/dev/pts/", "/dev/ptmx")) and fd > 2:
                return "has a pseudo-terminal of its own, which DMTCP does not bring back"
            if _NAMELESS.search(target):
                return "has a temporary file that never had a name, which DMTCP does not bring back: %s" % target
            if target.startswith("/dev/shm/") and not target.startswith("/dev/shm/sem."):
                return "has POSIX shared memory open, whose descriptor DMTCP does not bring back: %s" % target
    return ""


def _shared_memory(mine: List[Process]) -> str:
    """Anonymous memory that several processes share: each would come back with its own."""
    if len(mine) < 2:
        return ""
    seen: Set[Tuple[str, str]] = set()
    for one in mine:
        try:
            with open("/proc/%d/maps" % one.pid, encoding="utf-8", errors="replace") as maps:
                here = set(_SHARED.findall(maps.read(LONGEST_MAPS)))
        except OSError:
            continue
        if here & seen:
            return "shares memory with a process that it has started, and DMTCP gives each its own copy"
        seen |= here
    return ""


def _inherited(mine: List[Process]) -> str:
    """Another program (not a copy of itself) that a rank has started with pipes or sockets of its own beyond 0 to 2."""
    words = {one.pid: _words(one.pid) for one in mine}
    targets = {one.pid: _targets(one.pid) for one in mine if one.state != "Z"}
    for one in mine[1:]:
        theirs, parents = words[one.pid], words.get(one.parent)
        if not theirs or not parents or theirs == parents or one.pid not in targets or one.parent not in targets:
            continue
        kinds = ("socket:", "pipe:")
        shared = {target for target in targets[one.parent].values() if target.startswith(kinds)}
        for fd, target in sorted(targets[one.pid].items()):
            if fd > 2 and target in shared and _joined(targets, target, one.pid):
                return "shares descriptor %d (%s) with another program that it has started (%s), and DMTCP hangs" % (
                    fd,
                    target.partition(":")[0],
                    " ".join(theirs)[:80],
                )
    return ""


def _joined(targets: Dict[int, Dict[int, str]], target: str, pid: int) -> bool:
    return any(target in theirs.values() for other, theirs in targets.items() if other != pid)


def _words(pid: int) -> Optional[List[str]]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as cmdline:
            return cmdline.read(4096).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return None
