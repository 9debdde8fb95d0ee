/* As much of UCX and MPI as the progress library interposes, for tests of it by itself: cc -shared -fPIC -o libucpfake.so
 * Its progress polls as UCX's TCP does. MPI_Finalize disconnects, and then reads until a peer answers, who does so only
 * once this process has made progress: without the library that is never. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

typedef struct {
  int epfd;
  unsigned long calls;
} worker;

int fake_finalize_fd = -1;

int ucp_worker_create(void *context, const void *params, void **made)
{
  (void)context, (void)params;
  worker *one = calloc(1, sizeof *one);
  one->epfd = epoll_create1(0);
  *made = one;
  return 0;
}

void ucp_worker_destroy(void *given)
{
  worker *one = given;
  close(one->epfd);
  free(one);
}

/* 0, or 1 at every hundredth call. Ends the process where a poll that does not wait is told to be interrupted. */
unsigned ucp_worker_progress(void *given)
{
  worker *one = given;
  struct epoll_event event;
  errno = 42;
  if (epoll_wait(one->epfd, &event, 1, 0) != 0 || errno != 42)
    _exit(21);
  return __atomic_add_fetch(&one->calls, 1, __ATOMIC_RELAXED) % 100 == 0;
}

unsigned long fake_calls(void *given)
{
  return __atomic_load_n(&((worker *)given)->calls, __ATOMIC_RELAXED);
}

void *ucp_disconnect_nb(void *endpoint)
{
  return endpoint;
}

int MPI_Test(void *request, int *flag, void *status)
{
  (void)status;
  *flag = (int)ucp_worker_progress(request);
  return 0;
}

int MPI_Finalize(void)
{
  char byte;
  ssize_t got;
  ucp_disconnect_nb(NULL);
  do
    got = read(fake_finalize_fd, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got == 1 && byte == 'x' ? 0 : 1;
}
