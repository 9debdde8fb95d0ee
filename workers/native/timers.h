/* Fault G of move.c: the interval timers of setitimer() do not come back at a restart. DMTCP's alarm plugin stops the real
 * one at every checkpoint and sets an alarm of whole seconds in its stead, once; the other two it does not know. */
#ifndef EJB_TIMERS_H
#define EJB_TIMERS_H

#include <stdbool.h>
#include <sys/time.h>

#include "dmtcp.h"

static struct itimerval ejb_timers[3];
static const int ejb_clocks[3] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF };

/* Before the threads are suspended, and so before the alarm plugin looks: it finds none, and sets none. */
static void ejb_hold_timers(void)
{
  static const struct itimerval none;
  setitimer(ITIMER_REAL, &none, &ejb_timers[0]);
}

static void ejb_read_timers(void)
{
  getitimer(ITIMER_VIRTUAL, &ejb_timers[1]);
  getitimer(ITIMER_PROF, &ejb_timers[2]);
}

static void ejb_set_timers(bool all)
{
  for (int which = 0; which < (all ? 3 : 1); which++) {
    struct itimerval *timer = &ejb_timers[which];
    if (!timerisset(&timer->it_value)) /* it had run out, and its signal was on the way */
      timer->it_value = timer->it_interval;
    if (timerisset(&timer->it_value))
      setitimer(ejb_clocks[which], timer, NULL);
  }
}

#endif
