/* As much of DMTCP's header as the plugin uses, so that its sources can be compiled where DMTCP is not installed. */
#ifndef DMTCP_H
#define DMTCP_H
#include <netinet/in.h>

#define DMTCP_PACKAGE_VERSION "fake"
#define DMTCP_PLUGIN_API_VERSION "4"

typedef enum {
  DMTCP_EVENT_PRESUSPEND,
  DMTCP_EVENT_PRECHECKPOINT,
  DMTCP_EVENT_RESUME,
  DMTCP_EVENT_RESTART,
  DMTCP_EVENT_CLOSE_FD
} DmtcpEvent_t;

typedef union {
  struct {
    int fd;
  } closeFd;
} DmtcpEventData_t;

typedef struct {
  const char *api, *version, *name, *author, *email, *description;
  void (*event_hook)(DmtcpEvent_t event, DmtcpEventData_t *data);
} DmtcpPluginDescriptor_t;

#define DMTCP_DECL_PLUGIN(descr) \
  void dmtcp_initialize_plugin(void) \
  { \
    dmtcp_register_plugin(descr); \
  }

void dmtcp_register_plugin(DmtcpPluginDescriptor_t descriptor);
void dmtcp_initialize_plugin(void);
void dmtcp_global_barrier(const char *name);
void dmtcp_local_barrier(const char *name);
void dmtcp_get_local_ip_addr(struct in_addr *address);
int dmtcp_is_running_state(void);
int dmtcp_is_protected_fd(int fd);
int dmtcp_plugin_disable_ckpt(void);
void dmtcp_plugin_enable_ckpt(void);
#endif
