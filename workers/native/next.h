/* The next definition of a function that is interposed here. */
#ifndef EJB_NEXT_H
#define EJB_NEXT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>

/* Looked up once each, by whichever thread is first (all find the same). */
#define EJB_NEXT_NAMED(function, symbol) \
  static __typeof__(function) *ejb_found; \
  __typeof__(function) *real = __atomic_load_n(&ejb_found, __ATOMIC_RELAXED); \
  if (!real) { \
    real = (__typeof__(function) *)dlsym(RTLD_NEXT, symbol); \
    __atomic_store_n(&ejb_found, real, __ATOMIC_RELAXED); \
  }
#define EJB_NEXT(function) EJB_NEXT_NAMED(function, #function)

#endif
