/* Jacobi sweeps over a square grid, cut into one band of rows a rank: jacobi N STEPS SWEEPS. Every step is SWEEPS local
 * sweeps, an exchange of the bands' edges with both neighbours and an allreduce of the largest change: the more sweeps,
 * the coarser the grain. The whole work is the same for every number of ranks. Rank 0 prints the seconds of the steps
 * and the last change (the same for every number of ranks where SWEEPS is 1). */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
  int rank, size, n = atoi(argv[1]), steps = atoi(argv[2]), sweeps = atoi(argv[3]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int rows = n / size + (rank < n % size), up = rank ? rank - 1 : MPI_PROC_NULL;
  int down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  double *old = calloc((size_t)(rows + 2) * n, sizeof *old), *new = calloc((size_t)(rows + 2) * n, sizeof *new), change = 0;
  if (rank == 0)
    for (int x = 0; x < n; x++)
      old[x] = new[x] = 1; /* the edge above the first band is warm */
  MPI_Barrier(MPI_COMM_WORLD);
  double begun = MPI_Wtime();
  for (int step = 0; step < steps; step++) {
    double mine = 0;
    for (int sweep = 0; sweep < sweeps; sweep++) {
      mine = 0;
      for (int y = 1; y <= rows; y++)
        for (int x = 1; x < n - 1; x++) {
          size_t i = (size_t)y * n + x;
          new[i] = 0.25 * (old[i - 1] + old[i + 1] + old[i - n] + old[i + n]);
          double d = fabs(new[i] - old[i]);
          mine = d > mine ? d : mine;
        }
      double *swap = old;
      old = new;
      new = swap;
    }
    MPI_Sendrecv(old + n, n, MPI_DOUBLE, up, 0, old + (size_t)(rows + 1) * n, n, MPI_DOUBLE, down, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(old + (size_t)rows * n, n, MPI_DOUBLE, down, 1, old, n, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 0)
      for (int x = 0; x < n; x++)
        old[x] = 1;
    MPI_Allreduce(&mine, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  double seconds = MPI_Wtime() - begun;
  if (rank == 0) {
    printf("seconds %.6f change %.12g\n", seconds, change);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
