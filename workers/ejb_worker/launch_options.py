"""The options of srun, mpirun and mpiexec: what they mean here, which do no harm; with others EJB holds no launch.

The one place that knows. By it the shims read the command lines that a script comes to. The daemon reads those that
stand in a script's text, before the job is taken. So it imports nothing of ours.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

# srun, the names by which MPICH and Open MPI install their launchers (their options are the same under each). Then
# PBS's own, which starts a program once for each line of the nodefile.
LAUNCHERS = (
    "srun",
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpirun.openmpi",
    "mpiexec.openmpi",
    "orterun",
    "pbsdsh",
)


class Usage(Exception):
    """One sentence for the user."""


class Mistake(Usage):
    """What the launcher itself would refuse as well: the script ends as it would have without EJB."""


class _Unreadable(Exception):
    """A word of a script's text stands for something that only its run will show."""


class Request:
    """A launch as it was asked for. `size` None: as many ranks as the job has. `env`: of the ranks.

    `threads`: processors for each rank (None: as the job has it); `spread`: ranks are spread over nodes; `together`:
    a rank that fails ends the others. `told`: variables of the batch system that the ranks have otherwise than a step
    of the job does (None: they do not have it). `reader`: what reads the launcher's standard input: `all` ranks,
    `none`, a rank's number, or a file's name instead of it. `time`: how long it may run, as srun has it ("": not said).
    `even`: a launch of fewer ranks than there are places for has some on each node. `dealt`: how many ranks each node
    gets in turn, until all have a place (0: neighbours stay together). `propagate`: the resource limits that the ranks
    have of the launcher, as srun has it (None: not said).
    """

    __slots__ = (
        *("argv", "cwd", "dealt", "env", "even", "propagate", "reader", "size", "spread", "threads", "time"),
        *("together", "told"),
    )

    def __init__(
        self,
        argv: List[str],
        cwd: str,
        env: Dict[str, str],
        found: _Found,
        reader: str,
        together: bool,
        told: Dict[str, Optional[str]],
    ) -> None:
        self.size = found.size()
        self.threads = found.threads
        self.spread = found.spread
        self.time = found.time
        self.dealt = found.dealt
        self.even = found.even
        self.propagate = found.propagate
        self.reader = reader
        self.together = together
        self.argv = argv
        self.cwd = cwd
        self.env = env
        self.told = told


class _Options:
    """`values`: option -> meaning; `ignored`: option -> number of words it takes; `refused`: option -> why."""

    def __init__(self, values: Dict[str, str], ignored: Dict[str, int], refused: Dict[str, str]) -> None:
        self.values = values
        self.ignored = ignored
        self.refused = refused


_LABELS = "labels on the ranks' lines are not supported"
_MPMD = "several programs in one launch (MPMD) are not supported"
_WHERE = "EJB places the ranks itself"
_DEVICES = "which devices a rank sees is the batch system's to say"
_AROUND = "the batch system runs programs around the ranks"


def _words(count: int, names: str) -> Dict[str, int]:
    return dict.fromkeys(names.split(), count)


def _refused(names: str, why: str) -> Dict[str, str]:
    return dict.fromkeys(names.split(), why)


_TOGETHER = ("-K", "-K0", "-K1", "--kill-on-bad-exit")
_PROPAGATE = "--propagate"
_OF_A_STEP = ("SLURM_", "SPANK_", "EJB_")
"""What a rank has whatever srun's `--export` says."""
_SRUN = _Options(
    values={
        "-n": "size",
        "--ntasks": "size",
        "-N": "nodes",
        "--nodes": "nodes",
        "--ntasks-per-node": "per-node",
        "--tasks-per-node": "per-node",
        "-c": "threads",
        "--cpus-per-task": "threads",
        "-D": "cwd",
        "--chdir": "cwd",
        "--export": "export",
        "-i": "input",
        "--input": "input",
        "-t": "time",
        "--time": "time",
        "-m": "distribution",
        "--distribution": "distribution",
        "-J": "name",
        "--job-name": "name",
        "--cpu-bind": "binding",
        "--cpu_bind": "binding",
        "--mem-bind": "binding",
        "--mem_bind": "binding",
    },
    ignored={
        **_words(
            1,
            "--mpi --mem --mem-per-cpu --hint -p --partition -A --account -q --qos --wckey "
            "--threads-per-core --ntasks-per-core --ntasks-per-socket --sockets-per-node --cores-per-socket "
            "--profile --switches --slurmd-debug --comment --reservation",
        ),
        **_words(
            0,
            "--exclusive --overlap --exact -O --overcommit -s --oversubscribe -u --unbuffered -v --verbose -vv -vvv "
            "-Q --quiet -X --disable-status --contiguous --whole",
        ),
        # A value comes only in the same word.
        **_words(0, " ".join(_TOGETHER)),
        **_words(0, _PROPAGATE),
    },
    refused={
        "-l": _LABELS,
        "--label": _LABELS,
        "--multi-prog": _MPMD,
        "--het-group": _MPMD,
        "--pty": "a terminal cannot move with the ranks",
        "-w": _WHERE,
        "--nodelist": _WHERE,
        "-x": _WHERE,
        "--exclude": _WHERE,
        "-r": _WHERE,
        "--relative": _WHERE,
        "-C": _WHERE,
        "--constraint": _WHERE,
        "-W": "ranks run to their own end, whenever others have ended",
        "--wait": "ranks run to their own end, whenever others have ended",
        "-k": "where a node is lost all ranks begin anew",
        "--no-kill": "where a node is lost all ranks begin anew",
        "-E": "ranks are told of their launch, not of the job",
        "--preserve-env": "ranks are told of their launch, not of the job",
        "--network": "what ranks talk over is the batch system's to say",
        **_refused("-G --gpus --gres --gpu-bind --gpus-per-task --gpus-per-node --accel-bind", _DEVICES),
        **_refused("--gpus-per-socket --ntasks-per-gpu --tres-per-task --tres-bind", _DEVICES),
        **_refused("--prolog --epilog --task-prolog --task-epilog", _AROUND),
        "-o": "redirect the command's output with > instead",
        "--output": "redirect the command's output with > instead",
        "-e": "redirect the command's errors with 2> instead",
        "--error": "redirect the command's errors with 2> instead",
    },
)

_SRUNS_VARIABLES = {
    "SLURM_DISTRIBUTION": "--distribution",
    "SLURM_EPILOG": "--epilog",
    "SLURM_GPUS_PER_TASK": "--gpus-per-task",
    "SLURM_GPU_BIND": "--gpu-bind",
    "SLURM_LABELIO": "--label",
    "SLURM_MULTI_PROG": "--multi-prog",
    "SLURM_NO_KILL": "--no-kill",
    "SLURM_NTASKS": "--ntasks",
    "SLURM_PROLOG": "--prolog",
    "SLURM_STDERRMODE": "--error",
    "SLURM_STDINMODE": "--input",
    "SLURM_STDOUTMODE": "--output",
    "SLURM_STEP_GRES": "--gres",
    "SLURM_TASK_EPILOG": "--task-epilog",
    "SLURM_TASK_PROLOG": "--task-prolog",
    "SLURM_WAIT": "--wait",
    "SLURM_WORKING_DIR": "--chdir",
    "SRUN_CPUS_PER_TASK": "--cpus-per-task",
}
"""Variables by which srun itself takes options; what is on the command line counts before them."""

_MPI = _Options(
    values={
        "-n": "size",
        "-np": "size",
        "--np": "size",
        "--n": "size",
        "-c": "size",
        "-ppn": "per-node",
        "-perhost": "per-node",
        "-npernode": "per-node",
        "--npernode": "per-node",
        "-N": "per-node",
        "-wdir": "cwd",
        "--wdir": "cwd",
        "-wd": "cwd",
        "-x": "variable",
        "-genv": "pair",
        "-env": "pair",
        "--map-by": "mapping",
        "-map-by": "mapping",
        "--rank-by": "mapping",
        "-rank-by": "mapping",
        "--stdin": "input",
        "-stdin": "input",
    },
    ignored={
        **_words(
            1,
            "--bind-to -bind-to --hostfile -hostfile --machinefile -machinefile -f --host -host -H -hosts --hosts "
            "-launcher -bootstrap -rmk -iface --report-uri --cpu-set --cpu-list --prefix --tune -binding --launcher",
        ),
        **_words(2, "--mca -mca --gmca -gmca --prtemca --pmixmca"),
        **_words(
            0,
            "--oversubscribe -oversubscribe --nooversubscribe --use-hwthread-cpus --report-bindings -report-bindings "
            "--allow-run-as-root --display-map --display-allocation --bind-to-core --bind-to-socket --bycore "
            "--byslot -q --quiet -v --verbose -genvall -envall --noprefix",
        ),
    },
    refused={
        "-l": _LABELS,
        "-prepend-rank": _LABELS,
        "--prepend-rank": _LABELS,
        "--tag-output": _LABELS,
        "-tag-output": _LABELS,
        "--app": _MPMD,
        "-configfile": _MPMD,
        "--configfile": _MPMD,
        "--output-filename": "redirect the command's output with > instead",
        "--timeout": "use the command timeout instead",
        **_refused("--bynode --nolocal --rankfile -rf", _WHERE),
        **_refused("-genvlist -envlist -genvnone", "the ranks get all of the script's environment"),
    },
)


_PBSDSH = _Options(
    values={"-c": "size"},
    ignored=_words(0, "-o -s -v"),
    refused={
        "-n": _WHERE,
        "-h": _WHERE,
        "-u": "one rank a node is no launch of a job with ranks that move",
        "-e": "the ranks have the environment of the script",
    },
)


_REFUSED_FLAGS = frozenset(
    _words(0, "-l --label --multi-prog --pty -k --no-kill -E --preserve-env --bynode --nolocal -genvnone")
)


def arity(name: str, option: str) -> int:
    """How many words an option takes beside its own; none where it is not known."""
    options = _options_of(name)
    if option in options.values:
        return 2 if options.values[option] == "pair" else 1
    return options.ignored.get(option, int(option in options.refused and option not in _REFUSED_FLAGS))


def _options_of(name: str) -> _Options:
    return {"srun": _SRUN, "pbsdsh": _PBSDSH}.get(name, _MPI)


def parse(name: str, words: List[str], environ: Mapping[str, str]) -> Request:
    """What the command line asks for. Raises Usage."""
    options = _options_of(name)
    found, argv = _split(name, options, [*(_said_by(environ) if name == "srun" else ()), *words])
    if not argv:
        raise Mistake("no program was given")
    if ":" in argv:
        raise Usage(_MPMD)
    cwd = os.path.join(os.getcwd(), found.cwd) if found.cwd else os.getcwd()
    reader = found.reader or {"srun": "all", "pbsdsh": "none"}.get(name, "0")  # as they have it themselves
    together = found.together
    if together is None:  # as they have it themselves
        together = name not in ("srun", "pbsdsh") or environ.get("SLURM_KILL_BAD_EXIT", "0") not in ("", "0")
    told = _told(name, found, environ)
    env = found.env(environ) if name != "srun" else _exported(found.export or environ.get("SLURM_EXPORT_ENV"), environ)
    request = Request(_resolve(argv, cwd, environ), cwd, env, found, reader, together, told)
    request.even = request.even and name == "srun"  # an mpirun fills one node after the other
    return request


def _said_by(environ: Mapping[str, str]) -> List[str]:
    """The options that variables stand for. Slurm's own of a plane has its size in another one."""
    said = {option: environ[name] for name, option in _SRUNS_VARIABLES.items() if environ.get(name)}
    if said.get("--distribution") == "plane":
        said["--distribution"] += "=" + environ.get("SLURM_DIST_PLANESIZE", "1")
    return ["%s=%s" % one for one in said.items()]


def _exported(said: Optional[str], environ: Mapping[str, str]) -> Dict[str, str]:
    """What srun gives to its ranks by its `--export` (None: all)."""
    words = ["ALL"] if said is None else said.split(",")
    given = {name: value for name, equals, value in (word.partition("=") for word in words) if name and equals}
    if any(word.upper() == "ALL" for word in words):
        return {**given, **environ}  # a value does not count where the script has one
    if any(word.upper() in ("NONE", "NIL") for word in words):
        given, words = {}, []
    named = {name: value for name, value in environ.items() if name in words or name.startswith(_OF_A_STEP)}
    return {**named, **given}


def _told(name: str, found: _Found, environ: Mapping[str, str]) -> Dict[str, Optional[str]]:
    """As the launchers were seen to have it. srun passes its own -c to its ranks, and mpiexec leaves the number of
    tasks as the script has it. By that the master of a pool counts the workers that it may spawn.
    """
    if name == "srun":
        told: Dict[str, Optional[str]] = dict(found.told, **found.told_layout())
        if found.threads is not None:
            told["SLURM_CPUS_PER_TASK"] = str(found.threads)
        return told
    return {} if name == "pbsdsh" else {one: environ.get(one) for one in ("SLURM_NTASKS", "SLURM_NPROCS")}


def objection(name: str, words: Sequence[str], processors: int) -> str:
    """Why a launch that stands so in a script's text would be refused, or "" where nothing speaks against it.

    A word with a `$` or a backquote stands for something that the text does not show: it is not judged.
    """
    try:
        found, argv = _split(name, _options_of(name), list(words), in_text=True)
        size = found.size()
    except Usage as problem:
        return str(problem)
    except _Unreadable:
        return ""
    if ":" in argv:
        return _MPMD
    threads = found.threads or 1
    if size is not None and size * threads > processors:
        each = " of %d processors" % threads if threads > 1 else ""
        return "%d ranks%s are asked for, but the job has %d processors" % (size, each, processors)
    return ""


def program(name: str, words: Sequence[str]) -> List[str]:
    """The program and its arguments of a launch that stands so in a script's text; empty where that does not show."""
    try:
        return _split(name, _options_of(name), list(words), in_text=True)[1]
    except (Usage, _Unreadable):
        return []


def shape(name: str, words: Sequence[str]) -> Optional[Tuple[Optional[int], str]]:
    """The ranks (None: not said) and the time ("": not said) of a launch in a script's text; None: they do not show."""
    try:
        found, argv = _split(name, _options_of(name), list(words), in_text=True)
        size = found.size()
    except (Usage, _Unreadable):
        return None
    if any(is_unreadable(word) for word in words[: len(words) - len(argv)]):
        return None
    return size, found.time


def read_distribution(option: str, value: str) -> Tuple[int, Dict[str, str]]:
    """How many ranks each node gets in turn (0: neighbours stay together), and the variables that say so, of `block`,
    `cyclic` or `plane=N`. What stands behind these is about the sockets and cores of a node. Raises Usage."""
    text, comma, pack = value.lower().partition(",")
    first, colon, rest = text.partition(":")
    first, equals, size = ("block" if first == "*" else first).partition("=")
    dealt = _number(option, size) if first == "plane" else {"block": 0, "cyclic": 1}.get(first, -1)
    if dealt < 0 or pack not in ("", "nopack"):
        raise Usage("%s=%s: %s" % (option, value, _WHERE))
    told = {"SLURM_DISTRIBUTION": first + colon + rest + comma + pack}
    return dealt, dict(told, SLURM_DIST_PLANESIZE=size) if equals else told


def is_unreadable(word: str) -> bool:
    """Whether a word of a script's text holds an expansion."""
    return "$" in word or "`" in word


class _Found:
    def __init__(self) -> None:
        self.cwd = ""
        self.reader = ""
        self.time = ""
        self.together: Optional[bool] = None  # a rank that fails ends the others
        self.told: Dict[str, str] = {}
        self.dealt = 0
        self.export: Optional[str] = None
        self.propagate: Optional[str] = None
        self._numbers: Dict[str, int] = {}
        self._variables: List[Tuple[str, Optional[str]]] = []

    def take(self, option: str, meaning: str, value: str) -> None:
        if meaning == "cwd":
            self.cwd = value
        elif meaning == "input":
            self.reader = "none" if value == os.devnull else value
        elif meaning == "time":
            self.time = value
        elif meaning == "distribution":
            self.dealt, told = read_distribution(option, value)
            self.told.update(told)
        elif meaning == "mapping":
            if value.startswith("node"):
                raise Usage("%s %s: %s" % (option, value, _WHERE))
        elif meaning == "name":
            self.told["SLURM_JOB_NAME"] = value
        elif meaning == "binding":
            if "map_" in value or "mask_" in value:
                raise Usage("%s=%s: processors by their numbers are not the ranks' wherever they run" % (option, value))
        elif meaning == "export":
            self.export = value
        elif meaning == "variable":
            name, equals, content = value.partition("=")
            self._variables.append((name, content if equals else None))
        else:
            self._numbers[meaning] = _number(option, value)

    def take_pair(self, name: str, value: str) -> None:
        self._variables.append((name, value))

    def env(self, environ: Mapping[str, str]) -> Dict[str, str]:
        """The script's; variables with a value are set, and the ranks get named ones anyway."""
        return {**environ, **{name: value for name, value in self._variables if value is not None}}

    @property
    def threads(self) -> Optional[int]:
        return self._numbers.get("threads")

    @property
    def spread(self) -> bool:
        """Whether the ranks are to be on several nodes, or on all that the job has."""
        return self._numbers.get("nodes", 1) > 1 or "per-node" in self._numbers

    def told_layout(self) -> Dict[str, str]:
        """A number of ranks a node, as long as srun keeps to it: it has to be that of the ranks on the nodes."""
        nodes, each = self._numbers.get("nodes"), self._numbers.get("per-node")
        kept = nodes is not None and each is not None and self.size() == nodes * each
        return {"SLURM_NTASKS_PER_NODE": str(each)} if kept else {}

    @property
    def even(self) -> bool:
        return self._numbers.get("nodes", 2) > 1

    def size(self) -> Optional[int]:
        """-n; else nodes x ranks a node; else the job's."""
        if "size" in self._numbers:
            return self._numbers["size"]
        if "nodes" in self._numbers and "per-node" in self._numbers:
            return self._numbers["nodes"] * self._numbers["per-node"]
        return None


def _split(name: str, options: _Options, words: List[str], in_text: bool = False) -> Tuple[_Found, List[str]]:
    found = _Found()
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        option, value = _attached(options, word)
        if option in options.refused:
            raise Usage("%s: %s" % (option, options.refused[option]))
        if option in options.values:
            if options.values[option] == "pair":
                found.take_pair(_next(option, rest), _next(option, rest))
            else:
                value = _next(option, rest) if value is None else value
                if not (in_text and is_unreadable(value)):
                    found.take(option, options.values[option], value)
        elif option in options.ignored:
            if option in _TOGETHER:
                found.together = option != "-K0" and value != "0"
            if option == _PROPAGATE:
                found.propagate = value or "all"
            for _ in range(options.ignored[option] - (value is not None)):
                _next(option, rest)
        elif in_text and is_unreadable(word):
            raise _Unreadable(word)
        else:
            raise Usage("option %s is not known to EJB's %s" % (word, name))
    return found, rest


def _attached(options: _Options, word: str) -> Tuple[str, Optional[str]]:
    """The option and the value that is in the same word: `--name=value`, or `-n4`."""
    known = set(options.values) | set(options.ignored) | set(options.refused)
    if word in known:
        return word, None
    option, equals, value = word.partition("=")
    if equals and option in known:
        return option, value
    short = word[:2]
    if not word.startswith("--") and short in known and (options.values.get(short) or options.ignored.get(short)):
        meaning = options.values.get(short)
        if meaning in (None, "cwd") or word[2:].isdigit():
            return short, word[2:]
    return word, None


def _next(option: str, rest: List[str]) -> str:
    if not rest:
        raise Mistake("%s needs a value" % option)
    return rest.pop(0)


def _number(option: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) < 1:
        raise Mistake("%s needs a whole number of at least 1, not %s" % (option, value or "nothing"))
    return int(value)


def _resolve(argv: List[str], cwd: str, environ: Mapping[str, str]) -> List[str]:
    """As the real launchers do, a bare name that PATH does not know is looked for in the working directory."""
    program = argv[0]
    if os.sep in program:
        return argv
    import shutil  # here: the worker reads this module's names too, and a launch by a path is sooner without it

    if shutil.which(program, path=environ.get("PATH")):
        return argv
    here = os.path.join(cwd, program)
    if os.path.isfile(here) and os.access(here, os.X_OK):
        return [here, *argv[1:]]
    raise Mistake("program %s was not found" % program)
