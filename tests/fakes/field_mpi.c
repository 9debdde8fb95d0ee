/* A field that diffuses, for tests of engine `profile` under an MPI: FIELD CELLS STEPS MICROSECONDS_A_STEP.
 *
 * Every cell goes by its neighbours alone, so that the field is the same to the bit however it is cut. At SIGUSR1 all
 * ranks stop at the same step; rank 0 writes state.bin (a temporary file, fsync, rename), and all exit with 85. With
 * EJB_RESTART_DIR it goes on from there. At its end rank 0 writes result.txt: step, and a sum over the field's bits.
 */
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void hear(int number)
{
    (void)number;
    told = 1;
}

static void write_state(long step, const double *field, long cells)
{
    FILE *file = fopen("state.bin.tmp", "wb");
    if (file == NULL || fwrite(&step, sizeof step, 1, file) != 1 || fwrite(field, sizeof *field, cells, file) != (size_t)cells)
        MPI_Abort(MPI_COMM_WORLD, 3);
    fflush(file);
    fsync(fileno(file));
    fclose(file);
    rename("state.bin.tmp", "state.bin");
}

int main(int argc, char **argv)
{
    int rank, size, any, mine;
    long cells = argc > 1 ? atol(argv[1]) : 0, steps = argc > 2 ? atol(argv[2]) : 0, pause = argc > 3 ? atol(argv[3]) : 0;
    long step = 0, at;
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = hear;
    sigaction(SIGUSR1, &action, NULL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int counts[size], starts[size];
    for (int one = 0; one < size; one++) {
        starts[one] = (int)(cells * one / size);
        counts[one] = (int)(cells * (one + 1) / size) - starts[one];
    }
    long own = counts[rank];
    double *whole = calloc(cells, sizeof *whole), *now = calloc(own + 2, sizeof *now), *next = calloc(own + 2, sizeof *next);
    if (rank == 0) {
        for (at = 0; at < cells; at++)
            whole[at] = (double)((at * 7919) % 1013) / 1013.0;
        if (getenv("EJB_RESTART_DIR") != NULL) {
            FILE *file = fopen("state.bin", "rb");
            if (file == NULL || fread(&step, sizeof step, 1, file) != 1 || fread(whole, sizeof *whole, cells, file) != (size_t)cells)
                MPI_Abort(MPI_COMM_WORLD, 4);
            fclose(file);
        }
        printf("steps %ld\nfrom step %ld with %d ranks\n", steps, step, size);
        fflush(stdout);
    }
    MPI_Bcast(&step, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Scatterv(whole, counts, starts, MPI_DOUBLE, now + 1, (int)own, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    for (;; step++) {
        mine = told || step >= steps;
        MPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any)
            break;
        MPI_Sendrecv(now + 1, 1, MPI_DOUBLE, left, 0, now + own + 1, 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(now + own, 1, MPI_DOUBLE, right, 1, now, 1, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0)
            now[0] = now[1];
        if (rank == size - 1)
            now[own + 1] = now[own];
        for (at = 1; at <= own; at++)
            next[at] = now[at] + 0.25 * (now[at - 1] - 2.0 * now[at] + now[at + 1]);
        double *swap = now;
        now = next;
        next = swap;
        usleep((useconds_t)(pause / size));
        if (rank == 0 && (step + 1) % 10 == 0) {
            printf("step %ld\n", step + 1);
            fflush(stdout);
        }
    }
    MPI_Gatherv(now + 1, (int)own, MPI_DOUBLE, whole, counts, starts, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0 && step < steps) {
        write_state(step, whole, cells);
        printf("stopped after step %ld\n", step);
    } else if (rank == 0) {
        uint64_t sum = 1469598103934665603u;
        for (at = 0; at < cells; at++) {
            uint64_t bits;
            memcpy(&bits, whole + at, sizeof bits);
            sum = (sum ^ bits) * 1099511628211u;
        }
        FILE *file = fopen("result.txt", "w");
        if (file != NULL) {
            fprintf(file, "%ld %016llx\n", step, (unsigned long long)sum);
            fclose(file);
        }
        printf("done at step %ld\n", step);
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return step < steps ? 85 : 0;
}
