/* Fault D of move.c: a connection that is complete in the kernel, but that the program has not accepted yet. DMTCP knows
 * nothing of it: the peer that opened it finds nothing to drain it with, so that the checkpoint hangs, or restores it
 * as a dead socket. UCX opens connections whenever ranks first talk, and under over-subscription the one that should
 * accept waits for its turn.
 *
 * So at a checkpoint, when every thread of every process stands still and the kernel has finished all handshakes, what
 * waits at a listener is accepted here and held. The program is given it at its next accept; a connection of our own
 * that is closed at once (a poke) makes the listener readable, so that the next accept comes. */
#ifndef EJB_PENDING_H
#define EJB_PENDING_H

#include "progress.h"
#include "table.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

#include "dmtcp.h"

#define EJB_MAX_LISTENERS 64
#define EJB_MAX_HELD 1024
#define EJB_POKE_MS 100

typedef struct {
  struct sockaddr_storage address;
  socklen_t length;
} ejb_address;

typedef struct {
  int fd;
  in_port_t port, poked_from; /* in network order; poked_from: 0 where there is no poke on its way */
} ejb_listener;

typedef struct {
  int fd;
  in_port_t listener_port;
  ejb_address peer;
} ejb_connection;

static ejb_listener ejb_listeners[EJB_MAX_LISTENERS];
static int ejb_listener_count;
static ejb_connection ejb_held[EJB_MAX_HELD];
static int ejb_held_count;
static __thread int ejb_registering; /* by the checkpoint thread, for itself */

/* A socket of DMTCP's own, or one that it was told of while it runs? What we accept has to be registered as well. */
int dmtcp_is_running_state(void)
{
  EJB_NEXT(dmtcp_is_running_state);
  return ejb_registering || real();
}

static in_port_t ejb_port(const ejb_address *one)
{
  if (one->address.ss_family == AF_INET)
    return ((const struct sockaddr_in *)&one->address)->sin_port;
  return one->address.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&one->address)->sin6_port : 0;
}

static in_port_t ejb_port_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *))
{
  ejb_address found = { .length = sizeof found.address };
  return name(fd, (struct sockaddr *)&found.address, &found.length) == 0 ? ejb_port(&found) : 0;
}

/* Whether it is still the listener that it was: a number may have been closed and used again. */
static bool ejb_listens(const ejb_listener *one)
{
  int answer = 0;
  socklen_t length = sizeof answer;
  return getsockopt(one->fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &length) == 0 && answer &&
         ejb_port_of(one->fd, getsockname) == one->port;
}

static ejb_listener *ejb_listener_of(int fd)
{
  for (int i = 0; i < ejb_listener_count; i++)
    if (ejb_listeners[i].fd == fd && ejb_listens(&ejb_listeners[i]))
      return &ejb_listeners[i];
  return NULL;
}

int listen(int fd, int backlog)
{
  EJB_NEXT(listen);
  ejb_enter();
  int failed = real(fd, backlog);
  in_port_t port = failed ? 0 : ejb_port_of(fd, getsockname);
  int place = 0;
  while (place < ejb_listener_count && ejb_listeners[place].fd != fd && ejb_listens(&ejb_listeners[place]))
    place++;
  if (port && place < EJB_MAX_LISTENERS) { /* of the internet's kind */
    ejb_listeners[place] = (ejb_listener){ fd, port, 0 };
    ejb_listener_count = place < ejb_listener_count ? ejb_listener_count : place + 1;
  }
  ejb_leave();
  return failed;
}

/* A connection that only was to wake the program. */
static bool ejb_was_poke(ejb_listener *listener, int fd)
{
  if (!listener || !listener->poked_from || ejb_port_of(fd, getpeername) != listener->poked_from)
    return false;
  listener->poked_from = 0;
  close(fd);
  return true;
}

static int ejb_take_held(const ejb_listener *listener, struct sockaddr *address, socklen_t *length)
{
  for (int i = 0; listener && i < ejb_held_count; i++) {
    if (ejb_held[i].listener_port != listener->port)
      continue;
    ejb_connection one = ejb_held[i];
    memmove(&ejb_held[i], &ejb_held[i + 1], (size_t)(--ejb_held_count - i) * sizeof one); /* the oldest first */
    if (address && length) {
      memcpy(address, &one.peer.address, *length < one.peer.length ? *length : one.peer.length);
      *length = one.peer.length;
    }
    return one.fd;
  }
  return -1;
}

/* Where the listener does not block, accepting and DMTCP's learning of it are one step: a checkpoint between the two
 * would meet a socket that it does not know. A blocking accept must not keep checkpoints away. */
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
  EJB_NEXT(accept4);
  const bool blocks = ejb_blocks(fd);
  for (;;) {
    ejb_enter();
    ejb_listener *listener = ejb_listener_of(fd);
    int found = ejb_take_held(listener, address, length);
    bool poke = false;
    if (found < 0 && !blocks) {
      found = real(fd, address, length, 0);
      poke = found >= 0 && ejb_was_poke(listener, found);
    }
    ejb_leave();
    if (found < 0 && blocks) {
      found = real(fd, address, length, 0);
      ejb_enter();
      poke = found >= 0 && ejb_was_poke(ejb_listener_of(fd), found);
      ejb_leave();
    }
    if (found >= 0 && !poke)
      ejb_set_flags(found, flags);
    if (!poke)
      return found;
  }
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
  return accept4(fd, address, length, 0);
}

/* By the checkpoint thread, while all others stand still and before DMTCP looks at its sockets. */
static void ejb_hold_pending(void)
{
  int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
  for (int i = 0; real && i < ejb_listener_count; i++) {
    struct pollfd waiting = { ejb_listeners[i].fd, POLLIN, 0 };
    while (ejb_held_count < EJB_MAX_HELD && ejb_listens(&ejb_listeners[i]) && poll(&waiting, 1, 0) > 0) {
      ejb_connection one = { .listener_port = ejb_listeners[i].port, .peer.length = sizeof one.peer.address };
      ejb_registering = 1;
      one.fd = real(ejb_listeners[i].fd, (struct sockaddr *)&one.peer.address, &one.peer.length, 0);
      bool poke = one.fd >= 0 && ejb_was_poke(&ejb_listeners[i], one.fd);
      ejb_registering = 0;
      if (one.fd < 0)
        break;
      if (!poke)
        ejb_held[ejb_held_count++] = one;
    }
  }
}

/* Make a listener readable, if it can be reached: otherwise what is held waits for the next connection from outside. */
static void ejb_poke(ejb_listener *listener)
{
  ejb_address to = { .length = sizeof to.address };
  if (getsockname(listener->fd, (struct sockaddr *)&to.address, &to.length) != 0)
    return;
  struct sockaddr_in *v4 = (struct sockaddr_in *)&to.address;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to.address;
  if (to.address.ss_family == AF_INET && v4->sin_addr.s_addr == htonl(INADDR_ANY))
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (to.address.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
    v6->sin6_addr = in6addr_loopback;
  int fd = socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return;
  if (connect(fd, (struct sockaddr *)&to.address, to.length) == 0 || errno == EINPROGRESS) {
    struct pollfd connected = { fd, POLLOUT, 0 };
    int error = 0;
    socklen_t length = sizeof error;
    if (poll(&connected, 1, EJB_POKE_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && !error)
      listener->poked_from = ejb_port_of(fd, getsockname);
  }
  close(fd); /* what has been connected waits to be accepted all the same */
}

/* When everything is restored, or goes on. */
static void ejb_offer_held(void)
{
  for (int i = 0; i < ejb_listener_count; i++) {
    ejb_listeners[i].poked_from = 0; /* one from before was taken at the checkpoint, or is on another host */
    for (int held = 0; held < ejb_held_count; held++)
      if (ejb_held[held].listener_port == ejb_listeners[i].port && ejb_listens(&ejb_listeners[i])) {
        ejb_poke(&ejb_listeners[i]);
        break;
      }
  }
}

#endif
