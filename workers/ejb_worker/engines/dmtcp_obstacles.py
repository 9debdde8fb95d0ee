"""What DMTCP 5.0 does not bring back, looked for in the running processes before any of them is checkpointed.

Each row of docs/faults.md's table of features that does not move, and that /proc shows, is one here.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

_NAMELESS = re.compile(r"/#\d+ \(deleted\)$")
# What nobody may read or write is DMTCP's own.
_SHARED = re.compile(r"^\S+ rw.s \S+ (\S+) (\d+)\s+/dev/zero \(deleted\)$", re.MULTILINE)
LONGEST_MAPS = 4 << 20
LASTING_S = 1.0


class Process(NamedTuple):
    """One of the processes of a rank. `state` and `parent` are /proc/PID/stat's; `began`: seconds since the boot."""

    pid: int
    parent: int
    state: str
    began: float


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
            began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
            found[int(entry)] = Process(int(entry), int(fields[1]), fields[0], began)
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
        why = _open_files(mine) or _shared_memory(mine) or _inherited(mine)
        if why:
            return "rank %d %s" % (rank, why)
    return ""


def restless(roots: Iterable[int]) -> bool:
    """Whether a process of these has just ended and was not waited for: its end would be lost at the restart."""
    known = processes()
    return any(one.state == "Z" for root in roots for one in family(root, known)[1:])


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
    """Another program (not a copy of itself) that a rank has started, with pipes or sockets in common beyond 0 to 2.

    One that is there for a moment only is left out: it is gone by the next look.
    """
    held: Dict[str, Set[Tuple[str, ...]]] = {}
    words = {one.pid: _words(one.pid) for one in mine if one.state != "Z"}
    targets = {pid: _targets(pid) for pid in words}
    for pid, theirs in targets.items():
        for target in theirs.values():
            if target.startswith(("socket:", "pipe:")):
                held.setdefault(target, set()).add(words[pid])
    for one in mine[1:]:
        program = words.get(one.pid, ())
        if not program or program == words.get(mine[0].pid) or _young(one):
            continue
        for fd, target in sorted(targets[one.pid].items()):
            if fd > 2 and len(held.get(target, ())) > 1:
                what = target.partition(":")[0], " ".join(program)[:80]
                return "shares a %s with another program that it has started (%s), and DMTCP hangs" % what
    return ""


def _young(one: Process) -> bool:
    try:
        with open("/proc/uptime", encoding="ascii") as uptime:
            now = float(uptime.read().split()[0])
    except (OSError, ValueError):
        return False
    return now - one.began < LASTING_S


def _words(pid: int) -> Tuple[str, ...]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as cmdline:
            return tuple(cmdline.read(4096).decode("utf-8", "replace").rstrip("\0").split("\0"))
    except OSError:
        return ()
