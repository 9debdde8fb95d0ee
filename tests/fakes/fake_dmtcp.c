/* A DMTCP that has a table of sockets and, as the real one, no lock around it: a sanitizer sees who comes in beside
 * whom. Checkpoints wait until nobody forbids them. cc -shared -fPIC -o libdmtcpfake.so */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/socket.h>

#include "dmtcp.h"

static DmtcpPluginDescriptor_t plugin;
static pthread_rwlock_t running = PTHREAD_RWLOCK_INITIALIZER;
static __thread int forbidden, checkpoints; /* the thread that checkpoints need not forbid it */
static long table[4096], changes;

static int changed(int fd)
{
  if (fd >= 0 && fd < 4096) {
    table[fd]++;
    changes++;
  }
  return fd;
}

long fake_changes(void)
{
  return changes;
}

void fake_checkpoint(void)
{
  pthread_rwlock_wrlock(&running);
  checkpoints = 1;
  plugin.event_hook(DMTCP_EVENT_PRECHECKPOINT, 0);
  plugin.event_hook(DMTCP_EVENT_RESUME, 0);
  checkpoints = 0;
  pthread_rwlock_unlock(&running);
}

void dmtcp_register_plugin(DmtcpPluginDescriptor_t descriptor)
{
  plugin = descriptor;
}

int dmtcp_plugin_disable_ckpt(void)
{
  if (!checkpoints && forbidden++ == 0)
    pthread_rwlock_rdlock(&running);
  return 1;
}

void dmtcp_plugin_enable_ckpt(void)
{
  if (!checkpoints && --forbidden == 0)
    pthread_rwlock_unlock(&running);
}

int dmtcp_is_running_state(void)
{
  return 1;
}

int dmtcp_is_protected_fd(int fd)
{
  (void)fd;
  return 0;
}

void dmtcp_global_barrier(const char *name)
{
  (void)name;
}

void dmtcp_local_barrier(const char *name)
{
  (void)name;
}

void dmtcp_get_local_ip_addr(struct in_addr *address)
{
  (void)address;
}

void event_hook(DmtcpEvent_t event, DmtcpEventData_t *data) __asm__(
  "_ZN5dmtcp13PluginManager9eventHookE11eDmtcpEventP17_DmtcpEventData_t");
void event_hook(DmtcpEvent_t event, DmtcpEventData_t *data)
{
  if (event == DMTCP_EVENT_CLOSE_FD)
    changed(data->closeFd.fd);
}

#define WRAP(returned, name, parameters, arguments, fd) \
  returned name parameters \
  { \
    returned(*real) parameters = (returned(*) parameters)dlsym(RTLD_NEXT, #name); \
    returned value = real arguments; \
    changed(fd); \
    return value; \
  }

WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), value)
WRAP(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), fd)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), fd)
WRAP(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), fd)
WRAP(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags), value)
WRAP(int, setsockopt, (int fd, int l, int o, const void *v, socklen_t n), (fd, l, o, v, n), fd)
