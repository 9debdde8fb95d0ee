/* A rank for tests: mpi_rank [steps] [how]. Every step a ring exchange and an allreduce, verified; then `how`:
 * abort (rank 1 calls MPI_Abort with 7), crash (rank 1 by SIGSEGV), leave (rank 1 ends with 0 and without Finalize). */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 20000

int main(int argc, char **argv)
{
  int rank, size, steps = argc > 1 ? atoi(argv[1]) : 3;
  const char *how = argc > 2 ? argv[2] : "";
  static int out[COUNT], in[COUNT];
  long bad = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int left = (rank + size - 1) % size;
  for (int step = 0; step < steps; step++) {
    long mine = rank + step, sum = 0;
    for (int i = 0; i < COUNT; i++)
      out[i] = step * 1000 + rank;
    MPI_Sendrecv(out, COUNT, MPI_INT, (rank + 1) % size, 0, in, COUNT, MPI_INT, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; i++)
      bad += in[i] != step * 1000 + left;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    bad += sum != (long)size * (size - 1) / 2 + (long)size * step;
    if (step % 10 == 0) {
      printf("rank %d of %d step %d\n", rank, size, step);
      fflush(stdout);
    }
    usleep(10000);
  }
  if (rank == 1 && !strcmp(how, "abort"))
    MPI_Abort(MPI_COMM_WORLD, 7);
  if (rank == 1 && !strcmp(how, "crash"))
    raise(SIGSEGV);
  if (rank == 1 && !strcmp(how, "leave"))
    _exit(0);
  if (*how)
    MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d of %d ends, bad %ld\n", rank, size, bad);
  fflush(stdout);
  MPI_Finalize();
  return bad ? 3 : 0;
}
