"""The job scripts: a subjob's, which starts a worker on each of its nodes, and the body of an ordinary job's."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ejbd.batch.base import LIMITS, WorkerScript
from ejbd.batch.starter import BEGINS_ALONE, alone_words, end_at_once, worker_words

# Runs once a node, with the worker's command as arguments. The processors that the job was given on this node are
# word number SLURM_NODEID of SLURM_JOB_CPUS_PER_NODE, `4(x2),2` for 4, 4 and 2. The step's own counts would be those
# of its one task.
_ON_NODE = r"""
left=$SLURM_NODEID processors=
IFS=,
for group in $SLURM_JOB_CPUS_PER_NODE; do
    times=1
    case $group in *"(x"*) times=${group##*x}; times=${times%\)} ;; esac
    if [ "$left" -lt "$times" ]; then processors=${group%%\(*}; break; fi
    left=$((left - times))
done
unset IFS
if [ -z "$processors" ]; then
    echo "ejb: node $SLURM_NODEID is not in SLURM_JOB_CPUS_PER_NODE=$SLURM_JOB_CPUS_PER_NODE" >&2
    exit 70
fi
exec "$@" --node "${SLURMD_NODENAME:-$(hostname)}" --processors "$processors"
"""

# TERM comes to this shell at a time limit and at a cancellation, and not where Slurm only warns of an end (preemption
# with a GraceTime, `scancel --signal`). Then it signals the steps alone. So it is this shell that says which it is. The
# shell waits in `wait`, not in srun itself, so that it hears a TERM at once; srun passes signals on to the workers.
# SLURM_* of the job that shape a step are unset for the workers. They would give the one worker of a node a part of it
# only. Where the workers leave since no manager answers, the job's own script takes their place (docs/guarantees.md).
_SUBJOB = r"""#!/bin/sh
{unblock}
exit_file={exit_file}
{find_srun}
ending=$exit_file.ending
finish() {{
    printf '%s\n' "$1" > "$exit_file.tmp.$$" && mv -f "$exit_file.tmp.$$" "$exit_file"
    exit "$1"
}}
ended=
trap 'ended=143; : > "$ending"; [ -z "${{step:-}}" ] || kill -TERM "$step" 2>/dev/null' TERM
trap 'ended=130; : > "$ending"; [ -z "${{step:-}}" ] || kill -TERM "$step" 2>/dev/null' INT
{end_at_once}
nodes=$SLURM_JOB_NUM_NODES
to_its_end() {{
    [ -z "$ended" ] || kill -TERM "$step" 2>/dev/null
    while :; do
        wait "$step"
        code=$?
        # A signal ends `wait`, not the step.
        kill -0 "$step" 2>/dev/null || break
    done
}}
{at_once}(
    [ -z "${{SLURM_STEP_ID:-}}" ] || export EJB_BATCH_STEP_ID="$SLURM_STEP_ID"
    unset SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_CORE SLURM_TASKS_PER_NODE SLURM_DISTRIBUTION
    unset SLURM_GPUS SLURM_GPUS_PER_TASK SLURM_GPUS_PER_SOCKET SLURM_NTASKS_PER_GPU SLURM_CPUS_PER_GPU SLURM_NTASKS
    unset SLURM_MEM_PER_GPU SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_THREADS_PER_CORE SLURM_HINT SLURM_EXACT
    unset SLURM_CPU_BIND
    exec "$srun" --quiet --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --overcommit --export=ALL \
        --cpu-bind=none --mem=0 --kill-on-bad-exit=0 --wait=0 --input=none --job-name=ejb-workers \
        /bin/sh -c {on_node} ejb-worker {worker}
) &
step=$!
to_its_end
if [ "$code" = {alone_code} ] && [ -z "$ended" ]; then
    {alone} &
    step=$!
    to_its_end
fi
finish "${{ended:-$code}}"
"""


# Before the workers, for a job that they could do nothing for. The code alone may be the job's own.
_IF_SHORT = r"""if [ -e {begun} ] || {{ [ -s {mark} ] && [ ! -e {claim} ]; }}; then
{at_once}fi
"""
_AT_ONCE = r"""{alone} --at-once yes &
step=$!
to_its_end
if [ "$code" != {alone_code} ] || [ -n "$ended" ] || [ -e {begun} ]; then
    [ ! -w {told} ] || printf . > {told}
    finish "${{ended:-$code}}"
fi
"""

# slurmstepd of 25.05 starts some scripts with SIGCHLD blocked: dash waits for its children forever then. A shell cannot
# unblock a signal itself.
_UNBLOCK = r"""while read -r name mask; do
    case $name:$mask in
        SigBlk:*[13579bdf]????)
            python={python_at}
            [ -x "$python" ] || python={python}
            exec "$python" -I -S -c '
import os, signal, sys
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
os.execv("/bin/sh", ["sh", *sys.argv[1:]])' "$0" "$@" ;;
    esac
done </proc/self/status"""

# The user's PATH need not have the site's srun, and another version of it does not understand this Slurm.
_FIND_SRUN = """srun={path}
[ -x "$srun" ] || srun=srun"""

WORKERS_OWN_S = 7.0
"""Of the time between TERM and KILL: for the last of the output and the last reports."""


def worker_script(
    request: WorkerScript,
    kill_wait_s: float,
    limits: Sequence[str] = LIMITS,
    *,
    nice: bool = False,
    warns: bool = False,
    srun: str = "srun",
) -> str:
    """The script of a subjob: one worker a node; the exit code goes to `exit_file` by a rename, after TERM too.

    `kill_wait_s`: from TERM to KILL; the ranks have it but for what the worker needs. `limits` and `nice`: what srun
    hands on from a script to its ranks. `warns`: a TERM may come that is no end. `srun`: the daemon's own, by its path.
    """
    words = [*worker_words(request), "--ending", f"{request.exit_file}.ending"]
    words += ["--propagate", ",".join(limits) or "none", *(["--propagate-nice", "yes"] if nice else [])]
    words += ["--warns", "yes"] if warns else []
    if kill_wait_s > 2 * WORKERS_OWN_S:
        words += ["--grace-s", f"{kill_wait_s - WORKERS_OWN_S:g}"]
    alone = shlex.join(alone_words(request))
    python = {"python": shlex.quote(request.python), "python_at": shlex.quote(request.python_at)}
    return _SUBJOB.format(
        unblock=_UNBLOCK.format(**python),
        exit_file=shlex.quote(str(request.exit_file)),
        find_srun=_FIND_SRUN.format(path=shlex.quote(srun)),
        end_at_once=end_at_once(request, "finish"),
        on_node=shlex.quote(_ON_NODE),
        worker=shlex.join(words),
        alone_code=BEGINS_ALONE,
        alone=alone,
        at_once=_at_once(request, alone),
    )


def _at_once(request: WorkerScript, alone: str) -> str:
    """What comes before the workers."""
    begun, told, claim = (
        shlex.quote(str(path)) for path in (request.begun_file, request.told_file, request.claim_file)
    )
    lines = _AT_ONCE.format(alone=alone, alone_code=BEGINS_ALONE, begun=begun, told=told)
    if request.at_once:
        return lines
    if request.at_once_if is None:
        return ""
    return _IF_SHORT.format(begun=begun, mark=shlex.quote(str(request.at_once_if)), claim=claim, at_once=lines)


def rigid_command(argv: Sequence[str], processors: int, srun: str = "srun") -> str:
    """The body of an ordinary job's script. `srun`: as in worker_script. Raises ValueError where nothing is to run."""
    if not argv:
        raise ValueError("there is no command to run")
    # As many as the job was given tasks. Slurm passes nothing to a step of the processors that each of them is to have.
    find = _FIND_SRUN.format(path=shlex.quote(srun))
    return f'{find}\n"$srun" ${{SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"}} -- {shlex.join(argv)}'
