/* One test of HPCC by itself, timed from its beginning to its end: one hpl|ptrans|randomaccess|fft [TIMES]. Linked with
 * HPCC's own sources (all but src/hpcc.c); hpccinf.txt is in the working directory. */
#include <hpcc.h>

int main(int argc, char **argv)
{
  static HPCC_Params params;
  int rank, times = argc > 2 ? atoi(argv[2]) : 1;
  const char *name = argv[1];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (HPCC_Init(&params))
    MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  double begun = MPI_Wtime();
  for (int i = 0; i < times; i++) {
    if (!strcmp(name, "hpl"))
      HPL_main(argc, argv, &params.HPLrdata, &params.Failure);
    else if (!strcmp(name, "ptrans"))
      PTRANS(&params);
    else if (!strcmp(name, "randomaccess"))
      HPCC_MPIRandomAccess(&params);
    else if (!strcmp(name, "fft"))
      HPCC_MPIFFT(&params);
    else
      MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = MPI_Wtime() - begun;
  if (rank == 0) {
    double of = !strcmp(name, "fft") ? (double)params.MPIFFT_N
                : !strcmp(name, "randomaccess") ? (double)params.MPIRandomAccess_N
                                                : params.HPLrdata.N;
    printf("seconds %.6f size %.0f failed %d\n", seconds, of, params.Failure);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
