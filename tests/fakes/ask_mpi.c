/* Two ranks that ask COUNT times whether a message has come, which none has; prints how many polls waited meanwhile, by
 * the counts of count_polls.c: ask_mpi COUNT. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long waited(void)
{
  char path[4096];
  long counts[3] = { 0, 0, 0 };
  snprintf(path, sizeof path, "%s/%d", getenv("COUNT_POLLS"), (int)getpid());
  FILE *file = fopen(path, "rb");
  if (!file || fread(counts, sizeof counts, 1, file) != 1)
    return -1;
  fclose(file);
  return counts[1];
}

int main(int argc, char **argv)
{
  int rank, flag, in, out = 1;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Sendrecv(&out, 1, MPI_INT, 1 - rank, 0, &in, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Irecv(&in, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &request);
  long before = waited();
  for (int i = 0; i < atoi(argv[1]); i++) {
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    MPI_Iprobe(1 - rank, 2, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
  printf("waited %ld\n", before < 0 ? -1 : waited() - before);
  MPI_Send(&out, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}
