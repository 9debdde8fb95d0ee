/* Over-subscribed MPI ranks: give the core away while polling, and finish MPI_Finalize. Works as an LD_PRELOAD library
 * of its own (progress.c) and as a part of the DMTCP plugin (move.c). It is loaded into every process of a launch, MPI
 * or not: what is not UCX's or libfabric's polling goes straight on.
 *
 * Yielding. MPI ranks spin while they wait: UCX's TCP transport on epoll_wait(.., timeout 0), its shared memory on the
 * memory itself. With more ranks than cores the ranks that wait then take the cores from those that compute: 8 ranks on
 * 2 cores were measured up to 70 times slower than the work they do. No setting of MPICH or UCX changes that. So an
 * empty poll yields, and after EJB_YIELDS empty polls in a row it waits: where there is nothing but TCP, for
 * EJB_BLOCK_MS in epoll_wait, which something to read ends at once; else for EJB_NAP_US, since nothing ends the waiting
 * for memory. How many polls that takes follows what messages have taken: where they come within a few, or far later,
 * fewer than that. A rank that only asks whether something has come (MPI_Test and its like) has other work to do and is
 * never made to wait: HPCC's MPIRandomAccess asks after every few updates, and did in more than 30 s what takes 2 s.
 * Nor is a rank where several threads poll: the one that waits holds MPI's lock.
 *
 * Standing aside. A rank that has its processor to itself is to spin as MPI would have it. EJB_DEGREE_PAGE names a file
 * in which the worker keeps a byte for each rank: how many ranks its processor has. It is mapped, and written anew for
 * each placement, so that a process that DMTCP restores finds what is true where it is. Where it says 1, nothing is done,
 * unless the processor is shared all the same (a virtual cluster, another user's process): a rank that polls in vain
 * for a while and gets less than the whole of the time acts as if it were over-subscribed, and looks again later.
 *
 * Finalize. MPICH 4.0 (ch4:ucx over TCP) can wait for ever in MPI_Finalize: one rank needs a peer to make progress that
 * already sits in the blocking read of the PMI barrier. Within MPI_Finalize, from the first disconnection of an endpoint
 * on, a read of a stream socket keeps the UCX workers going until there is something to read. */
#ifndef EJB_PROGRESS_H
#define EJB_PROGRESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "next.h"

#define EJB_MAX_WORKERS 16
#define EJB_PROGRESS_ROUNDS 20
#define EJB_LOOK_FROM 64 /* polls in vain, in one row, that are not looked at */
#define EJB_LOOK_POLLS 2048 /* and those that are: some ms */
#define EJB_CROWDED_NS INT64_C(1000000000)
#define EJB_CROWDED_MOST 64 /* times that, where it is found again and again */

/* UCX is loaded with the MPI. Python loads an extension module, and with it MPI and UCX, out of sight of RTLD_NEXT (a
 * local scope); but the library that calls us has UCX among what it was linked to. */
static void *ejb_beside(void *code, const char *symbol)
{
  Dl_info info;
  if (!dladdr(code, &info) || !info.dli_fname)
    return NULL;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (!library)
    return NULL;
  void *found = dlsym(library, symbol);
  dlclose(library);
  return found;
}

/* The same for a function of UCX or MPI. */
#define EJB_NEXT_LOADED(function) \
  EJB_NEXT(function) \
  if (!real) { \
    real = (__typeof__(function) *)ejb_beside(__builtin_return_address(0), #function); \
    __atomic_store_n(&ejb_found, real, __ATOMIC_RELAXED); \
  } \
  if (!real) \
    abort() /* the caller is linked to it */

static int ejb_yields = 100, ejb_block_ms = 1, ejb_nap_us = 50;
static bool ejb_only_tcp;
static int ejb_many_threads;
static const unsigned char *ejb_page; /* this rank's byte of it */
static int64_t ejb_crowded_until, ejb_crowded_ns;
static const void *ejb_first_thread;

static __thread int ejb_empty_polls, ejb_row, ejb_usual_row, ejb_asking, ejb_in_progress, ejb_gave_way, ejb_finalizing, ejb_disconnected;
static __thread int64_t ejb_looked_wall, ejb_looked_cpu;
static __thread const void *ejb_caller;
static __thread bool ejb_callers_mpi;

static pthread_mutex_t ejb_workers_lock = PTHREAD_MUTEX_INITIALIZER;
static void *ejb_workers[EJB_MAX_WORKERS];
static int ejb_worker_count;
static unsigned (*ejb_progress)(void *);

static int ejb_number(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

/* A child of a rank is no rank: its parent's workers are not its own to keep going. */
static void ejb_in_child(void)
{
  pthread_mutex_init(&ejb_workers_lock, NULL);
  ejb_worker_count = 0;
  ejb_asking = ejb_in_progress = ejb_finalizing = ejb_disconnected = 0;
}

static void ejb_map_page(void)
{
  const char *path = getenv("EJB_DEGREE_PAGE");
  int rank = ejb_number("EJB_RANK", 0); /* without: ranks of one mpirun, which are as many on each processor */
  struct stat found;
  int fd = path && *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0 && rank >= 0 && fstat(fd, &found) == 0 && found.st_size > rank) {
    unsigned char *page = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
      ejb_page = page + rank;
  }
  if (fd >= 0)
    close(fd);
}

__attribute__((constructor)) static void ejb_begin(void)
{
  ejb_map_page();
  ejb_yields = ejb_number("EJB_YIELDS", ejb_yields);
  ejb_block_ms = ejb_number("EJB_BLOCK_MS", ejb_block_ms);
  ejb_nap_us = ejb_block_ms > 0 ? ejb_number("EJB_NAP_US", ejb_nap_us) : 0;
  const char *transports = getenv("UCX_TLS"), *provider = getenv("FI_PROVIDER");
  ejb_only_tcp = (transports && (!strcmp(transports, "tcp,self") || !strcmp(transports, "self,tcp"))) ||
                 (provider && !strcmp(provider, "tcp"));
  pthread_atfork(NULL, NULL, ejb_in_child);
}

/* Whether it is MPI that polls here, and not the program itself (an event loop of Python's, say). */
static bool ejb_is_mpi(const void *caller)
{
  static const char *const libraries[] = { "libucs", "libuct", "libucp", "libfabric", "libmpi" };
  if (ejb_in_progress)
    return true;
  if (caller != ejb_caller) {
    Dl_info info;
    ejb_callers_mpi = false;
    if (dladdr(caller, &info) && info.dli_fname) {
      const char *slash = strrchr(info.dli_fname, '/');
      const char *name = slash ? slash + 1 : info.dli_fname;
      for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        ejb_callers_mpi = ejb_callers_mpi || !strncmp(name, libraries[i], strlen(libraries[i]));
    }
    ejb_caller = caller;
  }
  return ejb_callers_mpi;
}

static void ejb_note_thread(void)
{
  const void *none = NULL, *me = &ejb_empty_polls;
  if (__atomic_load_n(&ejb_first_thread, __ATOMIC_RELAXED) != me &&
      !__atomic_compare_exchange_n(&ejb_first_thread, &none, me, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    __atomic_store_n(&ejb_many_threads, 1, __ATOMIC_RELAXED);
}

static int64_t ejb_now(clockid_t clock)
{
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Whether this rank has its processor to itself, as far as is known. */
static bool ejb_stands_aside(void)
{
  if (!ejb_page || __atomic_load_n(ejb_page, __ATOMIC_RELAXED) != 1)
    return false;
  int64_t until = __atomic_load_n(&ejb_crowded_until, __ATOMIC_RELAXED);
  return !until || ejb_now(CLOCK_MONOTONIC) > until;
}

/* A poll in vain of a rank that stands aside: does it get all of its processor's time? */
static void ejb_look_around(void)
{
  if (++ejb_row != EJB_LOOK_FROM && ejb_row != EJB_LOOK_FROM + EJB_LOOK_POLLS)
    return;
  int error = errno;
  int64_t wall = ejb_now(CLOCK_MONOTONIC), cpu = ejb_now(CLOCK_THREAD_CPUTIME_ID);
  errno = error;
  if (ejb_row > EJB_LOOK_FROM) {
    bool crowded = 10 * (cpu - ejb_looked_cpu) < 8 * (wall - ejb_looked_wall);
    int64_t before_ns = __atomic_load_n(&ejb_crowded_ns, __ATOMIC_RELAXED);
    int64_t now_ns = !crowded ? 0 : !before_ns ? EJB_CROWDED_NS : 2 * before_ns;
    now_ns = now_ns < EJB_CROWDED_MOST * EJB_CROWDED_NS ? now_ns : EJB_CROWDED_MOST * EJB_CROWDED_NS;
    __atomic_store_n(&ejb_crowded_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&ejb_crowded_until, crowded ? wall + now_ns : 0, __ATOMIC_RELAXED);
    ejb_row = EJB_LOOK_FROM;
  }
  ejb_looked_wall = wall;
  ejb_looked_cpu = cpu;
}

/* Something was found. The usual row of polls in vain is in eighths; how long the last one was counts for one of them. */
static void ejb_found_some(void)
{
  if (ejb_row > 0) {
    int row = ejb_row < 4 * ejb_yields ? ejb_row : 4 * ejb_yields;
    ejb_usual_row = ejb_usual_row ? ejb_usual_row + row - ejb_usual_row / 8 : 8 * row;
  }
  ejb_row = ejb_empty_polls = 0;
}

/* Polls in vain before it is waited: twice as many as are usual; where that is far more than EJB_YIELDS, it is no use. */
static int ejb_patience(void)
{
  int least = ejb_yields / 4, usual = 2 * (ejb_usual_row / 8);
  if (!ejb_usual_row)
    return ejb_yields;
  if (usual > 4 * ejb_yields || usual < least)
    return least;
  return usual < ejb_yields ? usual : ejb_yields;
}

/* Nothing was found: whether this is the moment to wait, rather than to yield. */
static bool ejb_may_wait(void)
{
  ejb_gave_way = 1;
  if (ejb_row < INT_MAX)
    ejb_row++;
  if (ejb_asking || ++ejb_empty_polls <= ejb_patience() || ejb_block_ms <= 0 ||
      __atomic_load_n(&ejb_many_threads, __ATOMIC_RELAXED))
    return false;
  ejb_empty_polls = ejb_yields; /* of all that wait, not of all that ever was empty */
  return true;
}

static void ejb_nap(void)
{
  struct timespec nap = { ejb_nap_us / 1000000, ejb_nap_us % 1000000 * 1000L };
  if (ejb_nap_us <= 0 || nanosleep(&nap, NULL) != 0) /* a signal ends it, and that is well */
    sched_yield();
}

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
  EJB_NEXT(epoll_wait)
  int found = real(epfd, events, max, timeout);
  if (timeout != 0 || !ejb_is_mpi(__builtin_return_address(0)))
    return found;
  if (found != 0) {
    if (!ejb_in_progress)
      ejb_found_some();
    ejb_empty_polls = 0;
    return found;
  }
  if (ejb_stands_aside()) {
    if (!ejb_in_progress)
      ejb_look_around();
    return found;
  }
  int error = errno;
  if (!ejb_may_wait())
    sched_yield();
  else if (!ejb_only_tcp)
    ejb_nap();
  else {
    found = real(epfd, events, max, ejb_block_ms);
    if (found > 0)
      ejb_found_some();
    else if (found < 0 && errno == EINTR)
      found = 0; /* a rank that does not wait is not interrupted */
    if (found < 0)
      return found;
  }
  errno = error;
  return found;
}

/* MPI is not linked: a program without it never calls these. Handles are as wide as a pointer or less. */
#define EJB_ASK(function, parameters, arguments) \
  int function parameters \
  { \
    EJB_NEXT_LOADED(function); \
    ejb_asking++; \
    int code = real arguments; \
    ejb_asking--; \
    return code; \
  }

EJB_ASK(MPI_Test, (void *request, int *flag, void *status), (request, flag, status))
EJB_ASK(MPI_Testall, (int count, void *requests, int *flag, void *statuses), (count, requests, flag, statuses))
EJB_ASK(MPI_Testany, (int count, void *requests, int *index, int *flag, void *status),
        (count, requests, index, flag, status))
EJB_ASK(MPI_Testsome, (int count, void *requests, int *found, int *indices, void *statuses),
        (count, requests, found, indices, statuses))
EJB_ASK(MPI_Request_get_status, (void *request, int *flag, void *status), (request, flag, status))
EJB_ASK(MPI_Iprobe, (int source, int tag, void *world, int *flag, void *status), (source, tag, world, flag, status))
EJB_ASK(MPI_Improbe, (int source, int tag, void *world, int *flag, void *message, void *status),
        (source, tag, world, flag, message, status))

/* Fortran's bindings come in by either name. */
#define EJB_FINALIZE(function, parameters, arguments) \
  int function parameters \
  { \
    EJB_NEXT_LOADED(function); \
    ejb_finalizing++; \
    int code = real arguments; \
    ejb_finalizing--; \
    return code; \
  }

EJB_FINALIZE(MPI_Finalize, (void), ())
EJB_FINALIZE(PMPI_Finalize, (void), ())
EJB_FINALIZE(MPI_Session_finalize, (void *session), (session))

/* UCX is not linked: a program without it never calls these. */
int ucp_worker_create(void *context, const void *params, void **worker)
{
  EJB_NEXT_LOADED(ucp_worker_create);
  int status = real(context, params, worker);
  if (status != 0)
    return status;
  pthread_mutex_lock(&ejb_workers_lock);
  ejb_progress = (unsigned (*)(void *))ejb_beside((void *)real, "ucp_worker_progress");
  if (ejb_progress && ejb_worker_count < EJB_MAX_WORKERS)
    ejb_workers[ejb_worker_count++] = *worker;
  pthread_mutex_unlock(&ejb_workers_lock);
  return status;
}

void ucp_worker_destroy(void *worker)
{
  EJB_NEXT_LOADED(ucp_worker_destroy);
  pthread_mutex_lock(&ejb_workers_lock);
  for (int i = 0; i < ejb_worker_count; i++)
    if (ejb_workers[i] == worker)
      ejb_workers[i--] = ejb_workers[--ejb_worker_count];
  pthread_mutex_unlock(&ejb_workers_lock);
  real(worker);
}

unsigned ucp_worker_progress(void *worker)
{
  EJB_NEXT_LOADED(ucp_worker_progress);
  ejb_note_thread();
  ejb_in_progress++;
  ejb_gave_way = 0;
  unsigned done = real(worker);
  ejb_in_progress--;
  if (done)
    ejb_found_some();
  else if (ejb_stands_aside())
    ejb_look_around();
  else if (!ejb_gave_way) { /* no epoll in it: shared memory, or a network's own queues */
    int error = errno;
    if (ejb_may_wait())
      ejb_nap();
    else
      sched_yield();
    errno = error;
  }
  return done;
}

#define EJB_DISCONNECT(function, parameters, arguments) \
  void *function parameters \
  { \
    EJB_NEXT_LOADED(function); \
    ejb_disconnected = ejb_finalizing; \
    return real arguments; \
  }

EJB_DISCONNECT(ucp_disconnect_nb, (void *endpoint), (endpoint))
EJB_DISCONNECT(ucp_ep_close_nb, (void *endpoint, unsigned mode), (endpoint, mode))
EJB_DISCONNECT(ucp_ep_close_nbx, (void *endpoint, const void *params), (endpoint, params))

static bool ejb_waits_for_stream(int fd)
{
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
         !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static void ejb_keep_workers_going(int fd)
{
  struct pollfd waiting = { fd, POLLIN, 0 };
  int error = errno, found = 0;
  while (ejb_waits_for_stream(fd) && ((found = poll(&waiting, 1, 1)) == 0 || (found < 0 && errno == EINTR))) {
    void *workers[EJB_MAX_WORKERS];
    pthread_mutex_lock(&ejb_workers_lock);
    int count = ejb_worker_count;
    memcpy(workers, ejb_workers, sizeof workers);
    unsigned (*progress)(void *) = ejb_progress;
    pthread_mutex_unlock(&ejb_workers_lock);
    if (count == 0)
      break;
    ejb_in_progress++;
    ejb_asking++; /* the poll above waits */
    for (int round = 0; round < EJB_PROGRESS_ROUNDS; round++)
      for (int i = 0; i < count; i++)
        progress(workers[i]);
    ejb_asking--;
    ejb_in_progress--;
  }
  errno = error;
}

/* Only by the thread that finalizes: another one that reads is none of MPI's. */
ssize_t read(int fd, void *buffer, size_t size)
{
  EJB_NEXT(read)
  if (ejb_finalizing && ejb_disconnected && !ejb_in_progress)
    ejb_keep_workers_going(fd);
  return real(fd, buffer, size);
}

#endif
