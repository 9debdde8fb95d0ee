"""The few things of Linux that Python's library has no name for."""

from __future__ import annotations

import ctypes
import os
import signal
import stat

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded once, before any fork: nothing is looked up between fork and exec.
_LIBC = ctypes.CDLL(None, use_errno=True)
_PRCTL = _LIBC.prctl
_PRCTL.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_PRCTL.restype = ctypes.c_int


_KEEP_SIZE = 1
_FALLOCATE = getattr(_LIBC, "fallocate", None)
if _FALLOCATE is not None:
    _FALLOCATE.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def reserve(descriptor: int, size: int) -> None:
    """Keep room on the disk for the next `size` bytes of an open file, which stays as long as it is. Where the file
    system cannot, nothing happens.
    """
    if _FALLOCATE is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
        _FALLOCATE(descriptor, _KEEP_SIZE, os.fstat(descriptor).st_size, size)


def set_parent_death_signal(signum: int) -> None:
    """Have the kernel send `signum` to this process when the thread that forked it ends."""
    _PRCTL(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


def reset_signals() -> None:
    """Unblock every signal, and end that any is ignored: a batch system may start what it runs otherwise.

    What Python ignores for itself it gives back to its children (SIGPIPE, SIGXFSZ).
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for signum in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(signum) == signal.SIG_IGN:
            signal.signal(signum, signal.SIG_DFL)


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process, which can then end and reap them."""
    _PRCTL(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ignores(pid: int, signum: int) -> bool:
    """Whether process `pid` ignores `signum`; False where that cannot be seen."""
    return _in_mask(pid, signum, ("SigIgn",))


def has_children(pid: int) -> bool:
    """Whether process `pid` has any; True where that cannot be seen."""
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as children:
            return bool(children.read().strip())
    except OSError:
        return True


def descendants(pid: int) -> list[int]:
    """The processes below process `pid`, as far as they can be seen."""
    found: list[int] = []
    above = [pid]
    while above:
        parent = above.pop()
        try:
            threads = os.listdir("/proc/%d/task" % parent)
        except OSError:
            continue
        for thread in threads:
            try:
                with open("/proc/%d/task/%s/children" % (parent, thread), encoding="ascii") as children:
                    below = [int(word) for word in children.read().split()]
            except (OSError, ValueError):
                continue
            found += below
            above += below
    return sorted(found)


def command_line(pid: int) -> list[str]:
    """The words of a process; none where they cannot be seen."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def receives(pid: int, signum: int) -> bool:
    """Whether process `pid` catches or blocks `signum`: sent now, the signal would be seen and not kill it."""
    return _in_mask(pid, signum, ("SigCgt", "SigBlk"))


def _in_mask(pid: int, signum: int, masks: "tuple[str, ...]") -> bool:
    bit = 1 << (signum - 1)
    try:
        with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in masks and int(value, 16) & bit:
                    return True
    except (OSError, ValueError):
        return False
    return False


def children() -> list[int]:
    """Process ids of this process's children, zombies included (all threads' children)."""
    found: list[int] = []
    me = os.getpid()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as stat:
                # The command name may hold blanks and brackets: fields count from the last bracket.
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == me:
            found.append(int(entry))
    return found


def process_group(pid: int) -> int:
    """Of a process; 0 for one that is gone or a zombie, which does nothing any more."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[2])


def quiet() -> bool:
    """Whether no process of this machine waits for a processor now; False where that cannot be seen."""
    try:
        with open("/proc/loadavg", encoding="ascii", errors="replace") as load:
            runnable = int(load.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return False
    return runnable <= (os.cpu_count() or 1)


def age_s() -> float:
    """For how long this process has been there, in seconds; to a hundredth."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    with open("/proc/uptime", encoding="ascii") as uptime:
        now = float(uptime.read().split()[0])
    return max(0.0, round(now - ticks / os.sysconf("SC_CLK_TCK"), 2))


def signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:
        return "signal %d" % signum


def memory_kills(root: str = "/") -> int:
    """How many processes of this process's own control group the kernel has killed for memory; 0 where they are not
    counted.

    `root`: where /proc and /sys are.
    """
    try:
        with open(os.path.join(root, "proc/self/cgroup"), encoding="ascii", errors="replace") as groups:
            lines = [line.rstrip("\n").split(":", 2) for line in groups]
    except OSError:
        return 0
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if "memory" in controllers.split(","):
            file = os.path.join(root, "sys/fs/cgroup/memory", path.lstrip("/"), "memory.oom_control")
        elif not controllers:  # version 2
            file = os.path.join(root, "sys/fs/cgroup", path.lstrip("/"), "memory.events")
        else:
            continue
        try:
            with open(file, encoding="ascii", errors="replace") as counters:
                for counter in counters:
                    name, _, value = counter.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            continue  # with both versions one of them counts memory
    return 0
