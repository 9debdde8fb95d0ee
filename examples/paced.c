/* A parallel program that can be moved and costs the machine next to nothing: its ranks hold their (virtual) processors
 * by sleeping, and meet after every step. cc -O2 -o paced paced.c
 *
 *     paced --steps N [--pace 250ms] [--result FILE] [--patience 60s]     one rank; EJB or srun starts them all
 *     paced --steps N --expect RANKS                                      the result that so many ranks must have
 *
 * A step is `pace` of a processor's time for each rank, so that d ranks on one processor take d times as long, and all
 * wait for the slowest. Every rank's value goes into every other's next one: a rank that was lost, or that went on from
 * another step than the others, changes the result. Ranks talk to rank 0 over TCP (machines of one kind).
 *
 * Checkpoints are as in heat.py: on SIGUSR1 all ranks write their state (file, sync, name) to EJB_CHECKPOINT_DIR and end
 * with 85, or none does; with EJB_RESTART_DIR they go on from there. A rank stops within its step, at once, and what it
 * has had of the step is kept. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CHECKPOINTED 85
#define TELLING_S 2.0 /* progress is reported so often at most */
#define AGAIN_US 20000 /* a signal may come just before a wait begins: the wait is interrupted again and again */
#define MAGIC UINT64_C(0x65b1f00d50414345)

/* What ranks say: the first four to rank 0, the others by it. */
enum { HELLO = 1, DONE, SAVED, NAMED, GO, NAME_IT, LEAVE, GO_ON, END };

typedef struct {
  uint32_t what, rank;
  int64_t step; /* HELLO: the number of ranks; SAVED, NAMED: whether that went well; END: the exit code */
  uint64_t value; /* HELLO: the word that only these ranks know */
} message;

/* What a checkpoint keeps. `had_ns`: of this step's processor time; `done`: all of it, and rank 0 is to be told. */
typedef struct {
  uint64_t magic, ranks, steps;
  int64_t step, had_ns;
  uint64_t done, value, common, sum;
} state;

typedef struct {
  int fd;
  int64_t done; /* the last step that it has told to be done */
  int told; /* of the checkpoint: 0, SAVED or NAMED */
  bool good;
} peer;

static volatile sig_atomic_t asked;
static char processor[256], processor_file[PATH_MAX];
static int rank, size, lock_fd = -1, epoll_fd = -1, root = -1;
static int64_t steps = 500, pace_ns = 250000000;
static double patience_s = 60.0;
static state mine;
static peer *peers; /* of rank 0: by rank */
static const char *result_file, *checkpoint_dir, *progress_file;
static bool saved; /* between SAVED and what rank 0 makes of it */

static void ask(int signum)
{
  struct itimerval often = { { 0, AGAIN_US }, { 0, AGAIN_US } };
  if (signum == SIGUSR1) {
    asked = 1;
    setitimer(ITIMER_REAL, &often, NULL);
  }
}

static void answered(void)
{
  static const struct itimerval never;
  setitimer(ITIMER_REAL, &never, NULL);
  asked = 0;
}

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
  va_list words;
  va_start(words, format);
  fprintf(stderr, "paced: rank %d: ", rank);
  vfprintf(stderr, format, words);
  fputc('\n', stderr);
  va_end(words);
  exit(1);
}

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
  uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

static void say(int fd, uint32_t what, int64_t step, uint64_t value)
{
  message one = { what, (uint32_t)rank, step, value };
  const char *at = (const char *)&one;
  size_t left = sizeof one;
  while (left) {
    ssize_t sent = send(fd, at, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR)
      fail("another rank cannot be reached: %s", strerror(errno));
    if (sent > 0)
      at += sent, left -= (size_t)sent;
  }
}

/* One message that has begun to come. */
static message hear(int fd)
{
  message one;
  size_t had = 0;
  while (had < sizeof one) {
    ssize_t got = recv(fd, (char *)&one + had, sizeof one - had, MSG_WAITALL);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      fail("another rank does not answer");
    if (got <= 0)
      fail("another rank has gone");
    had += (size_t)got;
  }
  return one;
}

static void tell_all(uint32_t what, int64_t step, uint64_t value)
{
  for (int other = 1; other < size; other++)
    say(peers[other].fd, what, step, value);
}

/* -- the ranks meet ------------------------------------------------------------------------------------------------ */

static void prepare(int fd)
{
  int yes = 1;
  struct timeval limit = { (time_t)patience_s, (suseconds_t)((patience_s - (double)(time_t)patience_s) * 1e6) };
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* The first of two variables that says something, or NULL. */
static const char *told(const char *name, const char *other)
{
  const char *value = getenv(name);
  if (!value || !*value)
    value = getenv(other);
  return value && *value ? value : NULL;
}

/* Where rank 0 listens. srun, called on a job's first node, names that node, which is rank 0's as well. */
static const char *address(void)
{
  const char *given = told("EJB_ADDRESS", "SLURM_LAUNCH_NODE_IPADDR");
  return given ? given : "127.0.0.1";
}

static void gather(const char *folder)
{
  struct sockaddr_in here = { .sin_family = AF_INET };
  socklen_t length = sizeof here;
  char path[PATH_MAX], temporary[PATH_MAX + 8];
  uint64_t word = 0;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (random < 0 || read(random, &word, sizeof word) != (ssize_t)sizeof word)
    fail("/dev/urandom: %s", strerror(errno));
  close(random);
  if (inet_pton(AF_INET, address(), &here.sin_addr) != 1)
    fail("EJB_ADDRESS is no address: %s", address());
  if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) != 0 || listen(fd, size) != 0 ||
      getsockname(fd, (struct sockaddr *)&here, &length) != 0)
    fail("cannot listen on %s: %s", address(), strerror(errno));
  snprintf(path, sizeof path, "%s/rank-0", folder);
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  FILE *file = fopen(temporary, "w");
  if (!file || fprintf(file, "%s %d %" PRIx64 "\n", address(), ntohs(here.sin_port), word) < 0 || fclose(file) != 0 ||
      rename(temporary, path) != 0)
    fail("%s: %s", path, strerror(errno));
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  struct pollfd waiting = { fd, POLLIN, 0 };
  int64_t until = now_ns() + (int64_t)(patience_s * 1e9);
  for (int missing = size - 1; missing > 0;) {
    int left_ms = (int)((until - now_ns()) / 1000000);
    if (left_ms <= 0)
      fail("%d ranks have not come", missing);
    if (poll(&waiting, 1, left_ms) <= 0)
      continue;
    int other = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    if (other < 0)
      continue;
    prepare(other);
    message hello = hear(other);
    if (hello.what != HELLO || hello.value != word || hello.step != size || hello.rank < 1 ||
        hello.rank >= (uint32_t)size || peers[hello.rank].fd >= 0) {
      close(other);
      continue;
    }
    struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = hello.rank };
    peers[hello.rank].fd = other;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, other, &wanted);
    missing--;
  }
  close(fd);
}

static void join(const char *folder)
{
  char path[PATH_MAX], host[64] = "";
  int port = 0;
  uint64_t word = 0;
  snprintf(path, sizeof path, "%s/rank-0", folder);
  int64_t until = now_ns() + (int64_t)(patience_s * 1e9), pause_ns = 1000000;
  for (;;) {
    FILE *file = fopen(path, "r");
    bool known = file && fscanf(file, "%63s %d %" SCNx64, host, &port, &word) == 3;
    if (file)
      fclose(file);
    if (known)
      break;
    if (now_ns() > until)
      fail("rank 0 has not come: %s", path);
    struct timespec pause = { 0, pause_ns };
    nanosleep(&pause, NULL);
    pause_ns = pause_ns < 30000000 ? pause_ns * 2 : pause_ns;
  }
  struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
  root = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  prepare(root);
  if (inet_pton(AF_INET, host, &there.sin_addr) != 1)
    fail("rank 0 cannot be reached: %s is no address", host);
  if (connect(root, (struct sockaddr *)&there, sizeof there) != 0) {
    struct pollfd connecting = { root, POLLOUT, 0 }; /* interrupted, it goes on */
    int error = errno;
    socklen_t length = sizeof error;
    if (error == EINTR)
      while (poll(&connecting, 1, -1) < 0 && errno == EINTR)
        ;
    if (error == EINTR)
      getsockopt(root, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
      fail("rank 0 cannot be reached: %s", strerror(error));
  }
  say(root, HELLO, size, word);
}

/* -- checkpoints --------------------------------------------------------------------------------------------------- */

static uint64_t sum_of(const state *of)
{
  uint64_t sum = MAGIC;
  const uint64_t *word = (const uint64_t *)of;
  for (size_t i = 0; i < offsetof(state, sum) / sizeof *word; i++)
    sum = mix(sum, word[i]);
  return sum;
}

static void restore(const char *folder)
{
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/rank-%d.ckpt", folder, rank);
  FILE *file = fopen(path, "rb");
  if (!file || fread(&mine, sizeof mine, 1, file) != 1)
    fail("the checkpoint %s cannot be read", path);
  fclose(file);
  if (mine.magic != MAGIC || mine.sum != sum_of(&mine))
    fail("the checkpoint %s is not whole", path);
  if (mine.ranks != (uint64_t)size || mine.steps != (uint64_t)steps)
    fail("the checkpoint %s is of %" PRIu64 " ranks and %" PRIu64 " steps", path, mine.ranks, mine.steps);
}

static const char *part(const char *suffix)
{
  static char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/rank-%d.ckpt%s", checkpoint_dir, rank, suffix);
  return path;
}

static bool write_state(void)
{
  mkdir(checkpoint_dir, 0700);
  mine.sum = sum_of(&mine);
  int fd = open(part(".tmp"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool good = fd >= 0 && write(fd, &mine, sizeof mine) == (ssize_t)sizeof mine && fdatasync(fd) == 0;
  if (fd >= 0 && close(fd) != 0)
    good = false;
  if (!good)
    fprintf(stderr, "paced: rank %d: no checkpoint at step %" PRId64 ", going on: %s: %s\n", rank, mine.step,
            part(".tmp"), strerror(errno));
  return good;
}

static bool name_state(void)
{
  char whole[PATH_MAX];
  snprintf(whole, sizeof whole, "%s", part(""));
  bool good = rename(part(".tmp"), whole) == 0;
  int fd = good ? open(checkpoint_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  good = good && fd >= 0 && fsync(fd) == 0;
  if (fd >= 0)
    close(fd);
  return good;
}

static void forget_state(void)
{
  unlink(part(".tmp"));
  unlink(part(""));
  saved = false;
}

__attribute__((noreturn)) static void leave(int code)
{
  signal(SIGUSR1, SIG_IGN); /* one that comes while the program ends must not kill */
  if (rank == 0 && lock_fd >= 0)
    close(lock_fd);
  exit(code);
}

/* -- rank 0 -------------------------------------------------------------------------------------------------------- */

static void note(const message *from)
{
  peer *other = &peers[from->rank];
  if (from->what == DONE && from->step < mine.step) /* it was told to go on, and did not get that far */
    say(other->fd, GO, mine.step, mine.common);
  else if (from->what == DONE && from->step == mine.step)
    other->done = from->step;
  else if (from->what == SAVED || from->what == NAMED)
    other->told = (int)from->what, other->good = from->step != 0;
  else
    fail("rank %" PRIu32 " is at step %" PRId64 ", rank 0 at %" PRId64, from->rank, from->step, mine.step);
}

/* What the others have said; waits for `limit_ms` at most (-1: until something comes or a signal). */
static void listen_to_all(int limit_ms, uint64_t *values)
{
  struct epoll_event found[64];
  int count = epoll_wait(epoll_fd, found, 64, limit_ms);
  if (count < 0 && errno != EINTR)
    fail("epoll_wait: %s", strerror(errno));
  for (int i = 0; i < count; i++) {
    message one = hear(peers[found[i].data.u32].fd);
    one.rank = found[i].data.u32;
    note(&one);
    if (one.what == DONE && one.step == mine.step)
      values[one.rank] = one.value;
  }
}

static bool all_told(int what, bool *good)
{
  for (int other = 1; other < size; other++) {
    if (peers[other].told != what)
      return false;
    *good = *good && peers[other].good;
  }
  return true;
}

/* Returns where there is no checkpoint. */
static void checkpoint_of_all(uint64_t *values)
{
  bool good = checkpoint_dir && write_state();
  while (!all_told(SAVED, &good))
    listen_to_all(-1, values);
  if (good) {
    tell_all(NAME_IT, 0, 0);
    good = name_state();
    while (!all_told(NAMED, &good))
      listen_to_all(-1, values);
  }
  for (int other = 1; other < size; other++)
    peers[other].told = 0;
  if (good) {
    tell_all(LEAVE, 0, 0);
    leave(CHECKPOINTED);
  }
  forget_state();
  tell_all(GO_ON, 0, 0);
  answered();
}

static void tell_progress(void)
{
  static int64_t next_ns;
  char temporary[PATH_MAX];
  if (!progress_file || now_ns() < next_ns)
    return;
  next_ns = now_ns() + (int64_t)(TELLING_S * 1e9);
  snprintf(temporary, sizeof temporary, "%s.tmp", progress_file);
  FILE *file = fopen(temporary, "w");
  if (!file)
    return; /* a full disk must not end what goes on */
  fprintf(file, "%" PRId64 " %" PRId64 "\n", mine.step, steps);
  if (fclose(file) == 0)
    rename(temporary, progress_file);
}

static void print_result(FILE *to, int ranks, uint64_t value)
{
  fprintf(to, "paced: %d ranks after %" PRId64 " steps: %016" PRIx64 "\n", ranks, steps, value);
}

static int finish(void)
{
  char temporary[PATH_MAX];
  print_result(stdout, size, mine.common);
  if (fflush(stdout) != 0 || !result_file)
    return 0;
  snprintf(temporary, sizeof temporary, "%s.tmp", result_file);
  FILE *file = fopen(temporary, "w");
  if (file)
    print_result(file, size, mine.common);
  bool good = file && fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (file && fclose(file) != 0)
    good = false;
  if (good && rename(temporary, result_file) == 0)
    return 0;
  fprintf(stderr, "paced: the result cannot be written: %s: %s\n", result_file, strerror(errno));
  return 1;
}

/* -- every rank ---------------------------------------------------------------------------------------------------- */

static void take_lock_file(const char *name)
{
  char path[PATH_MAX];
  const char *folder = getenv("EJB_PROCESSOR_DIR");
  if (!name || !*name)
    return;
  folder = folder && *folder ? folder : "/tmp";
  mkdir(folder, 0700);
  snprintf(path, sizeof path, "%s/%s.lock", folder, name);
  int before = lock_fd;
  lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0)
    fail("%s: %s", path, strerror(errno));
  if (before >= 0)
    close(before);
  snprintf(processor, sizeof processor, "%s", name);
}

/* The rank may be given another processor while it runs: the file says which it has now. */
static void look_for_processor(void)
{
  char name[sizeof processor];
  FILE *file = *processor_file ? fopen(processor_file, "r") : NULL;
  if (!file)
    return;
  if (fscanf(file, "%255s", name) == 1 && strcmp(name, processor) != 0)
    take_lock_file(name);
  fclose(file);
}

/* Hold the processor for what is left of this step. What a wake-up comes late counts for the next one. False: asked. */
static bool compute(void)
{
  while (mine.had_ns < pace_ns) {
    if (asked)
      return false;
    look_for_processor();
    if (lock_fd >= 0 && flock(lock_fd, LOCK_EX) != 0) {
      if (errno != EINTR)
        fail("the processor cannot be held: %s", strerror(errno));
      continue;
    }
    int64_t begin = now_ns(), until = begin + pace_ns - mine.had_ns;
    struct timespec end = { until / 1000000000, until % 1000000000 };
    while (!asked && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
      ;
    mine.had_ns += now_ns() - begin;
    if (lock_fd >= 0)
      flock(lock_fd, LOCK_UN);
  }
  mine.had_ns -= pace_ns;
  mine.had_ns = mine.had_ns < pace_ns ? mine.had_ns : pace_ns;
  mine.value = mix(mine.value ^ mine.common, (uint64_t)mine.step);
  mine.done = 1;
  return true;
}

static void go_on_from(int64_t step, uint64_t common)
{
  mine.step = step;
  mine.common = common;
  mine.done = 0;
}

/* -- the two kinds of rank ----------------------------------------------------------------------------------------- */

static uint64_t common_of(const uint64_t *values, int ranks)
{
  uint64_t common = 0;
  for (int i = 0; i < ranks; i++)
    common = mix(common, values[i]);
  return common;
}

__attribute__((noreturn)) static void lead(void)
{
  uint64_t *values = calloc((size_t)size, sizeof *values);
  if (!values)
    fail("no memory");
  while (mine.step < steps) {
    if (asked)
      checkpoint_of_all(values);
    if (!mine.done && !compute())
      continue;
    values[0] = mine.value;
    int missing = 0;
    for (int other = 1; other < size; other++)
      missing += peers[other].done != mine.step;
    if (missing) {
      listen_to_all(-1, values);
      continue;
    }
    go_on_from(mine.step + 1, common_of(values, size));
    if (mine.step < steps)
      tell_all(GO, mine.step, mine.common);
    tell_progress();
  }
  int code = finish();
  tell_all(END, code, 0);
  leave(code);
}

__attribute__((noreturn)) static void follow(void)
{
  if (mine.done)
    say(root, DONE, mine.step, mine.value);
  for (;;) {
    if (asked && !saved) {
      saved = true;
      say(root, SAVED, checkpoint_dir && write_state(), 0);
    }
    if (!mine.done && !saved) {
      if (compute())
        say(root, DONE, mine.step, mine.value);
      continue;
    }
    struct pollfd waiting = { root, POLLIN, 0 };
    if (poll(&waiting, 1, -1) <= 0)
      continue; /* a signal */
    message one = hear(root);
    switch (one.what) {
    case GO:
      if (one.step > mine.step)
        go_on_from(one.step, one.value);
      break;
    case NAME_IT:
      say(root, NAMED, name_state(), 0);
      break;
    case LEAVE:
      leave(CHECKPOINTED);
    case GO_ON:
      forget_state();
      answered();
      break;
    case END:
      if (saved)
        forget_state();
      leave((int)one.step);
    default:
      fail("rank 0 says what is not known");
    }
  }
}

static void expect(int ranks)
{
  uint64_t *values = calloc((size_t)ranks, sizeof *values), common = 0;
  if (!values)
    fail("no memory");
  for (int i = 0; i < ranks; i++)
    values[i] = mix(MAGIC, (uint64_t)i);
  for (int64_t step = 0; step < steps; step++) {
    for (int i = 0; i < ranks; i++)
      values[i] = mix(values[i] ^ common, (uint64_t)step);
    common = common_of(values, ranks);
  }
  print_result(stdout, ranks, common);
  free(values);
}

/* -- what is asked for --------------------------------------------------------------------------------------------- */

static int64_t natural(const char *name, const char *text)
{
  char *end = NULL;
  long long value = text ? strtoll(text, &end, 10) : 0;
  if (value <= 0 || *end)
    fail("%s: %s is not a whole number above 0", name, text ? text : "nothing");
  return value;
}

static double seconds(const char *name, const char *text)
{
  char *end = NULL;
  double value = text ? strtod(text, &end) : -1.0;
  if (text && !strcmp(end, "ms"))
    value /= 1000.0;
  else if (!text || (*end && strcmp(end, "s")))
    value = -1.0;
  if (!(value >= 0.0 && value < 1e6))
    fail("%s: %s is not a time such as 250ms or 0.5s", name, text ? text : "nothing");
  return value;
}

int main(int count, char **words)
{
  struct sigaction action = { .sa_handler = ask }; /* no SA_RESTART: a rank that waits is interrupted */
  sigaction(SIGALRM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
  const char *name = told("EJB_RANK", "SLURM_PROCID"), *number = told("EJB_SIZE", "SLURM_STEP_NUM_TASKS");
  const char *folder = getenv("EJB_RENDEZVOUS");
  rank = name ? atoi(name) : 0;
  size = number ? atoi(number) : 1;
  int expected = 0;
  for (int i = 1; i < count; i += 2) {
    const char *value = i + 1 < count ? words[i + 1] : NULL;
    if (!strcmp(words[i], "--steps"))
      steps = natural(words[i], value);
    else if (!strcmp(words[i], "--pace"))
      pace_ns = (int64_t)(seconds(words[i], value) * 1e9);
    else if (!strcmp(words[i], "--patience"))
      patience_s = seconds(words[i], value);
    else if (!strcmp(words[i], "--expect"))
      expected = (int)natural(words[i], value);
    else if (!strcmp(words[i], "--result") && value)
      result_file = value;
    else
      fail("%s is no option with a value", words[i]);
  }
  if (expected) {
    expect(expected);
    return 0;
  }
  if (size < 1 || rank < 0 || rank >= size || (size > 1 && !folder))
    fail("EJB_RANK, EJB_SIZE (or srun's) and EJB_RENDEZVOUS say which rank this is");
  double slowest_s = 4.0 * (double)pace_ns / 1e9 * size; /* a step where all share one processor, with room */
  patience_s = patience_s > slowest_s ? patience_s : slowest_s;
  checkpoint_dir = getenv("EJB_CHECKPOINT_DIR");
  progress_file = rank == 0 ? getenv("EJB_PROGRESS") : NULL;
  mine = (state){ .magic = MAGIC, .ranks = (uint64_t)size, .steps = (uint64_t)steps, .value = mix(MAGIC, (uint64_t)rank) };
  if (getenv("EJB_RESTART_DIR"))
    restore(getenv("EJB_RESTART_DIR"));
  take_lock_file(getenv("EJB_PROCESSOR"));
  if (getenv("EJB_PROCESSOR_FILE"))
    snprintf(processor_file, sizeof processor_file, "%s", getenv("EJB_PROCESSOR_FILE"));
  if (rank == 0) {
    peers = calloc((size_t)size, sizeof *peers);
    if (!peers)
      fail("no memory");
    for (int other = 0; other < size; other++)
      peers[other] = (peer){ .fd = -1, .done = -1 };
  }
  if (size > 1 && rank > 0)
    join(folder);
  else if (size > 1)
    gather(folder);
  if (rank == 0)
    lead();
  follow();
}
