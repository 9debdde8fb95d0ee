/* Calls that DMTCP 5.0 answers otherwise than the system does, for programs that were not written for it.
 * cc -shared -fPIC -O2 -pthread -DEJB_SOURCES='"..."' -o libejbcalls.so calls.c -ldl; given to dmtcp_launch by --with-plugin.
 *
 * A program under DMTCP knows virtual process ids. DMTCP translates them in the calls that it wraps; in others the
 * kernel gets an id that it does not know, and the program an error that it would not have had without DMTCP. Some calls
 * DMTCP refuses outright. Here each of them does what it does without DMTCP. What then cannot be checkpointed is seen in
 * /proc by the worker. Nothing here binds to internals of DMTCP, and no header of it is needed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "next.h"

/* By which of EJB's sources it was built. */
const char ejb_sources[] = "sources " EJB_SOURCES;

/* DMTCP's: public, and missing where it is not loaded. */
pid_t dmtcp_pid_virtual_to_real(pid_t pid) __attribute__((weak));
pid_t dmtcp_pid_real_to_virtual(pid_t pid) __attribute__((weak));

static pid_t ejb_real_pid(pid_t pid)
{
  return pid > 0 && dmtcp_pid_virtual_to_real ? dmtcp_pid_virtual_to_real(pid) : pid;
}

/* -- process ids ---------------------------------------------------------------------------------------------------- */

/* Which of a call's arguments are process ids: 1 the first, 2 the second, 3 both. DMTCP translates other calls' itself. */
static int ejb_pids_of(long number, const long *given)
{
  switch (number) {
#ifdef SYS_pidfd_open
  case SYS_pidfd_open:
#endif
  case SYS_prlimit64:
  case SYS_move_pages:
  case SYS_migrate_pages:
  case SYS_get_robust_list:
  case SYS_sched_setaffinity:
  case SYS_sched_getaffinity:
  case SYS_sched_setscheduler:
  case SYS_sched_getscheduler:
  case SYS_sched_setparam:
  case SYS_sched_getparam:
  case SYS_sched_setattr:
  case SYS_sched_getattr:
  case SYS_sched_rr_get_interval:
  case SYS_rt_sigqueueinfo:
    return 1;
  case SYS_ptrace:
    return 2;
  case SYS_setpriority:
  case SYS_getpriority: /* or of a group; or the id of a user */
    return given[0] == PRIO_USER ? 0 : 2;
  case SYS_ioprio_set:
  case SYS_ioprio_get:
    return given[0] == 3 ? 0 : 2; /* the same; the C library has no name for 3 */
  case SYS_perf_event_open:
    return given[4] & PERF_FLAG_PID_CGROUP ? 0 : 2;
  case SYS_kcmp:
  case SYS_rt_tgsigqueueinfo:
    return 3;
  default:
    return 0;
  }
}

int capget(cap_user_header_t header, cap_user_data_t data);

/* As DMTCP's own it takes as many arguments as any call may have. */
long syscall(long number, ...)
{
  EJB_NEXT(syscall);
  long given[7];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 7; i++)
    given[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_capget)
    return capget((cap_user_header_t)given[0], (cap_user_data_t)given[1]);
  const int pids = ejb_pids_of(number, given);
  for (int i = 0; i < 2; i++)
    if (pids & 1 << i)
      given[i] = ejb_real_pid((pid_t)given[i]);
#ifdef SYS_inotify_init
  if (number == SYS_inotify_init)
    return inotify_init1(0);
#endif
  if (number == SYS_inotify_init1)
    return inotify_init1((int)given[0]);
  return real(number, given[0], given[1], given[2], given[3], given[4], given[5], given[6]);
}

#ifdef SYS_pidfd_open
int pidfd_open(pid_t pid, unsigned flags)
{
  return (int)syscall(SYS_pidfd_open, pid, flags);
}
#endif

int setpriority(__priority_which_t which, id_t id, int priority)
{
  EJB_NEXT(setpriority);
  return real(which, which == PRIO_USER ? id : (id_t)ejb_real_pid((pid_t)id), priority);
}

int getpriority(__priority_which_t which, id_t id)
{
  EJB_NEXT(getpriority);
  return real(which, which == PRIO_USER ? id : (id_t)ejb_real_pid((pid_t)id));
}

int prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *to, struct rlimit *from)
{
  EJB_NEXT(prlimit);
  return real(ejb_real_pid(pid), resource, to, from);
}

int prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit64 *to, struct rlimit64 *from)
{
  EJB_NEXT(prlimit64);
  return real(ejb_real_pid(pid), resource, to, from);
}

int sched_rr_get_interval(pid_t pid, struct timespec *interval)
{
  EJB_NEXT(sched_rr_get_interval);
  return real(ejb_real_pid(pid), interval);
}

int capget(cap_user_header_t header, cap_user_data_t data)
{
  EJB_NEXT(capget);
  const int pid = header->pid;
  header->pid = ejb_real_pid(pid);
  const int failed = real(header, data);
  header->pid = pid;
  return failed;
}

long ptrace(enum __ptrace_request request, ...)
{
  EJB_NEXT(ptrace);
  va_list list;
  va_start(list, request);
  const pid_t pid = va_arg(list, pid_t);
  void *address = va_arg(list, void *), *data = va_arg(list, void *);
  va_end(list);
  return real(request, ejb_real_pid(pid), address, data);
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
  EJB_NEXT(getsockopt);
  const int failed = real(fd, level, name, value, length);
  if (!failed && level == SOL_SOCKET && name == SO_PEERCRED && *length >= sizeof(struct ucred) && dmtcp_pid_real_to_virtual) {
    struct ucred *peer = value;
    peer->pid = dmtcp_pid_real_to_virtual(peer->pid);
  }
  return failed;
}

/* -- what DMTCP refuses ---------------------------------------------------------------------------------------------- */

/* A function of the C library itself, past DMTCP's. */
static void *ejb_in_libc(const char *symbol)
{
  void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, symbol) : NULL;
  if (library)
    dlclose(library);
  return found;
}

int inotify_init1(int flags)
{
  static __typeof__(inotify_init1) *real;
  if (!real)
    real = (__typeof__(real))ejb_in_libc("inotify_init1");
  return real(flags);
}

int inotify_init(void)
{
  return inotify_init1(0);
}

int fexecve(int fd, char *const argv[], char *const envp[])
{
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return execve(path, argv, envp);
}

/* A timer that starts a thread, as the C library does it: one thread waits for the signals of all of them. DMTCP's gives
 * the kernel a virtual thread id, and waits for ever at the second one. Here DMTCP is asked for a timer that sends a
 * signal to a thread, which it translates. */
#define EJB_TIMER_SIGNAL SIGRTMAX

typedef struct ejb_timer {
  struct ejb_timer *next;
  timer_t id;
  void (*function)(union sigval);
  union sigval value;
  pthread_attr_t attributes;
} ejb_timer;

static ejb_timer *ejb_timers_of_threads;
static pthread_mutex_t ejb_timers_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t ejb_timers_ready;
static pid_t ejb_timers_thread;

static void *ejb_run_timer(void *argument)
{
  ejb_timer timer = *(ejb_timer *)argument;
  sigset_t none;
  free(argument);
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, NULL);
  timer.function(timer.value);
  return NULL;
}

static void *ejb_wait_for_timers(void *unused)
{
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, EJB_TIMER_SIGNAL);
  ejb_timers_thread = gettid();
  sem_post(&ejb_timers_ready);
  for (;;) {
    siginfo_t found;
    if (sigwaitinfo(&set, &found) < 0 || found.si_code != SI_TIMER)
      continue;
    pthread_mutex_lock(&ejb_timers_lock);
    ejb_timer *one = ejb_timers_of_threads;
    while (one && one != found.si_value.sival_ptr) /* it may have been deleted meanwhile */
      one = one->next;
    ejb_timer *copy = one ? malloc(sizeof *copy) : NULL;
    pthread_t thread;
    if (copy) {
      *copy = *one;
      if (pthread_create(&thread, &one->attributes, ejb_run_timer, copy) != 0)
        free(copy);
    }
    pthread_mutex_unlock(&ejb_timers_lock);
  }
  return unused;
}

static void ejb_forget_timers(void) /* a child has none of them */
{
  ejb_timers_thread = 0;
  ejb_timers_of_threads = NULL;
  pthread_mutex_init(&ejb_timers_lock, NULL);
}

/* With the lock held. Returns whether there is the thread that waits. */
static int ejb_begin_waiting(void)
{
  static int told;
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  if (ejb_timers_thread)
    return 1;
  if (!told)
    told = pthread_atfork(NULL, NULL, ejb_forget_timers) == 0;
  sem_init(&ejb_timers_ready, 0, 0);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&thread, &attributes, ejb_wait_for_timers, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  while (!failed && sem_wait(&ejb_timers_ready) != 0)
    ;
  return !failed;
}

int timer_create(clockid_t clock, struct sigevent *event, timer_t *id)
{
  EJB_NEXT(timer_create);
  if (!event || event->sigev_notify != SIGEV_THREAD)
    return real(clock, event, id);
  ejb_timer *one = calloc(1, sizeof *one);
  struct sigevent sent = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = EJB_TIMER_SIGNAL };
  if (!one)
    return -1;
  one->function = event->sigev_notify_function;
  one->value = event->sigev_value;
  if (event->sigev_notify_attributes)
    one->attributes = *(pthread_attr_t *)event->sigev_notify_attributes;
  else
    pthread_attr_init(&one->attributes);
  pthread_attr_setdetachstate(&one->attributes, PTHREAD_CREATE_DETACHED);
  pthread_mutex_lock(&ejb_timers_lock);
  int failed = -1;
  if (ejb_begin_waiting()) {
    sent._sigev_un._tid = ejb_timers_thread;
    sent.sigev_value.sival_ptr = one;
    failed = real(clock, &sent, id);
  } else {
    errno = EAGAIN;
  }
  if (!failed) {
    one->id = *id;
    one->next = ejb_timers_of_threads;
    ejb_timers_of_threads = one;
  } else {
    free(one);
  }
  pthread_mutex_unlock(&ejb_timers_lock);
  return failed;
}

int timer_delete(timer_t id)
{
  EJB_NEXT(timer_delete);
  pthread_mutex_lock(&ejb_timers_lock);
  for (ejb_timer **at = &ejb_timers_of_threads; *at; at = &(*at)->next)
    if ((*at)->id == id) {
      ejb_timer *gone = *at;
      *at = gone->next;
      free(gone);
      break;
    }
  pthread_mutex_unlock(&ejb_timers_lock);
  return real(id);
}

/* -- the environment ------------------------------------------------------------------------------------------------- */

/* DMTCP takes its settings from the environment, and ends a program that has emptied it and starts another (`env -i`). */
static char **ejb_kept;

static int ejb_is_dmtcps(const char *entry)
{
  return strncmp(entry, "DMTCP_", 6) == 0 || strncmp(entry, "JALIB_", 6) == 0;
}

static void ejb_restore_environment(void)
{
  char name[64];
  for (char **entry = ejb_kept; entry && *entry; entry++) {
    const size_t length = strcspn(*entry, "=");
    if (length >= sizeof name)
      continue;
    memcpy(name, *entry, length);
    name[length] = 0;
    if (!getenv(name))
      putenv(*entry);
  }
}

int execve(const char *path, char *const argv[], char *const envp[])
{
  EJB_NEXT(execve);
  ejb_restore_environment();
  return real(path, argv, envp);
}

int execv(const char *path, char *const argv[])
{
  EJB_NEXT(execv);
  ejb_restore_environment();
  return real(path, argv);
}

int execvp(const char *file, char *const argv[])
{
  EJB_NEXT(execvp);
  ejb_restore_environment();
  return real(file, argv);
}

int execvpe(const char *file, char *const argv[], char *const envp[])
{
  EJB_NEXT(execvpe);
  ejb_restore_environment();
  return real(file, argv, envp);
}

__attribute__((constructor)) static void ejb_keep_environment(void)
{
  extern char **environ;
  size_t count = 0, kept = 0;
  while (environ && environ[count])
    count++;
  ejb_kept = calloc(count + 1, sizeof *ejb_kept);
  for (size_t i = 0; ejb_kept && i < count; i++)
    if (ejb_is_dmtcps(environ[i]))
      ejb_kept[kept++] = strdup(environ[i]);
}

/* -- the checkpoint signal -------------------------------------------------------------------------------------------- */

/* DMTCP keeps the number of the signal that programs may not have at the first call that has to do with signals. Where
 * errno is set then it takes the ordinary one, while it checkpoints by the one that was asked for. */
static void ejb_name_signal(void)
{
  static int named;
  if (__atomic_exchange_n(&named, 1, __ATOMIC_RELAXED))
    return;
  int (*real)(int, const sigset_t *, sigset_t *) = dlsym(RTLD_NEXT, "sigprocmask");
  const int error = errno;
  sigset_t none;
  sigemptyset(&none);
  errno = 0;
  real(SIG_BLOCK, &none, NULL);
  errno = error;
}

int sigaction(int number, const struct sigaction *to, struct sigaction *from)
{
  EJB_NEXT(sigaction);
  ejb_name_signal();
  return real(number, to, from);
}

__sighandler_t signal(int number, __sighandler_t handler)
{
  EJB_NEXT(signal);
  ejb_name_signal();
  return real(number, handler);
}

int sigprocmask(int how, const sigset_t *to, sigset_t *from)
{
  EJB_NEXT(sigprocmask);
  ejb_name_signal();
  return real(how, to, from);
}

int pthread_sigmask(int how, const sigset_t *to, sigset_t *from)
{
  EJB_NEXT(pthread_sigmask);
  ejb_name_signal();
  return real(how, to, from);
}
