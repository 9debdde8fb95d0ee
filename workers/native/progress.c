/* The yield and Finalize parts by themselves: LD_PRELOAD, no DMTCP. cc -shared -fPIC -O2 -o libejbprogress.so progress.c -ldl */
#include "progress.h"
