/* Counts how a process polls: LD_PRELOAD, behind the library that is looked at. Every process that polls or yields has a
 * file of its own, COUNT_POLLS/<pid>, of three numbers that are always up to date, however it ends: polls that do not
 * wait and find nothing, polls that wait, and yields. cc -shared -fPIC -O2 -o count_polls.so count_polls.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EMPTY, WAITING, YIELDS, COUNTERS };

static void count(int which)
{
  static long *counters;
  if (!counters) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", getenv("COUNT_POLLS"), (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, COUNTERS * sizeof(long)) != 0)
      abort();
    counters = mmap(NULL, COUNTERS * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (counters == MAP_FAILED)
      abort();
  }
  __atomic_fetch_add(&counters[which], 1, __ATOMIC_RELAXED);
}

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
  static int (*real)(int, struct epoll_event *, int, int);
  if (!real)
    real = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  int found = real(epfd, events, max, timeout);
  if (timeout != 0)
    count(WAITING);
  else if (found == 0)
    count(EMPTY);
  return found;
}

int sched_yield(void)
{
  count(YIELDS);
  return (int)syscall(SYS_sched_yield);
}
