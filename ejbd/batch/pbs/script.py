"""The job scripts: what stands around every one, a subjob's, which starts a worker a node, and an ordinary job's body.

PBS begins a script in the user's home, with an environment of its own making, and delivers its output at its end. What
EJB submits therefore goes to its folder, sets what it was asked to set, and writes its output itself, as it comes.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from ejbd.batch.base import SubmitRequest, WorkerScript
from ejbd.batch.process import steers
from ejbd.batch.starter import end_at_once, worker_words

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_HEAD = r"""#!/bin/sh
cd -- {workdir} || exit 1
{umask}EJB_STDOUT={output} EJB_STDERR={error}
EJB_PBSDSH=$(command -v pbsdsh || {{
    conf=${{PBS_CONF_FILE:-/etc/pbs.conf}}
    if [ -r "$conf" ]; then . "$conf"; fi
    for each in "${{PBS_EXEC:+$PBS_EXEC/bin}}" {commands} /opt/pbs/bin /opt/torque/bin /usr/local/bin; do
        if [ -x "$each/pbsdsh" ]; then break; fi
    done
    echo "$each/pbsdsh"
}})
export EJB_STDOUT EJB_STDERR EJB_PBSDSH
: > "$EJB_STDOUT" && [ "$EJB_STDOUT" = "$EJB_STDERR" ] || : > "$EJB_STDERR"
exec >> "$EJB_STDOUT" 2>> "$EJB_STDERR" < /dev/null
"""

# The script is run from a file of its own, under the interpreter that its first line names.
_APART = r"""body=$(mktemp) || exit 1
trap 'rm -f "$body"' EXIT
trap 'ended=1' TERM INT
cat > "$body" <<'{mark}'
{script}
{mark}
chmod 700 "$body"
env {environment} "$body" {args} &
while :; do
    wait "$!"
    code=$?
    kill -0 "$!" 2>/dev/null || break
done
exit "$code"
"""


def whole_script(request: SubmitRequest, commands: Path = Path("/usr/bin")) -> str:
    """What is submitted: the request's script in its folder, with its environment, umask, output and arguments.

    `commands`: where PBS's are on this machine. pbsdsh may be there on the nodes, too, where their PATH lacks it: under
    Torque a login shell makes the job's.
    """
    environment = {name: value for name, value in request.environment.items() if _may_go_along(name)}
    environment |= _as_submitted(request)
    output = _path(request.output)
    head = _HEAD.format(
        workdir=shlex.quote(str(request.workdir)),
        umask="" if request.umask is None else f"umask {request.umask:04o}\n",
        output=output,
        error=output if request.error is None else _path(request.error),
        commands=shlex.quote(str(commands)),
    )
    first, _, rest = request.script.partition("\n")
    plain = first.split() == ["#!/bin/sh"] and not request.args and all(map(_IDENTIFIER.fullmatch, environment))
    if plain:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
        return f"{head}{exports}{rest}"
    return head + _APART.format(
        mark=f"EJB-{secrets.token_hex(16)}",
        script=request.script if request.script.startswith("#!") else f"#!/bin/sh\n{request.script}",
        environment=shlex.join(f"{name}={value}" for name, value in environment.items()),
        args=shlex.join(request.args),
    )


def _path(pattern: object) -> str:
    """A pattern as a word of the shell: %j is the job's number, and %S the server with a dot before it, as PBS has
    them. %% is a per cent sign.
    """
    parts = _SIGN.split(str(pattern))
    return "".join(_MEANT.get(part) or shlex.quote(part) for part in parts if part)


_SIGN = re.compile("(%[%jS])")
_MEANT = {"%j": '"${PBS_JOBID%%.*}"', "%S": '".${PBS_JOBID#*.}"', "%%": "%"}


def _may_go_along(name: str) -> bool:
    return bool(name) and "=" not in name and (not steers(name) or name.startswith("LC_") or name in _OF_PLACE)


_OF_PLACE = ("LANG", "LANGUAGE", "TZ")
_OF_SUBMITTER = ("HOME", "LANG", "LOGNAME", "MAIL", "PATH", "SHELL", "TZ")


def _as_submitted(request: SubmitRequest) -> dict[str, str]:
    """What qsub would have passed on about a passed-through job's submitter, and the name that they gave it."""
    asked = request.asked
    if asked is None:
        return {}
    found = {f"PBS_O_{name}": asked.environment[name] for name in _OF_SUBMITTER if name in asked.environment}
    return {**found, "PBS_O_WORKDIR": str(asked.directory), "PBS_JOBNAME": asked.job_name, **asked.element}


def worker_script(request: WorkerScript) -> str:
    """The script of a subjob: one worker a node; the exit code goes to `exit_file` by a rename, after TERM too.

    A worker on another node is a task of pbsdsh, started at the first line of the nodefile that names the node.
    """
    return _WORKERS.format(
        exit_file=shlex.quote(str(request.exit_file)),
        end_at_once=end_at_once(request, "finish"),
        worker=shlex.join(worker_words(request)),
        remote=shlex.quote(_REMOTE),
    )


_REMOTE = r"""
PATH=$1 HOME=$2 PBS_JOBID=$3 LANG=$4
export PATH HOME PBS_JOBID LANG
cd -- "$5" || exit 70
shift 5
exec "$@"
"""

# pbsdsh's own exit code is 0 whatever becomes of its task. The task's environment is nearly empty. The shell waits for
# all of them in `wait`, so that it gets a TERM at once. pbsdsh passes signals on, though OpenPBS's qdel has killed its
# task by then. PBS goes by the signal that ended a job's script: after a TERM it ends itself by one, once the
# exit file is written.
_WORKERS = r"""#!/bin/sh
exit_file={exit_file}
workers=
ended=
forward() {{
    ended=143
    for each in $workers; do kill -TERM "$each" 2>/dev/null; done
}}
trap forward TERM INT HUP
finish() {{
    printf '%s\n' "$1" > "$exit_file.tmp.$$" && mv -f "$exit_file.tmp.$$" "$exit_file"
    exit "$1"
}}
{end_at_once}
said=$exit_file.tasks.$$
mkdir -m 700 "$said" || exit 70
while read -r node processors line; do
    if [ "$line" = 0 ]; then
        {worker} --node "$node" --processors "$processors" &
    else
        # The descriptors are the script's own: it writes down what pbsdsh says of the task.
        "${{EJB_PBSDSH:-pbsdsh}}" -n "$line" -- /bin/sh -c {remote} ejb-worker \
            "$PATH" "$HOME" "$PBS_JOBID" "${{LANG:-C}}" "$PWD" \
            {worker} --node "$node" --processors "$processors" > "$said/$line" 2>&1 &
    fi
    workers="$workers $!"
done <<EJB_NODES
$(awk 'NF {{ if (!($1 in at)) {{ at[$1] = NR - 1; order[++n] = $1 }} count[$1]++ }}
    END {{ for (i = 1; i <= n; i++) print order[i], count[order[i]], at[order[i]] }}' "$PBS_NODEFILE")
EJB_NODES
[ -n "$workers" ] || {{ echo "ejb: no node is in PBS_NODEFILE=$PBS_NODEFILE" >&2; ended=70; }}
[ "$ended" != 143 ] || forward
greatest=0
for each in $workers; do
    while :; do
        wait "$each"
        code=$?
        # A signal ends `wait`, not the worker.
        kill -0 "$each" 2>/dev/null || break
    done
    [ "$code" -gt "$greatest" ] && greatest=$code
done
for each in "$said"/*; do
    [ -f "$each" ] || continue
    cat "$each"
    code=$(sed -n 's/.*exit status \([0-9][0-9]*\).*/\1/p' "$each" | tail -n 1)
    [ "${{code:-0}}" -gt "$greatest" ] && greatest=$code
done
rm -rf "$said"
[ "$greatest" -le 255 ] || greatest=$((128 + greatest % 128))
code=${{ended:-$greatest}}
printf '%s\n' "$code" > "$exit_file.tmp.$$" && mv -f "$exit_file.tmp.$$" "$exit_file"
if [ "$ended" = 143 ]; then
    trap - TERM
    kill -TERM $$
fi
exit "$code"
"""

# Each task adds to the job's own files, since what it says would end in PBS's. pbsdsh is the one that PBS's own PATH
# finds, whatever PATH the user has. Its exit code counts where it has reported no task.
_TASK = r"""
cd -- "$1" && PATH=$2 && HOME=$3 && PBS_JOBID=$4 || exit 70
export PATH HOME PBS_JOBID
exec >> "$5" 2>> "$6" < /dev/null
shift 6
exec "$@"
"""


def rigid_command(argv: Sequence[str], processors: int) -> str:
    """The body of an ordinary job's script: the command once a processor. Raises ValueError for no command."""
    if not argv:
        raise ValueError("there is no command to run")
    own = '"${EJB_STDOUT:-/dev/stdout}" "${EJB_STDERR:-/dev/stderr}"'
    return (
        f'said=$("${{EJB_PBSDSH:-pbsdsh}}" -- /bin/sh -c {shlex.quote(_TASK)} ejb-task '
        f'"$PWD" "$PATH" "$HOME" "$PBS_JOBID" {own} '
        f"{shlex.join(argv)} 2>&1) || ejb_own=$?\n"
        'ejb_code=$(printf "%s\\n" "$said" | sed -n "s/.*exit status \\([0-9]*\\).*/\\1/p" | sort -n | tail -n 1)\n'
        '[ -z "$said" ] || printf "%s\\n" "$said" >&2\n'
        "ejb_code=${ejb_code:-${ejb_own:-0}}\n"
        '(exit "$((ejb_code > 255 ? 128 + ejb_code % 128 : ejb_code))")'
    )
