/* The DMTCP plugin's sockets under threads and checkpoints, compiled into one program with it for the sanitizers: every
 * connection is served once, whoever has accepted it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dmtcp.h"

#define CLIENTS 3
#define EACH 60

void fake_checkpoint(void);
long fake_changes(void);
static struct sockaddr_in where;
static int over;

static void fail(int code, const char *what)
{
  fprintf(stderr, "%s: errno %d\n", what, errno);
  _exit(code);
}

static int ready(int fd, short what)
{
  struct pollfd one = { fd, what, 0 };
  return poll(&one, 1, 20000) > 0;
}

static void *serves(void *given)
{
  int listener = *(int *)given;
  for (int served = 0; served < CLIENTS * EACH;) {
    char byte;
    if (!ready(listener, POLLIN))
      fail(11, "a connection was lost");
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR))
      continue; /* it was a poke */
    if (fd < 0 || !ready(fd, POLLIN) || recv(fd, &byte, 1, 0) != 1 || send(fd, &byte, 1, 0) != 1)
      fail(12, "a connection went wrong");
    close(fd);
    served++;
  }
  return NULL;
}

static void *asks(void *given)
{
  const char mine = *(char *)given;
  for (int i = 0; i < EACH; i++) {
    char got = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1, error = 0;
    socklen_t length = sizeof error;
    setsockopt(fd, IPPROTO_TCP, 1, &yes, sizeof yes);
    if (connect(fd, (struct sockaddr *)&where, sizeof where) != 0 && errno != EINPROGRESS)
      fail(13, "cannot connect");
    if (!ready(fd, POLLOUT) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error)
      fail(14, "not connected");
    if (send(fd, &mine, 1, 0) != 1 || !ready(fd, POLLIN) || recv(fd, &got, 1, 0) != 1 || got != mine)
      fail(15, "another answer than mine");
    close(fd);
  }
  return NULL;
}

static void *checkpoints(void *unused)
{
  (void)unused;
  while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
    fake_checkpoint();
    usleep(2000);
  }
  return NULL;
}

int main(void)
{
  pthread_t server, checkpoint, clients[CLIENTS];
  char names[CLIENTS] = "abc";
  socklen_t length = sizeof where;
  dmtcp_initialize_plugin();
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (bind(listener, (struct sockaddr *)&where, sizeof where) || listen(listener, 128) ||
      getsockname(listener, (struct sockaddr *)&where, &length))
    fail(16, "cannot listen");
  pthread_create(&server, NULL, serves, &listener);
  pthread_create(&checkpoint, NULL, checkpoints, NULL);
  for (int i = 0; i < CLIENTS; i++)
    pthread_create(&clients[i], NULL, asks, &names[i]);
  for (int i = 0; i < CLIENTS; i++)
    pthread_join(clients[i], NULL);
  pthread_join(server, NULL);
  __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
  pthread_join(checkpoint, NULL);
  close(listener);
  puts(fake_changes() > CLIENTS * EACH ? "right" : "DMTCP was not asked");
  return 0;
}
