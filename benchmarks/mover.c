/* A rank that costs a machine next to nothing, for benchmarks/move.py: it sleeps from step to step, writes 2 kB of state
 * on SIGUSR1 (write, fsync, rename) and ends with 85, and ends with 0 once the file `end` is there. When it begins and
 * when it stops stands in STAMPS/<epoch>.<rank>, by the machine's clock. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void ask(int signum) { (void)signum, asked = 1; }

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static const char *told(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "0";
}

static int save(void)
{
    char state[2048] = {0}, path[4096], whole[4096];
    snprintf(whole, sizeof whole, "%s/rank-%s.state", told("EJB_CHECKPOINT_DIR"), told("EJB_RANK"));
    snprintf(path, sizeof path, "%s.tmp", whole);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, state, sizeof state) != sizeof state || fsync(file) || close(file))
        return 0;
    return rename(path, whole) == 0;
}

int main(int argc, char **argv)
{
    struct timespec step = {0, 2000000};
    char path[4096];
    if (argc != 3)
        return fprintf(stderr, "usage: mover STAMPS END\n"), 2;
    signal(SIGUSR1, ask);
    double begun = now(), last = begun;
    int code = -1;
    for (int count = 0; code < 0; count++) {
        last = now();
        nanosleep(&step, NULL);
        if (asked)
            asked = 0, code = save() ? 85 : -1;
        else if (count % 10 == 0 && access(argv[2], F_OK) == 0)
            code = 0;
    }
    snprintf(path, sizeof path, "%s/%s.%s", argv[1], told("EJB_EPOCH"), told("EJB_RANK"));
    FILE *stamps = fopen(path, "w");
    if (stamps)
        fprintf(stamps, "%.6f %.6f %.6f\n", begun, last, now()), fclose(stamps);
    return code;
}
