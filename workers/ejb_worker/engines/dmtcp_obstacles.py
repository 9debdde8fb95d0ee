"""What DMTCP 5.0 does not bring back, looked for in the running processes before any of them is checkpointed.

Each row of docs/faults.md's table of features that does not move, and that /proc shows, is one here.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

_NAMELESS = re.compile(r"/#\d+ \(deleted\)$")
# What may neither be read nor written is DMTCP's own.
_SHARED = re.compile(r"^\S+ rw.s \S+ (\S+) (\d+)\s+/dev/zero \(deleted\)$", re.MULTILINE)
LONGEST_MAPS = 4 << 20
LASTING_S = 1.0
LONGEST_TURN_S = 65.0
"""Between two looks that each saw the end of a program: a little more than the longest pause between them."""
ENDING_S = 0.05
"""Of a process that was asked to end no thread is left after so long, or the kernel's signal for it is still seen."""
FEWEST_FILES = 1024
"""DMTCP keeps descriptors from 821 on for itself, and ends what it restarts with a limit below 1024."""
LIBRARY = "libdmtcp.so"
_NOT_YET = ("dmtcp_launch", "dmtcp_restart", "mtcp_restart")
_ANONYMOUS = re.compile(r"^(?:anon_inode:\[?|(?=pidfd:))(\w[\w-]*)")
_BROUGHT_BACK = ("eventfd", "eventpoll", "signalfd")
_SEEN_AS_FILES = {
    "timerfd": "a timer of timerfd_create",
    "io_uring": "an io_uring",
    "userfaultfd": "a userfaultfd",
    "pidfd": "a pidfd",
    "inotify": "an inotify",
    "perf_event": "an event of perf_event_open",
}
# Of one that sends its signal to a thread DMTCP keeps the number that this thread has until its restart.
_THREAD_TIMER = re.compile(r"^notify: \w+/tid\.", re.MULTILINE)


class Process(NamedTuple):
    """One of the processes of a rank. `state` and `parent` are /proc/PID/stat's; `began`: seconds since the boot.

    `threads`: how many it has; the main one counts also when it has ended before the others. `waited`: grows with each
    process that it has started, and the end of which it has waited for.
    """

    pid: int
    parent: int
    state: str
    began: float
    threads: int
    waited: int = 0


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
            waited = int(fields[8]) + int(fields[10])  # the page faults of those that it has waited for
            found[int(entry)] = Process(int(entry), int(fields[1]), fields[0], began, int(fields[17]), waited)
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


def obstacle(ranks: Dict[int, int], *, held: bool = True, turnover: "Optional[Turnover]" = None) -> str:
    """Why these ranks (their process ids) cannot be moved, in a sentence, or "" where nothing is seen against it.

    `held`: whether DMTCP's library is looked for in them. `turnover`: what earlier looks have seen of them.
    """
    known = processes()
    for rank, root in sorted(ranks.items()):
        mine = family(root, known)
        why = _main_threads(mine) or (_not_held(mine) if held else "") or _limits(mine)
        why = why or _open_files(mine) or _timers(mine) or _shared_memory(mine) or _inherited(mine)
        why = why or (turnover.look(mine) if turnover is not None else "")
        if why:
            return "rank %d %s" % (rank, why)
    return ""


class Turnover:
    """Processes that start programs one after the other, as a shell's loop does. DMTCP loses the end of a program that
    ends at a move, and what has started it takes that for a failure; a checkpoint in the middle of a start hangs.
    """

    def __init__(self) -> None:
        self._waited: Dict[int, int] = {}  # of each process; what ended before the first look counts as one end
        self._ends_s: Dict[int, List[float]] = {}  # when the last two looks were made that saw an end

    def look(self, mine: List[Process], now_s: Optional[float] = None) -> str:
        now_s = time.monotonic() if now_s is None else now_s
        for one in mine:
            if self._waited.get(one.pid, 0) != one.waited:
                self._waited[one.pid] = one.waited
                self._ends_s[one.pid] = [*self._ends_s.get(one.pid, [])[-1:], now_s]
        for one in mine:
            ends_s = self._ends_s.get(one.pid, [])
            turn_s = ends_s[1] - ends_s[0] if len(ends_s) > 1 else LONGEST_TURN_S + 1
            if turn_s <= LONGEST_TURN_S and now_s - ends_s[1] <= max(LASTING_S, turn_s):
                return (
                    "has %s start programs one after the other, and DMTCP loses the end of one that ends at a move"
                    % _program(one.pid)
                )
        return ""


def restless(roots: Iterable[int]) -> bool:
    """Whether a process of these has just ended and was not waited for: its end would be lost at the restart."""
    known = processes()
    return any(one.state == "Z" for root in roots for one in family(root, known)[1:])


def _main_threads(mine: List[Process]) -> str:
    """A process that ends looks so for a moment, too: its other threads, DMTCP's one among them, end a little later."""
    if any(_outlived(one) for one in mine):
        return "has a process: its main thread has ended before the others, and a checkpoint of it hangs"
    return ""


def _outlived(one: Process) -> bool:
    if one.state != "Z" or one.threads < 2:
        return False
    left = _living_threads(one.pid)
    if not left:
        return False
    time.sleep(ENDING_S)
    return bool(left & _living_threads(one.pid))


def _living_threads(pid: int) -> Set[str]:
    """Of its threads those that have not ended, and are not about to be killed with the process."""
    found = set()
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/status" % (pid, thread), encoding="ascii", errors="replace") as status:
                fields = dict(line.split(":", 1) for line in status if ":" in line)
            if fields["State"].split()[0] not in "ZX" and not int(fields["SigPnd"], 16) >> (signal.SIGKILL - 1) & 1:
                found.add(thread)
    except (OSError, ValueError, KeyError, IndexError):
        return set()  # it has ended meanwhile
    return found


def _not_held(mine: List[Process]) -> str:
    """A program without DMTCP's library: it is never checkpointed, and a checkpoint waits for it until it is killed.

    A process that a rank has started is left out while it is young: it may not have loaded its libraries yet.
    """
    for one in mine:
        program = _program(one.pid)
        if one.state == "Z" or not program or program in _NOT_YET or _young(one):
            continue
        maps = _maps(one.pid)
        if maps and LIBRARY not in maps:
            return (
                "runs %s, which DMTCP does not hold: it is linked statically (as every program in Go), or was started "
                "with an environment of its own" % program
            )
    return ""


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return ""


def _maps(pid: int) -> str:
    try:
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as maps:
            return maps.read(LONGEST_MAPS)
    except OSError:
        return ""


def _limits(mine: List[Process]) -> str:
    for one in mine:
        try:
            with open("/proc/%d/limits" % one.pid, encoding="ascii", errors="replace") as limits:
                found = {
                    line[:14]: line.split()[3]
                    for line in limits
                    if line.startswith(("Max open files", "Max file size"))
                }
        except OSError:
            continue
        files, size = found.get("Max open files", ""), found.get("Max file size ", "")
        if files.isdigit() and int(files) < FEWEST_FILES:
            return describe_few_files(int(files))
        if size.isdigit():
            return "may write no file of more than %s bytes, and its checkpoint is one" % size
    return ""


def describe_few_files(most: int) -> str:
    return "may have no more than %d files open, and DMTCP needs %d to bring it back" % (most, FEWEST_FILES)


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
            anonymous = _ANONYMOUS.match(target)
            if anonymous and anonymous.group(1) not in _BROUGHT_BACK:
                kind = anonymous.group(1)
                return "has %s, which DMTCP does not bring back" % _SEEN_AS_FILES.get(kind, "a descriptor of " + kind)
            if target.startswith("/memfd:"):
                return "has a file in memory open (memfd_create), which DMTCP does not bring back: %s" % target
            if target.startswith(("/dev/pts/", "/dev/ptmx")) and fd > 2:
                return "has a pseudo-terminal of its own, which DMTCP does not bring back"
            if _NAMELESS.search(target):
                return "has a temporary file that never had a name, which DMTCP does not bring back: %s" % target
            if target.startswith("/dev/shm/") and not target.startswith("/dev/shm/sem."):
                return "has POSIX shared memory open, and DMTCP does not bring its descriptor back: %s" % target
    return ""


def _timers(mine: List[Process]) -> str:
    for one in mine:
        try:
            with open("/proc/%d/timers" % one.pid, encoding="ascii", errors="replace") as timers:
                if _THREAD_TIMER.search(timers.read(LONGEST_MAPS)):
                    return "has a timer that wakes a thread, which DMTCP does not bring back"
        except OSError:
            continue  # it has ended, or the kernel has no such file
    return ""


def _shared_memory(mine: List[Process]) -> str:
    """Anonymous memory that several processes share: each would come back with its own."""
    if len(mine) < 2:
        return ""
    seen: Set[Tuple[str, str]] = set()
    for one in mine:
        here = set(_SHARED.findall(_maps(one.pid)))
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
