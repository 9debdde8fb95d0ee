/* Over-subscribed MPI ranks: give the core away while polling, and finish MPI_Finalize. Works as an LD_PRELOAD library
 * of its own (progress.c) and as a part of the DMTCP plugin (move.c).
 *
 * Yielding. UCX's TCP transport spins on epoll_wait(.., timeout 0). With more ranks than cores the ranks that wait then
 * take the cores from those that compute: 8 ranks on 2 cores were measured up to 70 times slower than the work they do.
 * No setting of MPICH or UCX changes that. So an empty poll yields, and after EJB_YIELDS empty polls in a row it blocks
 * for EJB_BLOCK_MS. Something to read ends the blocking at once, so latency is not lost where the wait is worth it.
 * Who only asks whether something has come (MPI_Test and its like) has other work to do and is never blocked: HPCC's
 * MPIRandomAccess asks after every few updates, and did in more than 30 s what takes 2 s.
 *
 * Finalize. MPICH 4.0 (ch4:ucx over TCP) can wait for ever in MPI_Finalize: one rank needs a peer to make progress that
 * already sits in the blocking read of the PMI barrier. From the first disconnection of an endpoint on, a read of a
 * stream socket keeps the UCX workers going until there is something to read. */
#ifndef EJB_PROGRESS_H
#define EJB_PROGRESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#define EJB_MAX_WORKERS 16
#define EJB_PROGRESS_ROUNDS 20

/* The next definition of a function; looked up once each, by whichever thread is first (all find the same). */
#define EJB_NEXT_NAMED(function, symbol) \
  static __typeof__(function) *real; \
  if (!real) \
    real = (__typeof__(function) *)dlsym(RTLD_NEXT, symbol)
#define EJB_NEXT(function) EJB_NEXT_NAMED(function, #function)

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

#define EJB_NEXT_UCX(function) \
  EJB_NEXT(function); \
  if (!real) \
    real = (__typeof__(function) *)ejb_beside(__builtin_return_address(0), #function); \
  if (!real) \
    abort() /* who called us is linked to it */

/* A function of MPI goes on under its second name. */
#define EJB_NEXT_MPI(function) \
  EJB_NEXT_NAMED(function, "P" #function); \
  if (!real) \
    real = (__typeof__(function) *)ejb_beside(__builtin_return_address(0), "P" #function); \
  if (!real) \
    abort()

static int ejb_number(const char *name, int otherwise)
{
  const char *text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

static int ejb_yields = -1, ejb_block_ms;
static __thread int ejb_empty_polls, ejb_asking;

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
  EJB_NEXT(epoll_wait);
  if (ejb_yields < 0) {
    ejb_block_ms = ejb_number("EJB_BLOCK_MS", 1);
    ejb_yields = ejb_number("EJB_YIELDS", 100);
  }
  int found = real(epfd, events, max, timeout);
  if (timeout != 0 || found != 0) {
    ejb_empty_polls = 0;
    return found;
  }
  if (ejb_asking || ++ejb_empty_polls <= ejb_yields || ejb_block_ms <= 0) {
    sched_yield();
    return 0;
  }
  found = real(epfd, events, max, ejb_block_ms);
  if (found != 0)
    ejb_empty_polls = 0;
  return found;
}

/* MPI is not linked: a program without it never calls these. Handles are as wide as a pointer or less. */
#define EJB_ASK(function, parameters, arguments) \
  int function parameters \
  { \
    EJB_NEXT_MPI(function); \
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

/* UCX is not linked: a program without it never calls these. */
static void *ejb_workers[EJB_MAX_WORKERS];
static int ejb_worker_count;
static unsigned (*ejb_progress)(void *);
static volatile int ejb_finalizing;

int ucp_worker_create(void *context, const void *params, void **worker)
{
  EJB_NEXT_UCX(ucp_worker_create);
  ejb_progress = (unsigned (*)(void *))ejb_beside((void *)real, "ucp_worker_progress");
  int status = real(context, params, worker);
  if (status == 0 && ejb_worker_count < EJB_MAX_WORKERS)
    ejb_workers[ejb_worker_count++] = *worker;
  return status;
}

void ucp_worker_destroy(void *worker)
{
  EJB_NEXT_UCX(ucp_worker_destroy);
  for (int i = 0; i < ejb_worker_count; i++)
    if (ejb_workers[i] == worker)
      ejb_workers[i--] = ejb_workers[--ejb_worker_count];
  real(worker);
}

void *ucp_disconnect_nb(void *endpoint)
{
  EJB_NEXT_UCX(ucp_disconnect_nb);
  ejb_finalizing = 1;
  return real(endpoint);
}

static int ejb_is_stream(int fd)
{
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

ssize_t read(int fd, void *buffer, size_t size)
{
  EJB_NEXT(read);
  if (ejb_finalizing && ejb_worker_count > 0 && ejb_is_stream(fd)) {
    struct pollfd waiting = { fd, POLLIN, 0 };
    while (ejb_progress && poll(&waiting, 1, 1) == 0)
      for (int round = 0; round < EJB_PROGRESS_ROUNDS; round++)
        for (int i = 0; i < ejb_worker_count; i++)
          ejb_progress(ejb_workers[i]);
  }
  return real(fd, buffer, size);
}

#endif
