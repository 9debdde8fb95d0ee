/* A rank of a ring over TCP that holds memory: ring MEGABYTES FOLDER. A token goes round, a millisecond a rank, and every
 * rank touches a page at each visit. It ends with 0 when FOLDER/end appears and with 3 if the token was not what it
 * should be. Ranks find each other by files in EJB_RENDEZVOUS. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int transfer(int fd, long *value, int out)
{
  size_t done = 0;
  while (done < sizeof *value) {
    ssize_t n = out ? write(fd, (char *)value + done, sizeof *value - done) : read(fd, (char *)value + done, sizeof *value - done);
    if (n <= 0)
      return 0;
    done += n;
  }
  return 1;
}

int main(int argc, char **argv)
{
  int rank = atoi(getenv("EJB_RANK")), size = atoi(getenv("EJB_SIZE"));
  size_t bytes = strtoul(argv[1], NULL, 10) << 20;
  char path[4096], fresh[4200], end[4096];
  unsigned *memory = malloc(bytes), seed = 12345 + rank;
  for (size_t i = 0; i < bytes / sizeof *memory; i++)
    memory[i] = seed = seed * 1664525u + 1013904223u; /* nothing that could be compressed or shared */
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = { .sin_family = AF_INET };
  socklen_t length = sizeof address;
  inet_pton(AF_INET, getenv("EJB_ADDRESS"), &address.sin_addr);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 8))
    return 4;
  getsockname(listener, (struct sockaddr *)&address, &length);
  snprintf(path, sizeof path, "%s/%d", getenv("EJB_RENDEZVOUS"), rank);
  snprintf(fresh, sizeof fresh, "%s.new", path);
  FILE *file = fopen(fresh, "w");
  fwrite(&address, sizeof address, 1, file);
  fclose(file);
  rename(fresh, path);
  snprintf(path, sizeof path, "%s/%d", getenv("EJB_RENDEZVOUS"), (rank + 1) % size);
  while (access(path, R_OK))
    usleep(20000);
  file = fopen(path, "r");
  if (fread(&address, sizeof address, 1, file) != 1)
    return 5;
  fclose(file);
  int right = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(right, (struct sockaddr *)&address, sizeof address))
    return 6;
  int left = accept(listener, NULL, NULL);
  close(listener);
  snprintf(end, sizeof end, "%s/end", argv[2]);
  printf("rank %d is in the ring\n", rank);
  fflush(stdout);
  for (long lap = 0;; lap++) {
    long token = access(end, F_OK) == 0 ? -1 : lap * size;
    if (rank == 0 && !transfer(right, &token, 1))
      return 7;
    if (!transfer(left, &token, 0))
      return 8;
    long due = lap * size + (rank == 0 ? size - 1 : rank - 1);
    if (token != -1 && token != due)
      return 3;
    memory[(lap * 1024) % (bytes / sizeof *memory)]++;
    usleep(1000);
    long next = token == -1 ? -1 : token + 1;
    if (rank != 0 && !transfer(right, &next, 1))
      return 9;
    if (token == -1)
      break;
  }
  return 0;
}
