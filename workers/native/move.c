/* A DMTCP plugin that lets connected processes be restarted on other hosts than they were checkpointed on.
 * cc -shared -fPIC -O2 -I<dmtcp>/include -DEJB_DMTCP_VERSION='"5.0"' -o libejbmove.so move.c -ldl
 *
 * It goes round faults of DMTCP (A to C: 3.0 to 5.0; D to G: 5.0) without changing it, by interposing functions of
 * libdmtcp.so. A and B are here, C, E and F in table.h, D in pending.h, G in timers.h. What is interposed is internal:
 * the plugin has to be built on site against the headers of the DMTCP that is installed, checks at its start that it met
 * that version, and is used only after a restart over two addresses has been seen to work. */
#include "pending.h"
#include "progress.h"
#include "table.h"
#include "timers.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dmtcp.h"

#if !defined(DMTCP_PLUGIN_API_VERSION)
#error "these are not the headers of a DMTCP that takes plugins"
#endif

/* Built against one version and met by another: better no program than a wrong one. */
_Static_assert(__builtin_strcmp(EJB_DMTCP_VERSION, DMTCP_PACKAGE_VERSION) == 0,
               "the headers are of another DMTCP than the commands");

/* Of jalib::JSockAddr, a C++ class: an array of this many sockaddr_in begins it, and ANY's first one is the wildcard. */
#define ANY_ADDRESS "_ZN5jalib9JSockAddr3ANYE"
#define OPEN_RESTORE_SOCKET "_ZN5dmtcp17ConnectionRewirer17openRestoreSocketEbbb"

/* Fault A: at a restart each process opens a listener on the wildcard address and registers *that* with the
 * coordinator, so that a peer on another host connects to itself. The listener's address is copied from this constant:
 * with this host's own address in it, both the bind and the registration are right. */
static void name_this_host(void)
{
  struct sockaddr_in *any = dlsym(RTLD_DEFAULT, ANY_ADDRESS);
  if (any && any->sin_family == AF_INET)
    dmtcp_get_local_ip_addr(&any->sin_addr);
}

void ejb_open_restore_socket(void *self, bool ip4, bool ip6, bool local) __asm__(OPEN_RESTORE_SOCKET);
void ejb_open_restore_socket(void *self, bool ip4, bool ip6, bool local)
{
  EJB_NEXT_NAMED(ejb_open_restore_socket, OPEN_RESTORE_SOCKET);
  name_this_host();
  if (!real) {
    fprintf(stderr, "ejb: this DMTCP has no %s: the plugin does not match it\n", OPEN_RESTORE_SOCKET);
    _exit(99);
  }
  real(self, ip4, ip6, local);
}

/* Fault B: draining sockets ends with a barrier of the processes of one host, and handshakes with peers on other hosts
 * follow. Those may not have drained yet and take the handshake for data: the checkpoint hangs. A global barrier waits
 * for them too. */
void dmtcp_local_barrier(const char *name)
{
  EJB_NEXT(dmtcp_local_barrier);
  if (strcmp(name, "Socket::Drain") == 0) {
    dmtcp_global_barrier(name);
    return;
  }
  real(name);
}

static void on_event(DmtcpEvent_t event, DmtcpEventData_t *data)
{
  (void)data;
  if (event == DMTCP_EVENT_PRESUSPEND)
    ejb_hold_timers();
  if (event == DMTCP_EVENT_PRECHECKPOINT) {
    ejb_hold_pending();
    ejb_read_timers();
  }
  if (event == DMTCP_EVENT_RESTART)
    name_this_host();
  if (event == DMTCP_EVENT_RESTART || event == DMTCP_EVENT_RESUME)
    ejb_offer_held();
  if (event == DMTCP_EVENT_RESTART || event == DMTCP_EVENT_RESUME)
    ejb_set_timers(event == DMTCP_EVENT_RESTART);
}

static DmtcpPluginDescriptor_t descriptor = { DMTCP_PLUGIN_API_VERSION, DMTCP_PACKAGE_VERSION, "ejbmove",
                                              "EJB", "none", "restart on other hosts", on_event };
DMTCP_DECL_PLUGIN(descriptor);
