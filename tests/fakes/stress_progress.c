/* The progress library under threads, signals and fork, compiled into one program with it for the sanitizers. Every
 * result is checked; the exit code names what is wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 3000
#define BYTES 20000

int ucp_worker_create(void *context, const void *params, void **made);
void ucp_worker_destroy(void *worker);
unsigned ucp_worker_progress(void *worker);
unsigned long fake_calls(void *worker);
int MPI_Test(void *request, int *flag, void *status);
int MPI_Finalize(void);
extern int fake_finalize_fd;

static void fail(int code, const char *what)
{
  fprintf(stderr, "%s: errno %d\n", what, errno);
  _exit(code);
}

static void on_alarm(int signum)
{
  (void)signum;
}

static void *makes_progress(void *worker)
{
  unsigned done = 0;
  int flag = 0, asked = 0;
  for (int i = 0; i < ROUNDS; i++)
    done += ucp_worker_progress(worker);
  for (int i = 0; i < ROUNDS; i++) {
    MPI_Test(worker, &flag, NULL);
    asked += flag;
  }
  if (done != ROUNDS / 100 || asked != ROUNDS / 100)
    fail(11, "progress was told wrongly");
  return NULL;
}

/* A program's own polls and reads: they are what they are without the library, interrupted by signals too. */
static void *reads(void *unused)
{
  int ends[2], epfd = epoll_create1(0);
  (void)unused;
  if (epfd < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    fail(12, "no sockets");
  struct epoll_event wanted = { .events = EPOLLIN }, found;
  epoll_ctl(epfd, EPOLL_CTL_ADD, ends[0], &wanted);
  for (int i = 0; i < BYTES; i++) {
    char sent = (char)i, got = 0;
    if (i % 100 == 0 && epoll_wait(epfd, &found, 1, 0) != 0)
      fail(13, "something came from nowhere");
    if (write(ends[1], &sent, 1) != 1)
      fail(14, "cannot write");
    int ready;
    while ((ready = epoll_wait(epfd, &found, 1, -1)) < 0 && errno == EINTR)
      ;
    ssize_t size;
    while ((size = read(ends[0], &got, 1)) < 0 && errno == EINTR)
      ;
    if (ready != 1 || size != 1 || got != sent)
      fail(15, "a byte was lost");
  }
  close(ends[0]);
  close(ends[1]);
  close(epfd);
  return NULL;
}

/* Children read what their parent writes, while other threads are anywhere. */
static void *forks(void *unused)
{
  (void)unused;
  for (int i = 0; i < 20; i++) {
    int ends[2], status = 0;
    char byte = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
      fail(16, "no sockets");
    pid_t child = fork();
    if (child == 0) {
      ssize_t size;
      while ((size = read(ends[0], &byte, 1)) < 0 && errno == EINTR)
        ;
      _exit(size == 1 && byte == 'y' ? 0 : 1);
    }
    usleep(1000);
    if (child < 0 || write(ends[1], "y", 1) != 1)
      fail(17, "cannot fork");
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      fail(18, "a child went wrong");
    close(ends[0]);
    close(ends[1]);
  }
  return NULL;
}

typedef struct {
  void *worker;
  int fd;
} peer;

/* Answers once the other side has made progress: what UCX's flush needs. */
static void *answers(void *given)
{
  peer *one = given;
  unsigned long before = fake_calls(one->worker);
  for (int i = 0; i < 30000 && fake_calls(one->worker) < before + 200; i++)
    usleep(1000);
  if (fake_calls(one->worker) < before + 200)
    fail(19, "MPI_Finalize makes no progress");
  if (write(one->fd, "x", 1) != 1)
    fail(20, "cannot answer");
  return NULL;
}

int main(void)
{
  pthread_t threads[5];
  void *workers[2];
  int ends[2];
  struct sigaction action = { .sa_handler = on_alarm }; /* no SA_RESTART: whoever waits is interrupted */
  sigaction(SIGALRM, &action, NULL);
  struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 2; i++)
    ucp_worker_create(NULL, NULL, &workers[i]);
  for (int i = 0; i < 300; i++) /* alone, so that it may wait, and is interrupted */
    ucp_worker_progress(workers[0]);
  pthread_create(&threads[0], NULL, makes_progress, workers[0]);
  pthread_create(&threads[1], NULL, makes_progress, workers[1]);
  pthread_create(&threads[2], NULL, reads, NULL);
  pthread_create(&threads[3], NULL, forks, NULL);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    fail(12, "no sockets");
  fake_finalize_fd = ends[0];
  peer other = { workers[0], ends[1] };
  pthread_create(&threads[3], NULL, answers, &other);
  pthread_create(&threads[4], NULL, reads, NULL); /* of the program's own, while another thread finalizes */
  if (MPI_Finalize() != 0)
    fail(22, "MPI_Finalize has read something else");
  pthread_join(threads[3], NULL);
  pthread_join(threads[4], NULL);
  for (int i = 0; i < 2; i++)
    ucp_worker_destroy(workers[i]);
  close(ends[0]);
  close(ends[1]);
  puts("right");
  return 0;
}
