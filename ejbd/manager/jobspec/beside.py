"""Work that a script does beside its launches, and that would stay where its shell lives, however wide the job is.

As with launches only the text is looked at. What is told is a doubt: a job that says elastic=on is believed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from ejbd._workers.ejb_worker.launch_options import LAUNCHERS
from ejbd._workers.ejb_worker.programs import is_assignment, skip_wrappers

LOOKING = frozenset(
    {
        *("hostname", "env", "printenv", "true", "false", "echo", "printf", "date", "uname", "uptime", "id", "whoami"),
        *("pwd", "ls", "df", "free", "nproc", "lscpu", "lstopo", "lstopo-no-graphics", "which", "type", "ulimit", ":"),
        *("nvidia-smi", "rocm-smi", "ibstat", "ibv_devinfo", "taskset", "numactl", "sinfo", "squeue", "scontrol"),
    }
)
"""Programs that tell something of a node, and do no work there."""
_TEXT = frozenset(
    {
        *(
            "sort",
            "uniq",
            "cat",
            "tac",
            "wc",
            "sed",
            "awk",
            "gawk",
            "grep",
            "egrep",
            "head",
            "tail",
            "tr",
            "cut",
            "paste",
        ),
        *(
            "tee",
            "nl",
            "xargs",
            "rm",
            "cp",
            "mv",
            "ln",
            "touch",
            "mkdir",
            "chmod",
            "test",
            "[",
            "[[",
            "read",
            "mapfile",
        ),
        *("readarray", "set", "unset", "shift", "let", "expr", "seq", "export", "readonly", "local", "declare"),
        *("typeset", "for", "case", "select", "return", "exit", "module", "ml", "source", ".", "basename", "dirname"),
    }
)
"""Commands through which a list of nodes may go without anything being started there."""
_LAYING_OUT = frozenset({"mkdir", "rmdir", "rm", "cp", "mv", "ln", "touch", "chmod", "test", "[", "sbcast", "rsync"})
"""Programs that make a node's folders ready for the work."""
_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_NEXT_COMMAND = re.compile(r"[;|\n]|&&")
_NOT_PLAIN = re.compile(r"[`(){}<>]|(?<!&)&(?!&)|\b(?:do|then|eval|exec)\b")
_REMOTE = frozenset({"ssh", "rsh", "pdsh", "clush", "pssh", "parallel-ssh", "dsh"})
_OWN_RANKS = frozenset(
    {
        *(
            "fluent",
            "starccm+",
            "ansys",
            "mapdl",
            "cfx5solve",
            "abaqus",
            "comsol",
            "horovodrun",
            "deepspeed",
            "torchrun",
        ),
        *("orca", "spark-submit", "dask-mpi", "hpcc_start"),
    }
)

_NODES = re.compile(r"\$\{?(?:SLURM_JOB_NODELIST|SLURM_NODELIST|SLURM_STEP_NODELIST|PBS_NODEFILE)\b")
_TELLS_NODES = re.compile(  # in a substitution
    rf"\bscontrol\s{{1,9}}show\s{{1,9}}host|(?:{'|'.join(map(re.escape, LAUNCHERS))})\s[^|;&)`]{{0,200}}\bhostname\b"
)
_COUNT = re.compile(
    r"\$\{?(?:SLURM_NTASKS|SLURM_NPROCS|SLURM_JOB_CPUS_PER_NODE|SLURM_CPUS_ON_NODE|SLURM_TASKS_PER_NODE|PBS_NP|NCPUS)\b"
)
_COUNTING = frozenset(
    {
        *(
            "-j",
            "-n",
            "-np",
            "-nt",
            "-t",
            "-p",
            "-c",
            "-@",
            "-P",
            "--jobs",
            "--threads",
            "--nthreads",
            "--procs",
            "--np",
        ),
        *("--nproc", "--nprocs", "--nproc_per_node", "--nproc-per-node", "--num_workers", "--num-workers", "--cores"),
        *("--cpus", "--processes", "--workers", "-cores", "-threads", "-nproc", "-nprocs", "cpus", "threads", "-procs"),
    }
)
"""Options by which a program is told how many processors it has."""
_VARIABLE = re.compile(r"\$\{?(\w+)")
_HERE = re.compile(r"(?:\$\(|`)\s*hostname\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\}?$")
"""A value that is the name or the address of the script's own node, and no more."""
_COUNTED = re.compile(r"\|\s*wc\b")
_STAYS = "so that this work would stay on one subjob"
_APART = re.compile(r"[=,:\s()`\"']+")


def only_looks(argv: Sequence[str]) -> bool:
    """Whether a program that is launched does no more than tell something of its node, or lay out files there."""
    words = without_wrappers(argv)
    if not words:
        return True  # `srun env`
    name = _base(words[0])
    if name in _SHELLS and (said := _said_to_a_shell(words)):
        commands = [part.split() for part in _NEXT_COMMAND.split(said)]
        return all(only_looks(command) for command in commands if command)
    if name == "numactl":
        return len(words) == 2 and words[1] in ("-s", "--show", "-H", "--hardware")
    if name == "taskset":
        return any(word.startswith("-") and "p" in word for word in words[1:2])
    return name in LOOKING or name in _LAYING_OUT


def is_parallel(command: Sequence[str]) -> bool:
    """Whether a command runs what it is told several times at once, as GNU parallel does, also by a variable."""
    name = _base(command[0]).lower() if command else ""
    if name == "xargs":
        return any(word.startswith(("-P", "--max-procs")) for word in command[1:])
    return "parallel" in name and name not in _REMOTE


def _said_to_a_shell(words: Sequence[str]) -> str:
    """What `bash -c` is to do, where that is plain: commands one after the other, without any shell's own words."""
    for at, word in enumerate(words[1:-1], 1):
        if not word.startswith("-"):
            break
        if word.endswith("c"):
            said = words[at + 1]
            return "" if _NOT_PLAIN.search(said) else said
    return ""


def without_wrappers(words: Sequence[str]) -> Sequence[str]:
    """The words from the command's own name on: without assignments and wrappers such as `nohup` or `env A=1`."""
    at = 0
    while at < len(words) and is_assignment(words[at]):
        at += 1
    own = words[at:]
    return own[skip_wrappers(own) :]


@dataclass(slots=True)
class Beside:
    """What is noticed from one command to the next. `why`: of the first line that works beside launches, or that has a
    launch go by the name of a node, as `MASTER_ADDR` does: its ranks may be placed on others.

    A list of the job's nodes is followed through files and variables, from the commands that tell it.
    """

    line: int = 0
    why: str = ""
    _files: set[str] = field(default_factory=set)
    _variables: set[str] = field(default_factory=set)
    _exported: set[str] = field(default_factory=set)  # of these
    _flows: bool = False  # what is piped into the next command tells of nodes

    def launch(self, line: int, command: Sequence[str], argv: Sequence[str], written: Sequence[str]) -> None:
        """A launch of `argv` by `command`. Its output goes into the files `written`."""
        words = without_wrappers(argv)
        self._flows = bool(words) and _base(words[0]) == "hostname"
        self._keep(written)
        if self.why or only_looks(argv):
            return
        given = [word for word in takewhile(is_assignment, command) if self._is_named(word.partition("=")[2])]
        if given or self._exported or any(map(self._names_nodes, argv)):
            name = min(self._exported, default="") or (given[0].partition("=")[0] if given else "")
            by = f"by `{name}`" if name else "in its words"
            self.line, self.why = (
                line,
                f"a launch is told names of the job's nodes {by}, and its ranks may go to others",
            )

    def command(self, line: int, words: Sequence[str], written: Sequence[str]) -> None:
        """A command that is no launch, with its assignments and wrappers."""
        for word in words:
            name, equals, value = word.partition("=")
            if equals and is_assignment(word) and self._is_named(value):
                self._variables.add(name.rstrip("+"))
        if words[:1] == ["export"] or words[:2] == ["declare", "-x"]:
            self._exported |= self._variables.intersection(word.partition("=")[0].rstrip("+") for word in words)
        if words[:1] == ["for"] and len(words) > 1 and any(map(self._lists_nodes, words[2:])):
            self._variables.add(words[1])
        command = without_wrappers(words)
        name = _base(command[0]) if command else ""
        told = any(map(self._names_nodes, command[1:]))
        if _TELLS_NODES.match(" ".join(command[:3])):
            self._flows = True
        elif name in _TEXT or name in LOOKING:
            self._flows = self._flows or told
            if name == "tee":
                self._keep(command[1:])
        else:
            self._flows = False
            self._judge(line, name, command, told)
        self._keep(written)

    def end_pipeline(self) -> None:
        self._flows = False

    def _judge(self, line: int, name: str, command: Sequence[str], told: bool) -> None:
        if self.why or not name:
            return
        if name in _REMOTE and any("$" in word for word in command[1:]):
            self.line, self.why = line, f"`{name}` starts work on nodes without a launch, {_STAYS}"
        elif told:
            self.line, self.why = (
                line,
                f"`{name}` is told the job's nodes, and would start work there without a launch, {_STAYS}",
            )
        elif name in _OWN_RANKS:
            self.line, self.why = line, f"`{name}` starts its processes itself, without a launch, {_STAYS}"
        elif _counts(command):
            self.line, self.why = (
                line,
                f"`{name}` is told how many processors the job has, and starts without a launch, {_STAYS}",
            )

    def _keep(self, files: Sequence[str]) -> None:
        if self._flows:
            self._files.update(_plain(file) for file in files)

    def _is_named(self, value: str) -> bool:
        """Whether a value holds a name of the job's nodes, and not only how many there are."""
        if _COUNTED.search(value) or value.startswith("${#"):
            return False
        return self._names_nodes(value) or bool(_TELLS_NODES.search(value) or _HERE.match(value))

    def _lists_nodes(self, word: str) -> bool:
        return self._names_nodes(word) or _TELLS_NODES.search(word) is not None

    def _names_nodes(self, word: str) -> bool:
        if _NODES.search(word) or self._variables.intersection(_VARIABLE.findall(word)):
            return True
        return bool(self._files) and not self._files.isdisjoint(_plain(part) for part in _APART.split(word))


def _counts(command: Sequence[str]) -> bool:
    for at, word in enumerate(command):
        if at and _COUNT.search(word):
            option = _COUNT.split(word, maxsplit=1)[0].rstrip('="')
            if option in _COUNTING or (not option and command[at - 1] in _COUNTING):
                return True
    return False


def _plain(word: str) -> str:
    return word.removeprefix("./")


def _base(word: str) -> str:
    return word.rpartition("/")[2]
