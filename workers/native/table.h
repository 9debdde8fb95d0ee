/* Faults C, E and F of move.c: what keeps DMTCP's table of sockets right. A connection that is missing in it is not drained
 * at a checkpoint, and its peer, which knows it, waits for ever. */
#ifndef EJB_TABLE_H
#define EJB_TABLE_H

#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>

#include "dmtcp.h"

#define EVENT_HOOK "_ZN5dmtcp13PluginManager9eventHookE11eDmtcpEventP17_DmtcpEventData_t"

/* Fault F: DMTCP looks sockets up in its table, and numbers them, without a lock. Where one thread connects and another
 * accepts (UCX), a connection gets lost now and then (1 of 20 first checkpoints of four mpi4py ranks hung). So one
 * thread at a time does what reads or changes the table. No thread holds the lock while a checkpoint or a fork is made;
 * a signal handler may want what its own thread holds. */
static pthread_mutex_t ejb_table = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void ejb_enter(void)
{
  dmtcp_plugin_disable_ckpt();
  pthread_mutex_lock(&ejb_table);
}

static void ejb_leave(void)
{
  int error = errno;
  pthread_mutex_unlock(&ejb_table);
  dmtcp_plugin_enable_ckpt();
  errno = error;
}

/* Fault C: DMTCP keeps socket()'s type argument with the flags in it and later compares it with SOCK_STREAM. A socket
 * made with SOCK_CLOEXEC (every one of Python's) is then never offered to its peer, which takes it for a connection to
 * the outside and waits for ever in its drain. The same flags by fcntl do no harm. */
#define EJB_FLAGS (SOCK_CLOEXEC | SOCK_NONBLOCK)

static void ejb_set_flags(int fd, int type)
{
  if (type & SOCK_CLOEXEC)
    fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (type & SOCK_NONBLOCK)
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static bool ejb_blocks(int fd)
{
  return !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

int socket(int domain, int type, int protocol)
{
  EJB_NEXT(socket);
  ejb_enter();
  int fd = real(domain, type & ~EJB_FLAGS, protocol);
  ejb_leave();
  if (fd >= 0)
    ejb_set_flags(fd, type);
  return fd;
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
  EJB_NEXT(socketpair);
  ejb_enter();
  int failed = real(domain, type & ~EJB_FLAGS, protocol, fds);
  ejb_leave();
  if (!failed) {
    ejb_set_flags(fds[0], type);
    ejb_set_flags(fds[1], type);
  }
  return failed;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
  EJB_NEXT(bind);
  ejb_enter();
  int failed = real(fd, address, length);
  ejb_leave();
  return failed;
}

/* One that blocks must not keep the others from their sockets. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
  EJB_NEXT(connect);
  if (ejb_blocks(fd))
    return real(fd, address, length);
  ejb_enter();
  int failed = real(fd, address, length);
  ejb_leave();
  return failed;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length)
{
  EJB_NEXT(setsockopt);
  ejb_enter();
  int failed = real(fd, level, name, value, length);
  ejb_leave();
  return failed;
}

/* Fault E: DMTCP forgets what a descriptor was after it has closed it. A thread that is given the same number in between
 * has what it opened forgotten in place of the old one. So it is forgotten before the number is free. */
void ejb_event_hook(DmtcpEvent_t event, DmtcpEventData_t *data) __asm__(EVENT_HOOK) __attribute__((weak));
int __close(int fd); /* the C library's own: DMTCP wraps close and syscall */

int close(int fd)
{
  EJB_NEXT(close);
  if (!ejb_event_hook || !dmtcp_is_running_state() || dmtcp_is_protected_fd(fd))
    return real(fd);
  DmtcpEventData_t data = { .closeFd.fd = fd };
  ejb_enter();
  ejb_event_hook(DMTCP_EVENT_CLOSE_FD, &data);
  int failed = __close(fd);
  ejb_leave();
  return failed;
}

#endif
