"""The one way from a view of the cluster to what a policy may use, and from a length to the walltime that is asked for.

`windows` makes a queue's staircase of slots from a view, `claims` takes from it what others are about to take, `slots`
leaves out what no plan may count on, and `walltimes` says what is asked for. The manager's decisions, a dry run, the
simulator and `ejb sim live` go this way; those of it that the simulator needs in its loop are kernels.

What the site has reserved (`ejbd.core.view.SiteReservation`) is a fall of the staircase, as a planned start is. Where
more is to enter: memory is a second bound of what a node has free, in `windows.windows`.
"""
