"""Small programs with one feature of the operating system each, for the matrix of what can be moved.

Each counts its steps, checks its feature at every one of them, says `step N` after each check, and ends with 0 once the
file that it is given is there. What breaks, by an exception or by standing still, has not survived its move.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON_HEAD = """
import os, sys, time
END, MINE = sys.argv[1], sys.argv[2]
def steps():
    number = 0
    while not os.path.exists(END):
        number += 1
        yield number
        print("step", number, flush=True)
        time.sleep(0.01)
"""

C_HEAD = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static const char *end, *mine;
static long number;
static void check(int right, const char *what)
{
  if (!right) {
    fprintf(stderr, "step %ld: %s (errno %d)\\n", number, what, errno);
    exit(1);
  }
}
static void rest(void)
{
  struct timespec left = { 0, 10000000 };
  while (nanosleep(&left, &left) && errno == EINTR)
    ;
}
static int step(void) /* says that the last one was right, and whether there is to be another */
{
  if (number++) {
    printf("step %ld\\n", number - 1);
    fflush(stdout);
    rest();
  }
  return access(end, F_OK) != 0;
}
static void own_name(char name[64]) /* of something in /dev/shm, by the folder of this run and the rank */
{
  struct stat here;
  check(!stat(".", &here), "the folder");
  snprintf(name, 64, "/ejb-test-%ld-%s", (long)here.st_ino, mine + strlen(mine) - 1);
  shm_unlink(name);
}
static void begin(int argc, char **argv)
{
  if (argc < 3)
    exit(2);
  end = argv[1], mine = argv[2];
}
"""


@dataclass(frozen=True, slots=True)
class Feature:
    """`source` begins with C_HEAD or PYTHON_HEAD. `needs`: a Python module without which it cannot be tried. `behind`:
    words before the program."""

    name: str
    source: str
    flags: tuple[str, ...] = ()
    needs: str = ""
    behind: tuple[str, ...] = ()

    @property
    def compiled(self) -> bool:
        return self.source.startswith(C_HEAD)

    def command(self, folder: Path, name: str) -> list[str]:
        """How it is started, built in `folder`; the file that ends it and a path of its own follow."""
        if not self.compiled:
            path = folder / f"{name}.py"
            path.write_text(self.source)
            return [sys.executable, str(path)]
        source, program = folder / f"{name}.c", folder / name
        source.write_text(self.source)
        words = [shutil.which("cc") or "gcc", "-O1", "-pthread", str(source), "-o", str(program), *self.flags, "-lrt"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
        assert not done.returncode, done.stderr
        return [*self.behind, str(program)]


def _python(name: str, body: str, needs: str = "") -> Feature:
    return Feature(name, PYTHON_HEAD + body, needs=needs)


def _c(name: str, body: str, *flags: str) -> Feature:
    return Feature(name, C_HEAD + body, flags)


STEPS_ALONE = """
int main(int argc, char **argv)
{
  begin(argc, argv);
  while (step())
    ;
  return 0;
}
"""

FEATURES = (
    # -- files ---------------------------------------------------------------------------------------------------------
    _python(
        "file appended to",
        """
with open(MINE, "a") as file:
    for n in steps():
        file.write("%d\\n" % n)
        file.flush()
        assert [int(line) for line in open(MINE)] == list(range(1, n + 1))
""",
    ),
    _python(
        "file read",
        """
with open(MINE, "w") as file:
    file.writelines("%06d\\n" % n for n in range(1, 100000))
with open(MINE, buffering=1) as file:
    for n in steps():
        assert int(file.readline()) == n
""",
    ),
    _python(
        "file opened for update",
        """
with open(MINE, "wb") as file:
    file.write(bytes(8))
with open(MINE, "r+b", buffering=0) as file:
    for n in steps():
        file.seek(0)
        assert int.from_bytes(file.read(8), "big") == n - 1
        file.seek(0)
        file.write(n.to_bytes(8, "big"))
""",
    ),
    _python(
        "file that is replaced while it is open",
        """
for n in steps():
    with open(MINE + ".new", "w") as file:
        file.write(str(n))
        file.flush()
        time.sleep(0.05)  # nearly always open when a checkpoint comes
    os.replace(MINE + ".new", MINE)
    assert open(MINE).read() == str(n)
""",
    ),
    _python(
        "temporary file",
        """
import tempfile
with tempfile.TemporaryFile(dir=os.path.dirname(MINE)) as file:
    for n in steps():
        file.seek(0)
        assert n == 1 or int(file.read()) == n - 1
        file.seek(0)
        file.write(b"%06d" % n)
        file.flush()
""",
    ),
    _python(
        "file that was deleted while it is open",
        """
file = open(MINE, "w+b", buffering=0)
os.unlink(MINE)
for n in steps():
    file.seek(0)
    assert n == 1 or int(file.read()) == n - 1
    file.seek(0)
    file.write(b"%06d" % n)
""",
    ),
    _python(
        "temporary file in the node's /tmp",
        """
import tempfile
with tempfile.NamedTemporaryFile() as file:
    for n in steps():
        file.seek(0)
        assert n == 1 or int(file.read()) == n - 1
        file.seek(0)
        file.write(b"%06d" % n)
        file.flush()
""",
    ),
    _c(
        "temporary file of C",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  FILE *file = tmpfile();
  check(file != NULL, "tmpfile");
  while (step()) {
    long found = 0;
    rewind(file);
    check(number == 1 || (fscanf(file, "%ld", &found) == 1 && found == number - 1), "what the file holds");
    rewind(file);
    fprintf(file, "%08ld", number);
    fflush(file);
  }
  return 0;
}
""",
    ),
    _python(
        "file mapped into memory",
        """
import mmap
with open(MINE, "wb") as file:
    file.write(bytes(4096))
with open(MINE, "r+b") as file, mmap.mmap(file.fileno(), 4096) as there:
    for n in steps():
        assert int.from_bytes(there[:8], "big") == n - 1
        there[:8] = n.to_bytes(8, "big")
        there.flush()
        assert int.from_bytes(open(MINE, "rb").read(8), "big") == n
""",
    ),
    _python(
        "locks on files",
        """
import fcntl
with open(MINE, "w") as file:
    for n in steps():
        fcntl.lockf(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_UN)
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
""",
    ),
    _python(
        "open folder",
        """
folder = os.open(os.path.dirname(MINE), os.O_RDONLY | os.O_DIRECTORY)
for n in steps():
    assert os.stat(os.path.basename(END) + "/..", dir_fd=folder) if os.path.exists(END) else os.fstat(folder)
    assert os.listdir(folder) is not None
""",
    ),
    _python(
        "file of /proc",
        """
with open("/proc/self/stat") as file:
    for n in steps():
        file.seek(0)
        assert len(file.read().split()) > 20
""",
    ),
    # -- between processes and threads ---------------------------------------------------------------------------------
    _python(
        "TCP to itself",
        """
import socket
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname())
other = listener.accept()[0]
for n in steps():
    one.sendall(n.to_bytes(8, "big"))
    assert int.from_bytes(other.recv(8), "big") == n
""",
    ),
    _python(
        "UDP",
        """
import socket
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
other.bind(("127.0.0.1", 0))
other.settimeout(10)
for n in steps():
    one.sendto(n.to_bytes(8, "big"), other.getsockname())
    assert int.from_bytes(other.recv(8), "big") == n
""",
    ),
    _python(
        "unix sockets",
        """
import socket
one, other = socket.socketpair()
for n in steps():
    one.sendall(n.to_bytes(8, "big"))
    assert int.from_bytes(other.recv(8), "big") == n
""",
    ),
    _python(
        "pipe to itself",
        """
inside, outside = os.pipe()
for n in steps():
    os.write(outside, n.to_bytes(8, "big"))
    assert int.from_bytes(os.read(inside, 8), "big") == n
""",
    ),
    _python(
        "named pipe",
        """
os.mkfifo(MINE)
both = os.open(MINE, os.O_RDWR)
for n in steps():
    os.write(both, n.to_bytes(8, "big"))
    assert int.from_bytes(os.read(both, 8), "big") == n
""",
    ),
    _python(
        "threads",
        """
import threading
counts, stop = [0, 0, 0], False
def work(which):
    while not stop:
        counts[which] += 1
        time.sleep(0.001)
crew = [threading.Thread(target=work, args=(which,)) for which in range(3)]
for one in crew: one.start()
last = list(counts)
for n in steps():
    until = time.monotonic() + 20
    while any(now <= before for now, before in zip(counts, last)):
        assert time.monotonic() < until
        time.sleep(0.001)
    last = list(counts)
stop = True
for one in crew: one.join()
""",
    ),
    _c(
        "OpenMP",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  while (step()) {
    long sum = 0;
    #pragma omp parallel for reduction(+ : sum) num_threads(3)
    for (long at = 1; at <= 1000; at++)
      sum += at;
    check(sum == 500500, "the sum");
  }
  return 0;
}
""",
        "-fopenmp",
    ),
    _python(
        "eventfd and epoll",
        """
import ctypes, select
libc = ctypes.CDLL(None, use_errno=True)
event = libc.eventfd(0, 0)
waiting = select.epoll()
waiting.register(event, select.EPOLLIN)
for n in steps():
    os.write(event, n.to_bytes(8, "little"))
    assert waiting.poll(10)
    assert int.from_bytes(os.read(event, 8), "little") == n
""",
    ),
    _c(
        "signalfd",
        """
#include <sys/signalfd.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int fd = signalfd(-1, &set, 0);
  while (step()) {
    struct signalfd_siginfo found;
    kill(getpid(), SIGUSR1);
    check(read(fd, &found, sizeof found) == sizeof found && found.ssi_signo == SIGUSR1, "the signal");
  }
  return 0;
}
""",
    ),
    _c(
        "inotify",
        """
#include <sys/inotify.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  fclose(fopen(mine, "w"));
  int fd = inotify_init1(0);
  check(inotify_add_watch(fd, mine, IN_ATTRIB) >= 0, "watch");
  while (step()) {
    char found[4096];
    chmod(mine, number & 1 ? 0600 : 0644);
    check(read(fd, found, sizeof found) > 0, "what was seen");
  }
  return 0;
}
""",
    ),
    _python(
        "pseudo-terminal",
        """
import pty
one, other = pty.openpty()
for n in steps():
    os.write(one, b"%d\\n" % n)
    assert int(os.read(other, 100)) == n
    os.read(one, 100)
""",
    ),
    _python(
        "asyncio",
        """
import asyncio
async def answer(reader, writer):
    while data := await reader.read(8):
        writer.write(data)
        await writer.drain()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for n in steps():
        writer.write(n.to_bytes(8, "big"))
        assert int.from_bytes(await asyncio.wait_for(reader.readexactly(8), 20), "big") == n
        await asyncio.sleep(0.001)
    writer.close()
    server.close()
asyncio.run(main())
""",
    ),
    # -- timers --------------------------------------------------------------------------------------------------------
    *(
        _c(
            f"interval timer ({what})",
            f"""
static volatile sig_atomic_t ticks;
static void tick(int signum) {{ (void)signum; ticks++; }}
int main(int argc, char **argv)
{{
  begin(argc, argv);
  signal({signum}, tick);
  struct itimerval every = {{ {{ 0, 5000 }}, {{ 0, 5000 }} }};
  check(!setitimer({which}, &every, NULL), "setitimer");
  while (step()) {{
    int before = ticks;
    time_t until = time(NULL) + 10;
    while (ticks == before)
      check(time(NULL) < until, "no tick for ten seconds");
  }}
  return 0;
}}
""",
        )
        for what, which, signum in (
            ("real", "ITIMER_REAL", "SIGALRM"),
            ("virtual", "ITIMER_VIRTUAL", "SIGVTALRM"),
            ("prof", "ITIMER_PROF", "SIGPROF"),
        )
    ),
    _c(
        "alarm",
        """
static volatile sig_atomic_t ticks;
static void tick(int signum) { (void)signum; ticks++; alarm(1); }
int main(int argc, char **argv)
{
  begin(argc, argv);
  signal(SIGALRM, tick);
  alarm(1);
  int before = 0;
  time_t seen = time(NULL);
  while (step()) {
    if (ticks != before)
      before = ticks, seen = time(NULL);
    check(time(NULL) < seen + 60, "no alarm for a minute");
    if (number % 50 == 0) { /* half a second of steps: by the second of these there was one */
      time_t until = time(NULL) + 10;
      for (int now = ticks; ticks == now; rest())
        check(time(NULL) < until, "no alarm for ten seconds");
    }
  }
  return 0;
}
""",
    ),
    _c(
        "timer of C (signal)",
        """
static volatile sig_atomic_t ticks;
static void tick(int signum) { (void)signum; ticks++; }
int main(int argc, char **argv)
{
  begin(argc, argv);
  timer_t timer;
  struct sigevent how = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 3 };
  struct itimerspec every = { { 0, 5000000 }, { 0, 5000000 } };
  signal(SIGRTMIN + 3, tick);
  check(!timer_create(CLOCK_MONOTONIC, &how, &timer), "timer_create");
  check(!timer_settime(timer, 0, &every, NULL), "timer_settime");
  while (step()) {
    int before = ticks;
    time_t until = time(NULL) + 10;
    for (; ticks == before; rest())
      check(time(NULL) < until, "no tick for ten seconds");
  }
  return 0;
}
""",
    ),
    _c(
        "timer of C (thread)",
        """
static volatile sig_atomic_t ticks;
static void tick(union sigval value) { (void)value; ticks++; }
int main(int argc, char **argv)
{
  begin(argc, argv);
  timer_t timer;
  struct sigevent how = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick };
  struct itimerspec every = { { 0, 5000000 }, { 0, 5000000 } };
  check(!timer_create(CLOCK_MONOTONIC, &how, &timer), "timer_create");
  check(!timer_settime(timer, 0, &every, NULL), "timer_settime");
  while (step()) {
    int before = ticks;
    time_t until = time(NULL) + 10;
    for (; ticks == before; rest())
      check(time(NULL) < until, "no tick for ten seconds");
  }
  return 0;
}
""",
    ),
    _c(
        "timerfd",
        """
#include <poll.h>
#include <sys/timerfd.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  struct itimerspec every = { { 0, 5000000 }, { 0, 5000000 } };
  int fd = timerfd_create(CLOCK_MONOTONIC, 0);
  check(!timerfd_settime(fd, 0, &every, NULL), "timerfd_settime");
  while (step()) {
    uint64_t found;
    struct pollfd waiting = { fd, POLLIN, 0 };
    check(poll(&waiting, 1, 10000) == 1, "no tick for ten seconds");
    check(read(fd, &found, sizeof found) == sizeof found, "read");
  }
  return 0;
}
""",
    ),
    _python(
        "file in memory",
        """
fd = os.memfd_create("mine")
for n in steps():
    assert os.pwrite(fd, b"x", n) == 1 and os.fstat(fd).st_size == n + 1
""",
    ),
    _c(
        "io_uring",
        """
#include <linux/io_uring.h>
#include <sys/syscall.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  struct io_uring_params how;
  memset(&how, 0, sizeof how);
  int fd = syscall(SYS_io_uring_setup, 4, &how);
  check(fd >= 0, "io_uring_setup");
  while (step())
    check(syscall(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0) >= 0, "io_uring_enter");
  return 0;
}
""",
    ),
    _python(
        "few open files",
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for n in steps():
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256
""",
    ),
    _c(
        "main thread that has ended",
        """
#include <pthread.h>
static void *work(void *nothing)
{
  (void)nothing;
  while (step())
    ;
  exit(0);
}
int main(int argc, char **argv)
{
  begin(argc, argv);
  pthread_t worker;
  check(!pthread_create(&worker, NULL, work, NULL), "pthread_create");
  pthread_exit(NULL);
}
""",
    ),
    _c(
        "userfaultfd",
        """
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  struct uffdio_api how = { .api = UFFD_API };
  int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  check(fd >= 0 && !ioctl(fd, UFFDIO_API, &how), "userfaultfd");
  while (step())
    check(fcntl(fd, F_GETFD) >= 0, "the descriptor is gone");
  return 0;
}
""",
    ),
    _c(
        "SIGUSR2 of its own",
        """
static volatile sig_atomic_t seen;
static void take(int signal) { (void)signal, seen++; }
int main(int argc, char **argv)
{
  begin(argc, argv);
  struct sigaction how = { .sa_handler = take };
  check(!sigaction(SIGUSR2, &how, NULL), "sigaction");
  while (step()) {
    sig_atomic_t before = seen;
    raise(SIGUSR2);
    check(seen == before + 1, "no signal came");
  }
  return 0;
}
""",
    ),
    _c(
        "pidfd of a child",
        """
#include <poll.h>
#include <sys/syscall.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  int how;
  pid_t child = fork();
  if (!child)
    for (;;)
      pause();
  struct pollfd waiting = { syscall(SYS_pidfd_open, child, 0), POLLIN, 0 };
  check(waiting.fd >= 0, "pidfd_open");
  while (step())
    check(poll(&waiting, 1, 0) == 0, "poll");
  kill(child, SIGKILL);
  while (poll(&waiting, 1, -1) < 0)
    check(errno == EINTR, "poll of the end");
  return waitpid(child, &how, 0) != child || !WIFSIGNALED(how);
}
""",
    ),
    _c(
        "calls that take process ids",
        """
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  pid_t child = fork(), self = getpid();
  if (!child)
    for (;;)
      pause();
  while (step()) {
    struct rlimit limit;
    struct timespec interval;
    cpu_set_t set;
    check(!setpriority(PRIO_PROCESS, gettid(), 5) && !setpriority(PRIO_PROCESS, child, 5), "setpriority");
    check(getpriority(PRIO_PROCESS, child) == 5, "getpriority");
    errno = 0;
    check(getpriority(PRIO_PGRP, getpgrp()) != -1 || !errno, "getpriority of a group");
    check(!prlimit(child, RLIMIT_NOFILE, NULL, &limit) && !prlimit(self, RLIMIT_NOFILE, NULL, &limit), "prlimit");
    check(!sched_rr_get_interval(child, &interval), "sched_rr_get_interval");
    check(syscall(SYS_sched_getaffinity, child, sizeof set, &set) > 0, "sched_getaffinity by syscall");
    check(!syscall(SYS_sched_setaffinity, gettid(), sizeof set, &set), "sched_setaffinity by syscall");
    check(syscall(SYS_ioprio_get, 1, child) >= 0, "ioprio_get");
    check(!syscall(SYS_move_pages, child, 0L, NULL, NULL, NULL, 0), "move_pages");
    check(syscall(SYS_pidfd_open, child + 1, 0) < 0 && errno == ESRCH, "the pidfd of nobody");
  }
  kill(child, SIGKILL);
  return waitpid(child, NULL, 0) != child;
}
""",
    ),
    _python(
        "program that is a descriptor",
        """
if os.path.basename(sys.argv[0]) != "-c":
    code = open(sys.argv[0]).read()
    os.execve(os.open(sys.executable, os.O_RDONLY), [sys.executable, "-c", code, END, MINE], {"PATH": os.defpath})
for n in steps():
    pass
""",
    ),
    Feature("environment of its own", C_HEAD + STEPS_ALONE, behind=("env", "-i")),
    Feature("static program behind a shell", C_HEAD + STEPS_ALONE, ("-static",), behind=("sh", "-c", 'exec "$0" "$@"')),
    # -- shared memory -------------------------------------------------------------------------------------------------
    _c(
        "System V shared memory",
        """
#include <sys/shm.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  check(id >= 0, "shmget");
  long *there = shmat(id, NULL, 0);
  check(there != (void *)-1, "shmat");
  while (step()) {
    check(*there == number - 1, "what the memory holds");
    *there = number;
  }
  return shmctl(id, IPC_RMID, NULL) != 0;
}
""",
    ),
    _c(
        "System V shared memory with a child",
        """
#include <sys/shm.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
  check(id >= 0, "shmget");
  volatile long *there = shmat(id, NULL, 0);
  check(there != (void *)-1, "shmat");
  pid_t child = fork();
  if (!child)
    for (;; usleep(1000))
      if (there[0] < 0)
        _exit(0);
      else
        there[1] = there[0];
  while (step()) {
    there[0] = number;
    time_t until = time(NULL) + 20;
    for (; there[1] != number; rest())
      check(time(NULL) < until, "the child does not answer");
  }
  there[0] = -1;
  int status;
  check(waitpid(child, &status, 0) == child && !status, "the child's end");
  return shmctl(id, IPC_RMID, NULL) != 0;
}
""",
    ),
    _c(
        "System V semaphores",
        """
#include <sys/sem.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
  check(id >= 0, "semget");
  while (step()) {
    struct sembuf up = { 0, 1, 0 }, down = { 0, -1, 0 };
    check(!semop(id, &up, 1), "up");
    check(semctl(id, 0, GETVAL) == 1, "its value");
    check(!semop(id, &down, 1), "down");
  }
  return semctl(id, 0, IPC_RMID) != 0;
}
""",
    ),
    _c(
        "System V message queue",
        """
#include <sys/msg.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
  check(id >= 0, "msgget");
  while (step()) {
    struct { long kind; long value; } out = { 1, number }, in = { 0, 0 };
    check(!msgsnd(id, &out, sizeof out.value, 0), "msgsnd");
    check(msgrcv(id, &in, sizeof in.value, 0, 0) == sizeof in.value && in.value == number, "msgrcv");
  }
  return msgctl(id, IPC_RMID, NULL) != 0;
}
""",
    ),
    _c(
        "POSIX shared memory",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  char name[64];
  own_name(name);
  int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
  check(fd >= 0 && !ftruncate(fd, 4096), "shm_open");
  long *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check(there != MAP_FAILED, "mmap");
  while (step()) {
    check(*there == number - 1, "what the memory holds");
    *there = number;
  }
  shm_unlink(name);
  return 0;
}
""",
    ),
    _c(
        "POSIX shared memory, unlinked",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  char name[64];
  own_name(name);
  int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
  check(fd >= 0 && !ftruncate(fd, 4096), "shm_open");
  long *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  check(there != MAP_FAILED, "mmap");
  close(fd);
  shm_unlink(name);
  while (step()) {
    check(*there == number - 1, "what the memory holds");
    *there = number;
  }
  return 0;
}
""",
    ),
    _c(
        "POSIX semaphore",
        """
#include <semaphore.h>
int main(int argc, char **argv)
{
  begin(argc, argv);
  char name[64];
  own_name(name);
  sem_t *there = sem_open(name, O_CREAT, 0600, 0);
  check(there != SEM_FAILED, "sem_open");
  while (step()) {
    int value = -1;
    check(!sem_post(there) && !sem_getvalue(there, &value) && value == 1, "post");
    check(!sem_wait(there), "wait");
  }
  sem_unlink(name);
  return 0;
}
""",
    ),
    _c(
        "anonymous memory shared with a child",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  volatile long *there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(there != MAP_FAILED, "mmap");
  pid_t child = fork();
  if (!child)
    for (;; usleep(1000))
      if (there[0] < 0)
        _exit(0);
      else
        there[1] = there[0];
  while (step()) {
    there[0] = number;
    time_t until = time(NULL) + 20;
    for (; there[1] != number; rest())
      check(time(NULL) < until, "the child does not answer");
  }
  there[0] = -1;
  int status;
  check(waitpid(child, &status, 0) == child && !status, "the child's end");
  return 0;
}
""",
    ),
    # -- children ------------------------------------------------------------------------------------------------------
    _python(
        "child that is forked",
        """
inside, outside = os.pipe()
back_in, back_out = os.pipe()
child = os.fork()
if child == 0:
    os.close(outside)
    while data := os.read(inside, 8):
        os.write(back_out, data)
    os._exit(0)
os.close(inside)
for n in steps():
    os.write(outside, n.to_bytes(8, "big"))
    assert int.from_bytes(os.read(back_in, 8), "big") == n
os.close(outside)
assert os.waitpid(child, 0)[1] == 0
""",
    ),
    _c(
        "children one after the other",
        """
int main(int argc, char **argv)
{
  begin(argc, argv);
  while (step()) {
    int status;
    pid_t child = fork();
    if (!child) {
      rest();
      _exit(7);
    }
    check(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "the child's end");
  }
  return 0;
}
""",
    ),
    _python(
        "subprocess of Python",
        """
import subprocess
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
for n in steps():
    child.stdin.write(b"%d\\n" % n)
    assert int(child.stdout.readline()) == n
child.stdin.close()
assert child.wait(20) == 0
""",
    ),
    _python(
        "subprocesses of Python one after the other",
        """
import subprocess
for n in steps():
    assert subprocess.run(["sh", "-c", "sleep 0.05; echo $0", str(n)], capture_output=True).stdout == b"%d\\n" % n
""",
    ),
    _python(
        "system() of C",
        """
for n in steps():
    assert os.system("sleep 0.05; exit 3") == 3 << 8
""",
    ),
    _python(
        "multiprocessing, fork",
        """
import multiprocessing
with multiprocessing.get_context("fork").Pool(2) as pool:
    for n in steps():
        assert pool.map(abs, [-n, n]) == [n, n]
""",
    ),
    _python(
        "multiprocessing, spawn",
        """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for n in steps():
            assert pool.map(abs, [-n, n]) == [n, n]
""",
    ),
    _python(
        "multiprocessing, forkserver",
        """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        for n in steps():
            assert pool.map(abs, [-n, n]) == [n, n]
""",
    ),
    _python(
        "shared memory of multiprocessing",
        """
from multiprocessing import shared_memory
there = shared_memory.SharedMemory(create=True, size=4096)
for n in steps():
    assert int.from_bytes(bytes(there.buf[:8]), "big") == n - 1
    there.buf[:8] = n.to_bytes(8, "big")
there.close()
there.unlink()
""",
    ),
    _python(
        "concurrent.futures",
        """
import concurrent.futures
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    for n in steps():
        assert list(pool.map(abs, [-n, n])) == [n, n]
""",
    ),
    _python(
        "numpy",
        """
import numpy
matrix = numpy.random.default_rng(1).random((100, 100))
right = matrix @ matrix
for n in steps():
    assert numpy.array_equal(matrix @ matrix, right)
""",
        needs="numpy",
    ),
    _python(
        "numpy with multiprocessing",
        """
import multiprocessing, numpy
def work(n):
    return float((numpy.full((60, 60), n) @ numpy.ones((60, 60))).sum())
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for n in steps():
            assert pool.map(work, [n, n]) == [60.0 ** 3 * n] * 2
""",
        needs="numpy",
    ),
)

BY_NAME = {feature.name: feature for feature in FEATURES}


def file_name(feature: Feature) -> str:
    return re.sub(r"[^a-z0-9]+", "-", feature.name.lower()).strip("-")


def last_step(path: Path) -> int:
    """How far a program has come by its output; 0: not begun."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            found = re.findall(rb"step (\d+)\n", file.read())
    except OSError:
        return 0
    return int(found[-1]) if found else 0
