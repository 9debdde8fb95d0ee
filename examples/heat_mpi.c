/* The heat equation on a square plate, by MPI. It knows nothing of EJB, of checkpoints, or of being moved.
 *
 *     mpicc -O2 -o heat_mpi heat_mpi.c
 *     heat_mpi STEPS RESULT [SIZE [PAUSE_MS]]
 *
 * Each rank owns a block of rows and swaps its edge rows with its neighbours each step. RESULT is written at the end, every
 * number in hexadecimal: it is the same to the last bit for any number of ranks, wherever they ran. Every 100 steps each
 * rank prints a line. PAUSE_MS: sleep so long each step, to make a small plate last. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *room(size_t cells)
{
  void *found = calloc(cells, sizeof(double));
  if (!found)
    MPI_Abort(MPI_COMM_WORLD, 2);
  return found;
}

int main(int argc, char **argv)
{
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 3) {
    if (rank == 0)
      fprintf(stderr, "use: heat_mpi STEPS RESULT [SIZE [PAUSE_MS]]\n");
    MPI_Finalize();
    return 2;
  }
  int steps = atoi(argv[1]), size = argc > 3 ? atoi(argv[3]) : 64, pause_ms = argc > 4 ? atoi(argv[4]) : 0;
  int first = (int)((long)size * rank / ranks), rows = (int)((long)size * (rank + 1) / ranks) - first;
  int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;

  /* One row more at either end: the neighbours', or the rim of the plate. The rim above is hot. */
  double *now = room((size_t)(rows + 2) * size), *next = room((size_t)(rows + 2) * size);
  if (rank == 0)
    for (int column = 0; column < size; column++)
      now[column] = next[column] = 100.0;

  for (int step = 1; step <= steps; step++) {
    MPI_Sendrecv(now + size, size, MPI_DOUBLE, up, 0, now + (size_t)(rows + 1) * size, size, MPI_DOUBLE, down, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(now + (size_t)rows * size, size, MPI_DOUBLE, down, 1, now, size, MPI_DOUBLE, up, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    double mine = 0.0, largest = 0.0;
    for (int row = 1; row <= rows; row++)
      for (int column = 1; column < size - 1; column++) {
        size_t at = (size_t)row * size + column;
        next[at] = 0.25 * (now[at - size] + now[at + size] + now[at - 1] + now[at + 1]);
        double change = next[at] > now[at] ? next[at] - now[at] : now[at] - next[at];
        mine = change > mine ? change : mine;
      }
    double *swap = now;
    now = next;
    next = swap;
    if (step % 100 == 0) {
      MPI_Allreduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      printf("rank %d step %d change %a\n", rank, step, largest);
      fflush(stdout);
    }
    if (pause_ms)
      usleep(1000 * (useconds_t)pause_ms);
  }

  int failed = 0;
  if (rank == 0) {
    FILE *file = fopen(argv[2], "w");
    double *row = room(size);
    for (int from = 0; file && from < ranks; from++)
      for (int at = (int)((long)size * from / ranks); at < (int)((long)size * (from + 1) / ranks); at++) {
        if (from == 0)
          memcpy(row, now + (size_t)(at + 1) * size, size * sizeof(double));
        else
          MPI_Recv(row, size, MPI_DOUBLE, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int column = 0; column < size; column++)
          fprintf(file, "%a%c", row[column], column == size - 1 ? '\n' : ' ');
      }
    failed = !file || fclose(file);
    free(row);
    if (failed)
      perror(argv[2]);
    if (failed && !file)
      MPI_Abort(MPI_COMM_WORLD, 2); /* the others are waiting to send */
  } else {
    for (int row = 1; row <= rows; row++)
      MPI_Send(now + (size_t)row * size, size, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
  }
  free(now);
  free(next);
  MPI_Finalize();
  return failed;
}
