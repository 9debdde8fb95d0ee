"""Speculative walltimes: from the law of an application's run times to the sequence of walltimes that is asked for.

After Gainaru et al., "Speculative Scheduling for Stochastic HPC Applications" (ICPP 2019), and their work on
checkpoints (IPDPS 2020). Times are seconds, unless a function says otherwise; nothing is read and no clock is asked.
docs/speculation.md tells what is taken from the papers and how.
"""
